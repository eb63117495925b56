//! LogicalClusters: their initialization until they are Ready, and the deletion of their content.

pub(crate) mod bindings;
mod decide;
mod world;

#[cfg(test)]
mod tests;

use crate::runtime::Reconciler;
use insula_api::{ClusterName, ResourceId, kinds::WorkspacePhase};
use insula_catalog::{ids, locate};
use insula_registry::{Deps, Plan};
use insula_store::{Change, Snapshot};
use std::sync::Arc;

/// Reconciles LogicalClusters.
pub(crate) struct LogicalClusters {
    registry: Arc<Deps>,
}

impl LogicalClusters {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        LogicalClusters { registry }
    }
}

impl Reconciler for LogicalClusters {
    type Key = ClusterName;
    type World = world::World;

    fn name(&self) -> &'static str {
        "logicalcluster"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::logicalclusters(), ids::apibindings(), ids::workspaces()]
    }

    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ClusterName> {
        let cluster = &change.key.cluster;
        let concerns = match &*change.key.resource.resource {
            "logicalclusters" => change.new.is_some(),
            // The deletion of the parent may wait for this child alone.
            "workspaces" => change.new.is_none() && is_deleting(snapshot, cluster),
            _ => is_deleting(snapshot, cluster) || is_initializing(snapshot, cluster),
        };
        if concerns { vec![cluster.clone()] } else { Vec::new() }
    }

    fn observe(&self, key: &ClusterName, snapshot: &Snapshot) -> world::World {
        world::observe(&self.registry, key, snapshot)
    }

    fn decide(&self, world: &world::World) -> Plan {
        decide::decide(world)
    }
}

fn is_deleting(snapshot: &Snapshot, cluster: &ClusterName) -> bool {
    snapshot
        .get(&ids::logical_cluster(cluster))
        .is_some_and(|entry| entry.object.meta.is_deleting())
}

fn is_initializing(snapshot: &Snapshot, cluster: &ClusterName) -> bool {
    locate::logical_cluster(snapshot, cluster).is_some_and(|view| view.phase == WorkspacePhase::Initializing)
}
