//! Index of bindings by export.
//!
//! [`Index`] is a map that its owner feeds with changes. [`BindingIndex`] follows the store by
//! itself and answers for a snapshot: before it answers, it takes in every change up to then.

use insula_api::{ClusterName, ObjectKey, Revision, Scope, names::labels};
use insula_catalog::{
    digest,
    exports::{ExportName, offer::Binding},
    ids,
};
use insula_store::{Change, Cursor, Gone, Snapshot, Store};
use parking_lot::Mutex;
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    ops::ControlFlow,
    sync::Arc,
};

/// Removals that the index remembers for snapshots of earlier revisions.
const REMOVED_MAX: usize = 4096;

/// Keys of bindings by the digest of their export ([`labels::EXPORT`]).
#[derive(Default)]
pub struct Index {
    bindings: HashMap<Box<str>, BTreeSet<ObjectKey>>,
}

impl Index {
    /// Takes in a change of a binding.
    pub fn note(&mut self, change: &Change) {
        let (old, new) = exports(change);
        if let Some(export) = old.filter(|old| Some(*old) != new)
            && let Some(known) = self.bindings.get_mut(export)
        {
            known.remove(&change.key);
            if known.is_empty() {
                self.bindings.remove(export);
            }
        }
        if let Some(export) = new {
            self.add(export, change.key.clone());
        }
    }

    fn add(&mut self, export: &str, binding: ObjectKey) {
        let known = match self.bindings.get_mut(export) {
            Some(known) => known,
            None => self.bindings.entry(export.into()).or_default(),
        };
        known.insert(binding);
    }

    /// Returns the bindings to an export, in the order of their keys.
    pub fn bindings(&self, export: &str) -> impl Iterator<Item = &ObjectKey> {
        self.bindings.get(export).into_iter().flatten()
    }
}

/// Returns the exports of a binding before and after a change.
fn exports(change: &Change) -> (Option<&str>, Option<&str>) {
    let old = change.old.as_ref();
    (
        old.and_then(|old| old.object.meta.label(labels::EXPORT)),
        change.new.as_ref().and_then(|new| new.meta.label(labels::EXPORT)),
    )
}

/// Index of the bindings in a store, built at its first use.
#[derive(Default)]
pub struct BindingIndex(Mutex<Option<Following>>);

/// An index that follows a store.
struct Following {
    index: Index,
    cursor: Cursor,
    /// Revision from which on the index and `removed` know every binding.
    from: Revision,
    /// Bindings that left an export, with the revision at which they did, the oldest first.
    removed: VecDeque<(Revision, Box<str>, ObjectKey)>,
}

impl BindingIndex {
    /// Returns the bindings to an export in a snapshot, in the order of their keys. Takes time
    /// proportional to their number and to the changes since the last call.
    pub fn of_export(&self, store: &dyn Store, snapshot: &Snapshot, export: &str) -> Vec<ObjectKey> {
        let candidates = self.candidates(store, snapshot.revision(), export);
        let is_bound = |key: &ObjectKey| {
            let entry = snapshot.get(key);
            entry.is_some_and(|entry| entry.object.meta.label(labels::EXPORT) == Some(export))
        };
        match candidates {
            Some(mut known) => {
                known.retain(is_bound);
                known.into_iter().collect()
            }
            None => walked(snapshot, export),
        }
    }

    /// Shows the clusters that bind an export to a function until it breaks off, in the order of
    /// their names; a cluster with two bindings comes twice. Other bindings cost nothing.
    pub fn for_each_consumer(
        &self,
        (store, snapshot): (&dyn Store, &Snapshot),
        export: &ExportName,
        mut show: impl FnMut(&ClusterName) -> ControlFlow<()>,
    ) {
        let label = digest::export_label(&export.cluster, &export.name);
        for key in self.of_export(store, snapshot, &label) {
            let entry = snapshot.get(&key);
            let is_bound = entry.is_some_and(|entry| export.is_bound_by(&entry.object.parsed(Binding::read)));
            if is_bound && show(&key.cluster).is_break() {
                return;
            }
        }
    }

    /// Returns the clusters that bind an export.
    pub fn consumers(&self, at: (&dyn Store, &Snapshot), export: &ExportName) -> BTreeSet<ClusterName> {
        let mut found = BTreeSet::new();
        self.for_each_consumer(at, export, |cluster| {
            found.insert(cluster.clone());
            ControlFlow::Continue(())
        });
        found
    }

    /// Returns the bindings that an export may have at a revision; `None` if the index does not
    /// reach back to it.
    fn candidates(&self, store: &dyn Store, revision: Revision, export: &str) -> Option<BTreeSet<ObjectKey>> {
        let mut following = self.0.lock();
        let caught_up = match following.as_mut() {
            Some(known) => known.catch_up().is_ok(),
            None => false,
        };
        if !caught_up {
            *following = Following::begin(store).ok();
        }
        let known = following.as_ref().filter(|known| known.from <= revision)?;
        let mut found: BTreeSet<ObjectKey> = known.index.bindings(export).cloned().collect();
        let later = known.removed.iter().rev().take_while(|(at, ..)| *at > revision);
        found.extend(later.filter(|(_, of, _)| **of == *export).map(|(.., key)| key.clone()));
        Some(found)
    }
}

