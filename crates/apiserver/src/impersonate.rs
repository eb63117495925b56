//! Headers that name a user: those of impersonation (`Impersonate-*`), of front proxies and of
//! other servers of the same authority. The rights that this takes are [`impersonation`]'s.

use crate::named_identity::{IdentityError, NamedIdentity};
use http::HeaderMap;
use insula_auth::{ClusterFacts, GROUP_MASTERS, USER_ANONYMOUS, UserInfo};
use insula_pipeline::impersonation::{self, GROUP_FRONT};

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
    let missing: Vec<String> = impersonation::own_groups(&user)
        .into_iter()
        .filter(|group| !user.is_in(group))
        .collect();
    user.groups.extend(missing);
    Ok(Some(user))
}

/// Reads the user in whose name another server of the same authority passes a request on. Like an
/// impersonated user, they count in the workspace of the request alone, and get to no other mount;
/// only a credential makes a user a master.
pub(crate) fn forwarded_user(caller: &UserInfo, headers: &HeaderMap) -> Result<Option<UserInfo>, IdentityError> {
    if !impersonation::is_front(caller) {
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
        Ok(Some(user)) => match impersonation::allowed(&caller, &user, None, &ClusterFacts::default()) {
            Ok(()) => Ok(user),
            Err(refused) => Err(NotActing::Forbidden(refused.1.message)),
        },
    }
}
