//! Trial of changed schemas and rules on stored objects, when they are applied: a warning says
//! which objects could not be read any more. `kubectl apply --dry-run=server` shows it before
//! anything changes; the rollout gate decides afterwards (`insula_controllers::rollout`).

use crate::{kinds::review::Review, publication::Effects};
use insula_api::{ClusterName, Scope, counted, names::effects::needs_acceptance};
use insula_catalog::{Api, locate};
use std::{collections::BTreeSet, ops::ControlFlow};

/// Objects that are tried in one request: some tens of milliseconds. The rest is left to
/// `insula export publish --check` and to the rollout gate, which have no such limit.
const OBJECTS_MAX: usize = 1_000;
/// Objects that a warning names.
const NAMED_MAX: usize = 10;

/// Warns of what a changed API does to stored objects: one warning for each of its first effects
/// that need somebody's word, by the name by which it is accepted. Versions that are removed have
/// warnings of their own.
pub(super) fn warn_of_effects(review: &Review<'_>, before: &Api, after: &Api, scope: &Scope) {
    let mut effects = Effects::new(before, after);
    if scope.cluster.is_some() {
        effects = effects.of_definition();
    }
    warn_of(review, effects, scope);
}

/// Warns of the objects of an API that an export offers no longer.
pub(super) fn warn_of_removed(review: &Review<'_>, api: &Api, scope: &Scope) {
    warn_of(review, Effects::of_removed(api), scope);
}

fn warn_of(review: &Review<'_>, mut effects: Effects<'_>, scope: &Scope) {
    let mut tried = 0;
    review.snapshot.for_each(scope, |entry| {
        if tried == OBJECTS_MAX {
            return ControlFlow::Break(());
        }
        tried += 1;
        // Objects that cannot be read have a warning of their own.
        let _ = effects.examine(review.snapshot, entry);
        ControlFlow::Continue(())
    });
    let all = effects.finish();
    let hurt = all
        .iter()
        .filter(|effect| effect.objects > 0 && needs_acceptance(effect.kind));
    let first = if tried == OBJECTS_MAX {
        format!("of the first {OBJECTS_MAX} stored objects, ")
    } else {
        String::new()
    };
    for effect in hurt.take(NAMED_MAX) {
        review.warn(format!("{first}{effect}"));
    }
}

/// Warns of stored objects that the API could not show in each of its served versions.
pub(super) fn warn_of_objects(review: &Review<'_>, api: &Api, scope: &Scope) {
    let (mut tried, mut failed) = (0, 0);
    let mut clusters: BTreeSet<ClusterName> = BTreeSet::new();
    let mut named: Vec<String> = Vec::new();
    let mut more = false;
    review.snapshot.for_each(scope, |entry| {
        if tried == OBJECTS_MAX {
            more = true;
            return ControlFlow::Break(());
        }
        tried += 1;
        if let Err(why) = api.reads(&entry.object) {
            failed += 1;
            let key = &entry.key;
            clusters.insert(key.cluster.clone());
            if named.len() < NAMED_MAX {
                let path = locate::path_of(review.snapshot, &key.cluster);
                named.push(match &*key.namespace {
                    "" => format!("{} in {path}: {why}", key.name),
                    namespace => format!("{namespace}/{} in {path}: {why}", key.name),
                });
            }
        }
        ControlFlow::Continue(())
    });
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
