//! Every version of every object, in key order, since the last compaction.
//!
//! By example, as key: revisions (`†` a deletion): put(a) put(b) delete(a) on a store at 1 gives a:
//! 2, 4† and b: 3. A snapshot at 3 reads a@2, b@3. compact(4) leaves b: 3. With a snapshot at 3
//! alive nothing after 3 is forgotten until it is dropped, although nobody can ask for 3 any more:
//! a reader never sees a hole, and pays by holding memory.

use crate::{Entry, Gone, Snapshot, state::State, watch::Cursor};
use insula_api::{Object, ObjectKey, Revision, Scope};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use std::{collections::BTreeMap, sync::Arc};

/// History that is kept at most, in bytes of superseded objects and bookkeeping. Beyond it the
/// oldest is compacted: a burst of writes between two compactions must not eat the memory.
const HISTORY_BYTES_MAX: usize = 512 << 20;

/// The writes of one revision: an object, or `None` for a deletion. A key appears once.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The revision.
    pub revision: Revision,
    /// The changes, in the transaction's order.
    pub writes: Vec<(ObjectKey, Option<Arc<Object>>)>,
}

/// The state of a store as this process has applied it. Shared by all engines; only they write to
/// it.
pub struct Mvcc {
    state: RwLock<State>,
    /// The revisions that live snapshots read at, with their number. Locked after `state`.
    pins: Mutex<BTreeMap<Revision, usize>>,
    /// Repeats `State::applied` for those who wait for a revision.
    reached: tokio::sync::watch::Sender<Revision>,
    history_bytes_max: usize,
}

impl Mvcc {
    /// An empty state at a revision.
    pub fn new(revision: Revision) -> Arc<Mvcc> {
        Self::load(revision, std::iter::empty())
    }

    /// An empty state that keeps at most so many bytes of history, where the default is not wanted.
    pub fn with_history(revision: Revision, history_bytes_max: usize) -> Arc<Mvcc> {
        Arc::new(Self::build(revision, std::iter::empty(), history_bytes_max))
    }

    /// The state at `revision`, of which nothing older is known: watches can start there and not
    /// before.
    pub fn load(revision: Revision, entries: impl IntoIterator<Item = Entry>) -> Arc<Mvcc> {
        Arc::new(Self::build(revision, entries, HISTORY_BYTES_MAX))
    }

    fn build(revision: Revision, entries: impl IntoIterator<Item = Entry>, history_bytes_max: usize) -> Mvcc {
        let state = State::of(revision, entries);
        Mvcc {
            state: RwLock::new(state),
            pins: Mutex::default(),
            reached: tokio::sync::watch::Sender::new(revision),
            history_bytes_max,
        }
    }

    /// Shows commits, oldest first and each newer than all before, to everybody at once.
    pub fn apply(&self, commits: Vec<Commit>) {
        let Some(last) = commits.last().map(|commit| commit.revision) else {
            return;
        };
        let mut state = self.state.write();
        let bytes_before = state.history_bytes;
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
        let added = state.history_bytes - bytes_before;
        state.cap_history(self.history_bytes_max);
        let touched = state.log.take_touched();
        self.trim_to(&mut state, bytes_before.saturating_sub(added));
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

    /// Makes the state that of `entries` at `revision` when the changes in between are lost:
    /// cursors are gone, snapshots keep what they read.
    pub fn reload(&self, revision: Revision, entries: Vec<Entry>) {
        let fresh: BTreeMap<Arc<[u8]>, Entry> = entries.into_iter().map(|e| (e.key.encode(), e)).collect();
        let mut state = self.state.write();
        if revision <= state.applied {
            return;
        }
        state.move_to(revision, fresh);
        state.applied = revision;
        state.raise_floor(revision);
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

    /// What the history since the last compaction holds, roughly: a figure for metrics.
    pub fn history_bytes(&self) -> usize {
        self.state.read().history_bytes
    }

    /// When the object of an encoded key was last written, and when it was created.
    pub(crate) fn current(&self, encoded: &[u8]) -> Option<(Revision, Revision)> {
        self.state.read().current(encoded)
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
        state.raise_floor(upto);
        loop {
            let limit = self.trim_limit(&state);
            if !state.trim(limit) {
                state.log.shrink();
                return Ok(());
            }
            // Readers and the writer get a turn between chunks.
            RwLockWriteGuard::bump(&mut state);
        }
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read())
    }

    pub(crate) fn counted(&self, scope: &Scope, revision: Revision, count: usize) {
        self.state.write().counted(scope, revision, count);
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

    /// Trims one chunk of the history, and more until it has at most `bytes`, as far as the floor and
    /// the pins allow.
    ///
    /// The caller asks for twice what it added: so the history stays below its cap however large a
    /// batch is, and what a pin kept above the cap shrinks with every commit after it. A change is
    /// trimmed once, so the work is in proportion to what was written.
    fn trim_to(&self, state: &mut RwLockWriteGuard<'_, State>, bytes: usize) {
        loop {
            let limit = self.trim_limit(state);
            if !state.trim(limit) || state.history_bytes <= bytes {
                return;
            }
            // Readers get a turn between chunks.
            RwLockWriteGuard::bump(state);
        }
    }

    fn trim_limit(&self, state: &State) -> Revision {
        let pinned = self.pins.lock().first_key_value().map(|(revision, _)| *revision);
        pinned.map_or(state.floor, |pinned| pinned.min(state.floor))
    }
}
