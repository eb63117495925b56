//! The virtual workspace of an initializer or a terminator: the LogicalClusters that wait for it,
//! and, within each of these, its LogicalCluster and its content.

use super::outcome::{NotShown, ResolvedResource};
use crate::{call::ObjectPath, scope::Scope};
use insula_access::{
    lifecycle::LifecycleController,
    view::{AllClusters, ViewScope},
};
use insula_api::{ClusterName, Verb};
use insula_auth::{Attributes, ClusterFacts, UserInfo, permit};
use insula_catalog::{Served, ids};
use insula_registry::Deps;

/// Returns the right that users need: the lifecycle verb on the type, in the type's cluster.
pub(super) fn required_right(lifecycle: &LifecycleController) -> Attributes {
    Attributes {
        verb: lifecycle.verb().into(),
        group: "tenancy.kcp.io".into(),
        version: "v1alpha1".into(),
        resource: "workspacetypes".into(),
        name: lifecycle.workspace_type.to_string(),
        cluster: lifecycle.cluster.clone(),
        is_resource_request: true,
        ..Attributes::default()
    }
}

/// Returns true for requests about LogicalClusters themselves.
fn is_about_clusters(group: &str, resource: &str) -> bool {
    group == "core.kcp.io" && resource == "logicalclusters"
}

/// Returns the user as whom a request is served.
pub(super) fn user(
    lifecycle: &LifecycleController,
    scope: &Scope,
    caller: &UserInfo,
    attributes: &Attributes,
) -> UserInfo {
    match &scope.cluster {
        Some(cluster) if !is_about_clusters(&attributes.group, &attributes.resource) => {
            lifecycle.works_as(&scope.snapshot, cluster, caller)
        }
        _ => lifecycle.stands_for(caller),
    }
}

/// Checks that the cluster waits for the controller and that the request is one of its own.
pub(super) fn check(
    lifecycle: &LifecycleController,
    scope: &Scope,
    caller: &UserInfo,
    attributes: &Attributes,
) -> Result<(), NotShown> {
    let denied = || NotShown::Denied("access denied".into());
    let about_clusters = is_about_clusters(&attributes.group, &attributes.resource);
    let reads = attributes.verb.reads();
    let Some(cluster) = &scope.cluster else {
        return match !attributes.is_resource_request || about_clusters {
            true => Ok(()),
            false => Err(NotShown::Absent),
        };
    };
    if !lifecycle.is_awaited(&scope.snapshot, cluster) {
        // As in kcp, a LogicalCluster that no longer waits is gone from here.
        if about_clusters && attributes.verb == Verb::Get && attributes.subresource.is_empty() {
            return Err(NotShown::Hidden);
        }
        return Err(NotShown::Denied(lifecycle.refusal().into()));
    }
    if about_clusters {
        let own_entry =
            attributes.subresource == "status" && matches!(attributes.verb.request(), Some(Verb::Update | Verb::Patch));
        return match own_entry || reads {
            true => Ok(()),
            false => Err(NotShown::Unsupported),
        };
    }
    let facts = ClusterFacts {
        entered: true,
        unfinished: false,
        ..scope.facts(cluster)
    };
    let user = user(lifecycle, scope, caller, attributes);
    let discovers = !attributes.is_resource_request && reads;
    match discovers || permit(&user, attributes.clone(), &facts).is_ok() {
        true => Ok(()),
        false => Err(denied()),
    }
}

/// Returns the APIs of the cluster, or LogicalClusters across all of them.
pub(super) fn served(registry: &Deps, scope: &Scope) -> Vec<Served> {
    let catalog = &registry.catalog;
    match &scope.cluster {
        Some(cluster) => catalog.served(&scope.snapshot, cluster),
        None => {
            let clusters = catalog.system().get("core.kcp.io", "logicalclusters");
            clusters.cloned().into_iter().collect()
        }
    }
}

/// Resolves a resource; `None` where it is not served.
pub(super) fn resolve(
    registry: &Deps,
    lifecycle: &LifecycleController,
    scope: &Scope,
    path: &ObjectPath,
) -> Option<ResolvedResource> {
    let catalog = &registry.catalog;
    match &scope.cluster {
        Some(cluster) => Some(ResolvedResource {
            served: catalog.resolve(&scope.snapshot, cluster, &path.group, &path.resource)?,
            cluster: cluster.clone(),
            view_scope: ViewScope::For(lifecycle.clone()),
        }),
        None => {
            let served = catalog.system().get(&path.group, &path.resource)?;
            (served.resource_id() == ids::logicalclusters()).then(|| ResolvedResource {
                cluster: ClusterName::root(),
                served: served.clone(),
                view_scope: AllClusters::waiting_for(lifecycle),
            })
        }
    }
}
