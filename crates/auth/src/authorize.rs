//! Authorization: an ordered chain of steps, each with an opinion or none. The first opinion
//! decides; without any, the request is refused.
//!
//! ```text
//! Masters → SystemClusters → AlwaysAllowedPaths → Wildcard → Impersonation → SystemStatus
//! → PlatformAdmins → RequiredGroups → Content → MaximalPermission → Rbac → (refuse)
//! ```
//! Refusals that nobody may override come before the grants that they limit. RBAC decides all other
//! requests.

use crate::attributes::{Attributes, Decision, allow};
use crate::identities::Identities;
use crate::rbac::{self, ClusterFacts};
use crate::user::{GROUP_KCP_ADMIN, GROUP_MASTERS, UserInfo};
use insula_api::ClusterName;

/// One step of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Allows `system:masters` everything.
    Masters,
    /// Refuses everybody else in `system:` clusters.
    SystemClusters,
    /// Allows reading health endpoints, and the server's version.
    AlwaysAllowedPaths,
    /// Allows requests across all clusters only for `system:masters`, and those outside of any only
    /// for platform administrators.
    Wildcard,
    /// Refuses impersonation of the system's own users, except by platform administrators, and of
    /// `system:masters` by anybody.
    Impersonation,
    /// Refuses writes to the status of bindings and exports, except by controllers.
    SystemStatus,
    /// Allows `system:kcp:admin` everything in ordinary clusters.
    PlatformAdmins,
    /// Refuses users who lack the groups that the platform requires in the workspace.
    RequiredGroups,
    /// Refuses users who may not enter the workspace.
    Content,
    /// Refuses requests beyond an export's maximal permission policy, whatever the consumer's roles
    /// grant.
    MaximalPermission,
    /// Allows requests by the roles of the cluster, or as another server decides that was asked.
    Rbac,
}

/// The steps, in the order in which [`authorize`] asks them.
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
    /// Returns the step's name in the audit log: kcp's name where kcp has the step.
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

/// Opinions of the steps asked so far, in order; nothing follows the first opinion.
pub type Trail = Vec<(Step, Decision)>;

/// Proof that the chain allowed these attributes. Only [`permit`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    attributes: Attributes,
    reason: String,
    trail: Trail,
}

/// Refusal by the chain: 403. Displays the client's message, in the words of Kubernetes and kcp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Forbidden {
    /// `configmaps "a" is forbidden: User "u" cannot …: access denied`.
    pub message: String,
    /// Reason of the refusal, for the audit log.
    pub reason: String,
    /// Opinions of the steps, for the audit log.
    pub trail: Trail,
}

impl Forbidden {
    /// Returns true if no rule of this server says anything about the request: the user is unknown
    /// in the workspace, or no role allows it. Another server may decide then.
    pub fn is_open(&self) -> bool {
        match self.trail.last() {
            Some((step, Decision::Deny { .. })) => *step == Step::Content,
            Some((_, Decision::NoOpinion)) | None => true,
            Some((_, Decision::Allow { .. })) => false,
        }
    }
}

impl Permit {
    /// Returns the attributes that are permitted, and no others.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Returns the rule that allowed them, for the audit log.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the opinions of the steps, for the audit log.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
}

