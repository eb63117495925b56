//! Impersonation (`Impersonate-*`): the user that the headers name, and the sender's right to act
//! as that user.
//!
//! An impersonated identity counts in the workspace of the request, and nowhere else. So the verb
//! `impersonate` in a workspace is enough to act as its users, and to hold a warrant of one of them
//! that counts there alone; names of the system, and the extra fields that scope an identity, are
//! for administrators of the platform ([`insula_auth::Step::Impersonation`]).

use crate::named_identity::{IdentityError, NamedIdentity};
use http::HeaderMap;
use insula_api::ClusterName;
use insula_auth::{
    Attributes, ClusterFacts, EXTRA_SCOPES, EXTRA_WARRANT, Forbidden, GROUP_AUTHENTICATED, GROUP_MASTERS,
    USER_ANONYMOUS, UserInfo, confined_warrant, permit,
};

/// Organization of the certificate `pki/front.crt`.
pub(crate) const GROUP_FRONT: &str = "system:insula:front";
pub(crate) const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Reads the user that the headers name. An empty name is none, as in Kubernetes.
pub(crate) fn requested_user(headers: &HeaderMap) -> Result<Option<UserInfo>, IdentityError> {
    let named = NamedIdentity::read(headers, "impersonate-")?;
    let Some(name) = named.name.filter(|name| !name.is_empty()) else {
        return match named.has_more {
            true => Err(IdentityError::WithoutUser),
            false => Ok(None),
        };
    };
    let mut user = UserInfo {
        name,
        uid: named.uid,
        groups: named.groups,
        extra: named.extra,
    };
    let missing: Vec<String> = own_groups(&user)
        .into_iter()
        .filter(|group| !user.is_in(group))
        .collect();
    user.groups.extend(missing);
    Ok(Some(user))
}

/// Returns true for the certificate that a server of this authority shows the servers of its
/// mounts. Whoever has it may name any user.
fn is_front(caller: &UserInfo) -> bool {
    caller.is_in(GROUP_FRONT)
}

/// Reads the user in whose name another server of the same authority passes a request on. Like an
/// impersonated user, they count in the workspace of the request alone, and get to no other mount;
/// only a credential makes a user a master.
pub(crate) fn forwarded_user(caller: &UserInfo, headers: &HeaderMap) -> Result<Option<UserInfo>, IdentityError> {
    if !is_front(caller) {
        return Ok(None);
    }
    match remote_user(headers)? {
        Some(user) if user.name.is_empty() => Err(IdentityError::NoName),
        user => Ok(user),
    }
}

/// Reads the user whom a front proxy names. They count as if they had authenticated here. An empty
/// name is none, as in Kubernetes. Only the proxy of a server that this one delegates to may name a
/// master.
///
/// # Errors
/// A header that is no text.
pub fn proxied_user(headers: &HeaderMap, names_masters: bool) -> Result<Option<UserInfo>, IdentityError> {
    let is_master = |value: &http::HeaderValue| value.as_bytes() == GROUP_MASTERS.as_bytes();
    let is_master = names_masters && headers.get_all("x-remote-group").iter().any(is_master);
    let Some(named) = remote_user(headers)?.filter(|user| !user.name.is_empty()) else {
        return Ok(None);
    };
    if named.name == USER_ANONYMOUS {
        return Ok(Some(UserInfo::anonymous()));
    }
    let mut user = UserInfo::authenticated(named.name, named.uid, named.groups);
    user.groups.extend(is_master.then(|| GROUP_MASTERS.to_owned()));
    user.extra = named.extra;
    Ok(Some(user))
}

/// Reads the headers by which proxies name a user.
fn remote_user(headers: &HeaderMap) -> Result<Option<UserInfo>, IdentityError> {
    let named = NamedIdentity::read(headers, "x-remote-")?;
    let Some(name) = named.name else { return Ok(None) };
    let mut user = UserInfo {
        name,
        uid: named.uid,
        groups: named.groups,
        extra: named.extra,
    };
    user.groups
        .retain(|group| group != GROUP_MASTERS && group != GROUP_FRONT && !group.is_empty());
    Ok(Some(user))
}

