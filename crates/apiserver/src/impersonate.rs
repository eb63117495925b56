//! Acting as another (`Impersonate-*`): whom the headers name, and whether their sender may.
//!
//! A borrowed identity counts in the workspace where it was borrowed, and nowhere else. So whoever
//! holds the verb `impersonate` there may lend it to themselves; names of the system, and what says
//! where an identity counts, are for administrators of the platform
//! ([`insula_auth::Step::Impersonation`]).

use crate::{query::percent_decoded, reply::Reply};
use http::HeaderMap;
use insula_api::ClusterName;
use insula_auth::{
    Attributes, ClusterFacts, EXTRA_SCOPES, Forbidden, GROUP_AUTHENTICATED, USER_ANONYMOUS, UserInfo, permit,
};
use insula_registry::Error;

const NOBODY: &str = "requested impersonation of groups, uid or extra without impersonating a user";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The user that the headers name.
pub(crate) fn asked(headers: &HeaderMap) -> Result<Option<UserInfo>, Reply> {
    let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let name = headers.get("impersonate-user").map(text).unwrap_or_default();
    let groups: Vec<String> = headers.get_all("impersonate-group").iter().map(text).collect();
    let rest = headers
        .keys()
        .any(|key| key.as_str().starts_with("impersonate-") && key != "impersonate-user");
    if name.is_empty() {
        return match rest {
            true => Err(Reply::error(&Error::BadRequest(NOBODY.into()))),
            false => Ok(None),
        };
    }
    let mut user = UserInfo {
        name,
        groups,
        uid: headers.get("impersonate-uid").map(text).unwrap_or_default(),
        ..UserInfo::default()
    };
    for key in headers.keys() {
        if let Some(extra) = key.as_str().strip_prefix("impersonate-extra-") {
            let extra = percent_decoded(extra).to_lowercase();
            user.extra
                .insert(extra, headers.get_all(key).iter().map(text).collect());
        }
    }
    let missing: Vec<String> = own_groups(&user)
        .into_iter()
        .filter(|group| !user.is_in(group))
        .collect();
    user.groups.extend(missing);
    Ok(Some(user))
}

/// Why a request is not answered as somebody else's.
#[derive(Debug)]
pub enum NotActing {
    /// The headers name nobody.
    Nobody(&'static str),
    /// The caller may not.
    Forbidden(String),
}

/// Whom a request beside all workspaces is from: the caller, or whom they act as.
///
/// # Errors
/// The headers name nobody, or somebody whom the caller may not act as.
pub fn acting(caller: UserInfo, headers: &HeaderMap) -> Result<UserInfo, NotActing> {
    match asked(headers) {
        Err(_) => Err(NotActing::Nobody(NOBODY)),
        Ok(None) => Ok(caller),
        Ok(Some(user)) => match allowed(&caller, &user, None, &ClusterFacts::default()) {
            Ok(()) => Ok(user),
            Err(refused) => Err(NotActing::Forbidden(refused.1.message)),
        },
    }
}

/// The groups that a user is in without being asked.
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

/// Namespace and name of a service account.
fn account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')
}

/// Confines a borrowed identity to the workspace where it was borrowed.
pub(crate) fn confine(user: &mut UserInfo, cluster: &ClusterName) {
    let scopes = user.extra.entry(EXTRA_SCOPES.to_owned()).or_default();
    scopes.push(format!("cluster:{cluster}"));
}

/// Whether the caller may act as the user.
///
/// # Errors
/// What they may not.
pub(crate) fn allowed(
    caller: &UserInfo,
    user: &UserInfo,
    cluster: Option<&ClusterName>,
    facts: &ClusterFacts,
) -> Result<(), Box<(Attributes, Forbidden)>> {
    for wish in wishes(user, cluster) {
        permit(caller, wish.clone(), facts).map_err(|forbidden| Box::new((wish, forbidden)))?;
    }
    Ok(())
}

/// What has to be allowed to act as the user: each of their names.
fn wishes(user: &UserInfo, cluster: Option<&ClusterName>) -> Vec<Attributes> {
    let wish = |group: &str, resource: &str, subresource: &str, name: &str| Attributes {
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
    let mut wishes = vec![match account(&user.name) {
        Some((namespace, name)) => Attributes {
            namespace: namespace.into(),
            ..wish("", "serviceaccounts", "", name)
        },
        None => wish("", "users", "", &user.name),
    }];
    let own = own_groups(user);
    let groups = user.groups.iter().filter(|group| !own.contains(group));
    wishes.extend(groups.map(|group| wish("", "groups", "", group)));
    if !user.uid.is_empty() {
        wishes.push(wish(IDENTITY, "uids", "", &user.uid));
    }
    // The scope of this cluster was added by us, and takes rights away.
    let here = cluster.map(|cluster| format!("cluster:{cluster}"));
    for (key, values) in &user.extra {
        let values = values
            .iter()
            .filter(|value| key != EXTRA_SCOPES || Some(*value) != here.as_ref());
        wishes.extend(values.map(|value| wish(IDENTITY, "userextras", key, value)));
    }
    wishes
}
