//! Another server that knows users and decides about requests, where this server cannot.
//!
//! A delegate answers for one cluster here, that of [`cluster`]. Identities that it vouches for
//! come with names and groups of its own; the extra fields by which kcp confines an identity to
//! clusters name clusters of the delegate, so they have other names here.

use futures_util::future::BoxFuture;
use insula_api::ClusterName;
use insula_auth::{
    Attributes, ClusterFacts, Decision, EXTRA_CLUSTER, EXTRA_SCOPES, GROUP_KCP_ADMIN, GROUP_MASTERS, UserInfo, permit,
};

/// Prefix of extra fields that name clusters.
const CONFINES: &str = "authentication.kcp.io/";
/// Their prefix here, if they name clusters of the delegate.
const CONFINES_THERE: &str = "delegate.insula.io/";
/// Extra field with warrants, which count where they are given.
const WARRANTS: &str = "authorization.kcp.io/";

/// Another server that knows users and decides about requests.
pub trait Delegate: Send + Sync {
    /// Returns the user of a token, as the other server names them; None if it knows no such token.
    /// Waits for a bounded time. The error is a text for the client.
    fn user<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<UserInfo>, String>>;

    /// Decides about a request of a user, as the other server names them. Waits for a bounded time.
    /// The error is a text for the client.
    fn decide<'a>(&'a self, user: &'a UserInfo, attributes: &'a Attributes) -> BoxFuture<'a, Result<Decision, String>>;
}

/// Returns the only cluster that a delegate decides for.
pub fn cluster() -> ClusterName {
    ClusterName::root()
}

/// Returns a user of the delegate as a user here. One who counts in some of its clusters only is no
/// administrator of this server, whatever their groups.
pub fn adopted(user: UserInfo) -> UserInfo {
    let is_confined = user.extra.contains_key(EXTRA_SCOPES) || user.extra.contains_key(EXTRA_CLUSTER);
    let UserInfo {
        name,
        uid,
        mut groups,
        extra,
    } = user;
    if is_confined {
        groups.retain(|group| group != GROUP_MASTERS && group != GROUP_KCP_ADMIN);
    }
    let extra = extra.into_iter().filter(|(key, _)| !key.starts_with(WARRANTS));
    UserInfo {
        name,
        uid,
        groups,
        extra: extra
            .map(|(key, values)| (renamed(key, CONFINES, CONFINES_THERE), values))
            .collect(),
    }
}

/// Returns a user as the delegate names them.
fn returned(user: &UserInfo) -> UserInfo {
    let extra = user.extra.iter();
    UserInfo {
        extra: extra
            .map(|(key, values)| (renamed(key.clone(), CONFINES_THERE, CONFINES), values.clone()))
            .collect(),
        ..user.clone()
    }
}

fn renamed(key: String, from: &str, to: &str) -> String {
    match key.strip_prefix(from) {
        Some(rest) => format!("{to}{rest}"),
        None => key,
    }
}

/// Adds the delegate's decision to the facts about a request, where this server has none. Service
/// accounts and users of issuers of this server are its own: the delegate may have others of their
/// names.
///
/// # Errors
/// A text for the client: the delegate does not answer.
pub async fn add_decision(
    delegate: Option<&dyn Delegate>,
    user: &UserInfo,
    attributes: &Attributes,
    facts: &mut ClusterFacts,
) -> Result<(), String> {
    let is_own = [EXTRA_CLUSTER, EXTRA_SCOPES]
        .iter()
        .any(|key| user.extra.contains_key(*key));
    let Some(delegate) = delegate.filter(|_| !is_own && attributes.cluster.as_ref() == Some(&cluster())) else {
        return Ok(());
    };
    if permit(user, attributes.clone(), facts).is_err_and(|forbidden| forbidden.is_open()) {
        facts.delegated = Some(delegate.decide(&returned(user), attributes).await?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confined_users_of_a_delegate_are_nobody_special_here_and_themselves_there() {
        let mut user = UserInfo::authenticated("system:serviceaccount:a:b", "1", vec![GROUP_MASTERS.into()]);
        let free = adopted(user.clone());
        assert_eq!(free, user);
        let cluster = vec!["7".to_owned()];
        user.extra.insert(EXTRA_CLUSTER.into(), cluster.clone());
        user.extra.insert("example.com/team".into(), vec!["x".into()]);
        user.extra
            .insert("authorization.kcp.io/warrant".into(), vec!["{}".into()]);
        let known = adopted(user);
        assert_eq!(known.groups, ["system:authenticated"]);
        let keys: Vec<&String> = known.extra.keys().collect();
        assert_eq!(keys, ["delegate.insula.io/cluster-name", "example.com/team"]);
        assert_eq!(returned(&known).extra[EXTRA_CLUSTER], cluster);
    }
}
