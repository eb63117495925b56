//! Repeated runs of a request that needs webhook responses. A request runs until no call is
//! pending.

use crate::Deps;
use insula_access::Target;
use insula_api::{ClusterName, FieldSelector, Json, ResourceId, Scope};
use insula_catalog::{Error, Result, exports, ids, stored, webhook::PendingCalls};
use insula_store::{Entry, Snapshot};
use std::{borrow::Cow, future::Future, sync::Arc};

/// Maximum runs of one request. An update requests the old object, the new one, and the forms of
/// both that policies and owners read. Each attempt that loses to a concurrent write makes new
/// requests.
const RUNS_MAX: usize = 32;

impl Deps {
    /// Returns a target that can call conversion webhooks, or the same target if its API has none.
    pub fn asking<'t>(&self, target: &'t Target) -> Cow<'t, Target> {
        self.asking_if(target, target.served.api.webhook.is_some(), Deps::calls)
    }

    /// Returns a target for a watch, which shares webhook responses with other watches.
    pub fn asking_to_watch<'t>(&self, target: &'t Target) -> Cow<'t, Target> {
        self.asking_if(target, target.served.api.webhook.is_some(), Deps::calls_of_watch)
    }

    /// Returns a target for a write, which may also call admission webhooks.
    pub(crate) fn asking_to_write<'t>(&self, target: &'t Target) -> Cow<'t, Target> {
        let converts = target.served.api.webhook.is_some();
        let has_questions = converts || self.has_admission_webhooks(target);
        self.asking_if(target, has_questions, Deps::calls)
    }

    fn calls(&self) -> PendingCalls {
        PendingCalls::new(&*self.clock, self.rng.clone(), self.outbound.clone())
    }

    fn calls_of_watch(&self) -> PendingCalls {
        self.calls().sharing(self.answers.clone(), self.clock.clone())
    }

    fn has_admission_webhooks(&self, target: &Target) -> bool {
        let snapshot = self.store.latest();
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

    fn asking_if<'t>(
        &self,
        target: &'t Target,
        has_questions: bool,
        questions: impl FnOnce(&Deps) -> PendingCalls,
    ) -> Cow<'t, Target> {
        if !has_questions || target.served.questions.is_some() {
            return Cow::Borrowed(target);
        }
        let mut target = target.clone();
        target.served.questions = Some(Arc::new(questions(self)));
        Cow::Owned(target)
    }

    /// Runs a request until it has no pending calls. Fails after [`RUNS_MAX`] runs.
    pub(crate) async fn settled<T, F>(&self, target: &Target, run: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let Some(questions) = &target.served.questions else {
            return run().await;
        };
        for _ in 0..RUNS_MAX {
            questions.begin_run();
            let done = run().await;
            if !questions.answer(&target.cluster).await {
                return done;
            }
        }
        Err(Error::Webhook(
            format!("webhooks were asked {RUNS_MAX} times, and there was no end of it").into(),
        ))
    }

    /// Returns an object in the target's version, and calls its conversion webhook if it has one.
    ///
    /// # Errors
    /// The object cannot be converted, or its webhook failed.
    pub async fn show(&self, target: &Target, entry: &Entry) -> Result<Json> {
        let target = self.asking(target);
        learn(&target, std::iter::once(entry)).await;
        stored::value(&target.serving(&entry.key), entry, &target.version)
    }

    /// Prefetches the webhook responses that a field selector needs, if a webhook converts the
    /// objects.
    pub async fn prepare_to_select(&self, target: &Target, snapshot: &Snapshot, fields: &FieldSelector) {
        if target.served.questions.is_some() && looks_inside(fields) {
            let all = snapshot.range(&target.scope(), None, usize::MAX);
            learn(target, all.iter()).await;
        }
    }
}

/// Returns true if a selector reads fields other than metadata, which may differ between versions.
pub(crate) fn looks_inside(fields: &FieldSelector) -> bool {
    fields.terms.iter().any(|(field, ..)| !field.starts_with("metadata."))
}

/// Prefetches the webhook responses that reading objects in the target's version needs. Forgets
/// earlier responses first, because every read calls the webhook again. Only watches share
/// responses.
pub(crate) async fn learn<'e>(target: &Target, entries: impl Iterator<Item = &'e Entry>) {
    let Some(questions) = &target.served.questions else {
        return;
    };
    questions.forget();
    for entry in entries {
        // Other errors are reported when the object is read.
        drop(stored::value(&target.served, entry, &target.version));
    }
    questions.answer(&target.cluster).await;
}
