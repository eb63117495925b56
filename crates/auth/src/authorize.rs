//! May they? An ordered chain of steps, each with an opinion or none; the first opinion holds, and
//! no opinion is a no.
//!
//! ```text
//! Masters → SystemClusters → AlwaysAllowedPaths → Wildcard → Impersonation → SystemStatus → PlatformAdmins → RequiredGroups
//! → Content → MaximalPermission → Rbac → (refuse)
//! ```
//! Refusals that no one may lift stand before the grants that they limit. RBAC decides for
//! everybody else.

use crate::identities::Identities;
use crate::rbac::{self, Roles};
use crate::required::RequiredGroups;
use crate::user::{GROUP_KCP_ADMIN, GROUP_MASTERS, UserInfo};
use insula_api::ClusterName;
use std::sync::Arc;

/// What is to be done.
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
    /// What follows the name: `status`, `scale`, ….
    pub subresource: String,
    /// Object, empty where the request names none.
    pub name: String,
    /// Namespace, empty at the cluster scope.
    pub namespace: String,
    /// The path below the cluster, for requests that are for no resource.
    pub path: String,
    /// The logical cluster. None for requests across all clusters (`*`) and outside of any.
    pub cluster: Option<ClusterName>,
    /// Whether it is for a resource rather than a path.
    pub is_resource_request: bool,
}

/// What the decision may know about the cluster.
#[derive(Debug, Clone, Default)]
pub struct ClusterFacts {
    /// The cluster that these facts are about. Facts about another one count for nothing.
    pub cluster: Option<ClusterName>,
    /// Names of the users that administer this cluster. Who administers a parent has no right here
    /// by that.
    pub admin_users: Vec<String>,
    /// Groups that do.
    pub admin_groups: Vec<String>,
    /// The groups without which nobody enters it.
    pub required_groups: Option<Arc<RequiredGroups>>,
    /// The roles in this cluster; none where there is no cluster.
    pub roles: Option<Arc<dyn Roles>>,
    /// The question is what a user could do who was let in: exports are bound from outside.
    pub entered: bool,
    /// Its initializers are at work: its administrators may look at it, and nobody else.
    pub unfinished: bool,
}

/// An opinion. Reasons are for the audit log, not for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Yes, and no later step is asked.
    Allow {
        /// Which rule says so.
        reason: String,
    },
    /// No, and no later step is asked.
    Deny {
        /// Which rule says so.
        reason: String,
    },
    /// Ask the next step.
    NoOpinion,
}

/// One authorizer of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// `system:masters` may do everything.
    Masters,
    /// Nobody else may enter a `system:` cluster.
    SystemClusters,
    /// Health is no secret.
    AlwaysAllowedPaths,
    /// Requests across all clusters are for `system:masters`; outside of any, for platform
    /// administrators.
    Wildcard,
    /// Acting as one of the system's own is for platform administrators, and as `system:masters`
    /// for nobody.
    Impersonation,
    /// Status of bindings and exports is written by controllers only.
    SystemStatus,
    /// `system:kcp:admin` administers every ordinary cluster.
    PlatformAdmins,
    /// Groups that the platform demands of whoever enters a workspace.
    RequiredGroups,
    /// Who may not enter a workspace may do nothing in it.
    Content,
    /// What the owner of an export leaves to nobody, no role of a consumer gives.
    MaximalPermission,
    /// Roles within the cluster.
    Rbac,
}

/// The chain. [`authorize`] asks in this order.
pub const STEPS: [Step; 11] = [
    Step::Masters,
    Step::SystemClusters,
    Step::AlwaysAllowedPaths,
    Step::Wildcard,
    Step::Impersonation,
    Step::SystemStatus,
    Step::PlatformAdmins,
    Step::RequiredGroups,
    Step::Content,
    Step::MaximalPermission,
    Step::Rbac,
];

impl Step {
    /// The step in the audit log. Steps that kcp has, too, have its names.
    pub fn name(self) -> &'static str {
        match self {
            Step::Masters => "00-masters",
            Step::SystemClusters => "00-systemclusters",
            Step::AlwaysAllowedPaths => "00-alwaysallowedpaths",
            Step::Wildcard => "00-wildcard",
            Step::Impersonation => "00-impersonation",
            Step::PlatformAdmins => "00-platformadmins",
            Step::RequiredGroups => "01-requiredgroups",
            Step::Content => "02-content",
            Step::SystemStatus => "03-systemcrd",
            Step::MaximalPermission => "04-maxpermissionpolicy",
            Step::Rbac => "05-local",
        }
    }
}

/// What the steps said that were asked, in their order: none of them after the first opinion.
pub type Trail = Vec<(Step, Decision)>;

/// Proof that the chain said yes to these attributes. Only [`permit`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    attributes: Attributes,
    reason: String,
    trail: Trail,
}