/// The refusal of an impersonation.
#[derive(Debug)]
pub enum NotActing {
    /// The headers name no user, or are no text.
    Unnamed(IdentityError),
    /// The caller has no right to act as the user.
    Forbidden(String),
}

/// Returns the user of a request outside of workspaces: the caller, or the user as whom they act.
///
/// # Errors
/// The headers name no user or are no text, or the caller may not act as the user.
pub fn acting(caller: UserInfo, headers: &HeaderMap) -> Result<UserInfo, NotActing> {
    match requested_user(headers) {
        Err(why) => Err(NotActing::Unnamed(why)),
        Ok(None) => Ok(caller),
        Ok(Some(user)) => match allowed(&caller, &user, None, &ClusterFacts::default()) {
            Ok(()) => Ok(user),
            Err(refused) => Err(NotActing::Forbidden(refused.1.message)),
        },
    }
}

/// Groups that a user of a name is always in.
fn own_groups(user: &UserInfo) -> Vec<String> {
    let mut groups = Vec::new();
    if let Some((namespace, _)) = account(&user.name) {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    if user.name != USER_ANONYMOUS {
        groups.push(GROUP_AUTHENTICATED.to_owned());
    }
    groups
}

/// Splits the name of a service account into its namespace and its name.
fn account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')
}

/// Confines an impersonated identity to the workspace of the request.
pub(crate) fn confine(user: &mut UserInfo, cluster: &ClusterName) {
    let scopes = user.extra.entry(EXTRA_SCOPES.to_owned()).or_default();
    scopes.push(format!("cluster:{cluster}"));
}

/// Checks that the caller may act as the user.
///
/// # Errors
/// The first right that the caller lacks, with its refusal.
pub(crate) fn allowed(
    caller: &UserInfo,
    user: &UserInfo,
    cluster: Option<&ClusterName>,
    facts: &ClusterFacts,
) -> Result<(), Box<(Attributes, Forbidden)>> {
    if is_front(caller) {
        return Ok(());
    }
    for right in required_rights(user, cluster) {
        permit(caller, right.clone(), facts).map_err(|forbidden| Box::new((right, forbidden)))?;
    }
    Ok(())
}

/// Returns the rights that acting as the user takes: one for each name, group, uid and extra value.
fn required_rights(user: &UserInfo, cluster: Option<&ClusterName>) -> Vec<Attributes> {
    let right = |group: &str, resource: &str, subresource: &str, name: &str| Attributes {
        verb: "impersonate".into(),
        group: group.into(),
        resource: resource.into(),
        subresource: subresource.into(),
        name: name.into(),
        cluster: cluster.cloned(),
        is_resource_request: true,
        ..Attributes::default()
    };
    const IDENTITY: &str = "authentication.k8s.io";
    let mut rights = vec![match account(&user.name) {
        Some((namespace, name)) => Attributes {
            namespace: namespace.into(),
            ..right("", "serviceaccounts", "", name)
        },
        None => right("", "users", "", &user.name),
    }];
    let own = own_groups(user);
    let groups = user.groups.iter().filter(|group| !own.contains(group));
    rights.extend(groups.map(|group| right("", "groups", "", group)));
    if !user.uid.is_empty() {
        rights.push(right(IDENTITY, "uids", "", &user.uid));
    }
    // The scope of this cluster was added by us, and takes rights away.
    let here = cluster.map(|cluster| format!("cluster:{cluster}"));
    for (key, values) in &user.extra {
        let confined = |value: &String| match (cluster, key.as_str()) {
            (Some(cluster), EXTRA_WARRANT) => confined_warrant(value, cluster),
            _ => None,
        };
        let warranted = values.iter().filter_map(confined);
        rights.extend(warranted.flat_map(|user| required_rights(&user, cluster)));
        let values = values.iter().filter(|value| confined(value).is_none());
        let values = values.filter(|value| key != EXTRA_SCOPES || Some(*value) != here.as_ref());
        rights.extend(values.map(|value| right(IDENTITY, "userextras", key, value)));
    }
    rights
}
