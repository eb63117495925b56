//! What those who initialize and terminate workspaces see: which LogicalClusters wait for them,
//! and, of each that does, its LogicalCluster and its content.

use crate::{
    ApiServer,
    path::ResourcePath,
    stage::RequestScope,
    views::{Closed, Found},
};
use insula_api::ClusterName;
use insula_auth::{Attributes, ClusterFacts, UserInfo, permit};
use insula_registry::{
    Served, access, ids,
    lifecycle::LifecycleController,
    view::{AllClusters, ViewScope},
};

/// What the chain is asked: the verb on the type, where the type is.
pub(crate) fn question(lifecycle: &LifecycleController) -> Attributes {
    Attributes {
        verb: lifecycle.verb().into(),
        group: "tenancy.kcp.io".into(),
        version: "v1alpha1".into(),
        resource: "workspacetypes".into(),
        name: lifecycle.workspace_type.to_string(),
        cluster: Some(lifecycle.cluster.clone()),
        is_resource_request: true,
        ..Attributes::default()
    }
}

/// Whether a request is about LogicalClusters, which is what waits.
fn is_about_clusters(group: &str, resource: &str) -> bool {
    group == "core.kcp.io" && resource == "logicalclusters"
}

/// As whom a request is served.
pub(crate) fn user(
    lifecycle: &LifecycleController,
    place: &RequestScope,
    caller: &UserInfo,
    asked: &Attributes,
) -> UserInfo {
    match &place.cluster {
        Some(cluster) if !is_about_clusters(&asked.group, &asked.resource) => {
            lifecycle.works_as(&place.snapshot, cluster, caller)
        }
        _ => lifecycle.stands_for(caller),
    }
}

/// Whether the cluster lets it do what is asked.
pub(crate) fn lets(
    lifecycle: &LifecycleController,
    place: &RequestScope,
    caller: &UserInfo,
    asked: &Attributes,
) -> Result<(), Closed> {
    let denied = || Closed::Denied("access denied".into());
    let about_clusters = is_about_clusters(&asked.group, &asked.resource);
    let reads = matches!(asked.verb.as_str(), "get" | "list" | "watch");
    let Some(cluster) = &place.cluster else {
        return match !asked.is_resource_request || about_clusters {
            true => Ok(()),
            false => Err(Closed::Absent),
        };
    };
    if !lifecycle.is_awaited(&place.snapshot, cluster) {
        return Err(Closed::Denied(lifecycle.refusal().into()));
    }
    if about_clusters {
        let own_entry = asked.subresource == "status" && matches!(asked.verb.as_str(), "update" | "patch");
        return match own_entry || reads {
            true => Ok(()),
            false => Err(denied()),
        };
    }
    let facts = ClusterFacts {
        entered: true,
        unfinished: false,
        ..access::facts(&place.snapshot, cluster)
    };
    let user = user(lifecycle, place, caller, asked);
    let discovers = !asked.is_resource_request && reads;
    match discovers || permit(&user, asked.clone(), &facts).is_ok() {
        true => Ok(()),
        false => Err(denied()),
    }
}

/// The APIs that it sees.
pub(crate) fn served(server: &ApiServer, place: &RequestScope) -> Vec<Served> {
    let catalog = &server.registry.catalog;
    match &place.cluster {
        Some(cluster) => catalog.served(&place.snapshot, cluster),
        None => catalog
            .system()
            .get("core.kcp.io", "logicalclusters")
            .cloned()
            .into_iter()
            .collect(),
    }
}

/// What serves a request for objects.
pub(crate) fn find(
    server: &ApiServer,
    lifecycle: &LifecycleController,
    place: &RequestScope,
    path: &ResourcePath,
) -> Option<Found> {
    let catalog = &server.registry.catalog;
    match &place.cluster {
        Some(cluster) => Some(Found {
            served: catalog.resolve(&place.snapshot, cluster, &path.group, &path.resource)?,
            cluster: cluster.clone(),
            view_scope: ViewScope::For(lifecycle.clone()),
        }),
        None => {
            let served = catalog.system().get(&path.group, &path.resource)?;
            (served.resource_id() == ids::logicalclusters()).then(|| Found {
                cluster: ClusterName::root(),
                served: served.clone(),
                view_scope: AllClusters::everywhere(lifecycle.labels()),
            })
        }
    }
}
