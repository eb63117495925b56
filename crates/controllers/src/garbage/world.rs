//! World of the garbage collector: one object, its owners and its dependents.

use super::{event, has, index::Index, waits};
use insula_api::{ObjectKey, OwnerReference, Revision, Timestamp};
use insula_catalog::{Custom, Origin, ScopeKind, Served, Strategy};
use insula_registry::{Deps, FOREGROUND, Intent};
use insula_store::{Entry, Snapshot};
use std::sync::Arc;

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

/// State of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owner {
    /// It exists.
    Solid(Seen),
    /// It is being deleted and waits for its dependents.
    Waiting(Seen),
    /// It does not exist, or the object of its name has another UID.
    Absent(Seen),
    /// Its kind is not served, or a cluster-scoped object names a namespaced owner.
    Unknown,
}

/// Key and revision of an observed owner; no revision if it is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen(pub(super) ObjectKey, pub(super) Option<Revision>);

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
    world.owners = owners.map(|r| (r.clone(), owner(&served, snapshot, key, r))).collect();
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

pub(super) fn locate(served: &[Served], dependent: &ObjectKey, reference: &OwnerReference) -> Option<ObjectKey> {
    let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
    let served = served
        .iter()
        .find(|s| **s.group() == *group && *s.names().kind == *reference.kind)?;
    let namespace = match served.api.scope {
        ScopeKind::Cluster => Arc::default(),
        ScopeKind::Namespaced if dependent.namespace.is_empty() => return None,
        ScopeKind::Namespaced => dependent.namespace.clone(),
    };
    Some(ObjectKey {
        resource: served.resource_id(),
        cluster: dependent.cluster.clone(),
        namespace,
        name: reference.name.as_str().into(),
    })
}

fn owner(served: &[Served], snapshot: &Snapshot, dependent: &ObjectKey, reference: &OwnerReference) -> Owner {
    let Some(key) = locate(served, dependent, reference) else {
        return Owner::Unknown;
    };
    // A migration may be about to move the owner here.
    let is_frozen = |served: &Served| served.route.as_ref().is_some_and(|route| route.frozen);
    if served.iter().any(|s| s.resource_id() == key.resource && is_frozen(s)) {
        return Owner::Unknown;
    }
    let Some(found) = snapshot.get(&key) else {
        return Owner::Absent(Seen(key, None));
    };
    let seen = Seen(key, Some(found.revision));
    let meta = &found.object.meta;
    if meta.uid.to_string() != reference.uid {
        return Owner::Absent(seen);
    }
    match meta.is_deleting() && has(meta, FOREGROUND) {
        true => Owner::Waiting(seen),
        false => Owner::Solid(seen),
    }
}
