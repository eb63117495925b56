//! Every version of every object, in key order, since the last compaction.
//!
//! By example, as key: revisions (`†` a deletion): put(a) put(b) delete(a) on a store at 1 gives a: 2, 4† and b: 3.
//! A snapshot at 3 reads a@2, b@3. compact(4) leaves b: 3. With a snapshot at 3 alive nothing after 3 is forgotten until
//! it is dropped, although nobody can ask for 3 any more: a reader never sees a hole, and pays by holding memory.

use crate::{
    Change, Entry, Gone, Prior, Snapshot,
    watch::{Cursor, Log},
};
use insula_api::{Object, ObjectKey, Revision, Scope};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// History that is kept at most, in bytes of superseded objects and bookkeeping. Beyond it the oldest is compacted: a burst
/// of writes between two compactions must not eat the memory.
const HISTORY_BYTES_MAX: usize = 512 << 20;

/// What a change costs besides the object that it replaced: the key twice, links in the log.
const CHANGE_BYTES: usize = 256;

/// Changes trimmed, and entries read, under one hold of the lock.
pub(crate) const CHUNK: usize = 1000;

/// The writes of one revision: an object, or `None` for a deletion. A key appears once.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The revision.
    pub revision: Revision,
    /// The changes, in the transaction's order.
    pub writes: Vec<(ObjectKey, Option<Arc<Object>>)>,
}

/// The state of a store as this process has applied it. Shared by all engines; only they write to it.
pub struct Mvcc {
    state: RwLock<State>,
    /// The revisions that live snapshots read at, with their number. Locked after `state`.
    pins: Mutex<BTreeMap<Revision, usize>>,
    /// Repeats `State::applied` for those who wait for a revision.
    reached: tokio::sync::watch::Sender<Revision>,
    history_bytes_max: usize,
}

pub(crate) struct State {
    pub(crate) keys: BTreeMap<Arc<[u8]>, Slot>,
    pub(crate) applied: Revision,
    /// The oldest revision that may be asked for. Invariant: `floor <= applied`.
    pub(crate) floor: Revision,
    pub(crate) log: Log,
    /// Everything in `log` and all superseded versions, oldest first, to forget them in order.
    history: VecDeque<(Arc<[u8]>, Arc<Change>)>,
    history_bytes: usize,
}

/// One key's versions. Most keys have one, so the newest is inline.
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
    pub(crate) fn at(&self, revision: Revision) -> Option<Entry> {
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
    fn write(&mut self, revision: Revision, key: ObjectKey, object: Option<Arc<Object>>) {
        let encoded = key.encode();
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
                old
            }
        };
        let change = Arc::new(Change {
            key,
            revision,
            old,
            new: object,
        });
        self.history_bytes += cost(&change);
        self.log.push(&change);
        self.history.push_back((encoded, change));
    }

    /// Forgets up to `CHUNK` changes that nobody may read any more. Returns whether there are more.
    fn trim(&mut self, upto: Revision) -> bool {
        for _ in 0..CHUNK {
            let Some((encoded, change)) = self.history.pop_front_if(|(_, change)| change.revision <= upto) else {
                return false;
            };
            self.history_bytes -= cost(&change);
            self.log.forget(&change);
            let Some(slot) = self.keys.get_mut(&encoded) else {
                continue;
            };
            slot.older.retain(|version| {
                version.revision > change.revision || (version.revision == change.revision && version.object.is_some())
            });
            slot.older.shrink_to(4);
            if slot.newest.revision == change.revision && slot.newest.object.is_none() {
                self.keys.remove(&encoded);
            }
        }
        true
    }
}

fn cost(change: &Change) -> usize {
    CHANGE_BYTES + change.old.as_ref().map_or(0, |old| old.object.size())
}

impl Mvcc {
    /// An empty state at a revision.
    pub fn new(revision: Revision) -> Arc<Mvcc> {
        Self::load(revision, std::iter::empty())
    }

