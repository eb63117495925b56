//! Runs of a request that needs webhook responses. A request runs until it has no pending calls.

use crate::deps::Deps;
use insula_access::Target;
use insula_api::{ClusterName, ResourceId, Scope};
use insula_catalog::{Error, Result, exports, ids, webhook::PendingCalls};
use std::{borrow::Cow, future::Future, sync::Arc};

/// Maximum runs of one request. An update requests the old object, the new one, and the forms of
/// both that policies and owners read. Each attempt that loses to a concurrent write makes new
/// requests.
const RUNS_MAX: usize = 32;

/// Returns a target that can call conversion webhooks, or the same target if its API has none.
pub fn attach<'t>(deps: &Deps, target: &'t Target) -> Cow<'t, Target> {
    attach_if(target.served.api.webhook.is_some(), target, || pending_calls(deps))
}

/// Returns a target for a watch, which shares webhook responses with other watches.
pub(crate) fn attach_shared<'t>(deps: &Deps, target: &'t Target) -> Cow<'t, Target> {
    attach_if(target.served.api.webhook.is_some(), target, || {
        pending_calls(deps).sharing(deps.responses.clone(), deps.clock.clone())
    })
}

/// Returns a target for a write, which may also call admission webhooks.
pub(crate) fn attach_for_write<'t>(deps: &Deps, target: &'t Target) -> Cow<'t, Target> {
    let has_webhooks = target.served.api.webhook.is_some() || has_admission_webhooks(deps, target);
    attach_if(has_webhooks, target, || pending_calls(deps))
}

fn attach_if(has_webhooks: bool, target: &Target, calls: impl FnOnce() -> PendingCalls) -> Cow<'_, Target> {
    if !has_webhooks || target.served.pending_calls.is_some() {
        return Cow::Borrowed(target);
    }
    let mut target = target.clone();
    target.served.pending_calls = Some(Arc::new(calls()));
    Cow::Owned(target)
}

fn pending_calls(deps: &Deps) -> PendingCalls {
    PendingCalls::new(&*deps.clock, deps.rng.clone(), deps.outbound.clone())
}

fn has_admission_webhooks(deps: &Deps, target: &Target) -> bool {
    let snapshot = deps.store.latest().charged_to(&target.served.meter);
    let kinds = [
        ids::validatingwebhookconfigurations(),
        ids::mutatingwebhookconfigurations(),
    ];
    let homes = exports::homes_of_hooks(&snapshot, &target.cluster, &target.served);
    let has = |home: &ClusterName, kind: &ResourceId| {
        let scope = Scope::cluster(kind.clone(), home.clone());
        !snapshot.range(&scope, None, 1).is_empty()
    };
    homes.iter().any(|home| kinds.iter().any(|kind| has(home, kind)))
}

/// Runs a request until it has no pending calls. Fails after [`RUNS_MAX`] runs.
pub(crate) async fn run_until_resolved<T, F>(target: &Target, run: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let Some(pending_calls) = &target.served.pending_calls else {
        return run().await;
    };
    for _ in 0..RUNS_MAX {
        pending_calls.begin_run();
        let done = run().await;
        if !pending_calls.answer(&target.cluster).await {
            return done;
        }
    }
    Err(Error::Webhook(
        format!("gave up after {RUNS_MAX} rounds of webhook calls").into(),
    ))
}
