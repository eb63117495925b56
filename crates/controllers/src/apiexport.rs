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
use insula_catalog::{exports::ExportView, ids, parts};
use insula_registry::{Deps, Plan};
use insula_store::{Change, Snapshot};
use std::{collections::BTreeSet, ops::ControlFlow, sync::Arc};

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
                let schemas = match &*key.resource.resource {
                    "apiconversions" => parts::schemas_of_change(change),
                    _ => BTreeSet::from([key.name.to_string()]),
                };
                let scope = Scope::cluster(ids::apiexports(), key.cluster.clone());
                let mut names = Vec::new();
                snapshot.for_each(&scope, |export| {
                    let offered = export.object.parsed(ExportView::read);
                    if schemas.iter().any(|schema| offered.offers_schema(schema)) {
                        names.push(export.key.clone());
                    }
                    ControlFlow::Continue(())
                });
                names
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
