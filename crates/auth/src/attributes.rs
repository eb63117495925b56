//! Attributes of a request, and the opinion of an authorization step on them.

use insula_api::ClusterName;

/// Attributes of a request that authorization decides on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// `get`, `list`, `create`, …; for paths the HTTP method in lower case.
    pub verb: String,
    /// API group; empty is the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Resource, in the plural.
    pub resource: String,
    /// Subresource, such as `status` or `scale`; empty if there is none.
    pub subresource: String,
    /// Name of the object; empty if the request names none.
    pub name: String,
    /// Namespace; empty at cluster scope.
    pub namespace: String,
    /// Path below the cluster, for non-resource requests.
    pub path: String,
    /// Logical cluster; `None` for requests across all clusters (`*`) or outside of any.
    pub cluster: Option<ClusterName>,
    /// True for a resource, false for a path.
    pub is_resource_request: bool,
}

/// Opinion of a step. Reasons are for the audit log, not for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Allows the request; later steps are skipped.
    Allow {
        /// The rule that allows it.
        reason: String,
    },
    /// Refuses the request; later steps are skipped.
    Deny {
        /// The rule that refuses it.
        reason: String,
    },
    /// Leaves the decision to the next step.
    NoOpinion,
}

pub(crate) fn allow(reason: &str) -> Decision {
    Decision::Allow {
        reason: reason.to_owned(),
    }
}
