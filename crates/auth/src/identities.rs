//! Who a user counts as in one cluster.
//!
//! Within their scopes users are themselves. Outside of them they are nobody in particular, of whom
//! no more is known than the clusters that vouch for them: an identity that was borrowed, or given
//! out by one workspace, must not count in another. A service account has a second name, which
//! tells its cluster, so that other clusters can grant it something. And a warrant lets its bearer
//! do what somebody else may, though not be them.
//!
//! ```text
//! robot of ns in a, in a:   system:serviceaccount:ns:robot + system:kcp:serviceaccount:a:ns:robot
//! robot of ns in a, in b:   system:anonymous [system:authenticated system:cluster:a] + system:kcp:serviceaccount:a:ns:robot
//! ```

use crate::user::{
    EXTRA_CLUSTER, EXTRA_SCOPES, EXTRA_WARRANT, GROUP_AUTHENTICATED, GROUP_MASTERS, USER_ANONYMOUS, UserInfo,
};
use insula_api::ClusterName;
use serde::Deserialize;
use std::{borrow::Cow, collections::BTreeMap};

/// The first part of a service account's name in its own cluster.
pub(crate) const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// The first part of the name that tells its cluster, too.
const GLOBAL_ACCOUNT: &str = "system:kcp:serviceaccount:";
/// Everybody for whom a cluster vouches, by its name.
const CLUSTER_GROUP: &str = "system:cluster:";
/// How the policy of an export names the users and groups of its consumers.
const CONSUMER: &str = "apis.kcp.io:binding:";
/// Warrants are read to this depth, and to this number in all; what is beyond gives nothing.
const WARRANT_DEPTH_MAX: usize = 4;
const IDENTITIES_MAX: usize = 16;

/// All that one user counts as. There is always one: their own, or nobody's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identities<'a>(Vec<Cow<'a, UserInfo>>);

/// What the extra key of warrants holds, as JSON.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Warrant {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl<'a> Identities<'a> {
    /// What the user counts as in the cluster. No cluster is outside of every scope.
    pub fn in_cluster(user: &'a UserInfo, cluster: Option<&ClusterName>) -> Self {
        let mut found = Vec::with_capacity(1);
        if user.extra.is_empty() {
            found.push(Cow::Borrowed(user));
        } else {
            add(Cow::Borrowed(user), cluster, WARRANT_DEPTH_MAX, &mut found);
        }
        Identities(found)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &UserInfo> {
        self.0.iter().map(|user| &**user)
    }

    /// Whether one of them belongs to the group.
    pub fn is_in(&self, group: &str) -> bool {
        self.iter().any(|user| user.is_in(group))
    }

    /// The user themselves, without warrants: nobody in particular outside of their scopes.
    pub(crate) fn into_own(self) -> UserInfo {
        self.0
            .into_iter()
            .next()
            .map_or_else(UserInfo::anonymous, Cow::into_owned)
    }

    /// The same as the policy of an export names them: everything has a prefix, and service
    /// accounts their cluster, so that those of two consumers are told apart. Whom a consumer alone
    /// vouches for, by lending a name or by an issuer of its own, is one of the consumer's to the
    /// export's owner, and not whoever else bears that name.
    pub(crate) fn as_consumers(&self, cluster: &ClusterName) -> Identities<'static> {
        let one = |user: &UserInfo| {
            let known = match account_of(user).is_none() && user.extra.contains_key(EXTRA_SCOPES) {
                true => Cow::Owned(outsider(user)),
                false => Cow::Borrowed(user),
            };
            let user = &*known;
            let name = match account_of(user) {
                Some(account) => format!(
                    "{CONSUMER}{GLOBAL_ACCOUNT}{}:{account}",
                    home(user).unwrap_or(cluster.as_str())
                ),
                None => format!("{CONSUMER}{}", user.name),
            };
            let groups = user.groups.iter().map(|group| format!("{CONSUMER}{group}"));
            Cow::Owned(UserInfo {
                name,
                groups: groups.collect(),
                ..UserInfo::default()
            })
        };
        Identities(self.iter().map(one).collect())
    }
}

