//! Runs of a request that needs responses of webhooks: until no call is open.

use crate::Registry;
use insula_access::Target;
use insula_api::{ClusterName, FieldSelector, Json, ResourceId, Scope};
use insula_catalog::{Error, Result, exports, ids, stored, webhook::PendingCalls};
use insula_store::{Entry, Snapshot};
use std::{borrow::Cow, future::Future, sync::Arc};

/// Runs of one request. An update asks for the old object, the new one and what policies and owners
/// see of both; each attempt that somebody else was faster than asks anew.
const RUNS_MAX: usize = 32;

impl Registry {
    /// A target that can ask conversion webhooks; the same one where there is nobody to ask.
    pub fn asking<'t>(&self, target: &'t Target) -> Cow<'t, Target> {
        self.asking_if(target, target.served.api.webhook.is_some(), Registry::calls)
    }

    /// The same for a watch, which shares what it is told with others of its kind.
    pub fn asking_to_watch<'t>(&self, target: &'t Target) -> Cow<'t, Target> {
        self.asking_if(target, target.served.api.webhook.is_some(), Registry::calls_of_watch)
    }

    /// The same for a write, which admission webhooks may have to say something about.
    pub(crate) fn asking_to_write<'t>(&self, target: &'t Target) -> Cow<'t, Target> {
        let converts = target.served.api.webhook.is_some();
        let has_questions = converts || self.has_admission_webhooks(target);
        self.asking_if(target, has_questions, Registry::calls)
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
        questions: impl FnOnce(&Registry) -> PendingCalls,
    ) -> Cow<'t, Target> {
        if !has_questions || target.served.questions.is_some() {
            return Cow::Borrowed(target);
        }
        let mut target = target.clone();
        target.served.questions = Some(Arc::new(questions(self)));
        Cow::Owned(target)
    }

    /// Runs something until it has no open questions.
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

    /// An object in the target's version, whoever has to be asked for it.
    pub async fn show(&self, target: &Target, entry: &Entry) -> Result<Json> {
        let target = self.asking(target);
        learn(&target, std::iter::once(entry)).await;
        stored::value(&target.serving(&entry.key), entry, &target.version)
    }

    /// Learns what selecting objects by their fields needs, where a webhook makes the version that
    /// the fields are of.
    pub async fn prepare_to_select(&self, target: &Target, snapshot: &Snapshot, fields: &FieldSelector) {
        if target.served.questions.is_some() && looks_inside(fields) {
            let all = snapshot.range(&target.scope(), None, usize::MAX);
            learn(target, all.iter()).await;
        }
    }
}

/// Whether a selector looks at fields that are not the same in all versions.
pub(crate) fn looks_inside(fields: &FieldSelector) -> bool {
    fields.terms.iter().any(|(field, ..)| !field.starts_with("metadata."))
}

/// Learns what showing objects in the target's version needs. Earlier answers are forgotten: every
/// reading asks anew, but what watches of today share.
pub(crate) async fn learn<'e>(target: &Target, entries: impl Iterator<Item = &'e Entry>) {
    let Some(questions) = &target.served.questions else {
        return;
    };
    questions.forget();
    for entry in entries {
        // Whatever else is wrong with it is told when it is shown.
        drop(stored::value(&target.served, entry, &target.version));
    }
    questions.answer(&target.cluster).await;
}