    /// The state at `revision`, of which nothing older is known: watches can start there and not before.
    pub fn load(revision: Revision, entries: impl IntoIterator<Item = Entry>) -> Arc<Mvcc> {
        let slots = entries.into_iter().map(|entry| {
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
        let state = State {
            keys: slots.collect(),
            applied: revision,
            floor: revision,
            log: Log::default(),
            history: VecDeque::new(),
            history_bytes: 0,
        };
        Arc::new(Mvcc {
            state: RwLock::new(state),
            pins: Mutex::default(),
            reached: tokio::sync::watch::Sender::new(revision),
            history_bytes_max: HISTORY_BYTES_MAX,
        })
    }

    /// Shows commits, oldest first and each newer than all before, to everybody at once.
    pub fn apply(&self, commits: Vec<Commit>) {
        let Some(last) = commits.last().map(|commit| commit.revision) else {
            return;
        };
        let mut state = self.state.write();
        for Commit { revision, writes } in commits {
            assert!(
                revision > state.applied,
                "revisions grow: {revision} after {}",
                state.applied
            );
            for (key, object) in writes {
                state.write(revision, key, object);
            }
            state.applied = revision;
        }
        if state.history_bytes > self.history_bytes_max {
            let excess = state.history_bytes - self.history_bytes_max;
            let mut freed = 0;
            let oldest_kept = state.history.iter().find(|(_, change)| {
                freed += cost(change);
                freed > excess
            });
            let floor = oldest_kept.map_or(state.applied, |(_, change)| change.revision);
            state.floor = state.floor.max(floor);
        }
        // Pays off what a pinned compaction had to leave, a bounded part each time.
        let limit = self.trim_limit(&state);
        state.trim(limit);
        let touched = state.log.take_touched();
        drop(state);
        self.reached.send_replace(last);
        touched.iter().for_each(|signal| signal.notify_waiters());
    }

    /// Moves on to a revision at which nothing of this store happened.
    pub fn advance(&self, revision: Revision) {
        let mut state = self.state.write();
        if revision > state.applied {
            state.applied = revision;
            drop(state);
            self.reached.send_replace(revision);
        }
    }

    /// Makes the state that of `entries` at `revision` when the changes in between are lost: cursors are gone, snapshots
    /// keep what they read.
    pub fn reload(&self, revision: Revision, entries: Vec<Entry>) {
        let mut fresh: BTreeMap<Arc<[u8]>, Entry> = entries.into_iter().map(|e| (e.key.encode(), e)).collect();
        let mut state = self.state.write();
        if revision <= state.applied {
            return;
        }
        let mut writes = Vec::new();
        for (encoded, slot) in &state.keys {
            if slot.newest.object.is_none() {
                continue;
            }
            match fresh.remove(encoded) {
                None => writes.push((slot.key.clone(), None)),
                Some(entry) if entry.revision == slot.newest.revision => {}
                Some(entry) => writes.push((slot.key.clone(), Some(entry))),
            }
        }
        writes.extend(fresh.into_values().map(|entry| (entry.key.clone(), Some(entry))));
        for (key, entry) in writes {
            let origin = entry
                .as_ref()
                .map(|entry| (key.encode(), entry.revision, entry.created));
            state.write(revision, key, entry.map(|entry| entry.object));
            // The versions are older than this process learns of them; nobody can ask for a revision in between.
            if let Some((encoded, revision, created)) = origin
                && let Some(slot) = state.keys.get_mut(&encoded)
            {
                slot.newest.revision = revision;
                slot.newest.created = created;
            }
        }
        state.applied = revision;
        state.floor = revision;
        state.log.lose(revision);
        let limit = self.trim_limit(&state);
        while state.trim(limit) {}
        state.log.wake_all();
        drop(state);
        self.reached.send_replace(revision);
    }

    /// Waits until `revision` is applied.
    pub async fn reached(&self, revision: Revision) {
        // The sender lives as long as `self`, so that this cannot fail.
        let _ = self.reached.subscribe().wait_for(|applied| *applied >= revision).await;
    }

    /// The latest revision applied.
    pub fn applied(&self) -> Revision {
        self.state.read().applied
    }

    /// The oldest revision that may be asked for.
    pub fn floor(&self) -> Revision {
        self.state.read().floor
    }

    /// When the object of an encoded key was last written, and when it was created.
    pub(crate) fn current(&self, encoded: &[u8]) -> Option<(Revision, Revision)> {
        let state = self.state.read();
        let newest = &state.keys.get(encoded)?.newest;
        newest.object.as_ref().map(|_| (newest.revision, newest.created))
    }

    /// The latest view.
    pub fn latest(self: &Arc<Self>) -> Snapshot {
        let state = self.state.read();
        self.pin(state.applied);
        Snapshot::pinned(self.clone(), state.applied)
    }

    /// The view at a revision.
    pub fn at(self: &Arc<Self>, revision: Revision) -> Result<Snapshot, Gone> {
        let state = self.state.read();
        state.check(revision)?;
        self.pin(revision);
        Ok(Snapshot::pinned(self.clone(), revision))
    }

    /// A cursor over the changes in a scope after a revision.
    pub fn watch(self: &Arc<Self>, scope: Scope, after: Revision) -> Result<Cursor, Gone> {
        let mut state = self.state.write();
        state.check(after)?;
        let signal = state.log.subscribe(&scope);
        Ok(Cursor::new(self.clone(), scope, after, signal))
    }

    /// Forgets what was before `upto`.
    pub fn compact(&self, upto: Revision) -> Result<(), Gone> {
        let mut state = self.state.write();
        if upto > state.applied {
            return Err(Gone::Future {
                asked: upto,
                latest: state.applied,
            });
        }
        state.floor = state.floor.max(upto);
        loop {
            let limit = self.trim_limit(&state);
            if !state.trim(limit) {
                return Ok(());
            }
            // Readers and the writer get a turn between chunks.
            RwLockWriteGuard::bump(&mut state);
        }
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read())
    }

    pub(crate) fn unsubscribe(&self, scope: &Scope) {
        self.state.write().log.unsubscribe(scope);
    }

    fn pin(&self, revision: Revision) {
        *self.pins.lock().entry(revision).or_default() += 1;
    }

    pub(crate) fn unpin(&self, revision: Revision) {
        let mut pins = self.pins.lock();
        if let Some(count) = pins.get_mut(&revision) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&revision);
            }
        }
    }

    fn trim_limit(&self, state: &State) -> Revision {
        let pinned = self.pins.lock().first_key_value().map(|(revision, _)| *revision);
        pinned.map_or(state.floor, |pinned| pinned.min(state.floor))
    }
}

impl State {
    fn check(&self, revision: Revision) -> Result<(), Gone> {
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
}
