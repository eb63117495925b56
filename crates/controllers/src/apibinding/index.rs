//! Index of bindings by export.

use insula_api::{ObjectKey, names::labels};
use insula_store::Change;
use std::collections::{BTreeSet, HashMap};

/// Keys of bindings by the digest of their export ([`labels::EXPORT`]).
///
/// It follows the changes of bindings, and may lag behind a snapshot. A binding that it lacks is
/// reconciled by its own change, which is still to come.
#[derive(Default)]
pub(crate) struct Index {
    bindings: HashMap<Box<str>, BTreeSet<ObjectKey>>,
}

impl Index {
    /// Takes in a change of a binding.
    pub(crate) fn note(&mut self, change: &Change) {
        let old = change
            .old
            .as_ref()
            .and_then(|old| old.object.meta.label(labels::EXPORT));
        let new = change.new.as_ref().and_then(|new| new.meta.label(labels::EXPORT));
        if let Some(export) = old.filter(|old| Some(*old) != new)
            && let Some(known) = self.bindings.get_mut(export)
        {
            known.remove(&change.key);
            if known.is_empty() {
                self.bindings.remove(export);
            }
        }
        if let Some(export) = new {
            let known = match self.bindings.get_mut(export) {
                Some(known) => known,
                None => self.bindings.entry(export.into()).or_default(),
            };
            known.insert(change.key.clone());
        }
    }

    /// Returns the bindings to an export, in the order of their keys.
    pub(crate) fn bindings(&self, export: &str) -> impl Iterator<Item = &ObjectKey> {
        self.bindings.get(export).into_iter().flatten()
    }
}
