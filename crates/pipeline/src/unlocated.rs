//! Refusals of requests for workspaces that cannot be entered: unknown ones, unavailable ones,
//! mounts that are closed.
//!
//! Users who may read a Workspace in its parent, or may enter it, learn why it cannot be entered.
//! Everybody else gets the answer for a workspace that exists and does not let them in, byte for
//! byte. So answers do not tell which names exist, and `kubectl ws` says "access denied" of
//! each.

use crate::{Call, Refusal, ScopePath, Sender, impersonation};
use insula_access::may_enter;
use insula_api::{ClusterName, ClusterPath, Verb};
use insula_auth::{Attributes, ClusterFacts, GROUP_MASTERS, UserInfo, forbidden_message, permit};
use insula_catalog::{
    Error, Named,
    locate::{self, NotLocated},
};
use insula_store::Snapshot;

/// Returns true for the paths that answer the same for every workspace, whether it exists or not:
/// the server's health.
pub(crate) fn is_health(call: &Call) -> bool {
    let Attributes { verb, path, .. } = &call.attributes;
    matches!(call.scope, ScopePath::Cluster(_))
        && matches!(verb.name(), "get" | "head")
        && matches!(&**path, "/healthz" | "/livez" | "/readyz")
}

/// Returns true for reads by `system:masters` of a logical cluster that does not exist: as in kcp,
/// lists of it are empty, so that an operator sees that nothing of a deleted workspace remains.
pub(crate) fn shows_as_empty(call: &Call, path: &ClusterPath, sender: &Sender) -> bool {
    let Attributes {
        is_resource_request,
        verb,
        ..
    } = &call.attributes;
    *is_resource_request
        && verb.reads()
        && path.split_first().1.is_empty()
        && sender.impersonator.is_none()
        && sender.user.is_in(GROUP_MASTERS)
}

/// The refusal of a request whose path leads nowhere.
pub(crate) fn refusal(call: &Call, snapshot: &Snapshot, sender: &Sender, why: &NotLocated) -> Refusal {
    // A borrowed identity is not yet known to be the caller's to borrow.
    let caller = sender.impersonator.as_ref().unwrap_or(&sender.user);
    match why {
        NotLocated::UnknownWorkspace { parent, name } if may_read(snapshot, caller, parent, name) => unknown(call),
        NotLocated::Unavailable { parent, name, phase }
            if may_read(snapshot, caller, parent, name)
                || locate::cluster_of(snapshot, parent, name)
                    .is_some_and(|cluster| may_enter(snapshot, caller, &cluster)) =>
        {
            Refusal::from(Error::Unavailable(format!(
                "workspace {name:?} is not available: its phase is {phase}; wait until it is Ready"
            )))
        }
        NotLocated::UnknownCluster(_)
        | NotLocated::UnknownWorkspace { .. }
        | NotLocated::Unavailable { .. }
        | NotLocated::Mounted { .. } => closed(call, sender),
    }
}

fn unknown(call: &Call) -> Refusal {
    let name = match &call.scope {
        ScopePath::Cluster(path) => path.to_string(),
        ScopePath::Outside | ScopePath::Everywhere | ScopePath::View { .. } => String::new(),
    };
    let resource = Named {
        group: "tenancy.kcp.io".into(),
        resource: "workspaces".into(),
    };
    Refusal::from(Error::NotFound { resource, name })
}

/// The refusal that [`crate::Located::authorize`] gives for a workspace in which
/// the sender has no rights.
fn closed(call: &Call, sender: &Sender) -> Refusal {
    let Sender { user, impersonator, .. } = sender;
    // No facts: nothing is allowed.
    let facts = ClusterFacts::default();
    if let Some(caller) = impersonator
        && let Err(refused) = impersonation::allowed(caller, user, Some(&ClusterName::root()), &facts)
    {
        let (impersonation, forbidden) = *refused;
        return Refusal::forbidden(forbidden.message, &impersonation);
    }
    let attributes = &call.attributes;
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
