//! Serialization points for decisions that depend on many objects.
//!
//! A limit on the objects of a workspace, or the uniqueness of export identities, depends on the
//! set of all objects. A create changes none of the existing objects, so guards on them cannot
//! detect a concurrent create. Every create therefore also writes the serialization point, with a
//! guard on the revision it read. The object has no content; only its revision matters. Of two
//! concurrent creates one conflicts and retries with the other's object in view. Deletes do not
//! write it, because they cannot violate a limit.

use crate::{Error, Result, ids};
use insula_api::{ClusterName, Object, ObjectKey};
use insula_store::{Entry, Guard, Pinned, Write};
use serde_json::json;
use std::sync::Arc;

/// A serialization point at the revision of a snapshot.
#[derive(Debug, Clone)]
pub struct SerializationPoint {
    key: ObjectKey,
    seen: Option<Entry>,
}

impl SerializationPoint {
    /// Returns the serialization point for the number of objects in a cluster.
    pub fn of_objects(snapshot: &Pinned, cluster: &ClusterName) -> Self {
        SerializationPoint::read(snapshot, ids::serialization_point(cluster, "objects"))
    }

    /// Returns the serialization point for the identities of all exports.
    pub fn of_identities(snapshot: &Pinned) -> Self {
        SerializationPoint::read(
            snapshot,
            ids::serialization_point(&ClusterName::bound_crds(), "identities"),
        )
    }

    /// Returns the serialization point for the number of APIBindRequests of all clusters.
    pub fn of_bind_requests(snapshot: &Pinned) -> Self {
        SerializationPoint::read(
            snapshot,
            ids::serialization_point(&ClusterName::bound_crds(), "bindrequests"),
        )
    }

    fn read(snapshot: &Pinned, key: ObjectKey) -> Self {
        SerializationPoint {
            seen: snapshot.get(&key),
            key,
        }
    }

    /// Returns the write of the object of a key.
    ///
    /// # Errors
    /// Returns `Internal` if the object cannot be built.
    pub fn put(key: ObjectKey) -> Result<Write> {
        let value = json!({
            "apiVersion": ids::INTERNAL_V1, "kind": ids::SERIALIZATION_POINT, "metadata": {"name": &*key.name},
        });
        let object = Object::new(&value, None).map_err(|error| Error::Internal(error.to_string()))?;
        Ok(Write::Put(key, Arc::new(object)))
    }

    /// Returns the guard and write that a create commits together with its object.
    ///
    /// # Errors
    /// Returns `Internal` if the object cannot be built.
    pub fn written(&self) -> Result<(Guard, Write)> {
        Ok(match &self.seen {
            Some(entry) => (
                Guard::At(self.key.clone(), entry.revision),
                Write::Put(self.key.clone(), entry.object.clone()),
            ),
            None => (
                Guard::Absent(self.key.clone()),
                SerializationPoint::put(self.key.clone())?,
            ),
        })
    }
}
