//! Refusals of requests for workspaces that cannot be entered: unknown ones, unavailable ones,
//! mounts that are closed.
//!
//! Users who may read a Workspace in its parent, or may enter it, learn why it cannot be entered.
//! Everybody else gets the answer for a workspace that exists and does not let them in: 403, byte
//! for byte. So answers do not tell which names exist, and `kubectl ws` says "access denied" of
//! each.

use crate::{
    impersonate,
    path::{Rest, Route},
    request::Parsed,
};
use http::Method;
use insula_api::{ClusterName, ClusterPath, Verb};
use insula_auth::{Attributes, ClusterFacts, GROUP_MASTERS, UserInfo, forbidden_message, permit};
use insula_catalog::{
    Error, Named,
    locate::{self, NotLocated},
};
use insula_pipeline::Refusal;
use insula_store::Snapshot;

/// The sender of a request: the user as whom they act, and the owner of the credential where that
/// is another.
#[derive(Clone, Copy)]
pub(crate) struct Sender<'a> {
    pub(crate) user: &'a UserInfo,
    pub(crate) impersonator: Option<&'a UserInfo>,
}

/// Returns true for the paths that answer the same for every workspace, whether it exists or not:
/// the server's health.
pub(crate) fn is_health(parsed: &Parsed) -> bool {
    let Route::Cluster {
        rest: Rest::Other(path),
        ..
    } = &parsed.route
    else {
        return false;
    };
    matches!(parsed.method, Method::GET | Method::HEAD) && matches!(&**path, "/healthz" | "/livez" | "/readyz")
}

/// Returns true for reads by `system:masters` of a logical cluster that does not exist: as in kcp,
/// lists of it are empty, so that an operator sees that nothing of a deleted workspace remains.
pub(crate) fn shows_as_empty(parsed: &Parsed, path: &ClusterPath, sender: Sender<'_>) -> bool {
    let Attributes {
        is_resource_request,
        verb,
        ..
    } = &parsed.attributes;
    *is_resource_request
        && verb.reads()
        && path.split_first().1.is_empty()
        && sender.impersonator.is_none()
        && sender.user.is_in(GROUP_MASTERS)
}

/// The refusal of a request whose path leads nowhere.
pub(crate) fn refusal(parsed: &Parsed, snapshot: &Snapshot, sender: Sender<'_>, why: &NotLocated) -> Refusal {
    parsed.record.refused(why);
    // A borrowed identity is not yet known to be the caller's to borrow.
    let caller = sender.impersonator.unwrap_or(sender.user);
    match why {
        NotLocated::UnknownWorkspace { parent, name } if may_read(snapshot, caller, parent, name) => unknown(parsed),
        NotLocated::Unavailable { parent, name, phase }
            if may_read(snapshot, caller, parent, name) || may_enter(snapshot, caller, parent, name) =>
        {
            Refusal::from(Error::Unavailable(format!(
                "workspace {name:?} is not available: its phase is {phase}; wait until it is Ready"
            )))
        }
        NotLocated::UnknownCluster(_)
        | NotLocated::UnknownWorkspace { .. }
        | NotLocated::Unavailable { .. }
        | NotLocated::Mounted { .. } => closed(parsed, sender),
    }
}

fn unknown(parsed: &Parsed) -> Refusal {
    let name = match &parsed.route {
        Route::Cluster { path: Some(path), .. } => path.to_string(),
        _ => String::new(),
    };
    let resource = Named {
        group: "tenancy.kcp.io".into(),
        resource: "workspaces".into(),
    };
    Refusal::from(Error::NotFound { resource, name })
}

/// The refusal that [`crate::request_stages::Located::authorize`] gives for a workspace in which
/// the sender has no rights.
fn closed(parsed: &Parsed, sender: Sender<'_>) -> Refusal {
    let Sender { user, impersonator } = sender;
    // No facts: nothing is allowed.
    let facts = ClusterFacts::default();
    if let Some(caller) = impersonator
        && let Err(refused) = impersonate::allowed(caller, user, Some(&ClusterName::root()), &facts)
    {
        let (impersonation, forbidden) = *refused;
        return Refusal::forbidden(forbidden.message, &impersonation);
    }
    let attributes = &parsed.attributes;
    Refusal::forbidden(forbidden_message(user, attributes), attributes)
}

/// Returns true for callers who may read a Workspace in its parent.
fn may_read(snapshot: &Snapshot, caller: &UserInfo, parent: &ClusterName, name: &str) -> bool {
    let right = Attributes {
        verb: Verb::Get.into(),
        group: "tenancy.kcp.io".into(),
        version: "v1alpha1".into(),
        resource: "workspaces".into(),
        name: name.into(),
        cluster: Some(parent.clone()),
        is_resource_request: true,
        ..Attributes::default()
    };
    permit(caller, right, &insula_access::facts(snapshot, parent)).is_ok()
}

/// Returns true for callers whom a workspace lets in when it is available.
fn may_enter(snapshot: &Snapshot, caller: &UserInfo, parent: &ClusterName, name: &str) -> bool {
    let Some(cluster) = locate::cluster_of(snapshot, parent, name) else {
        return false;
    };
    let right = Attributes {
        verb: "access".into(),
        path: "/".into(),
        cluster: Some(cluster.clone()),
        ..Attributes::default()
    };
    permit(caller, right, &insula_access::facts(snapshot, &cluster)).is_ok()
}
