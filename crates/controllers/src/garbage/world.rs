//! What is known about one object, its owners and its dependents.

use super::{has, index::Index, waits};
use insula_api::{ObjectKey, OwnerReference, Revision, Timestamp};
use insula_registry::{Custom, FOREGROUND, Origin, Registry, ScopeKind, Served, Strategy};
use insula_store::{Entry, Snapshot};
use std::sync::Arc;

/// The world of one object.
pub(crate) struct World {
    /// The object, if it still exists.
    pub(super) object: Option<Entry>,
    pub(super) strategy: Arc<dyn Strategy>,
    /// The state of each of its owner references.
    pub(super) owners: Vec<(OwnerReference, Owner)>,
    /// What names it as an owner. `None` while that is not known up to the object's own revision;
    /// the change that is still to be noticed brings it back.
    pub(super) dependents: Option<Vec<Entry>>,
    pub(super) now: Timestamp,
}

/// What an owner reference comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owner {
    /// It is there.
    Solid(Seen),
    /// It is being deleted and waits for its dependents.
    Waiting(Seen),
    /// It is not there: nothing has its name, or something with another UID.
    Absent(Seen),
    /// Nobody can say: its kind is not served, or an object of no namespace names an owner in one.
    Unknown,
}

/// A key, and the revision at which it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen(pub(super) ObjectKey, pub(super) Option<Revision>);

pub(super) fn observe(registry: &Registry, index: &Index, key: &ObjectKey, snapshot: &Snapshot) -> World {
    let object = snapshot.get(key);
    let mut world = World {
        object,
        strategy: Arc::new(Custom),
        owners: Vec::new(),
        dependents: Some(Vec::new()),
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
        world.strategy = own.api.strategy.clone();
    }
    let owners = meta.owner_references.iter();
    world.owners = owners.map(|r| (r.clone(), owner(&served, snapshot, key, r))).collect();
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

/// Where an owner would be.
pub(super) fn owner_key(
    registry: &Registry,
    snapshot: &Snapshot,
    dependent: &ObjectKey,
    reference: &OwnerReference,
) -> Option<ObjectKey> {
    let served = registry.catalog.served(snapshot, &dependent.cluster);
    place(&served, dependent, reference)
}

fn place(served: &[Served], dependent: &ObjectKey, reference: &OwnerReference) -> Option<ObjectKey> {
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
    let Some(key) = place(served, dependent, reference) else {
        return Owner::Unknown;
    };
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
