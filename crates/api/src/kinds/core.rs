//! Views of `core.kcp.io`.

use super::{ObjectMetadata, WorkspacePhase, views};

views! {
    /// LogicalCluster: the state of one logical cluster, stored in it under the name `cluster`.
    LogicalCluster {
        /// Annotations.
        metadata: ObjectMetadata,
        /// Desired state.
        spec: LogicalClusterSpec,
        /// Observed state.
        status: LogicalClusterStatus,
    }

    /// Desired state of a [`LogicalCluster`].
    LogicalClusterSpec {
        /// Permission for clients to delete the LogicalCluster itself, not only its Workspace.
        directly_deletable: bool,
        /// Object in the parent that the cluster belongs to.
        owner: LogicalClusterOwner,
        /// Initializers that the cluster began with.
        initializers: Vec<String>,
        /// Terminators that the cluster began with.
        terminators: Vec<String>,
    }

    /// Owner of a [`LogicalCluster`] in another cluster.
    LogicalClusterOwner {
        /// Group and version.
        api_version: String,
        /// Plural name of the resource, e.g. `workspaces`.
        resource: String,
        /// Name.
        name: String,
        /// Flat name of the cluster that the owner is in.
        cluster: String,
        /// UID.
        uid: String,
    }

    /// Observed state of a [`LogicalCluster`].
    LogicalClusterStatus {
        /// Phase; `None` before the first.
        phase: Option<WorkspacePhase>,
        /// Address of the cluster.
        #[serde(rename = "URL")]
        url: String,
        /// Initializers that are still to finish.
        initializers: Vec<String>,
        /// Terminators that are still to finish.
        terminators: Vec<String>,
    }
}
