//! Identities of a user in one cluster.
//!
//! Within their scopes, users keep their identity. Outside of them they are anonymous, with groups
//! for the clusters that vouch for them: an impersonated identity, or one issued by a workspace,
//! must not count in another workspace. A service account has a second, global name with its
//! cluster, so that other clusters can grant it permissions. A warrant gives its bearer the
//! permissions of another user, but not the identity.
//!
//! ```text
//! robot of ns in a, in a:   system:serviceaccount:ns:robot
//!                           + system:kcp:serviceaccount:a:ns:robot
//! robot of ns in a, in b:   system:anonymous [system:authenticated system:cluster:a]
//!                           + system:kcp:serviceaccount:a:ns:robot
//! ```

use crate::user::{
    EXTRA_CLUSTER, EXTRA_SCOPES, EXTRA_WARRANT, GROUP_AUTHENTICATED, GROUP_MASTERS, USER_ANONYMOUS, UserInfo,
};
use insula_api::ClusterName;
use serde::Deserialize;
use std::{borrow::Cow, collections::BTreeMap};

/// Prefix of a service account's name in its own cluster.
pub(crate) const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Prefix of a service account's global name, which includes its cluster.
const GLOBAL_ACCOUNT: &str = "system:kcp:serviceaccount:";
/// Prefix of the group of all users for whom a cluster vouches.
const CLUSTER_GROUP: &str = "system:cluster:";
/// Prefix of the consumers' users and groups in an export's policy.
const CONSUMER: &str = "apis.kcp.io:binding:";
/// Limits of nested warrants: depth, and number in total. Warrants beyond are ignored.
const WARRANT_DEPTH_MAX: usize = 4;
const IDENTITIES_MAX: usize = 16;

/// All identities of one user in a cluster. There is always at least one: the user's own, or the
/// anonymous one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identities<'a>(Vec<Cow<'a, UserInfo>>);

/// JSON value of the warrant extra key.
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
    /// Returns the user's identities in the cluster. `None` is outside of every scope.
    pub fn in_cluster(user: &'a UserInfo, cluster: Option<&ClusterName>) -> Self {
        let mut found = Vec::with_capacity(1);
        if user.extra.is_empty() {
            found.push(Cow::Borrowed(user));
        } else {
            add(Cow::Borrowed(user), cluster, WARRANT_DEPTH_MAX, &mut found);
        }
        Identities(found)
    }

    /// Iterates over the identities.
    pub fn iter(&self) -> impl Iterator<Item = &UserInfo> {
        self.0.iter().map(|user| &**user)
    }

    /// Returns true if one of the identities belongs to the group.
    pub fn is_in(&self, group: &str) -> bool {
        self.iter().any(|user| user.is_in(group))
    }

    /// Returns the user's own identity, without warrants: anonymous outside of their scopes.
    pub(crate) fn into_own(self) -> UserInfo {
        self.0
            .into_iter()
            .next()
            .map_or_else(UserInfo::anonymous, Cow::into_owned)
    }

    /// Returns the identities as an export's policy names them: all names have a prefix, and
    /// service accounts their cluster, so that accounts of two consumers differ. An identity for
    /// which only the consumer vouches, by impersonation or by its own issuer, counts as the
    /// consumer's, not as other users of that name.
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

impl UserInfo {
    /// Returns the user as `cluster` sees them: anonymous outside of their scopes, see
    /// [`Identities`].
    pub fn within(&self, cluster: Option<&ClusterName>) -> UserInfo {
        Identities::in_cluster(self, cluster).into_own()
    }

    /// Returns the name by which a binding in `cluster` can name the user: the global name of a
    /// service account of another cluster. `None` for a user whose name does not count there.
    pub fn name_within(&self, cluster: Option<&ClusterName>) -> Option<String> {
        let identities = Identities::in_cluster(self, cluster);
        let mut names = identities.iter().map(|user| &user.name);
        names.find(|name| *name != USER_ANONYMOUS).cloned()
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

/// Returns a service account's name without its prefix: `<namespace>:<name>`.
fn account_of(user: &UserInfo) -> Option<&str> {
    user.name.strip_prefix(SERVICE_ACCOUNT)
}

/// Returns the cluster that an identity comes from. An identity that claims several comes from
/// none.
fn home(user: &UserInfo) -> Option<&str> {
    match user.extra.get(EXTRA_CLUSTER).map(Vec::as_slice) {
        Some([home]) => Some(home),
        _ => None,
    }
}

fn in_scope(user: &UserInfo, cluster: Option<&ClusterName>) -> bool {
    // A service account without a cluster belongs to the cluster at hand.
    let foreign = account_of(user).is_some()
        && user.extra.contains_key(EXTRA_CLUSTER)
        && home(user) != cluster.map(ClusterName::as_str);
    let scopes = user.extra.get(EXTRA_SCOPES).map(Vec::as_slice).unwrap_or_default();
    let names = |scope: &String| cluster.is_some_and(|cluster| clusters(scope).any(|name| name == cluster.as_str()));
    !foreign && scopes.iter().all(names)
}

/// Returns the clusters that one scope names.
fn clusters(scope: &str) -> impl Iterator<Item = &str> {
    scope
        .split(',')
        .filter_map(|entry| entry.trim().strip_prefix("cluster:"))
}

/// Returns the identity of a user outside of their scopes: anonymous, with groups for the clusters
/// that vouch for them.
fn outsider(user: &UserInfo) -> UserInfo {
    if !user.is_in(GROUP_AUTHENTICATED) {
        return UserInfo::anonymous();
    }
    let scopes = user.extra.get(EXTRA_SCOPES).map(Vec::as_slice).unwrap_or_default();
    let all = |name: &&str| scopes.iter().all(|scope| clusters(scope).any(|one| one == *name));
    let vouching = scopes.first().into_iter().flat_map(|scope| clusters(scope)).filter(all);
    let mut groups: Vec<String> = vouching.map(|name| format!("{CLUSTER_GROUP}{name}")).collect();
    groups.sort_unstable();
    groups.dedup();
    UserInfo::authenticated(USER_ANONYMOUS, "", groups)
}

/// Returns a service account with its global name.
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

/// Returns the users that a user's warrants name. Ignores warrants that are malformed or would
/// count everywhere.
fn warrants(user: &UserInfo) -> Vec<UserInfo> {
    let texts = user.extra.get(EXTRA_WARRANT).map(Vec::as_slice).unwrap_or_default();
    let texts = texts.iter().take(IDENTITIES_MAX);
    texts.filter_map(|text| read_warrant(text)).collect()
}

fn read_warrant(text: &str) -> Option<UserInfo> {
    let Warrant {
        user: name,
        uid,
        mut groups,
        extra,
    } = serde_json::from_str(text).ok()?;
    // Only a credential makes a user a master.
    groups.retain(|group| group != GROUP_MASTERS);
    let named = UserInfo {
        name,
        uid,
        groups,
        extra,
    };
    let nowhere = account_of(&named).is_some() && home(&named).is_none();
    (!nowhere).then_some(named)
}

/// Returns the user that a warrant names, without their scope, if it counts in the cluster alone
/// and hands on no further warrant. Such a warrant gives what impersonation in that cluster gives.
pub fn confined_warrant(text: &str, cluster: &ClusterName) -> Option<UserInfo> {
    let mut named = read_warrant(text)?;
    let scopes = named.extra.remove(EXTRA_SCOPES)?;
    let confined = scopes.iter().any(|scope| *scope == format!("cluster:{cluster}"));
    (confined && !named.extra.contains_key(EXTRA_WARRANT)).then_some(named)
}

#[cfg(test)]
mod tests;
