//! Use of API versions by tenants. Stores the uses that requests noted, sums them up in the status
//! of exports, and deletes the records of routes that are gone.

mod decide;
mod world;

#[cfg(test)]
mod tests;

use crate::runtime::{self, Reconciler};
use insula_api::{ClusterName, ObjectKey, ResourceId, Scope};
use insula_catalog::{
    exports::ExportView,
    ids,
    version_uses::{UseRecord, record_of},
};
use insula_registry::{Deps, Plan};
use insula_store::{Change, Snapshot};
use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Seconds between a change of a record and the summary: one summary serves all records that
/// change meanwhile.
const SETTLE_SECONDS: u64 = 3;

/// Reconciles the usage of exports, and its records.
pub(crate) struct Usages {
    registry: Arc<Deps>,
    /// Keys of the records of an export, by the key of the export.
    records: Mutex<HashMap<ObjectKey, BTreeSet<ObjectKey>>>,
}

/// Unit of reconciliation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// An APIExport, whose status has the summary.
    Export(ObjectKey),
    /// A record, which is deleted with its route.
    Record(ObjectKey),
}

impl runtime::Key for Key {
    fn cluster(&self) -> Option<&ClusterName> {
        match self {
            Key::Export(key) | Key::Record(key) => Some(&key.cluster),
        }
    }
}

impl Usages {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        Usages {
            registry,
            records: Mutex::default(),
        }
    }

    fn records(&self) -> MutexGuard<'_, HashMap<ObjectKey, BTreeSet<ObjectKey>>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a change of a record. Returns the exports that it is or was about.
    fn note(&self, change: &Change) -> Vec<ObjectKey> {
        let export = |object: &insula_api::Object| {
            let record = object.parsed(UseRecord::read);
            record.as_ref().as_ref().map(|record| record.export.key())
        };
        let old = change.old.as_ref().and_then(|old| export(&old.object));
        let new = change.new.as_ref().and_then(|new| export(new));
        let mut records = self.records();
        if let Some(old) = old.as_ref().filter(|old| Some(*old) != new.as_ref())
            && let Some(known) = records.get_mut(old)
        {
            known.remove(&change.key);
            if known.is_empty() {
                records.remove(old);
            }
        }
        if let Some(new) = &new {
            records.entry(new.clone()).or_default().insert(change.key.clone());
        }
        let old = old.filter(|old| Some(old) != new.as_ref());
        old.into_iter().chain(new).collect()
    }
}

impl Reconciler for Usages {
    type Key = Key;
    type World = world::World;

    fn name(&self) -> &'static str {
        "usage"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![
            ids::version_uses(),
            ids::resource_routes(),
            ids::apiexports(),
            ids::apiresourceschemas(),
        ]
    }

    fn restart(&self) {
        self.records().clear();
    }

    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<Key> {
        let key = &change.key;
        match &*key.resource.resource {
            "versionuses" => {
                let exports = self.note(change).into_iter().map(Key::Export);
                // Its route may have been deleted while no controller was there.
                let is_new = change.old.is_none() && change.new.is_some();
                exports.chain(is_new.then(|| Key::Record(key.clone()))).collect()
            }
            ids::RESOURCE_ROUTES if change.new.is_none() => vec![Key::Record(record_of(key))],
            "apiexports" if change.new.is_some() => vec![Key::Export(key.clone())],
            // A schema never changes.
            "apiresourceschemas" if change.old.is_none() => {
                let scope = Scope::cluster(ids::apiexports(), key.cluster.clone());
                let mut exports = Vec::new();
                snapshot.for_each(&scope, |export| {
                    if export.object.parsed(ExportView::read).offers_schema(&key.name) {
                        exports.push(Key::Export(export.key.clone()));
                    }
                    ControlFlow::Continue(())
                });
                exports
            }
            _ => Vec::new(),
        }
    }

    fn settle(&self) -> u64 {
        SETTLE_SECONDS
    }

    fn observe(&self, key: &Key, snapshot: &Snapshot) -> world::World {
        match key {
            // What is not recorded is not summed up.
            Key::Export(_) if self.registry.uses.is_disabled() => world::World::Rest,
            Key::Export(export) => {
                let records: Vec<ObjectKey> = self.records().get(export).into_iter().flatten().cloned().collect();
                world::of_export(snapshot, export, &records, self.registry.clock.now())
            }
            Key::Record(record) => world::of_record(snapshot, record),
        }
    }

    fn decide(&self, world: &world::World) -> Plan {
        decide::decide(world)
    }
}
