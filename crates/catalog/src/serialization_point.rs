//! Registers: what makes decisions over many objects meet.
//!
//! "So many objects in a workspace", "no two exports with one identity": whether another one fits
//! is seen by looking at all, and none of those that are looked at changes when one more is made.
//! So whoever makes one writes the register of them, too, under a guard that it is as it was seen.
//! A register says nothing; it has a revision. Of two that decide at the same moment one conflicts,
//! looks again, and finds what the other one made. What leaves writes nothing: there is only more
//! room then.

use crate::{Error, Result, ids};
use insula_api::{ClusterName, Object, ObjectKey};
use insula_store::{Entry, Guard, Snapshot, Write};
use serde_json::json;
use std::sync::Arc;

/// A register as it was seen.
#[derive(Debug, Clone)]
pub struct SerializationPoint {
    key: ObjectKey,
    seen: Option<Entry>,
}

impl SerializationPoint {
    /// Of all objects of a cluster.
    pub fn of_objects(snapshot: &Snapshot, cluster: &ClusterName) -> Self {
        SerializationPoint::at(snapshot, ids::register(cluster, "objects"))
    }

    /// Of the identities of all exports.
    pub fn of_identities(snapshot: &Snapshot) -> Self {
        SerializationPoint::at(snapshot, ids::register(&ClusterName::bound_crds(), "identities"))
    }

    fn at(snapshot: &Snapshot, key: ObjectKey) -> Self {
        SerializationPoint {
            seen: snapshot.get(&key),
            key,
        }
    }

    /// What is committed with the object that is added.
    pub fn written(&self) -> Result<(Guard, Write)> {
        Ok(match &self.seen {
            Some(entry) => (
                Guard::At(self.key.clone(), entry.revision),
                Write::Put(self.key.clone(), entry.object.clone()),
            ),
            None => {
                let new = json!({"apiVersion": "internal.insula.io/v1", "kind": "Register", "metadata": {"name": &*self.key.name}});
                let new = Object::new(&new, None).map_err(|error| Error::Internal(error.to_string()))?;
                (
                    Guard::Absent(self.key.clone()),
                    Write::Put(self.key.clone(), Arc::new(new)),
                )
            }
        })
    }
}
