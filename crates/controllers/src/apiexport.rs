//! APIExports: the identity that separates the objects of exporters, and the endpoint slices with
//! the addresses for controllers of the provider.

mod compatible;
mod decide;
mod slices;
mod world;

#[cfg(test)]
mod tests;

pub(crate) use slices::EndpointSlices;

use crate::runtime::Reconciler;
use insula_api::{
    ObjectKey, ResourceId, Scope,
    kinds::{self, ApiExport},
};
use insula_catalog::{exports::offering, ids, parts};
use insula_registry::{Deps, Plan};
use insula_store::{Change, Snapshot};
use std::sync::Arc;

/// Reconciles APIExports.
pub(crate) struct ApiExports {
    registry: Arc<Deps>,
    comparisons: compatible::Comparisons,
}

impl ApiExports {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        ApiExports {
            registry,
            comparisons: Default::default(),
        }
    }
}

impl Reconciler for ApiExports {
    type Key = ObjectKey;
    type World = world::World;

    fn name(&self) -> &'static str {
        "apiexport"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![
            ids::apiexports(),
            ids::secrets(),
            ids::apiexportendpointslices(),
            ids::apiresourceschemas(),
            ids::apiconversions(),
        ]
    }

    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let key = &change.key;
        match &*key.resource.resource {
            "apiexports" if change.new.is_some() => vec![key.clone()],
            // A slice that was deleted comes back.
            "apiexportendpointslices" if change.new.is_none() => {
                vec![ObjectKey::cluster_scoped(
                    ids::apiexports(),
                    key.cluster.clone(),
                    &key.name,
                )]
            }
            "apiresourceschemas" | "apiconversions" => {
                let exports = offering(snapshot, &key.cluster, &parts::schemas_of(change));
                exports.into_iter().map(|export| export.key).collect()
            }
            "secrets" => {
                let exports = snapshot.range(
                    &Scope::cluster(ids::apiexports(), key.cluster.clone()),
                    None,
                    usize::MAX,
                );
                let names = exports.into_iter().filter(|export| {
                    let export: ApiExport = kinds::read(&export.object.body_value());
                    let reference = export.spec.identity.secret_ref.unwrap_or_default();
                    reference.name == *key.name && reference.namespace == *key.namespace
                });
                names.map(|export| export.key).collect()
            }
            _ => Vec::new(),
        }
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> world::World {
        world::World {
            schemas: self.comparisons.of_export(&self.registry, snapshot, key),
            ..world::observe(&self.registry, key, snapshot)
        }
    }

    fn decide(&self, world: &world::World) -> Plan {
        decide::decide(world)
    }
}
