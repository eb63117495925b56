//! Garbage collection: deletes objects whose owners are gone, finishes the deletion of owners that
//! wait for their dependents, and releases orphans.
//!
//! The rules are those of Kubernetes' garbage collector (`pkg/controller/garbagecollector`). An
//! owner is looked up in the dependent's own cluster and namespace; an owner of a kind that is not
//! served leaves its dependents alone. Only `metadata` is read, so nothing is converted.

mod decide;
mod event;
mod index;
mod owner;
mod world;

#[cfg(test)]
mod tests;

use crate::runtime::Reconciler;
use index::Index;
use insula_api::{Meta, ObjectKey, ResourceId, Scope};
use insula_registry::{Deps, FOREGROUND, ORPHAN, Plan};
use insula_store::{Change, Snapshot};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Collects garbage, one object at a time.
pub(crate) struct Garbage {
    registry: Arc<Deps>,
    /// Dependents by owner, as of the changes noticed so far.
    index: Mutex<Index>,
}

impl Garbage {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        Garbage {
            registry,
            index: Mutex::default(),
        }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconciler for Garbage {
    type Key = ObjectKey;
    type World = world::World;

    fn name(&self) -> &'static str {
        "garbage"
    }

    fn watches(&self) -> Vec<ResourceId> {
        Vec::new()
    }

    fn scopes(&self) -> Vec<Scope> {
        vec![Scope::everything()]
    }

    fn restart(&self) {
        *self.index() = Index::default();
    }

    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let old = change.old.as_ref().map(|prior| &prior.object.meta);
        let new = change.new.as_ref().map(|object| &object.meta);
        let mut keys = Vec::new();
        let mut index = self.index();
        index.note(change);
        if new.is_some_and(|meta| !meta.owner_references.is_empty() || waits(meta)) {
            keys.push(change.key.clone());
        }
        // Dependents of an owner that is gone, or waits for them.
        let parent = match (old, new) {
            (Some(old), None) => Some(old),
            (_, Some(new)) if waits(new) => Some(new),
            _ => None,
        };
        if let Some(parent) = parent {
            keys.extend(index.dependents(&change.key, &parent.uid.to_string()));
        }
        drop(index);
        // Owners that waited for this one.
        for reference in old.into_iter().flat_map(|meta| &meta.owner_references) {
            let kept = new.is_some_and(|meta| meta.owner_references.contains(reference));
            if !kept && let Some(owner) = world::owner_key(&self.registry, snapshot, &change.key, reference) {
                keys.push(owner);
            }
        }
        keys
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> world::World {
        world::observe(&self.registry, &self.index(), key, snapshot)
    }

    fn decide(&self, world: &world::World) -> Plan {
        decide::decide(world)
    }
}

/// Returns true for an object that is being deleted and waits for its dependents. While its
/// deletion may be taken back, nothing happens to them.
fn waits(meta: &Meta) -> bool {
    meta.is_deleting() && !meta.deletion_grace && (has(meta, FOREGROUND) || has(meta, ORPHAN))
}

fn has(meta: &Meta, finalizer: &str) -> bool {
    meta.finalizers.iter().any(|known| &**known == finalizer)
}
