//! The virtual workspace of an export: objects that the consumers of an export show its provider,
//! in one consumer's cluster or in all of them.

use super::outcome::{NotShown, ResolvedResource};
use crate::Refusal;
use crate::{call::ObjectPath, scope::Scope};
use insula_access::view::{AllClusters, ViaExport, ViewScope};
use insula_api::Verb;
use insula_auth::{Attributes, EXTRA_CLUSTER, EXTRA_SCOPES, EXTRA_WARRANT, GROUP_KCP_ADMIN, UserInfo};
use insula_catalog::{
    Origin, Served,
    exports::{AccessRequest, Denied, ExportName},
};
use insula_registry::Deps;
use insula_store::Snapshot;
use serde_json::json;
use std::{ops::ControlFlow, sync::Arc};

/// Subresources that an export shows. The others are served in the cluster alone.
const SUBRESOURCES: [&str; 3] = ["", "status", "scale"];

/// Returns the right that the provider's users need: the verb on `apiexports/content`.
pub(super) fn required_right(export: &ExportName, attributes: &Attributes) -> Attributes {
    Attributes {
        verb: attributes.verb.clone(),
        group: "apis.kcp.io".into(),
        resource: "apiexports".into(),
        subresource: "content".into(),
        name: export.name.to_string(),
        cluster: Some(export.cluster.clone()),
        is_resource_request: true,
        ..Attributes::default()
    }
}

/// Checks that the consumer grants the request: its own API, or a claim that it accepted.
pub(super) fn check(
    export: &ExportName,
    scope: &Scope,
    user: &UserInfo,
    attributes: &Attributes,
) -> Result<(), NotShown> {
    if !export.exists(&scope.snapshot) {
        return Err(NotShown::Absent);
    }
    let (Some(cluster), true) = (&scope.cluster, attributes.is_resource_request) else {
        return Ok(());
    };
    let request = AccessRequest {
        group: &attributes.group,
        resource: &attributes.resource,
        verb: attributes.verb.request(),
    };
    // Status of bindings and exports is written by controllers only, whatever was claimed.
    let is_system_status =
        attributes.group == "apis.kcp.io" && !attributes.subresource.is_empty() && attributes.verb != Verb::Get;
    let through = ViaExport {
        export: export.clone(),
        verb: None,
        user: Arc::new(user.clone()),
        asked: Arc::new(attributes.clone()),
        label: None,
    };
    let grant = match SUBRESOURCES.contains(&&*attributes.subresource) && !is_system_status {
        true => through.right(&scope.snapshot, cluster, request),
        false => Err(Denied::NoReason),
    };
    match grant {
        Ok(_) => Ok(()),
        Err(denied) => Err(NotShown::Denied(denied.why().into())),
    }
}

/// Returns the user with a warrant of the consumer's cluster: the export's bindings have granted
/// the request there, and the cluster's roles know nothing of the user.
pub(super) fn warranted(scope: &Scope, user: &UserInfo) -> UserInfo {
    let mut user = user.clone();
    if let Some(cluster) = &scope.cluster {
        let warrant = json!({
            "user": "system:serviceaccount:default:rest",
            "groups": [GROUP_KCP_ADMIN],
            "extra": {EXTRA_CLUSTER: [cluster.as_str()], EXTRA_SCOPES: [format!("cluster:{cluster}")]},
        });
        let warrants = user.extra.entry(EXTRA_WARRANT.to_owned()).or_default();
        warrants.push(warrant.to_string());
    }
    user
}

/// The request that is resolved: its sender and what authorisation compared.
pub(crate) struct Resolution<'a> {
    /// The verb; `None` for a method that has none.
    pub(crate) verb: Option<Verb>,
    /// The user.
    pub(crate) user: &'a Arc<UserInfo>,
    /// The request's own attributes.
    pub(crate) attributes: &'a Arc<Attributes>,
    /// The attributes of the right that the permit is for.
    pub(crate) permitted: &'a Attributes,
}

/// Resolves a resource through the export; `None` where the export does not serve it.
pub(super) fn resolve(
    registry: &Deps,
    export: &ExportName,
    scope: &Scope,
    (path, plural): (&ObjectPath, &str),
    request: &Resolution<'_>,
) -> Result<Option<ResolvedResource>, Refusal> {
    let (catalog, snapshot) = (&registry.catalog, &scope.snapshot);
    let mut through = ViaExport {
        export: export.clone(),
        verb: request.verb,
        user: request.user.clone(),
        asked: request.attributes.clone(),
        label: None,
    };
    let access = AccessRequest {
        group: &path.group,
        resource: plural,
        verb: request.verb,
    };
    let Some(cluster) = &scope.cluster else {
        let served = export.resolve(catalog, snapshot, &path.group, plural);
        let is_claimed =
            |served: &Served| matches!(served.origin, Origin::Bound { .. }) && !export.owns(snapshot, served);
        if served.as_ref().is_some_and(is_claimed) && is_denied_everywhere(registry, snapshot, &through, access) {
            let refusal = NotShown::Denied(Denied::Policy.why().into());
            return Err(refusal.refusal(request.user, request.attributes));
        }
        return Ok(served.map(|served| {
            through.label = export.claim_label(snapshot, &served).map(Arc::new);
            ResolvedResource {
                cluster: export.cluster.clone(),
                served,
                view_scope: AllClusters::consumers(through),
            }
        }));
    };
    let denied = |denied: Denied| NotShown::Denied(denied.why().into()).refusal(request.user, request.permitted);
    let grant = through.right(snapshot, cluster, access).map_err(denied)?;
    let served = export.resolve_in((catalog, snapshot), cluster, (&path.group, plural), &grant);
    Ok(served.map_err(denied)?.map(|served| {
        through.label = export.claim_label(snapshot, &served).map(Arc::new);
        ResolvedResource {
            cluster: cluster.clone(),
            served,
            view_scope: ViewScope::ViaExport(through),
        }
    }))
}

/// Returns true if the maximal permission policy of a claimed API denies the request in all
/// clusters that serve the API and grant the claim. Such a request across clusters is refused, as
/// in kcp, and not answered with an empty list.
fn is_denied_everywhere(registry: &Deps, snapshot: &Snapshot, through: &ViaExport, access: AccessRequest<'_>) -> bool {
    let (catalog, export) = (&registry.catalog, &through.export);
    let (mut is_denied, mut is_allowed) = (false, false);
    // One consumer that allows it decides, so that a request need not look at all of them.
    export.for_each_consumer(snapshot, |consumer| {
        match through.right(snapshot, consumer, access) {
            Ok(grant) => {
                let named = (access.group, access.resource);
                let served = export.resolve_in((catalog, snapshot), consumer, named, &grant);
                is_allowed = matches!(served, Ok(Some(_)));
            }
            Err(Denied::Policy) => is_denied = true,
            Err(Denied::NoBinding | Denied::NoReason) => {}
        }
        match is_allowed {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    is_denied && !is_allowed
}
