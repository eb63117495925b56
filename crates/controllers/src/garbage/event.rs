//! The event that tells why an object was collected: the owner that it names is in another
//! namespace.

use super::{
    index::Index,
    owner::{Owner, Seen, locate},
};
use crate::write::unchanged;
use insula_api::{ObjectKey, OwnerReference, Timestamp};
use insula_catalog::{Served, ids};
use insula_registry::Intent;
use insula_store::{Entry, Snapshot};
use serde_json::json;

/// Limit on the other dependents of an owner, and on the namespaces, that are searched for it.
const SEARCHED_MAX: usize = 64;
const COMPONENT: &str = "garbage-collector-controller";

/// Returns the creation of an event, with a guard on its namespace, for the first owner of an
/// object that is in another namespace. Kubernetes finds it by its UID alone; this looks where the
/// reference and other dependents of the owner say.
pub(super) fn of_foreign_owner(
    (snapshot, index): (&Snapshot, &Index),
    served: &[Served],
    entry: &Entry,
    owners: &[(OwnerReference, Owner)],
    now: Timestamp,
) -> Vec<Intent> {
    let key = &entry.key;
    let namespace = ObjectKey::cluster_scoped(ids::namespaces(), key.cluster.clone(), &key.namespace);
    let alive = snapshot
        .get(&namespace)
        .filter(|found| !found.object.meta.is_deleting());
    let (Some(alive), Some(own)) = (alive, served.iter().find(|s| s.resource_id() == key.resource)) else {
        return Vec::new();
    };
    let mut absent = owners.iter().filter_map(|(reference, owner)| match owner {
        Owner::Absent(Seen(at, _)) => Some((reference, at)),
        _ => None,
    });
    let foreign = absent.find(|(reference, at)| is_elsewhere(snapshot, index, served, entry, reference, at));
    let Some((owner, _)) = foreign else { return Vec::new() };
    let (api_version, kind) = (own.api.api_version(entry.object.version()), &*own.names().kind);
    let (name, uid) = (&*key.name, entry.object.meta.uid.to_string());
    let message = format!(
        "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace {:?}",
        owner.api_version, owner.kind, key.namespace, owner.name, owner.uid, key.namespace
    );
    let short: String = name.chars().take(200).collect();
    let event_key = ObjectKey {
        resource: ids::events(),
        name: format!("{short}.{:x}", entry.revision.0).into(),
        ..key.clone()
    };
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": &*event_key.name, "namespace": &*key.namespace},
        "involvedObject": {
            "apiVersion": api_version, "kind": kind, "namespace": &*key.namespace, "name": name, "uid": uid,
        },
        "type": "Warning", "reason": "OwnerRefInvalidNamespace", "message": message,
        "source": {"component": COMPONENT}, "reportingComponent": COMPONENT, "reportingInstance": "",
        "firstTimestamp": now.to_string(), "lastTimestamp": now.to_string(), "eventTime": null, "count": 1,
    });
    vec![unchanged(namespace, Some(&alive)), Intent::Create(event_key, event)]
}

/// Returns true if the owner exists in another namespace of the cluster.
fn is_elsewhere(
    snapshot: &Snapshot,
    index: &Index,
    served: &[Served],
    entry: &Entry,
    reference: &OwnerReference,
    at: &ObjectKey,
) -> bool {
    let key = &entry.key;
    let is_it = |found: &ObjectKey| {
        let found = snapshot.get(found);
        found.is_some_and(|found| found.object.meta.uid.to_string() == reference.uid)
    };
    let others = index.dependents_anywhere(&key.cluster, &reference.uid);
    let others = others
        .filter(|other| other.namespace != key.namespace)
        .take(SEARCHED_MAX);
    let mut named = others.filter_map(|other| {
        let other = snapshot.get(other)?;
        let mut references = other.object.meta.owner_references.iter();
        let reference = references.find(|known| known.uid == reference.uid)?;
        locate(served, &other.key, reference)
    });
    if named.any(|found| is_it(&found)) {
        return true;
    }
    let scope = insula_api::Scope::cluster(ids::namespaces(), key.cluster.clone());
    let namespaces = snapshot.range(&scope, None, SEARCHED_MAX);
    !at.namespace.is_empty()
        && namespaces.iter().any(|namespace| {
            is_it(&ObjectKey {
                namespace: namespace.key.name.clone(),
                ..at.clone()
            })
        })
}
