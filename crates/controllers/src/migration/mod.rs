//! Storage migration: objects that are stored in a version which is no longer the storage version
//! are written anew.
//!
//! A binding's `storageVersions` and a definition's `storedVersions` say in which versions objects
//! may be stored. Where they name more than today's storage version, work is due; it is done in
//! batches, each one transaction, and at the end they name that version alone. A
//! StorageVersionMigration asks for the same. Which objects are done is told by the objects
//! themselves, so that whoever takes over after a crash goes on where the last commit was, and a
//! tenant's own write of an object is a step forward, too.
//!
//! Owners of fields in versions that are served no more move to the storage version with it, and
//! when another schema takes a bound one's place.
//!
//! No object can come back in an old version behind the work's back: the claim changes with the
//! storage version, and is a guard of every write.

mod decide;
mod pace;
mod request;
mod scan;
mod world;

#[cfg(test)]
mod tests;

use crate::{
    runtime::Reconciler,
    write::{list, text},
};
use insula_api::{Json, ObjectKey, ResourceId};
use insula_registry::{Plan, Registry, ids};
use insula_store::{Change, Snapshot};
use std::{collections::BTreeSet, sync::Arc};

/// Reconciles the objects of one resource of one cluster.
pub(crate) struct Migrations {
    registry: Arc<Registry>,
    pace: pace::Pace,
}

impl Migrations {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Migrations {
            registry,
            pace: pace::Pace::default(),
        }
    }
}

impl Reconciler for Migrations {
    /// The claim on the resource's name, whether there is one or not.
    type Key = ObjectKey;
    type World = world::World;

    fn name(&self) -> &'static str {
        "migration"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![
            ids::apibindings(),
            ids::customresourcedefinitions(),
            ids::claims(),
            ids::storageversionmigrations(),
        ]
    }

    fn keys(&self, change: &Change, _snapshot: &Snapshot) -> Vec<ObjectKey> {
        let Some(object) = &change.new else { return Vec::new() };
        let cluster = &change.key.cluster;
        let claim =
            |resource: &Json, plural: &str| ids::claim(cluster, text(resource, "/group"), text(resource, plural));
        match &*change.key.resource.resource {
            "apibindings" => {
                let value = object.body_value();
                let mixed = list(&value, "/status/boundResources")
                    .iter()
                    .filter(|bound| list(bound, "/storageVersions").len() > 1);
                mixed.map(|bound| claim(bound, "/resource")).collect()
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
                    .then(|| ids::claim(cluster, text(&value, "/spec/group"), text(&value, "/spec/names/plural")))
                    .into_iter()
                    .collect()
            }
            // The definition was seen before the claim followed it; or versions are served no more
            // that somebody owns fields in.
            "claims" if change.old.is_some() => vec![change.key.clone()],
            // One that is done lets the next one begin.
            "storageversionmigrations" => vec![claim(&object.body_value()["spec"]["resource"], "/resource")],
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

/// Names of the versions of a definition that are meant.
fn names_of(definition: &Json, is_meant: impl Fn(&Json) -> bool) -> BTreeSet<String> {
    let versions = list(definition, "/spec/versions").iter();
    versions
        .filter(|version| is_meant(version))
        .map(|version| text(version, "/name").to_owned())
        .collect()
}
