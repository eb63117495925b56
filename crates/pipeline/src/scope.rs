//! The scope of a request: the state, the cluster and the view of it.

use crate::virtual_workspace::VirtualWorkspace;
use insula_api::{ClusterName, ClusterPath};
use insula_auth::ClusterFacts;
use insula_catalog::{limits::WorkspaceLimits, locate::LogicalClusterView};
use insula_meter::Meter;
use insula_store::Snapshot;
use std::sync::Arc;

/// The part of the installation that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScopePath {
    /// None: a path of the whole server, or of nothing.
    Outside,
    /// All clusters.
    Everywhere,
    /// A cluster by its path.
    Cluster(ClusterPath),
    /// A virtual workspace, for one cluster or for all of them (`None`).
    View {
        /// The virtual workspace.
        workspace: VirtualWorkspace,
        /// The cluster.
        cluster: Option<ClusterName>,
    },
}

/// The state and the part of the installation that a located request is about.
#[derive(Clone)]
pub struct Scope {
    /// The latest state. It decides about the request: which cluster its path leads to, and who has
    /// which rights there.
    pub snapshot: Snapshot,
    /// The state that lists answer from, which may be an older one. It decides nothing.
    pub read: Snapshot,
    /// The cluster; `None` outside of any and for the wildcard.
    pub cluster: Option<ClusterName>,
    /// The LogicalCluster of `cluster` in `snapshot`; system clusters have none.
    pub logical_cluster: Option<Arc<LogicalClusterView>>,
    /// The path that the client used.
    pub path: Option<ClusterPath>,
    /// The virtual workspace through which the request sees the cluster.
    pub view: Option<VirtualWorkspace>,
    /// Pays for the work of the request.
    pub meter: Meter,
}

impl Scope {
    /// Facts for authorisation in a cluster, at the latest state.
    pub fn facts(&self, cluster: &ClusterName) -> ClusterFacts {
        match self.cluster.as_ref() == Some(cluster) {
            true => insula_access::facts_with(&self.snapshot, cluster, self.logical_cluster.as_deref()),
            false => insula_access::facts(&self.snapshot, cluster),
        }
    }

    /// Limits of the workspace in the place of the server's.
    pub fn own_limits(&self) -> Option<&WorkspaceLimits> {
        self.logical_cluster.as_ref()?.limits.as_deref()
    }

    /// Returns true for a cluster that an administrator has switched off.
    pub fn is_inactive(&self) -> bool {
        self.logical_cluster.as_ref().is_some_and(|view| view.inactive)
    }
}
