//! Workspaces: a name in the parent, and the logical cluster that it stands for.
//!
//! A new workspace takes one transaction: the Workspace with its cluster and URL, the
//! LogicalCluster in the child, and the namespaces that its type begins with. Without initializers
//! it is Ready at that same revision.

pub(crate) mod birth;
mod decide;
mod phase;
mod world;

pub(crate) use phase::{show_list, show_phase};
pub(crate) use world::{base_url, move_url, shard_url};

#[cfg(test)]
mod tests;

use crate::runtime::Reconciler;
use insula_api::{
    ClusterName, ObjectKey, ResourceId,
    kinds::{self, LogicalCluster},
};
use insula_catalog::{ids, indexes};
use insula_registry::{Deps, Plan};
use insula_store::{Change, Snapshot};
use std::sync::Arc;

/// Reconciles Workspaces.
pub(crate) struct Workspaces {
    registry: Arc<Deps>,
}

impl Workspaces {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        Workspaces { registry }
    }
}

impl Reconciler for Workspaces {
    type Key = ObjectKey;
    type World = world::World;

    fn name(&self) -> &'static str {
        "workspace"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::workspaces(), ids::logicalclusters(), ids::shards()]
    }

    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        if change.key.resource == ids::shards() {
            return unscheduled(snapshot);
        }
        if change.key.resource == ids::workspaces() {
            return change.new.iter().map(|_| change.key.clone()).collect();
        }
        // A LogicalCluster is created together with the state of its Workspace.
        if change.old.is_none() && change.new.as_ref().is_some_and(|new| !new.meta.is_deleting()) {
            return Vec::new();
        }
        let object = change.new.as_ref().or(change.old.as_ref().map(|old| &old.object));
        object
            .and_then(|object| owner(&kinds::read(&object.body_value())))
            .into_iter()
            .collect()
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> world::World {
        world::observe(&self.registry, key, snapshot)
    }

    fn decide(&self, world: &world::World) -> Plan {
        decide::decide(world)
    }
}

/// Returns the workspaces that have no shard: one that is new, or has other labels, may take them.
fn unscheduled(snapshot: &Snapshot) -> Vec<ObjectKey> {
    let found = snapshot.indexed(&indexes::WORKSPACES_WITHOUT_PHASE, "");
    found.into_iter().map(|workspace| workspace.key).collect()
}

/// Returns the key of the Workspace that a LogicalCluster belongs to.
pub(crate) fn owner(logical: &LogicalCluster) -> Option<ObjectKey> {
    let owner = &logical.spec.owner;
    let cluster = ClusterName::parse(&owner.cluster).ok()?;
    (owner.resource == "workspaces").then(|| ObjectKey::cluster_scoped(ids::workspaces(), cluster, &owner.name))
}