/// The chain said no. Displays what the client reads, as Kubernetes and kcp say it; means 403.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Forbidden {
    /// `configmaps "a" is forbidden: User "u" cannot …: access denied`.
    pub message: String,
    /// Why, for the audit log.
    pub reason: String,
    /// How it came to that, for the audit log.
    pub trail: Trail,
}

impl Permit {
    /// What was permitted, and nothing else.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Which rule said so, for the audit log.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// How it came to that, for the audit log.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
}

/// Asks the chain, and gives the permit that doors ask for.
///
/// # Errors
/// The chain said no, or nobody said yes.
pub fn permit(user: &UserInfo, attributes: Attributes, facts: &ClusterFacts) -> Result<Permit, Forbidden> {
    let trail = asked(user, &attributes, facts);
    let reason = match trail.last() {
        Some((_, Decision::Allow { reason })) => {
            let reason = reason.clone();
            return Ok(Permit {
                attributes,
                reason,
                trail,
            });
        }
        Some((_, Decision::Deny { reason })) => reason.clone(),
        Some((_, Decision::NoOpinion)) | None => "no rule allows it".to_owned(),
    };
    Err(Forbidden {
        message: forbidden_message(user, &attributes),
        reason,
        trail,
    })
}

/// The first opinion of the chain.
pub fn authorize(user: &UserInfo, attributes: &Attributes, facts: &ClusterFacts) -> Decision {
    let last = asked(user, attributes, facts).pop();
    last.map_or(Decision::NoOpinion, |(_, decision)| decision)
}

fn asked(user: &UserInfo, attributes: &Attributes, facts: &ClusterFacts) -> Trail {
    let user = Identities::in_cluster(user, attributes.cluster.as_ref());
    let mut trail = Trail::with_capacity(STEPS.len());
    for step in STEPS {
        trail.push((step, opinion(step, &user, attributes, facts)));
        if !matches!(trail.last(), Some((_, Decision::NoOpinion))) {
            break;
        }
    }
    trail
}

fn opinion(step: Step, user: &Identities<'_>, attributes: &Attributes, facts: &ClusterFacts) -> Decision {
    let is_platform_admin = user.is_in(GROUP_KCP_ADMIN);
    match step {
        Step::Masters => allow_if(user.is_in(GROUP_MASTERS), "member of system:masters"),
        Step::SystemClusters => {
            let is_system = attributes.cluster.as_ref().is_some_and(ClusterName::is_system);
            deny_if(is_system, "system clusters are for system:masters only")
        }
        Step::AlwaysAllowedPaths => allow_if(is_health(attributes), "health is public"),
        Step::Wildcard => match (&attributes.cluster, is_platform_admin) {
            (None, _) if is_about_objects(attributes) => {
                deny("requests across all clusters are for system:masters only")
            }
            (Some(_), _) | (None, true) => Decision::NoOpinion,
            (None, false) => deny("requests outside of one cluster are for platform administrators"),
        },
        Step::Impersonation => impersonation(is_platform_admin, attributes),
        Step::SystemStatus => deny_if(
            writes_system_status(attributes),
            "status of bindings and exports is written by controllers only",
        ),
        Step::PlatformAdmins => allow_if(is_platform_admin, "member of system:kcp:admin"),
        Step::RequiredGroups => deny_if(
            !rbac::has_required_groups(user, attributes, facts),
            "not in the groups that the workspace requires",
        ),
        Step::Content => match attributes.cluster.is_some() {
            true if !rbac::may_enter(user, attributes, facts) => deny("no access to the workspace"),
            true if facts.unfinished => unfinished(user, attributes, facts),
            _ => Decision::NoOpinion,
        },
        Step::MaximalPermission => deny_if(
            writes_tenancy_status(attributes) || !rbac::is_below_ceiling(user, attributes, facts),
            "the maximal permission policy of the export does not leave it to this user",
        ),
        Step::Rbac => rbac::authorize(user, attributes, facts),
    }
}

pub(crate) fn allow(reason: &str) -> Decision {
    Decision::Allow {
        reason: reason.to_owned(),
    }
}

fn deny(reason: &str) -> Decision {
    Decision::Deny {
        reason: reason.to_owned(),
    }
}

fn allow_if(holds: bool, reason: &str) -> Decision {
    if holds { allow(reason) } else { Decision::NoOpinion }
}

fn deny_if(holds: bool, reason: &str) -> Decision {
    if holds { deny(reason) } else { Decision::NoOpinion }
}

/// Impersonation is asked of whoever asks for something else, wherever that is.
fn is_about_objects(attributes: &Attributes) -> bool {
    attributes.is_resource_request && !attributes.verb.starts_with("impersonate")
}

/// Exactly these paths, and reading only: `/readyz/x` may name internals.
fn is_health(attributes: &Attributes) -> bool {
    !attributes.is_resource_request
        && matches!(attributes.verb.as_str(), "get" | "head")
        && matches!(attributes.path.as_str(), "/healthz" | "/livez" | "/readyz")
}

