//! World of the garbage collector: one object, its owners and its dependents.

use super::{
    event,
    index::Index,
    owner::{Owner, locate, state},
    waits,
};
use insula_api::{ObjectKey, OwnerReference, Timestamp};
use insula_catalog::{Custom, Origin, Strategy};
use insula_registry::{Deps, Intent};
use insula_store::{Entry, Snapshot};

/// World of one object.
pub(crate) struct World {
    /// The object, if it exists.
    pub(super) object: Option<Entry>,
    pub(super) strategy: &'static dyn Strategy,
    /// The state of each of its owner references.
    pub(super) owners: Vec<(OwnerReference, Owner)>,
    /// Objects that name it as their owner. `None` while the index is behind the object's revision;
    /// the outstanding change queues the object again.
    pub(super) dependents: Option<Vec<Entry>>,
    /// Creation of an event, if an owner is in another namespace.
    pub(super) event: Vec<Intent>,
    pub(super) now: Timestamp,
}

pub(super) fn observe(registry: &Deps, index: &Index, key: &ObjectKey, snapshot: &Snapshot) -> World {
    let object = snapshot.get(key);
    let mut world = World {
        object,
        strategy: &Custom,
        owners: Vec::new(),
        dependents: Some(Vec::new()),
        event: Vec::new(),
        now: registry.clock.now(),
    };
    let Some(entry) = &world.object else { return world };
    let meta = &entry.object.meta;
    if meta.owner_references.is_empty() && !waits(meta) {
        return world;
    }
    let served = registry.catalog.served(snapshot, &key.cluster);
    let own = served
        .iter()
        .find(|s| s.origin == Origin::System && s.alias.is_none() && s.resource_id() == key.resource);
    if let Some(own) = own {
        world.strategy = own.api.strategy;
    }
    let owners = meta.owner_references.iter();
    world.owners = owners.map(|r| (r.clone(), state(&served, snapshot, key, r))).collect();
    if !key.namespace.is_empty() && !meta.is_deleting() {
        world.event = event::of_foreign_owner((snapshot, index), &served, entry, &world.owners, world.now);
    }
    world.dependents = index.knows(entry.revision).then(|| {
        let uid = meta.uid.to_string();
        let keys = index.dependents(key, &uid);
        let entries = keys.iter().filter_map(|key| snapshot.get(key));
        entries
            .filter(|entry| entry.object.meta.owner_references.iter().any(|r| r.uid == uid))
            .collect()
    });
    world
}

/// Returns the key of an owner, whether it exists or not.
pub(super) fn owner_key(
    registry: &Deps,
    snapshot: &Snapshot,
    dependent: &ObjectKey,
    reference: &OwnerReference,
) -> Option<ObjectKey> {
    let served = registry.catalog.served(snapshot, &dependent.cluster);
    locate(&served, dependent, reference)
}
