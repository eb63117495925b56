//! The virtual workspace of a consumer's schemas: the APIResourceSchemas behind the bindings of a
//! cluster, to read.

use super::outcome::{NotShown, ResolvedResource};
use crate::{call::ObjectPath, scope::Scope};
use insula_access::view::{AllClusters, ViewScope};
use insula_api::{ClusterName, Verb};
use insula_auth::Attributes;
use insula_catalog::{Served, exports::schemas_behind};
use insula_registry::Deps;

/// Returns the right that users need: whoever may read bindings may read what they bind.
pub(super) fn required_right(consumer: &ClusterName) -> Attributes {
    Attributes {
        verb: Verb::Get.into(),
        group: "apis.kcp.io".into(),
        resource: "apibindings".into(),
        cluster: Some(consumer.clone()),
        is_resource_request: true,
        ..Attributes::default()
    }
}

/// Checks that a request reads.
pub(super) fn check(attributes: &Attributes) -> Result<(), NotShown> {
    match attributes.verb.reads() {
        true => Ok(()),
        false => Err(NotShown::Denied(
            "only read-only access is allowed to apiresourceschemas".into(),
        )),
    }
}

/// Returns the API of APIResourceSchemas.
pub(super) fn served(registry: &Deps) -> Option<Served> {
    let system = registry.catalog.system();
    system.get("apis.kcp.io", "apiresourceschemas").cloned()
}

/// Resolves a request for schemas; `None` for another resource. A schema that is named is read in
/// the cluster of its exporter.
pub(super) fn resolve(
    registry: &Deps,
    consumer: &ClusterName,
    scope: &Scope,
    (path, plural): (&ObjectPath, &str),
) -> Option<ResolvedResource> {
    let served = served(registry)?;
    if *path.group != *served.api.group || plural != &*served.api.names.plural {
        return None;
    }
    let exporter = path.name.as_ref().and_then(|name| {
        let mut behind = schemas_behind(&scope.snapshot, consumer).into_iter();
        behind.find(|key| *key.name == **name).map(|key| key.cluster)
    });
    Some(match exporter {
        Some(cluster) => ResolvedResource {
            cluster,
            served,
            view_scope: ViewScope::Within,
        },
        None => ResolvedResource {
            cluster: consumer.clone(),
            served,
            view_scope: AllClusters::schemas_of(consumer.clone()),
        },
    })
}
