//! State under the lock of [`crate::Mvcc`]: the versions by key, and the history in the order in
//! which it is trimmed.

use crate::{
    Gone,
    counts::Counts,
    history::{History, cost},
    indexes::Indexes,
    log::{Change, Log, Prior},
    plan::Pending,
    usage::{Sharing, Usages},
};
use insula_api::{Object, ObjectKey, Revision, Scope};
use std::{
    collections::{BTreeMap, HashSet},
    ops::Bound,
    sync::Arc,
};

/// Changes that are trimmed, or entries that are read, while the lock is held once.
pub(crate) const CHUNK_ENTRIES: usize = 1000;

/// An object as a snapshot sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Key of the object.
    pub key: ObjectKey,
    /// The object.
    pub object: Arc<Object>,
    /// Revision of the last write: the object's `resourceVersion`.
    pub revision: Revision,
    /// Revision of the creation.
    pub created: Revision,
}

pub(crate) struct State {
    pub(crate) keys: BTreeMap<Arc<[u8]>, Slot>,
    pub(crate) applied: Revision,
    /// The oldest revision that can be requested. Invariant: `floor <= applied`.
    pub(crate) floor: Revision,
    pub(crate) log: Log,
    pub(crate) counts: Counts,
    pub(crate) usages: Usages,
    pub(crate) indexes: Indexes,
    /// The changes in `log` by cluster, with their cost.
    pub(crate) history: History,
    /// Bytes that the history may have.
    pub(crate) history_bytes_max: usize,
    /// The newest changes in `log`, which no cap takes: their number, and their cost in bytes.
    recent: (usize, usize),
}

/// The versions of one key. Most keys have one version, so the newest is inline.
pub(crate) struct Slot {
    pub(crate) key: ObjectKey,
    newest: Version,
    /// Ascending, all older than `newest`.
    older: Vec<Version>,
}

#[derive(Clone)]
struct Version {
    revision: Revision,
    created: Revision,
    /// `None` is a deletion.
    object: Option<Arc<Object>>,
}

impl Slot {
    pub(crate) fn at_revision(&self, revision: Revision) -> Option<Entry> {
        let version = if self.newest.revision <= revision {
            &self.newest
        } else {
            self.older.iter().rev().find(|v| v.revision <= revision)?
        };
        let object = version.object.clone()?;
        Some(Entry {
            key: self.key.clone(),
            object,
            revision: version.revision,
            created: version.created,
        })
    }

    /// Returns the objects of all versions that are kept.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Object> {
        let versions = self.older.iter().chain([&self.newest]);
        versions.filter_map(|version| version.object.as_deref())
    }

    pub(crate) fn exists_at(&self, revision: Revision) -> bool {
        if self.newest.revision <= revision {
            return self.newest.object.is_some();
        }
        self.older
            .iter()
            .rev()
            .find(|v| v.revision <= revision)
            .is_some_and(|v| v.object.is_some())
    }
}

impl State {
    /// Creates the state at `revision`, without any older history.
    pub(crate) fn load(revision: Revision, entries: impl IntoIterator<Item = Entry>, history_bytes_max: usize) -> Self {
        let mut usages = Usages::default();
        let slots = entries.into_iter().map(|entry| {
            usages.replaced(&entry.key, None, Some(&entry.object));
            let Entry {
                key,
                object,
                revision,
                created,
            } = entry;
            let newest = Version {
                revision,
                created,
                object: Some(object),
            };
            (
                key.encode(),
                Slot {
                    key,
                    newest,
                    older: Vec::new(),
                },
            )
        });
        let keys = slots.collect();
        State {
            keys,
            usages,
            indexes: Indexes::default(),
            applied: revision,
            floor: revision,
            log: Log::default(),
            counts: Counts::default(),
            history: History::default(),
            history_bytes_max,
            recent: (0, 0),
        }
    }

    /// Returns the revisions at which the object of an encoded key was last written and created.
    pub(crate) fn current(&self, encoded: &[u8]) -> Option<(Revision, Revision)> {
        let newest = &self.keys.get(encoded)?.newest;
        newest.object.as_ref().map(|_| (newest.revision, newest.created))
    }

