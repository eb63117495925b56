//! The right to act as another user.
//!
//! An impersonated identity counts in the workspace of the request, and nowhere else. So the verb
//! `impersonate` in a workspace is enough to act as its users, and to hold a warrant of one of them
//! that counts there alone; names of the system, and the extra fields that scope an identity, are
//! for administrators of the platform ([`insula_auth::Step::Impersonation`]).

use insula_api::ClusterName;
use insula_auth::{
    Attributes, ClusterFacts, EXTRA_SCOPES, EXTRA_WARRANT, Forbidden, GROUP_AUTHENTICATED, USER_ANONYMOUS, UserInfo,
    confined_warrant, permit,
};

/// Organization of the certificate `pki/front.crt`.
pub const GROUP_FRONT: &str = "system:insula:front";
/// Prefix of the names of service accounts.
pub const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Returns true for the certificate that a server of this authority shows the servers of its
/// mounts. Whoever has it may name any user.
pub fn is_front(caller: &UserInfo) -> bool {
    caller.is_in(GROUP_FRONT)
}

/// Groups that a user of a name is always in.
pub fn own_groups(user: &UserInfo) -> Vec<String> {
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
pub fn confine(user: &mut UserInfo, cluster: &ClusterName) {
    let scopes = user.extra.entry(EXTRA_SCOPES.to_owned()).or_default();
    scopes.push(format!("cluster:{cluster}"));
}

/// Checks that the caller may act as the user.
///
/// # Errors
/// The first right that the caller lacks, with its refusal.
pub fn allowed(
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
