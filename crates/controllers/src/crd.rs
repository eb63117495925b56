//! CustomResourceDefinitions: acceptance of their names, the route that serves them, and the
//! deletion of their instances.

mod decide;
mod names;
pub(crate) mod world;

#[cfg(test)]
mod tests;

use crate::{rollout::Gate, runtime::Reconciler};
use insula_api::{ClusterName, Object, ObjectKey, ResourceId};
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
            ids::resource_routes(),
            ids::apiconversions(),
        ]
    }

    /// Returns the definition of a change. A name that becomes free concerns all definitions of the
    /// group.
    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let cluster = &change.key.cluster;
        let name = &*change.key.name;
        let own = ObjectKey::cluster_scoped(ids::customresourcedefinitions(), cluster.clone(), name);
        let group = match &*change.key.resource.resource {
            "customresourcedefinitions" => match (&change.old, &change.new) {
                (Some(old), new) if frees_a_name(&old.object, new.as_deref()) => name.split_once('.'),
                _ => None,
            },
            "claims" if change.new.is_none() => name.split_once('.'),
            _ => None,
        };
        let mut keys = group.map_or_else(Vec::new, |(_, group)| of_group(snapshot, cluster, group));
        if &*change.key.resource.resource == "apiconversions" {
            for schema in parts::schemas_of_change(change) {
                let key = ObjectKey::cluster_scoped(ids::customresourcedefinitions(), cluster.clone(), &schema);
                if !keys.contains(&key) && snapshot.get(&key).is_some() {
                    keys.push(key);
                }
            }
        }
        if !keys.contains(&own) && snapshot.get(&own).is_some() {
            keys.push(own);
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

/// Returns true if a definition gives up a name that it had or wanted.
fn frees_a_name(old: &Object, new: Option<&Object>) -> bool {
    let names = |object: &Object| {
        let mut names = names::Taken::default();
        names.add_definition(object, true);
        names
    };
    !names(old).is_within(&new.map(names).unwrap_or_default())
}

/// Returns the definitions of a group in a cluster.
fn of_group(snapshot: &Snapshot, cluster: &ClusterName, group: &str) -> Vec<ObjectKey> {
    let definitions = world::of_group(snapshot, cluster, group).into_iter();
    definitions.map(|entry| entry.key).collect()
}
