//! Views of `tenancy.kcp.io`.

use super::{ObjectMetadata, views};
use crate::Json;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Phase of a Workspace and of its LogicalCluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
pub enum WorkspacePhase {
    /// It has no logical cluster yet, or one without content.
    #[default]
    Scheduling,
    /// Initializers are at work.
    Initializing,
    /// It serves requests.
    Ready,
    /// It should serve requests and cannot.
    Unavailable,
    /// An administrator switched it off.
    Inactive,
    /// It is being deleted, and terminators are at work.
    Terminating,
    /// It is being deleted, and its content with it.
    Deleting,
}

impl WorkspacePhase {
    /// All phases, in the order of a workspace's life.
    pub const ALL: [WorkspacePhase; 7] = [
        WorkspacePhase::Scheduling,
        WorkspacePhase::Initializing,
        WorkspacePhase::Ready,
        WorkspacePhase::Unavailable,
        WorkspacePhase::Inactive,
        WorkspacePhase::Terminating,
        WorkspacePhase::Deleting,
    ];

    /// Reads the text of `status.phase`. Returns `Scheduling` for a text that is no phase.
    pub fn parse(text: &str) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|phase| phase.as_str() == text).unwrap_or_default()
    }

    /// Returns the text of `status.phase`.
    pub fn as_str(self) -> &'static str {
        match self {
            WorkspacePhase::Scheduling => "Scheduling",
            WorkspacePhase::Initializing => "Initializing",
            WorkspacePhase::Ready => "Ready",
            WorkspacePhase::Unavailable => "Unavailable",
            WorkspacePhase::Inactive => "Inactive",
            WorkspacePhase::Terminating => "Terminating",
            WorkspacePhase::Deleting => "Deleting",
        }
    }
}

views! {
    /// Workspace: a name in a parent, and the logical cluster that it stands for.
    Workspace {
        /// Annotations.
        metadata: ObjectMetadata,
        /// Desired state.
        spec: WorkspaceSpec,
        /// Observed state.
        status: WorkspaceStatus,
    }

    /// Desired state of a [`Workspace`].
    WorkspaceSpec {
        /// Flat name of its logical cluster; empty until it is scheduled.
        cluster: String,
        /// Address of the workspace.
        #[serde(rename = "URL")]
        url: String,
        /// Its type.
        r#type: WorkspaceTypeReference,
        /// Shards that may hold it.
        location: WorkspaceLocation,
        /// Content on another server, in the place of a logical cluster.
        mount: Option<WorkspaceMount>,
    }

    /// Reference to a [`WorkspaceType`].
    WorkspaceTypeReference {
        /// Path of the workspace that the type is in.
        path: String,
        /// Name.
        name: String,
    }

    /// Constraints on the shard of a [`Workspace`].
    WorkspaceLocation {
        /// Label selector of shards; `null` selects all.
        selector: Json,
    }

    /// Mount of a [`Workspace`].
    WorkspaceMount {
        /// Object in the parent that knows the address.
        r#ref: MountReference,
    }

    /// Reference to the object that knows the address of a mount.
    MountReference {
        /// Group and version.
        api_version: String,
        /// Kind.
        kind: String,
        /// Namespace; empty for cluster-scoped kinds.
        namespace: String,
        /// Name.
        name: String,
    }

    /// Observed state of a [`Workspace`].
    WorkspaceStatus {
        /// Phase; `None` before the first.
        phase: Option<WorkspacePhase>,
        /// Initializers that are still to finish.
        initializers: Vec<String>,
        /// Terminators that are still to finish.
        terminators: Vec<String>,
    }

    /// WorkspaceType: how workspaces begin and end.
    WorkspaceType {
        /// Annotations.
        metadata: ObjectMetadata,
        /// Desired state.
        spec: WorkspaceTypeSpec,
    }

    /// Desired state of a [`WorkspaceType`].
    WorkspaceTypeSpec {
        /// A controller finishes each workspace of the type before it is Ready.
        initializer: bool,
        /// A controller clears each workspace of the type before it goes.
        terminator: bool,
        /// Types that it extends.
        extend: TypeExtension,
        /// Exports that are bound in each workspace of the type.
        #[serde(rename = "defaultAPIBindings")]
        default_api_bindings: Vec<DefaultApiBinding>,
        /// `InitializeOnly` (default) or `Maintain`.
        #[serde(rename = "defaultAPIBindingLifecycle")]
        default_api_binding_lifecycle: String,
        /// Type of children that name none.
        default_child_workspace_type: Option<WorkspaceTypeReference>,
        /// Labels of the LogicalClusters and Workspaces of the type.
        additional_workspace_labels: BTreeMap<String, String>,
    }

    /// Types that a [`WorkspaceType`] extends.
    TypeExtension {
        /// References to them.
        with: Vec<WorkspaceTypeReference>,
    }

    /// Export that is bound in each workspace of a type.
    DefaultApiBinding {
        /// Path of the exporting workspace; empty for the one that the type is in.
        path: String,
        /// Name of the APIExport.
        export: String,
    }
}
