//! Roles within one cluster: which rules a user holds, and what they allow.
//!
//! Where the rules come from is the caller's matter ([`Roles`]): bindings and roles of the cluster, and those that are in
//! every cluster. A cluster's administrators hold all of them without a binding.

mod cover;
mod rule;

pub use cover::{grant_refusal, uncovered};
pub use rule::{PolicyRule, Subject, SubjectKind};

use crate::authorize::{Attributes, ClusterFacts, Decision, allow};
use crate::user::{USER_ANONYMOUS, UserInfo};
use std::fmt::Debug;

/// The rules of a cluster's roles.
pub trait Roles: Debug + Send + Sync {
    /// Shows the rules that bindings give a user for the whole cluster, and those for a namespace if one is named, until
    /// one is found; says whether one was.
    fn find(&self, user: &UserInfo, namespace: &str, found: &mut dyn FnMut(&PolicyRule) -> bool) -> bool;
}

/// The first part of a service account's name.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Whether the user administers the cluster. Nobody in particular is nobody's administrator, even where somebody wrote that
/// name down.
fn administers(user: &UserInfo, facts: &ClusterFacts) -> bool {
    let by_name = user.name != USER_ANONYMOUS && facts.admin_users.contains(&user.name);
    by_name || facts.admin_groups.iter().any(|group| user.is_in(group))
}

/// Whether the facts are about the cluster that is asked for. Facts of another cluster must not decide, whoever mixed
/// them up.
fn concern(facts: &ClusterFacts, attributes: &Attributes) -> bool {
    attributes.cluster.is_some() && attributes.cluster == facts.cluster
}

fn holds(user: &UserInfo, attributes: &Attributes, facts: &ClusterFacts) -> bool {
    let found = &mut |rule: &PolicyRule| rule.allows(attributes);
    let roles = facts.roles.as_ref();
    roles.is_some_and(|roles| roles.find(user, &attributes.namespace, found))
}

/// Whether the user may be in the cluster at all (kcp's workspace content authorizer): the verb `access` on the path `/`.
/// Its service accounts may.
pub(crate) fn may_enter(user: &UserInfo, attributes: &Attributes, facts: &ClusterFacts) -> bool {
    let enter = Attributes {
        verb: "access".to_owned(),
        path: "/".to_owned(),
        cluster: attributes.cluster.clone(),
        ..Attributes::default()
    };
    concern(facts, attributes)
        && (facts.entered
            || administers(user, facts)
            || user.name.starts_with(SERVICE_ACCOUNT)
            || holds(user, &enter, facts))
}

pub(crate) fn authorize(user: &UserInfo, attributes: &Attributes, facts: &ClusterFacts) -> Decision {
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
