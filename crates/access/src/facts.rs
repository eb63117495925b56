//! Facts about a logical cluster that an access decision may use.

use crate::roles::RolesAt;
use insula_api::{ClusterName, kinds::WorkspacePhase};
use insula_auth::ClusterFacts;
use insula_catalog::locate::{self, LogicalClusterView};
use insula_store::Snapshot;
use std::sync::Arc;

/// Returns the facts about a cluster in one state: its owner, required groups, phase and roles.
pub fn facts(snapshot: &Snapshot, cluster: &ClusterName) -> ClusterFacts {
    facts_with(snapshot, cluster, locate::logical_cluster(snapshot, cluster).as_deref())
}

/// Returns the same facts for a cluster whose LogicalCluster has been read from `snapshot` already.
pub fn facts_with(
    snapshot: &Snapshot,
    cluster: &ClusterName,
    logical_cluster: Option<&LogicalClusterView>,
) -> ClusterFacts {
    let owner = logical_cluster.and_then(|view| view.owner.as_deref());
    ClusterFacts {
        cluster: Some(cluster.clone()),
        required_groups: logical_cluster.and_then(|view| view.required_groups.clone()),
        admin_users: owner.map(str::to_owned).into_iter().collect(),
        unfinished: logical_cluster.is_some_and(|view| view.phase == WorkspacePhase::Initializing),
        roles: Some(Arc::new(RolesAt::new(snapshot, cluster))),
        ..ClusterFacts::default()
    }
}
