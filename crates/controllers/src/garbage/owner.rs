//! Owners that an object names.

use super::has;
use insula_api::{ObjectKey, OwnerReference, Revision};
use insula_catalog::{ScopeKind, Served};
use insula_registry::FOREGROUND;
use insula_store::Snapshot;
use std::sync::Arc;

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

/// Returns the key of an owner that an object names, whether it exists or not. None if its kind is
/// not served, or if a cluster-scoped object names a namespaced owner.
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

/// Returns the state of an owner that an object names.
pub(super) fn state(
    served: &[Served],
    snapshot: &Snapshot,
    dependent: &ObjectKey,
    reference: &OwnerReference,
) -> Owner {
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
