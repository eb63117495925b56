//! Loaded objects: the form in which worlds hold what a decision reads and writes.

use insula_api::{Json, ObjectKey, kinds};
use insula_registry::Intent;
use insula_store::{Entry, Snapshot};
use serde::de::DeserializeOwned;

/// Object that a decision reads and may write.
#[derive(Debug, Clone)]
pub(crate) struct Loaded<T> {
    /// The stored object with its revision.
    pub(crate) entry: Entry,
    /// All of it in its storage version: what an update starts from.
    pub(crate) value: Json,
    /// The fields that decisions read.
    pub(crate) view: T,
}

impl<T: DeserializeOwned + Default> Loaded<T> {
    /// Loads an object from a snapshot, if it exists.
    pub(crate) fn get(snapshot: &Snapshot, key: &ObjectKey) -> Option<Self> {
        snapshot.get(key).map(Loaded::from_entry)
    }

    /// Decodes a stored object.
    pub(crate) fn from_entry(entry: Entry) -> Self {
        let value = entry.object.body_value();
        Loaded {
            view: kinds::read(&value),
            value,
            entry,
        }
    }

    /// Returns true once the deletion of the object is requested.
    pub(crate) fn is_deleting(&self) -> bool {
        self.entry.object.meta.is_deleting()
    }

    /// Replaces the object, if it is unchanged, by a value.
    pub(crate) fn update(&self, value: Json) -> Intent {
        Intent::Update(self.entry.clone(), value)
    }
}
