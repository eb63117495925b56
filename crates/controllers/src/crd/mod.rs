//! CustomResourceDefinitions: whether their names are free, the claim that serves them, and the end of their instances.

mod decide;
mod names;
pub(crate) mod world;

#[cfg(test)]
mod tests;

use crate::{rollout::Gate, runtime::Reconciler, write::text};
use insula_api::{ClusterName, ObjectKey, ResourceId};
use insula_registry::{Plan, Registry, ids};
use insula_store::{Change, Snapshot};
use std::sync::Arc;

/// Held by a definition until its instances are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Reconciles CustomResourceDefinitions.
pub(crate) struct Definitions {
    registry: Arc<Registry>,
    gate: Gate,
}

impl Definitions {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
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
        vec![ids::customresourcedefinitions(), ids::claims(), ids::apiconversions()]
    }

    /// Names that become free or taken concern all definitions of the group.
    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let cluster = &change.key.cluster;
        let name = &*change.key.name;
        match &*change.key.resource.resource {
            "apiconversions" => {
                let key = ObjectKey::cluster_scoped(ids::customresourcedefinitions(), cluster.clone(), name);
                if snapshot.get(&key).is_some() {
                    vec![key]
                } else {
                    Vec::new()
                }
            }
            "claims" => of_group(snapshot, cluster, name.split_once('.').map_or("", |(_, group)| group)),
            _ => {
                let object = change.new.as_ref().or(change.old.as_ref().map(|old| &old.object));
                let value = object.map(|object| object.body_value()).unwrap_or_default();
                let mut keys = of_group(snapshot, cluster, text(&value, "/spec/group"));
                if change.new.is_some() && !keys.contains(&change.key) {
                    keys.push(change.key.clone());
                }
                keys
            }
        }
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> world::World {
        world::observe(&self.registry, &self.gate, key, snapshot)
    }

    fn decide(&self, world: &world::World) -> Plan {
        decide::decide(world)
    }
}

fn of_group(snapshot: &Snapshot, cluster: &ClusterName, group: &str) -> Vec<ObjectKey> {
    let definitions = world::of_group(snapshot, cluster, group).into_iter();
    definitions.map(|entry| entry.key).collect()
}