fn add<'a>(user: Cow<'a, UserInfo>, cluster: Option<&ClusterName>, depth: usize, found: &mut Vec<Cow<'a, UserInfo>>) {
    if found.len() >= IDENTITIES_MAX {
        return;
    }
    let global = global_account(&user);
    let warrants = if depth == 0 { Vec::new() } else { warrants(&user) };
    found.push(match in_scope(&user, cluster) {
        true => user,
        false => Cow::Owned(outsider(&user)),
    });
    found.extend(global.map(Cow::Owned));
    for warrant in warrants {
        add(Cow::Owned(warrant), cluster, depth - 1, found);
    }
}

/// A service account's name after its prefix: `<namespace>:<name>`.
fn account_of(user: &UserInfo) -> Option<&str> {
    user.name.strip_prefix(SERVICE_ACCOUNT)
}

/// The cluster that an identity comes from. An identity that claims several comes from none.
fn home(user: &UserInfo) -> Option<&str> {
    match user.extra.get(EXTRA_CLUSTER).map(Vec::as_slice) {
        Some([home]) => Some(home),
        _ => None,
    }
}

fn in_scope(user: &UserInfo, cluster: Option<&ClusterName>) -> bool {
    // A service account that does not say its cluster is of the one that it is looked at in.
    let foreign = account_of(user).is_some()
        && user.extra.contains_key(EXTRA_CLUSTER)
        && home(user) != cluster.map(ClusterName::as_str);
    let scopes = user.extra.get(EXTRA_SCOPES).map(Vec::as_slice).unwrap_or_default();
    let names = |scope: &String| cluster.is_some_and(|cluster| clusters(scope).any(|name| name == cluster.as_str()));
    !foreign && scopes.iter().all(names)
}

/// The clusters that one scope names.
fn clusters(scope: &str) -> impl Iterator<Item = &str> {
    scope
        .split(',')
        .filter_map(|entry| entry.trim().strip_prefix("cluster:"))
}

/// Whom others see who are not meant to know the user: nobody in particular, and who vouches for
/// them.
fn outsider(user: &UserInfo) -> UserInfo {
    if !user.is_in(GROUP_AUTHENTICATED) {
        return UserInfo::anonymous();
    }
    let scopes = user.extra.get(EXTRA_SCOPES).map(Vec::as_slice).unwrap_or_default();
    let all = |name: &&str| scopes.iter().all(|scope| clusters(scope).any(|one| one == *name));
    let vouching = scopes.first().into_iter().flat_map(|scope| clusters(scope)).filter(all);
    let mut groups: Vec<String> = vouching.map(|name| format!("{CLUSTER_GROUP}{name}")).collect();
    groups.sort();
    groups.dedup();
    UserInfo::authenticated(USER_ANONYMOUS, "", groups)
}

/// A service account by the name that counts in every cluster.
fn global_account(user: &UserInfo) -> Option<UserInfo> {
    let (account, home) = (account_of(user)?, home(user)?);
    let mut groups = vec![format!("{CLUSTER_GROUP}{home}")];
    groups.extend(user.is_in(GROUP_AUTHENTICATED).then(|| GROUP_AUTHENTICATED.to_owned()));
    Some(UserInfo {
        name: format!("{GLOBAL_ACCOUNT}{home}:{account}"),
        groups,
        ..UserInfo::default()
    })
}

/// Whom the user's warrants name. What is not well-formed, or would count everywhere, gives
/// nothing.
fn warrants(user: &UserInfo) -> Vec<UserInfo> {
    let texts = user.extra.get(EXTRA_WARRANT).map(Vec::as_slice).unwrap_or_default();
    let read = |text: &String| {
        let Warrant {
            user: name,
            uid,
            mut groups,
            extra,
        } = serde_json::from_str(text).ok()?;
        // Nothing makes a master but a credential.
        groups.retain(|group| group != GROUP_MASTERS);
        let named = UserInfo {
            name,
            uid,
            groups,
            extra,
        };
        let nowhere = account_of(&named).is_some() && home(&named).is_none();
        (!nowhere).then_some(named)
    };
    texts.iter().take(IDENTITIES_MAX).filter_map(read).collect()
}

#[cfg(test)]
mod tests;
