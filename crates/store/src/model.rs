//! The store as a map of maps: too slow and too simple to be wrong. Tests run it beside an engine
//! and compare.
//!
//! By example: put a, put b, delete a on a model at 1 gives {1: {}, 2: {a}, 3: {a, b}, 4: {b}};
//! compact(3) forgets 1 and 2.

use crate::{CommitError, Entry, Gone, Txn, Write};
use insula_api::{ObjectKey, Revision, Scope};
use std::collections::BTreeMap;

/// Everything at one revision.
pub type State = BTreeMap<ObjectKey, Entry>;

/// What a store that nobody else writes to must look like.
#[derive(Debug, Clone)]
pub struct Model {
    /// Every state since the last compaction.
    history: BTreeMap<Revision, State>,
}

impl Model {
    /// An empty store at a revision.
    pub fn new(revision: Revision) -> Self {
        Model {
            history: BTreeMap::from([(revision, State::new())]),
        }
    }

    /// The newest revision and state.
    pub fn latest(&self) -> (Revision, &State) {
        let (revision, state) = self.history.last_key_value().expect("compaction keeps the newest");
        (*revision, state)
    }

    /// The state at a revision.
    pub fn at(&self, revision: Revision) -> Result<&State, Gone> {
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

    /// The oldest revision that is known.
    pub fn oldest(&self) -> Revision {
        *self.history.first_key_value().expect("compaction keeps the newest").0
    }

    /// What the store's commit must answer.
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

    /// What the store's compaction must answer.
    pub fn compact(&mut self, upto: Revision) -> Result<(), Gone> {
        let latest = self.latest().0;
        if upto > latest {
            return Err(Gone::Future { asked: upto, latest });
        }
        self.history = self.history.split_off(&upto);
        Ok(())
    }

    /// What a restart leaves of an engine that keeps no history: the newest state.
    pub fn restart(&mut self) {
        let latest = self.latest().0;
        self.history = self.history.split_off(&latest);
    }

    /// The objects of a scope at a revision, in key order.
    pub fn range(&self, scope: &Scope, at: Revision) -> Result<Vec<Entry>, Gone> {
        let prefix = scope.prefix();
        let inside = |entry: &&Entry| entry.key.encode().starts_with(&prefix);
        Ok(self.at(at)?.values().filter(inside).cloned().collect())
    }

    /// The keys of a scope that changed after a revision, with the revision of each change and what
    /// was there before and after, in the order of revisions and within one of keys.
    pub fn changes(&self, scope: &Scope, after: Revision) -> Result<Vec<ModelChange>, Gone> {
        self.at(after)?;
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

/// A change as the model tells it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelChange {
    /// When.
    pub revision: Revision,
    /// Which key.
    pub key: ObjectKey,
    /// Before.
    pub old: Option<Entry>,
    /// After.
    pub new: Option<Entry>,
}
