//! Storage migration: rewrites objects that are stored in a version other than the storage version.
//!
//! A binding's `storageVersions` and a definition's `storedVersions` say in which versions objects
//! may be stored. If they name more than the present storage version, a migration is due. It works
//! in batches, each one transaction, and at the end they name that version alone. A
//! StorageVersionMigration requests the same. Progress is in the objects themselves: after a crash
//! the work continues from the last commit, and a tenant's own write of an object counts.
//!
//! Owners of fields in versions that are no longer served move to the storage version with it, and
//! also when another schema replaces a bound one.
//!
//! No write can store an object in an old version after the walk has passed it: the route changes
//! with the storage version, and guards every write.

mod decide;
pub(crate) mod pace;
mod request;
mod scan;
mod world;

#[cfg(test)]
mod tests;

use crate::{
    runtime::Reconciler,
    write::{list, text},
};
use insula_api::{
    Json, ObjectKey, ResourceId,
    kinds::{self, ApiBinding},
};
use insula_catalog::ids;
use insula_registry::{Deps, Plan};
use insula_store::{Change, Snapshot};
use std::{collections::BTreeSet, sync::Arc};

/// Reconciles the objects of one resource of one cluster.
pub(crate) struct Migrations {
    registry: Arc<Deps>,
    pace: pace::Pace,
}

impl Migrations {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        Migrations {
            registry,
            pace: pace::Pace::default(),
        }
    }
}

impl Reconciler for Migrations {
    /// Key of the route of the resource, whether it exists or not.
    type Key = ObjectKey;
    type World = world::World;

    fn name(&self) -> &'static str {
        "migration"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![
            ids::apibindings(),
            ids::customresourcedefinitions(),
            ids::resource_routes(),
            ids::storageversionmigrations(),
        ]
    }

    fn keys(&self, change: &Change, _snapshot: &Snapshot) -> Vec<ObjectKey> {
        let Some(object) = &change.new else { return Vec::new() };
        let cluster = &change.key.cluster;
        match &*change.key.resource.resource {
            "apibindings" => {
                let binding: ApiBinding = kinds::read(&object.body_value());
                let bound = binding.status.bound_resources.iter();
                let mixed = bound.filter(|bound| bound.storage_versions.len() > 1);
                mixed
                    .map(|bound| ids::resource_route(cluster, &bound.group, &bound.resource))
                    .collect()
            }
            "customresourcedefinitions" => {
                let value = object.body_value();
                let mixed = list(&value, "/status/storedVersions").len() > 1;
                let served = |value: &Json| names_of(value, |version| version["served"] == true);
                let retires = change
                    .old
                    .as_ref()
                    .is_some_and(|old| served(&old.object.body_value()) != served(&value));
                (mixed || retires)
                    .then(|| ids::route_of_definition(cluster, &value))
                    .into_iter()
                    .collect()
            }
            // The definition was reconciled before its route followed; or managed fields name
            // versions that are no longer served.
            ids::RESOURCE_ROUTES if change.old.is_some() => vec![change.key.clone()],
            // The end of one request starts the next.
            "storageversionmigrations" => {
                let resource = &object.body_value()["spec"]["resource"];
                vec![ids::resource_route(
                    cluster,
                    text(resource, "/group"),
                    text(resource, "/resource"),
                )]
            }
            _ => Vec::new(),
        }
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> world::World {
        world::observe(&self.registry, &self.pace, key, snapshot)
    }

    fn decide(&self, world: &world::World) -> Plan {
        decide::decide(world)
    }
}

/// Returns the names of the versions of a definition that a predicate selects.
fn names_of(definition: &Json, is_meant: impl Fn(&Json) -> bool) -> BTreeSet<String> {
    let versions = list(definition, "/spec/versions").iter();
    versions
        .filter(|version| is_meant(version))
        .map(|version| text(version, "/name").to_owned())
        .collect()
}
