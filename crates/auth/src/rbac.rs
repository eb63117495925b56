//! Roles within one cluster.
//!
//! A cluster's administrators hold its role `cluster-admin`; that is the one binding looked at so far. Rules of other
//! roles come in through [`ClusterFacts`] as well, when the registry serves them: this step stays where it is.

use crate::authorize::{Attributes, ClusterFacts, Decision, allow};
use crate::user::{USER_ANONYMOUS, UserInfo};

pub(crate) fn authorize(user: &UserInfo, attributes: &Attributes, facts: &ClusterFacts) -> Decision {
    // Facts of another cluster must not decide here, whoever mixed them up.
    if attributes.cluster.is_none() || attributes.cluster != facts.cluster {
        return Decision::NoOpinion;
    }
    // Nobody in particular is nobody's administrator, even where somebody wrote that name down.
    let by_name = user.name != USER_ANONYMOUS && facts.admin_users.contains(&user.name);
    let by_group = facts.admin_groups.iter().any(|group| user.is_in(group));
    if by_name || by_group {
        allow("administrator of the cluster")
    } else {
        Decision::NoOpinion
    }
}