impl Following {
    fn begin(store: &dyn Store) -> Result<Self, Gone> {
        let snapshot = store.latest();
        let scope = Scope::everywhere(ids::apibindings());
        let mut index = Index::default();
        snapshot.for_each(&scope, |entry| {
            if let Some(export) = entry.object.meta.label(labels::EXPORT) {
                index.add(export, entry.key.clone());
            }
            ControlFlow::Continue(())
        });
        Ok(Following {
            index,
            cursor: store.watch(scope, snapshot.revision())?,
            from: snapshot.revision(),
            removed: VecDeque::new(),
        })
    }

    /// Takes in the changes that are there.
    fn catch_up(&mut self) -> Result<(), Gone> {
        loop {
            let changes: Vec<Arc<Change>> = self.cursor.try_next()?;
            if changes.is_empty() {
                return Ok(());
            }
            for change in changes {
                let (old, new) = exports(&change);
                if let Some(old) = old.filter(|old| Some(*old) != new) {
                    self.removed
                        .push_back((change.revision, old.into(), change.key.clone()));
                }
                self.index.note(&change);
            }
            while self.removed.len() > REMOVED_MAX {
                if let Some((at, ..)) = self.removed.pop_front() {
                    self.from = self.from.max(at);
                }
            }
        }
    }
}

/// Finds the bindings to an export among all of a snapshot.
fn walked(snapshot: &Snapshot, export: &str) -> Vec<ObjectKey> {
    let mut found = Vec::new();
    snapshot.for_each(&Scope::everywhere(ids::apibindings()), |entry| {
        if entry.object.meta.label(labels::EXPORT) == Some(export) {
            found.push(entry.key.clone());
        }
        ControlFlow::Continue(())
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use insula_api::Object;
    use insula_store::{MemoryStore, Txn, Write};
    use serde_json::json;

    fn key(tenant: usize) -> ObjectKey {
        let cluster = ClusterName::parse(&format!("t{tenant:03}")).expect("a cluster");
        ObjectKey::cluster_scoped(ids::apibindings(), cluster, "b")
    }

    fn put(store: &MemoryStore, tenant: usize, export: &str) {
        let object = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
            "metadata": {"name": "b", "labels": {labels::EXPORT: export}}});
        let object = Object::new(&object, None).expect("an object");
        write(store, Write::Put(key(tenant), object.into()));
    }

    fn write(store: &MemoryStore, write: Write) {
        let txn = Txn {
            guards: Vec::new(),
            writes: vec![write],
        };
        let committed = store.commit(txn).now_or_never().expect("at once");
        committed.expect("it is stored");
    }

    /// The index gives what a walk gives, at the latest revision and at earlier ones.
    #[test]
    fn the_index_answers_for_the_revision_of_a_snapshot() {
        let (store, index) = (MemoryStore::new(), BindingIndex::default());
        for tenant in 0..6 {
            put(&store, tenant, ["ours", "theirs"][tenant % 2]);
        }
        let mut snapshots = vec![store.latest()];
        let check = |snapshot: &Snapshot| {
            for export in ["ours", "theirs", "nobodys"] {
                let found = index.of_export(&store, snapshot, export);
                assert_eq!(found, walked(snapshot, export), "{export} at {}", snapshot.revision());
            }
        };
        snapshots.iter().for_each(check);
        write(&store, Write::Delete(key(0)));
        snapshots.push(store.latest());
        put(&store, 2, "theirs");
        put(&store, 7, "ours");
        snapshots.push(store.latest());
        write(&store, Write::Delete(key(2)));
        put(&store, 2, "ours");
        snapshots.push(store.latest());
        snapshots.iter().for_each(check);
        assert_eq!(
            index.of_export(&store, &store.latest(), "ours"),
            [key(2), key(4), key(7)]
        );
        assert_eq!(index.of_export(&store, &snapshots[0], "ours"), [key(0), key(2), key(4)]);
    }

    /// A snapshot from before the index is answered by a walk.
    #[test]
    fn an_index_that_begins_later_does_not_guess() {
        let (store, index) = (MemoryStore::new(), BindingIndex::default());
        put(&store, 0, "ours");
        let before = store.latest();
        write(&store, Write::Delete(key(0)));
        assert!(index.of_export(&store, &store.latest(), "ours").is_empty());
        assert!(index.candidates(&store, before.revision(), "ours").is_none());
        assert_eq!(index.of_export(&store, &before, "ours"), [key(0)]);
    }
}