    /// Returns the object of an encoded key with its revisions.
    pub(crate) fn newest(&self, encoded: &[u8]) -> Option<Pending> {
        let newest = &self.keys.get(encoded)?.newest;
        newest.object.clone().map(|object| Pending {
            revision: newest.revision,
            created: newest.created,
            object,
        })
    }

    pub(crate) fn write(&mut self, revision: Revision, mut key: ObjectKey, object: Option<Arc<Object>>) {
        let encoded = key.encode();
        if let Some(object) = &object {
            share_names(&mut key, object);
        }
        let old = match self.keys.get_mut(&encoded) {
            None => {
                let Some(object) = &object else { return };
                let newest = Version {
                    revision,
                    created: revision,
                    object: Some(object.clone()),
                };
                self.keys.insert(
                    encoded.clone(),
                    Slot {
                        key: key.clone(),
                        newest,
                        older: Vec::new(),
                    },
                );
                None
            }
            Some(slot) => {
                let old = slot.newest.object.clone().map(|object| Prior {
                    object,
                    revision: slot.newest.revision,
                });
                if old.is_none() && object.is_none() {
                    return;
                }
                let created = if old.is_some() { slot.newest.created } else { revision };
                let newest = Version {
                    revision,
                    created,
                    object: object.clone(),
                };
                slot.older.push(std::mem::replace(&mut slot.newest, newest));
                // The equal key that is stored already, so that its strings are shared.
                key = slot.key.clone();
                old
            }
        };
        match (&old, &object) {
            (None, _) => self.counts.created(&encoded),
            (_, None) => self.counts.deleted(&encoded),
            _ => {}
        }
        self.usages
            .replaced(&key, old.as_ref().map(|old| &*old.object), object.as_deref());
        self.indexes.written(&encoded, &key, object.as_deref());
        let change = Arc::new(Change {
            key,
            revision,
            old,
            new: object,
        });
        self.history.push(&change);
        self.log.push(&change);
        self.recent.0 += 1;
        self.recent.1 += cost(&change);
    }

    /// Returns the number of objects in a scope at a pinned revision, if it is known without a
    /// walk.
    pub(crate) fn count(&self, scope: &Scope, revision: Revision) -> Option<usize> {
        let now = self.counts.get(scope)?;
        now.checked_add_signed(-self.log.growth(scope, revision)?)
    }

    /// Keeps the number of objects in a scope from now on. `count` is the number at a pinned
    /// revision.
    pub(crate) fn keep_count(&mut self, scope: &Scope, revision: Revision, count: usize) {
        let now = self
            .log
            .growth(scope, revision)
            .and_then(|growth| count.checked_add_signed(growth));
        if let Some(now) = now {
            self.counts.keep(scope, now);
        }
    }

    /// Checks that a revision can be requested.
    pub(crate) fn check(&self, revision: Revision) -> Result<(), Gone> {
        if revision < self.floor {
            return Err(Gone::Compacted {
                asked: revision,
                oldest: self.floor,
            });
        }
        if revision > self.applied {
            return Err(Gone::Future {
                asked: revision,
                latest: self.applied,
            });
        }
        Ok(())
    }

    /// Writes an object as it is at a revision, if the state's is another one. The changes in
    /// between are unknown. Returns its encoded key.
    pub(crate) fn move_to(&mut self, revision: Revision, entry: Entry) -> Arc<[u8]> {
        let encoded = entry.key.encode();
        if let Some((known, slot)) = self.keys.get_key_value(&encoded)
            && slot.newest.object.is_some()
            && slot.newest.revision == entry.revision
        {
            return known.clone();
        }
        self.write(revision, entry.key, Some(entry.object));
        // The version is older than `revision`; nobody can request a revision in between.
        if let Some(slot) = self.keys.get_mut(&encoded) {
            slot.newest.revision = entry.revision;
            slot.newest.created = entry.created;
        }
        self.keys
            .get_key_value(&encoded)
            .map_or(encoded.clone(), |(known, _)| known.clone())
    }

