//! Definitions without rules that a bundle serves: they waited for rules once. A new version that
//! does not show what stored objects hold waits for rules, for the end of such objects or for
//! somebody's word. The objects are examined in slices by the gate of rollouts.

use super::world::{Misfit, WantedBundle};
use crate::rollout::{Gate, Verdict};
use insula_admission::publication::NewVersions;
use insula_api::{Json, ObjectKey, Scope, names::annotations::ACCEPTED_EFFECTS};
use insula_catalog::{ResourceRoute, bundle};
use insula_meter::Meter;
use insula_registry::Deps;
use insula_store::{Entry, Snapshot};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Returns the bundle that is to serve a definition without rules, or why it waits. Neither for one
/// that serves itself.
pub(super) fn observe(
    (registry, gate): (&Deps, &Gate),
    snapshot: &Snapshot,
    (key, definition): (&ObjectKey, &Json),
    route: Option<&Entry>,
) -> (Option<WantedBundle>, Option<Misfit>) {
    let route = route.map(|route| route.object.parsed(ResourceRoute::read));
    let Some(value) = route.and_then(|route| bundle::kept(snapshot, &route, definition)) else {
        return (None, None);
    };
    let Ok(next) = registry.catalog.compile(&value) else {
        return (None, None);
    };
    let served = registry
        .catalog
        .resolve(snapshot, &key.cluster, &next.group, &next.names.plural);
    let verdict = served.map_or(Verdict::Open, |served| {
        let scope = Scope::cluster(served.resource_id(), key.cluster.clone());
        let word = definition["metadata"]["annotations"][ACCEPTED_EFFECTS].as_str();
        let generation = generation_of(&(served.api.fingerprint, next.fingerprint, word));
        let begin = || NewVersions::new((&served.api, &next), definition, &Meter::unbounded());
        gate.examine((generation, &scope), begin, snapshot, registry.clock.now())
    });
    match verdict {
        Verdict::Blocked(failure) => {
            let misfit = Misfit {
                message: failure.provider_message.clone(),
                in_force: false,
                is_of_objects: true,
            };
            (None, Some(misfit))
        }
        verdict => (Some(WantedBundle::without_rules(snapshot, value, verdict)), None),
    }
}

fn generation_of(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
