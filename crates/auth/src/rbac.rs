//! Role-based access control within one cluster: the rules that a user holds, and the requests that
//! they allow.
//!
//! The caller provides the rules ([`Roles`]): those of the cluster's bindings and roles, and those
//! of every cluster. Administrators of a cluster hold all rules without a binding.

mod cover;
mod rule;

pub use cover::{grant_refusal, uncovered};
pub use rule::{PolicyRule, Subject, SubjectKind};

use crate::attributes::{Attributes, Decision, allow};
use crate::identities::{Identities, SERVICE_ACCOUNT};
use crate::required::RequiredGroups;
use crate::user::{USER_ANONYMOUS, UserInfo};
use insula_api::ClusterName;
use std::{fmt::Debug, sync::Arc};

/// Roles and bindings of a cluster.
pub trait Roles: Debug + Send + Sync {
    /// Passes to `found` the rules that bindings give a user for the whole cluster, and for the
    /// namespace if one is named, until it returns true. Returns true if it did.
    fn find(&self, user: &Identities<'_>, namespace: &str, found: &mut dyn FnMut(&PolicyRule) -> bool) -> bool;

    /// Returns the roles in the cluster of the export that a resource is bound from, if the export
    /// limits its consumers: the maximal permission policy.
    fn ceiling(&self, group: &str, resource: &str) -> Option<Arc<dyn Roles>>;
}

/// Facts about a cluster that authorization may use.
#[derive(Debug, Clone, Default)]
pub struct ClusterFacts {
    /// The cluster of these facts; facts about another cluster are ignored.
    pub cluster: Option<ClusterName>,
    /// Users that administer this cluster. Administrators of a parent have no rights here by that.
    pub admin_users: Vec<String>,
    /// Groups that administer this cluster.
    pub admin_groups: Vec<String>,
    /// Groups that every user of the cluster needs.
    pub required_groups: Option<Arc<RequiredGroups>>,
    /// Roles in this cluster; `None` where there is no cluster.
    pub roles: Option<Arc<dyn Roles>>,
    /// True if the user counts as having entered the cluster: exports are bound from outside.
    pub entered: bool,
    /// True while its initializers run: then only its administrators may read in it.
    pub unfinished: bool,
    /// The decision of another server about this request, where that server was asked.
    pub delegated: Option<Decision>,
}

/// Returns true if the user administers the cluster. The anonymous user never does, even if facts
/// name it.
pub(crate) fn administers(user: &Identities<'_>, facts: &ClusterFacts) -> bool {
    let by_name = |user: &UserInfo| user.name != USER_ANONYMOUS && facts.admin_users.contains(&user.name);
    user.iter().any(by_name) || facts.admin_groups.iter().any(|group| user.is_in(group))
}

/// Returns true if the facts are about the requested cluster. Facts of another cluster must never
/// decide.
fn concern(facts: &ClusterFacts, attributes: &Attributes) -> bool {
    attributes.cluster.is_some() && attributes.cluster == facts.cluster
}

fn holds(user: &Identities<'_>, attributes: &Attributes, facts: &ClusterFacts) -> bool {
    let found = &mut |rule: &PolicyRule| rule.allows(attributes);
    let roles = facts.roles.as_ref();
    roles.is_some_and(|roles| roles.find(user, &attributes.namespace, found))
}

/// Returns true for a service account of the cluster.
fn is_account(user: &Identities<'_>) -> bool {
    user.iter().any(|user| user.name.starts_with(SERVICE_ACCOUNT))
}

/// Returns true if the user belongs to the groups that the cluster requires. Its own service
/// accounts do not need them.
pub(crate) fn has_required_groups(user: &Identities<'_>, attributes: &Attributes, facts: &ClusterFacts) -> bool {
    let Some(required) = &facts.required_groups else {
        return true;
    };
    concern(facts, attributes) && (facts.entered || is_account(user) || required.has(user))
}

/// Returns true if the export that the resource is bound from allows this to consumers
/// (`spec.maximalPermissionPolicy`).
pub(crate) fn is_below_ceiling(user: &Identities<'_>, attributes: &Attributes, facts: &ClusterFacts) -> bool {
    let Some(cluster) = attributes.cluster.as_ref().filter(|_| attributes.is_resource_request) else {
        return true;
    };
    let roles = facts.roles.as_ref().filter(|_| concern(facts, attributes));
    let ceiling = roles.and_then(|roles| roles.ceiling(&attributes.group, &attributes.resource));
    ceiling.is_none_or(|ceiling| {
        let found = &mut |rule: &PolicyRule| rule.allows(attributes);
        ceiling.find(&user.as_consumers(cluster), &attributes.namespace, found)
    })
}

/// Returns true if the export allows this to a user from outside: the provider of another export,
/// whom the cluster admits.
pub fn leaves_to(user: &UserInfo, attributes: &Attributes, facts: &ClusterFacts) -> bool {
    is_below_ceiling(&Identities::in_cluster(user, None), attributes, facts)
}

/// Returns true if the user may enter the cluster (kcp's workspace content authorizer): the verb
/// `access` on the path `/`. Its service accounts may.
pub(crate) fn may_enter(user: &Identities<'_>, attributes: &Attributes, facts: &ClusterFacts) -> bool {
    let enter = Attributes {
        cluster: attributes.cluster.clone(),
        ..Attributes::entering()
    };
    concern(facts, attributes)
        && (facts.entered || administers(user, facts) || is_account(user) || holds(user, &enter, facts))
}

pub(crate) fn authorize(user: &Identities<'_>, attributes: &Attributes, facts: &ClusterFacts) -> Decision {
    if !concern(facts, attributes) {
        Decision::NoOpinion
    } else if administers(user, facts) {
        allow("administrator of the cluster")
    } else if holds(user, attributes, facts) {
        allow("a role allows it")
    } else {
        Decision::NoOpinion
    }
}
