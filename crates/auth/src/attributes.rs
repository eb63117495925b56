//! Attributes of a request, and the opinion of an authorization step on them.

use insula_api::{ClusterName, Verb};
use std::{borrow::Cow, fmt};

/// A verb as roles grant them.
///
/// Made by `from`, so that the name of a verb is always the verb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleVerb {
    /// A request for objects.
    Request(Verb),
    /// Another word, such as `bind` or `approve`: which ones there are is open. For paths the HTTP
    /// method in lower case, where no request has its name.
    Other(Cow<'static, str>),
}

impl RoleVerb {
    /// Returns the name in roles.
    pub fn name(&self) -> &str {
        match self {
            RoleVerb::Request(verb) => verb.name(),
            RoleVerb::Other(name) => name,
        }
    }

    /// Returns the verb of a request; `None` for another word.
    pub fn request(&self) -> Option<Verb> {
        match self {
            RoleVerb::Request(verb) => Some(*verb),
            RoleVerb::Other(_) => None,
        }
    }

    /// Returns true for a verb that changes nothing.
    pub fn reads(&self) -> bool {
        self.request().is_some_and(Verb::reads)
    }
}

impl Default for RoleVerb {
    fn default() -> Self {
        RoleVerb::Other(Cow::Borrowed(""))
    }
}

impl From<Option<Verb>> for RoleVerb {
    fn from(verb: Option<Verb>) -> Self {
        verb.map(RoleVerb::Request).unwrap_or_default()
    }
}

impl From<Verb> for RoleVerb {
    fn from(verb: Verb) -> Self {
        RoleVerb::Request(verb)
    }
}

impl From<&'static str> for RoleVerb {
    fn from(name: &'static str) -> Self {
        Verb::named(name).map_or(RoleVerb::Other(Cow::Borrowed(name)), RoleVerb::Request)
    }
}

impl From<String> for RoleVerb {
    fn from(name: String) -> Self {
        Verb::named(&name).map_or(RoleVerb::Other(Cow::Owned(name)), RoleVerb::Request)
    }
}

impl PartialEq<Verb> for RoleVerb {
    fn eq(&self, verb: &Verb) -> bool {
        *self == RoleVerb::Request(*verb)
    }
}

impl fmt::Display for RoleVerb {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Attributes of a request that authorization decides on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// The verb.
    pub verb: RoleVerb,
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

impl Attributes {
    /// The right to enter a workspace, as kcp's workspace content authorizer asks for it.
    pub fn entering() -> Self {
        Attributes {
            verb: "access".into(),
            path: "/".to_owned(),
            ..Attributes::default()
        }
    }
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
