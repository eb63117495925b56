//! Reference model of a store as a map of maps: slow, and simple enough to be right. Tests run it
//! beside an engine and compare.
//!
//! By example: put a, put b, delete a on a model at 1 gives {1: {}, 2: {a}, 3: {a, b}, 4: {b}};
//! compact(3) discards 1 and 2.

use crate::{CommitError, Entry, Gone, Txn, Write};
use insula_api::{ObjectKey, Revision, Scope};
use std::collections::BTreeMap;

/// Everything at one revision.
pub type State = BTreeMap<ObjectKey, Entry>;

/// Expected contents of a store with one writer.
#[derive(Debug, Clone)]
pub struct Model {
    /// Every state since the last compaction.
    history: BTreeMap<Revision, State>,
}

impl Model {
    /// Creates an empty store at a revision.
    pub fn new(revision: Revision) -> Self {
        Model {
            history: BTreeMap::from([(revision, State::new())]),
        }
    }

    /// Returns the newest revision and its state.
    pub fn latest(&self) -> (Revision, &State) {
        let (revision, state) = self.history.last_key_value().expect("compaction keeps the newest");
        (*revision, state)
    }

    /// Returns the state at a revision.
    ///
    /// # Errors
    /// [`Gone`] when the revision is compacted or in the future.
    pub fn at_revision(&self, revision: Revision) -> Result<&State, Gone> {
        let (latest, oldest) = (self.latest().0, self.oldest());
        self.history.get(&revision).ok_or(if revision > latest {
            Gone::Future {
                asked: revision,
                latest,
            }
        } else {
            Gone::Compacted {
                asked: revision,
                oldest,
            }
        })
    }

    /// Returns the oldest revision that is known.
    pub fn oldest(&self) -> Revision {
        *self.history.first_key_value().expect("compaction keeps the newest").0
    }

    /// Commits a transaction and returns the expected result of the store's commit.
    ///
    /// # Errors
    /// [`CommitError::Conflict`] when a guard does not hold.
    pub fn commit(&mut self, txn: &Txn) -> Result<Revision, CommitError> {
        let (now, state) = self.latest();
        for guard in &txn.guards {
            let found = state.get(guard.key()).map(|entry| entry.revision);
            if !guard.holds(found) {
                return Err(CommitError::Conflict {
                    key: guard.key().clone(),
                    found,
                });
            }
        }
        let revision = Revision(now.0 + 1);
        // Kept as it was before: the later of two writes to one key acts on what both found.
        let before = state.clone();
        let mut next = before.clone();
        let mut changed = BTreeMap::new();
        for write in &txn.writes {
            changed.insert(write.key(), write);
        }
        let mut minted = false;
        for (key, write) in changed {
            let old = before.get(key);
            match write {
                Write::Put(_, object) => {
                    let created = old.map_or(revision, |old| old.created);
                    next.insert(
                        key.clone(),
                        Entry {
                            key: key.clone(),
                            object: object.clone(),
                            revision,
                            created,
                        },
                    );
                    minted = true;
                }
                Write::Delete(_) => minted |= next.remove(key).is_some(),
            }
        }
        if !minted {
            return Ok(now);
        }
        self.history.insert(revision, next);
        Ok(revision)
    }

    /// Compacts and returns the expected result of the store's compaction.
    ///
    /// # Errors
    /// [`Gone::Future`] when `upto` is newer than the latest revision.
    pub fn compact(&mut self, upto: Revision) -> Result<(), Gone> {
        let latest = self.latest().0;
        if upto > latest {
            return Err(Gone::Future { asked: upto, latest });
        }
        self.history = self.history.split_off(&upto);
        Ok(())
    }

    /// Returns the objects of a scope at a revision, in key order.
    ///
    /// # Errors
    /// [`Gone`] when the revision is compacted or in the future.
    pub fn range(&self, scope: &Scope, at_revision: Revision) -> Result<Vec<Entry>, Gone> {
        let prefix = scope.prefix();
        let inside = |entry: &&Entry| entry.key.encode().starts_with(&prefix);
        Ok(self
            .at_revision(at_revision)?
            .values()
            .filter(inside)
            .cloned()
            .collect())
    }

    /// Returns the changes in a scope after a revision, ordered by revision and then by key.
    ///
    /// # Errors
    /// [`Gone`] when the revision is compacted or in the future.
    pub fn changes(&self, scope: &Scope, after: Revision) -> Result<Vec<ModelChange>, Gone> {
        self.at_revision(after)?;
        let prefix = scope.prefix();
        let mut changes = Vec::new();
        let states: Vec<_> = self.history.range(after..).collect();
        for pair in states.windows(2) {
            let ((_, before), (revision, now)) = (pair[0], pair[1]);
            let keys: std::collections::BTreeSet<_> = before.keys().chain(now.keys()).collect();
            for key in keys.into_iter().filter(|key| key.encode().starts_with(&prefix)) {
                let (old, new) = (before.get(key).cloned(), now.get(key).cloned());
                if old != new {
                    changes.push(ModelChange {
                        revision: *revision,
                        key: key.clone(),
                        old,
                        new,
                    });
                }
            }
        }
        Ok(changes)
    }
}

/// A change of one key, as the model computes it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelChange {
    /// Revision of the change.
    pub revision: Revision,
    /// The key that changed.
    pub key: ObjectKey,
    /// The object before the change; `None` for a creation.
    pub old: Option<Entry>,
    /// The object after the change; `None` for a deletion.
    pub new: Option<Entry>,
}