/// `impersonate`, and the constrained kinds `impersonate:user-info` and `impersonate-on:…`.
///
/// What is borrowed counts in the workspace where it was borrowed. Roles there decide about its own
/// people; names of the system would count for more, and some of what is known of an identity says
/// where it counts.
fn impersonation(is_platform_admin: bool, attributes: &Attributes) -> Decision {
    if !attributes.verb.starts_with("impersonate") {
        return Decision::NoOpinion;
    }
    let is_masters = attributes.resource == "groups" && attributes.name == GROUP_MASTERS;
    match (is_platform_admin, is_masters) {
        (true, false) => Decision::NoOpinion,
        (true, true) => deny("nobody may act as system:masters"),
        (false, _) => deny_if(
            !is_of_the_workspace(attributes),
            "acting as one of the system's own is for platform administrators",
        ),
    }
}

/// Whether an identity is one that a workspace may have of itself.
fn is_of_the_workspace(attributes: &Attributes) -> bool {
    let Attributes {
        verb,
        resource,
        subresource,
        name,
        ..
    } = attributes;
    let reserved = |domain: &str| {
        ["kcp.io", "kubernetes.io", "k8s.io"].iter().any(|own| {
            let rest = domain.strip_suffix(own);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    };
    verb == "impersonate"
        && match resource.as_str() {
            "serviceaccounts" => true,
            "users" => !name.starts_with("system:"),
            "groups" => {
                !name.starts_with("system:")
                    || name == "system:serviceaccounts"
                    || name.starts_with("system:serviceaccounts:")
            }
            "userextras" => !reserved(subresource.split('/').next().unwrap_or_default()),
            _ => false,
        }
}

/// What a type's initializers set up is there before anybody works with it. Questions are no
/// writes, and what is asked of the LogicalCluster is admission's matter.
fn unfinished(user: &Identities<'_>, attributes: &Attributes, facts: &ClusterFacts) -> Decision {
    let reads = matches!(attributes.verb.as_str(), "get" | "head" | "list" | "watch");
    let harmless = matches!(
        attributes.group.as_str(),
        "core.kcp.io" | "authentication.k8s.io" | "authorization.k8s.io"
    );
    deny_if(
        !rbac::administers(user, facts) || !(reads || harmless),
        "the workspace is being initialized",
    )
}

fn writes_system_status(attributes: &Attributes) -> bool {
    attributes.is_resource_request
        && attributes.group == "apis.kcp.io"
        && matches!(attributes.resource.as_str(), "apibindings" | "apiexports")
        && attributes.subresource == "status"
        && !matches!(attributes.verb.as_str(), "get" | "list" | "watch")
}

/// Returns true for writes to the status of Workspaces and WorkspaceTypes. kcp's export
/// `tenancy.kcp.io` leaves tenants reading there
/// (`config/root/clusterrole-tenancy-maximal-permission-policy.yaml`); platform administrators, who
/// come earlier in the chain, may write.
fn writes_tenancy_status(attributes: &Attributes) -> bool {
    attributes.is_resource_request
        && attributes.group == "tenancy.kcp.io"
        && attributes.subresource == "status"
        && !matches!(attributes.verb.as_str(), "get" | "list" | "watch")
}

/// What a refused client reads.
///
/// `configmaps "a" is forbidden: User "u" cannot get resource "configmaps" in API group "" in the
/// namespace "n": access denied`. Nothing in it is not from the request itself.
pub fn forbidden_message(user: &UserInfo, attributes: &Attributes) -> String {
    let Attributes {
        verb,
        group,
        version: _,
        resource,
        subresource,
        name,
        namespace,
        path,
        ..
    } = attributes;
    let user = &user.name;
    if !attributes.is_resource_request {
        return format!("forbidden: User {user:?} cannot {verb} path {path:?}: access denied");
    }
    let mut what = resource.clone();
    if !group.is_empty() {
        what = format!("{what}.{group}");
    }
    if !name.is_empty() {
        what = format!("{what} {name:?}");
    }
    let slash = if subresource.is_empty() { "" } else { "/" };
    // To Kubernetes a namespace stands in itself.
    let own = if resource == "namespaces" && group.is_empty() {
        name
    } else {
        namespace
    };
    let place = match (namespace.is_empty(), own.is_empty()) {
        (true, true) => "at the cluster scope".to_owned(),
        (true, false) => format!("in the namespace {own:?}"),
        (false, _) => format!("in the namespace {namespace:?}"),
    };
    let full = format!("{resource}{slash}{subresource}");
    format!(
        "{what} is forbidden: User {user:?} cannot {verb} resource {full:?} in API group {group:?} {place}: access denied"
    )
}

#[cfg(test)]
mod tests;
