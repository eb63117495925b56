//! CustomResourceDefinitions: acceptance of their names, the route that serves them, and the
//! deletion of their instances.

pub(crate) mod decide;
pub(crate) mod group;
pub(crate) mod names;
mod unruled;
pub(crate) mod world;

#[cfg(test)]
mod tests;

use crate::{rollout::Gate, runtime::Reconciler};
use insula_api::{ObjectKey, ResourceId};
use insula_catalog::{ids, parts};
use insula_registry::{Deps, Plan};
use insula_store::{Change, Snapshot};
use std::sync::Arc;

/// Reconciles CustomResourceDefinitions.
pub(crate) struct Definitions {
    registry: Arc<Deps>,
    gate: Gate,
}

impl Definitions {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        Definitions {
            registry,
            gate: Gate::default(),
        }
    }
}

impl Reconciler for Definitions {
    type Key = ObjectKey;
    type World = world::World;

    fn name(&self) -> &'static str {
        "crd"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![
            ids::customresourcedefinitions(),
            ids::first_registrations(),
            ids::second_registrations(),
            ids::resource_routes(),
            ids::apiconversions(),
        ]
    }

    /// Returns the definition of a change. A name that becomes free concerns all definitions of the
    /// group.
    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let resource = ids::customresourcedefinitions();
        let key = |name: &str| ObjectKey::cluster_scoped(resource.clone(), change.key.cluster.clone(), name);
        let mut keys = group::concerned(change, snapshot);
        keys.retain(|key| key.resource == resource);
        let mut more = vec![key(&change.key.name)];
        if change.key.resource == ids::apiconversions() {
            more.extend(parts::schemas_of_change(change).iter().map(|schema| key(schema)));
        }
        for key in more {
            if !keys.contains(&key) && snapshot.get(&key).is_some() {
                keys.push(key);
            }
        }
        keys
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> world::World {
        world::observe(&self.registry, &self.gate, key, snapshot)
    }

    fn decide(&self, world: &world::World) -> Plan {
        decide::decide(world)
    }
}
