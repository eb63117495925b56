//! Index of dependents by owner.

use insula_api::{ClusterName, ObjectKey, Revision};
use insula_store::Change;
use std::collections::{BTreeSet, HashMap};

/// Dependents by their owner's cluster and UID. Holds objects that have owners, and no others.
#[derive(Default)]
pub(super) struct Index {
    dependents: HashMap<(ClusterName, Box<str>), BTreeSet<ObjectKey>>,
    /// Revision of the latest noticed change.
    reached: Revision,
}

impl Index {
    /// Takes in a change.
    pub(super) fn note(&mut self, change: &Change) {
        self.reached = self.reached.max(change.revision);
        let key = &change.key;
        let of = |uid: &str| (key.cluster.clone(), Box::from(uid));
        for reference in change.old.iter().flat_map(|prior| &prior.object.meta.owner_references) {
            let owner = of(&reference.uid);
            if let Some(known) = self.dependents.get_mut(&owner) {
                known.remove(key);
                if known.is_empty() {
                    self.dependents.remove(&owner);
                }
            }
        }
        for reference in change.new.iter().flat_map(|object| &object.meta.owner_references) {
            self.dependents
                .entry(of(&reference.uid))
                .or_default()
                .insert(key.clone());
        }
    }

    /// Returns the objects that name an owner, in its cluster and, for namespaced owners, its
    /// namespace.
    pub(super) fn dependents(&self, owner: &ObjectKey, uid: &str) -> Vec<ObjectKey> {
        let known = self.dependents.get(&(owner.cluster.clone(), Box::from(uid)));
        known
            .into_iter()
            .flatten()
            .filter(|key| owner.namespace.is_empty() || key.namespace == owner.namespace)
            .cloned()
            .collect()
    }

    /// Returns the objects of a cluster that name an owner, in every namespace.
    pub(super) fn dependents_anywhere(&self, cluster: &ClusterName, uid: &str) -> impl Iterator<Item = &ObjectKey> {
        let known = self.dependents.get(&(cluster.clone(), Box::from(uid)));
        known.into_iter().flatten()
    }

    /// Returns true if it has noticed all changes up to a revision.
    pub(super) fn knows(&self, revision: Revision) -> bool {
        self.reached >= revision
    }
}
