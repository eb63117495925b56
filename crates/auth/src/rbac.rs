//! Roles within one cluster: which rules a user holds, and what they allow.
//!
//! Where the rules come from is the caller's matter ([`Roles`]): bindings and roles of the cluster,
//! and those that are in every cluster. A cluster's administrators hold all of them without a
//! binding.

mod cover;
mod rule;

pub use cover::{grant_refusal, uncovered};
pub use rule::{PolicyRule, Subject, SubjectKind};

use crate::authorize::{Attributes, ClusterFacts, Decision, allow};
use crate::identities::{Identities, SERVICE_ACCOUNT};
use crate::user::{USER_ANONYMOUS, UserInfo};
use std::{fmt::Debug, sync::Arc};

/// The rules of a cluster's roles.
pub trait Roles: Debug + Send + Sync {
    /// Shows the rules that bindings give a user for the whole cluster, and those for a namespace
    /// if one is named, until one is found; says whether one was.
    fn find(&self, user: &Identities<'_>, namespace: &str, found: &mut dyn FnMut(&PolicyRule) -> bool) -> bool;

    /// Where a resource is bound from an export whose owner limits what consumers may do: the roles
    /// in the export's cluster, which say to what.
    fn ceiling(&self, group: &str, resource: &str) -> Option<Arc<dyn Roles>>;
}

/// Whether the user administers the cluster. Nobody in particular is nobody's administrator, even
/// where somebody wrote that name down.
pub(crate) fn administers(user: &Identities<'_>, facts: &ClusterFacts) -> bool {
    let by_name = |user: &UserInfo| user.name != USER_ANONYMOUS && facts.admin_users.contains(&user.name);
    user.iter().any(by_name) || facts.admin_groups.iter().any(|group| user.is_in(group))
}

/// Whether the facts are about the cluster that is asked for. Facts of another cluster must not
/// decide, whoever mixed them up.
fn concern(facts: &ClusterFacts, attributes: &Attributes) -> bool {
    attributes.cluster.is_some() && attributes.cluster == facts.cluster
}

fn holds(user: &Identities<'_>, attributes: &Attributes, facts: &ClusterFacts) -> bool {
    let found = &mut |rule: &PolicyRule| rule.allows(attributes);
    let roles = facts.roles.as_ref();
    roles.is_some_and(|roles| roles.find(user, &attributes.namespace, found))
}

/// Whether a service account of the cluster asks.
fn is_account(user: &Identities<'_>) -> bool {
    user.iter().any(|user| user.name.starts_with(SERVICE_ACCOUNT))
}

/// Whether the user belongs to the groups without which nobody enters the cluster. Its own service
/// accounts need not.
pub(crate) fn has_required_groups(user: &Identities<'_>, attributes: &Attributes, facts: &ClusterFacts) -> bool {
    let Some(required) = &facts.required_groups else {
        return true;
    };
    concern(facts, attributes) && (facts.entered || is_account(user) || required.has(user))
}

/// Whether the owner of the export that the resource is bound from leaves this to consumers at all
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

/// The same, asked of somebody who comes from outside: the provider of another export, whom the
/// cluster lets in.
pub fn leaves_to(user: &UserInfo, attributes: &Attributes, facts: &ClusterFacts) -> bool {
    is_below_ceiling(&Identities::in_cluster(user, None), attributes, facts)
}

/// Whether the user may be in the cluster at all (kcp's workspace content authorizer): the verb
/// `access` on the path `/`. Its service accounts may.
pub(crate) fn may_enter(user: &Identities<'_>, attributes: &Attributes, facts: &ClusterFacts) -> bool {
    let enter = Attributes {
        verb: "access".to_owned(),
        path: "/".to_owned(),
        cluster: attributes.cluster.clone(),
        ..Attributes::default()
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