    /// Deletes at a revision the objects that are not in `kept`, among some behind `after`. Returns
    /// the last encoded key that it looked at; nothing at the end.
    pub(crate) fn keep_only(
        &mut self,
        revision: Revision,
        kept: &HashSet<Arc<[u8]>>,
        after: Bound<Arc<[u8]>>,
    ) -> Option<Arc<[u8]>> {
        let range = (after, Bound::Unbounded);
        let some: Vec<_> = self.keys.range::<Arc<[u8]>, _>(range).take(CHUNK_ENTRIES).collect();
        let last = some.last().map(|(encoded, _)| Arc::clone(encoded));
        let gone = some
            .into_iter()
            .filter(|(encoded, slot)| slot.newest.object.is_some() && !kept.contains(*encoded));
        let gone: Vec<ObjectKey> = gone.map(|(_, slot)| slot.key.clone()).collect();
        for key in gone {
            self.write(revision, key, None);
        }
        last
    }

    /// Takes on other rules of sharing.
    pub(crate) fn share(
        &mut self,
        Sharing {
            payers,
            history_bytes_max,
        }: Sharing,
    ) {
        self.history_bytes_max = history_bytes_max;
        let objects = self
            .keys
            .values()
            .filter_map(|slot| Some((&slot.key, slot.newest.object.as_deref()?)));
        self.usages.follow(payers, objects);
    }

    /// Checks that a scope can be read and watched from a revision that can be requested: that its
    /// history was not cut after it.
    pub(crate) fn check_scope(&self, scope: &Scope, revision: Revision) -> Result<(), Gone> {
        let lost = self.log.lost(scope.resources.one(), scope.cluster.as_ref());
        if lost <= revision {
            return Ok(());
        }
        Err(Gone::Compacted {
            asked: revision,
            oldest: lost.max(self.floor),
        })
    }

    /// Makes `to` the floor, unless the floor is there already. Passes each change once.
    pub(crate) fn raise_floor(&mut self, to: Revision) {
        self.history.release_upto(to);
        self.floor = self.floor.max(to);
    }

    /// Gives up history until the rest costs no more than it may, that of whom has most first.
    pub(crate) fn cap_history(&mut self) {
        let bytes_max = self.history_bytes_max;
        let recent_max = History::recent_bytes_max(bytes_max);
        while self.recent.1 > recent_max
            && let Some(oldest) = self.log.newest(self.recent.0)
        {
            self.recent.0 -= 1;
            self.recent.1 -= cost(oldest);
        }
        // The revision in which the recent changes begin is not one of them: it may be larger than
        // what they may have.
        let upto = self.log.newest(self.recent.0.max(1)).map(|change| change.revision);
        let usages = &self.usages;
        self.history
            .cap(bytes_max, upto.unwrap_or_default(), |cluster| usages.payer(cluster));
    }

    /// Trims up to [`CHUNK_ENTRIES`] changes that are given up, none after a revision. Returns true
    /// if there may be more.
    pub(crate) fn trim(&mut self, upto: Revision) -> bool {
        let mut left = CHUNK_ENTRIES;
        while left > 0 {
            let trimmed = self.history.trim(upto, left);
            if trimmed.is_empty() {
                return false;
            }
            left -= trimmed.len();
            trimmed.iter().for_each(|change| self.forget(change));
        }
        true
    }

    fn forget(&mut self, change: &Arc<Change>) {
        self.log.forget(change, self.floor);
        while let Some(popped) = self.log.pop(change.revision) {
            if self.log.len() < self.recent.0 {
                self.recent.0 -= 1;
                self.recent.1 -= cost(&popped);
            }
        }
        let encoded = change.key.encode();
        let Some(slot) = self.keys.get_mut(&encoded) else {
            return;
        };
        let stays = |version: &mut Version| {
            version.revision > change.revision || (version.revision == change.revision && version.object.is_some())
        };
        let gone: Vec<Version> = slot.older.extract_if(.., |version| !stays(version)).collect();
        slot.older.shrink_to(4);
        for object in gone.iter().filter_map(|version| version.object.as_deref()) {
            self.indexes.forgotten(&encoded, (&change.key, object), Some(slot));
        }
        if slot.newest.revision == change.revision && slot.newest.object.is_none() {
            self.keys.remove(&encoded);
        }
    }
}

/// Makes a key share the strings of its object, which lives as long as the key.
fn share_names(key: &mut ObjectKey, object: &Object) {
    if key.name == object.meta.name {
        key.name = object.meta.name.clone();
    }
    if key.namespace == object.meta.namespace {
        key.namespace = object.meta.namespace.clone();
    }
}
