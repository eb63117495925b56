//! Trial of changed schemas and rules on stored objects, when they are applied: a warning says
//! which objects could not be read any more. `kubectl apply --dry-run=server` shows it before
//! anything changes; the rollout gate decides afterwards (`insula_controllers::rollout`).

use crate::{
    kinds::review::Review,
    publication::{Acceptance, Effect, Effects, Serving, add_effects, unanswered},
};
use insula_api::{ClusterName, Resources, Scope, counted};
use insula_catalog::Api;
use insula_meter::Ended;
use insula_store::Entry;
use std::{collections::BTreeSet, ops::ControlFlow, sync::Arc};

/// Objects that are tried in one request: how long that takes depends on their
/// size and on the number of versions. The rest is left to
/// `insula export publish --check` and to the rollout gate, which have no such limit.
const OBJECTS_MAX: usize = 1_000;
/// Objects or effects that a warning names.
const NAMED_MAX: usize = 10;

/// Fields that a warning names.
const FIELDS_MAX: usize = 5;

/// Names the first fields, for a warning.
pub(super) fn first_named(fields: &[impl ToString]) -> String {
    let named: Vec<String> = fields.iter().take(FIELDS_MAX).map(ToString::to_string).collect();
    let more = if fields.len() > FIELDS_MAX { "; …" } else { "" };
    format!("{}{more}", named.join("; "))
}

/// Spends what it takes to read an object; its conversions spend for themselves.
///
/// # Errors
/// The request may compute no further: what was found so far is no verdict, and the request ends.
pub(super) fn spend(review: &Review<'_>, entry: &Entry) -> Result<(), Ended> {
    let meter = &review.served.meter;
    meter.spend_bytes(entry.object.body_len())?;
    meter.check()
}

/// The effects of a change on stored objects.
#[derive(Debug, Default)]
pub(super) struct Tried {
    pub(super) effects: Vec<Effect>,
    /// Number of objects that were tried.
    objects: usize,
    /// True if there are more.
    pub(super) is_cut: bool,
}

impl Tried {
    fn add(&mut self, review: &Review<'_>, mut effects: Effects, scope: &Scope, most: usize) {
        let names = review.names();
        let Resources::One(resource) = &scope.resources else {
            return;
        };
        let mut serving = Serving::new(review.catalog, review.snapshot, resource.clone());
        review.snapshot.for_each(scope, |entry| {
            if self.objects == most {
                self.is_cut = true;
                return ControlFlow::Break(());
            }
            if spend(review, entry).is_err() {
                return ControlFlow::Break(());
            }
            self.objects += 1;
            // Objects that cannot be read have a warning of their own.
            let _ = effects.examine(&names, entry, &mut serving);
            ControlFlow::Continue(())
        });
        add_effects(&mut self.effects, effects.finish());
    }

    /// Warns of the first effects that have nobody's word: one warning for each, by the name by
    /// which it is accepted, after one that counts them if there are more. Versions that exports
    /// remove have warnings of their own.
    pub(super) fn warn(&self, review: &Review<'_>, accepted: &[Acceptance]) {
        let first = match self.is_cut {
            true => format!("of the first {} stored objects, ", self.objects),
            false => String::new(),
        };
        let told = unanswered(&self.effects, accepted);
        if told.len() > NAMED_MAX {
            // What comes last may be left out of the answer.
            review.warn(format!(
                "{first}{} on stored objects, of which {NAMED_MAX} are named",
                counted(told.len(), "effect")
            ));
        }
        for effect in told.into_iter().take(NAMED_MAX) {
            review.warn(format!("{first}{effect}"));
        }
    }
}

/// Tries a changed API on the objects of some scopes, up to a number of them.
pub(super) fn effects(
    review: &Review<'_>,
    (before, after): (&Arc<Api>, &Arc<Api>),
    scopes: &[Scope],
    most: usize,
) -> Tried {
    let mut tried = Tried::default();
    for scope in scopes {
        let mut effects = Effects::new(before, after, &review.served.meter);
        if scope.cluster.is_some() {
            effects = effects.of_definition();
        }
        tried.add(review, effects, scope, most);
    }
    tried
}

/// Warns of what a changed API does to stored objects, aside from what is accepted.
pub(super) fn warn_of_effects(
    review: &Review<'_>,
    change: (&Arc<Api>, &Arc<Api>),
    scope: &Scope,
    accepted: &[Acceptance],
) {
    let scopes = std::slice::from_ref(scope);
    let tried = effects(review, change, scopes, OBJECTS_MAX);
    tried.warn(review, accepted);
}

/// Warns of the objects of an API that an export offers no longer.
pub(super) fn warn_of_removed(review: &Review<'_>, api: &Arc<Api>, scope: &Scope, accepted: &[Acceptance]) {
    let mut tried = Tried::default();
    let removed = Effects::of_removed(api, &review.served.meter);
    tried.add(review, removed, scope, OBJECTS_MAX);
    tried.warn(review, accepted);
}

/// Warns of stored objects that the API could not show in each of its served versions.
pub(super) fn warn_of_objects(review: &Review<'_>, api: &Api, scope: &Scope) {
    let names = review.names();
    let (mut tried, mut failed) = (0, 0);
    let mut clusters: BTreeSet<ClusterName> = BTreeSet::new();
    let mut named: Vec<String> = Vec::new();
    let mut more = false;
    let read = |entry: &Entry| {
        if tried == OBJECTS_MAX {
            more = true;
            return ControlFlow::Break(());
        }
        if spend(review, entry).is_err() {
            return ControlFlow::Break(());
        }
        tried += 1;
        if let Err(why) = api.reads(&entry.object, &review.served.meter) {
            failed += 1;
            let key = &entry.key;
            clusters.insert(key.cluster.clone());
            if named.len() < NAMED_MAX {
                let path = names.name(&key.cluster);
                named.push(match &*key.namespace {
                    "" => format!("{} in {path}: {why}", key.name),
                    namespace => format!("{namespace}/{} in {path}: {why}", key.name),
                });
            }
        }
        ControlFlow::Continue(())
    };
    review.snapshot.for_each(scope, read);
    if failed == 0 {
        return;
    }
    let all = if more { "the first " } else { "" };
    review.warn(format!(
        "{failed} of {all}{tried} stored objects, in {}, could not be read: {}{}",
        counted(clusters.len(), "workspace"),
        named.join("; "),
        if failed > named.len() { "; …" } else { "" },
    ));
}