/// Asks the chain and returns the permit that handlers require.
///
/// # Errors
/// Fails if a step refuses the request, or none allows it.
pub fn permit(user: &UserInfo, attributes: Attributes, facts: &ClusterFacts) -> Result<Permit, Forbidden> {
    let trail = trail(user, &attributes, facts);
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

/// Returns the first opinion of the chain.
pub fn authorize(user: &UserInfo, attributes: &Attributes, facts: &ClusterFacts) -> Decision {
    let last = trail(user, attributes, facts).pop();
    last.map_or(Decision::NoOpinion, |(_, decision)| decision)
}

/// Runs the steps in order until one has an opinion.
fn trail(user: &UserInfo, attributes: &Attributes, facts: &ClusterFacts) -> Trail {
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
        Step::AlwaysAllowedPaths => allow_if(
            is_health(attributes) || is_server_version(attributes),
            "health and the version of the server are public",
        ),
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
            // Only a grant lets a stranger in: roles alone do not.
            true if !matches!(facts.delegated, Some(Decision::Allow { .. }))
                && !rbac::may_enter(user, attributes, facts) =>
            {
                deny("no access to the workspace")
            }
            true if facts.unfinished => unfinished(user, attributes, facts),
            _ => Decision::NoOpinion,
        },
        Step::MaximalPermission => deny_if(
            writes_tenancy_status(attributes) || !rbac::is_below_ceiling(user, attributes, facts),
            "the maximal permission policy of the export does not leave it to this user",
        ),
        Step::Rbac => match (rbac::authorize(user, attributes, facts), &facts.delegated) {
            (Decision::NoOpinion, Some(delegated)) => delegated.clone(),
            (own, _) => own,
        },
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

/// Returns true for requests for objects; impersonation accompanies other requests, wherever they
/// go.
fn is_about_objects(attributes: &Attributes) -> bool {
    attributes.is_resource_request && !attributes.verb.name().starts_with("impersonate")
}

fn is_get_or_head(attributes: &Attributes) -> bool {
    matches!(attributes.verb.name(), "get" | "head")
}

/// Returns true for reading exactly these paths: `/readyz/x` may name internals.
fn is_health(attributes: &Attributes) -> bool {
    !attributes.is_resource_request
        && is_get_or_head(attributes)
        && matches!(attributes.path.as_str(), "/healthz" | "/livez" | "/readyz")
}

/// Returns true for reading the version of the server, as everybody may in Kubernetes
/// (`system:public-info-viewer`). That of a workspace is for those whom it lets in.
fn is_server_version(attributes: &Attributes) -> bool {
    !attributes.is_resource_request
        && attributes.cluster.is_none()
        && is_get_or_head(attributes)
        && matches!(attributes.path.as_str(), "/version" | "/version/")
}

/// Decides on `impersonate`, and the constrained verbs `impersonate:user-info` and
/// `impersonate-on:…`.
///
/// An impersonated identity counts only in the workspace where it is impersonated, so that roles
/// there decide about the workspace's own users. Names of the system would count in more places,
/// and some extra fields of an identity say where it counts.
fn impersonation(is_platform_admin: bool, attributes: &Attributes) -> Decision {
    if !attributes.verb.name().starts_with("impersonate") {
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

/// Returns true for identities that a workspace can have of its own.
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
    verb.name() == "impersonate"
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

/// Refuses work in a workspace before its type's initializers are done. Reviews are no writes, and
/// admission decides on writes to the LogicalCluster.
fn unfinished(user: &Identities<'_>, attributes: &Attributes, facts: &ClusterFacts) -> Decision {
    let reads = attributes.verb.reads() || attributes.verb.name() == "head";
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
        && !attributes.verb.reads()
}

/// Returns true for writes to the status of Workspaces and WorkspaceTypes. kcp's export
/// `tenancy.kcp.io` leaves tenants reading there
/// (`config/root/clusterrole-tenancy-maximal-permission-policy.yaml`); platform administrators, who
/// come earlier in the chain, may write.
fn writes_tenancy_status(attributes: &Attributes) -> bool {
    attributes.is_resource_request
        && attributes.group == "tenancy.kcp.io"
        && attributes.subresource == "status"
        && !attributes.verb.reads()
}

/// Returns the message for a refused client.
///
/// ```text
/// configmaps "a" is forbidden: User "u" cannot get resource "configmaps" in API group "" in the
/// namespace "n": access denied
/// ```
/// All of it comes from the request itself.
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
    // In Kubernetes, a namespace object is inside itself.
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
        "{what} is forbidden: User {user:?} cannot {verb} resource {full:?} in API group {group:?} {place}: access \
            denied"
    )
}

#[cfg(test)]
mod tests;
