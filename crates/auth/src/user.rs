//! Users of requests, as Kubernetes describes them.

use std::{borrow::Cow, collections::BTreeMap};

/// Group that may do everything everywhere; nothing can restrict it.
pub const GROUP_MASTERS: &str = "system:masters";
/// Group that administers every workspace, except the `system:` clusters.
pub const GROUP_KCP_ADMIN: &str = "system:kcp:admin";
/// Group of all users with a credential.
pub const GROUP_AUTHENTICATED: &str = "system:authenticated";
/// Group of all users without a credential.
pub const GROUP_UNAUTHENTICATED: &str = "system:unauthenticated";
/// Name of users without a credential.
pub const USER_ANONYMOUS: &str = "system:anonymous";
/// Extra key with the clusters in which an identity counts, as `cluster:a,cluster:b`; of several
/// values, all must allow a cluster.
pub const EXTRA_SCOPES: &str = "authentication.kcp.io/scopes";
/// Extra key with the cluster that an identity comes from, if any.
pub const EXTRA_CLUSTER: &str = "authentication.kcp.io/cluster-name";
/// Extra key with warrants: users whose permissions the user has, too, each as JSON.
pub const EXTRA_WARRANT: &str = "authorization.kcp.io/warrant";
/// Extra key with the id of the credential, so that audit can tell sessions of one user apart.
pub const EXTRA_CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// The user of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserInfo {
    /// Unique name of the user.
    pub name: String,
    /// Identifier that differs between users who had the same name at different times.
    pub uid: String,
    /// Groups, in the order of the credential.
    pub groups: Vec<String>,
    /// Other facts from the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Makes a user with a credential: adds `system:authenticated`.
    pub fn authenticated(name: impl Into<String>, uid: impl Into<String>, groups: Vec<String>) -> Self {
        let mut user = UserInfo {
            name: name.into(),
            uid: uid.into(),
            groups,
            extra: BTreeMap::new(),
        };
        if !user.is_in(GROUP_AUTHENTICATED) {
            user.groups.push(GROUP_AUTHENTICATED.to_owned());
        }
        user
    }

    /// Makes the user of requests without a credential.
    pub fn anonymous() -> Self {
        let groups = vec![GROUP_UNAUTHENTICATED.to_owned()];
        UserInfo {
            name: USER_ANONYMOUS.to_owned(),
            groups,
            ..UserInfo::default()
        }
    }

    /// Returns true if the user belongs to the group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// Returns the name under which usage is counted. A user known to one cluster only (a service
    /// account, a user of its own issuer) is counted apart from others of that name, so that nobody
    /// uses up another's share.
    pub fn account_name(&self) -> Cow<'_, str> {
        match self.extra.get(EXTRA_CLUSTER).map(Vec::as_slice) {
            None | Some([]) => Cow::Borrowed(&self.name),
            Some(clusters) => Cow::Owned(format!("{} of {}", self.name, clusters.join(","))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namesakes_of_other_clusters_are_counted_apart() {
        let mut user = UserInfo::authenticated("system:serviceaccount:default:default", "", Vec::new());
        assert_eq!(user.account_name(), user.name);
        user.extra.insert(EXTRA_CLUSTER.to_owned(), vec!["a".to_owned()]);
        assert_eq!(user.account_name(), "system:serviceaccount:default:default of a");
    }
}
