//! Multi-version state: every version of every object since the last compaction, in key order.
//!
//! By example, as key: revisions (`†` is a deletion): put(a) put(b) delete(a) on a store at
//! revision 1 gives a: 2, 4† and b: 3. A snapshot at 3 reads a@2, b@3. compact(4) leaves b: 3.
//! While a snapshot at 3 is alive it pins the history after 3, although nobody can request revision
//! 3 any more: a reader never sees a hole, and the history takes memory until the snapshot is
//! dropped.

use crate::{
    Gone, Index, Measures, Sharing,
    indexes::Filling,
    state::{CHUNK_ENTRIES, Entry, State},
};
use insula_api::{Object, ObjectKey, Revision, Scope, measure::Counter};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::Notify;

/// Cap of the history in bytes of superseded objects and bookkeeping: a burst of writes between two
/// compactions must not exhaust the memory. Above it whoever has the most history loses the oldest
/// of it.
const HISTORY_BYTES_MAX: usize = 512 << 20;

/// The writes of one revision: an object, or `None` for a deletion. A key appears once.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The revision.
    pub revision: Revision,
    /// The changes in the order of the transaction.
    pub writes: Vec<(ObjectKey, Option<Arc<Object>>)>,
}

/// The state of a store as this process has applied it. All engines use it, and only an engine
/// writes to it.
pub struct Mvcc {
    state: RwLock<State>,
    /// The revisions that live snapshots read at, with the number of snapshots of each. Locked
    /// after `state`.
    pins: Mutex<BTreeMap<Revision, usize>>,
    /// Publishes `State::applied` to tasks that wait for a revision.
    reached: tokio::sync::watch::Sender<Revision>,
    compactions: Counter,
    /// Locked while an index is filled, before `state`.
    filling: Mutex<()>,
}

impl Mvcc {
    /// Creates an empty state at a revision.
    pub fn new(revision: Revision) -> Arc<Mvcc> {
        Self::load(revision, std::iter::empty())
    }

    /// Creates an empty state with another cap of the history than the default, in bytes.
    pub fn with_history(revision: Revision, history_bytes_max: usize) -> Arc<Mvcc> {
        Arc::new(Self::build(revision, std::iter::empty(), history_bytes_max))
    }

    /// Creates the state at `revision` from all its objects. No older history is known: watches can
    /// start at `revision` and not before.
    pub fn load(revision: Revision, entries: impl IntoIterator<Item = Entry>) -> Arc<Mvcc> {
        Arc::new(Self::build(revision, entries, HISTORY_BYTES_MAX))
    }

    fn build(revision: Revision, entries: impl IntoIterator<Item = Entry>, history_bytes_max: usize) -> Mvcc {
        let state = State::load(revision, entries, history_bytes_max);
        Mvcc {
            state: RwLock::new(state),
            pins: Mutex::default(),
            reached: tokio::sync::watch::Sender::new(revision),
            compactions: Counter::default(),
            filling: Mutex::default(),
        }
    }

    /// Applies commits, oldest first, each newer than all before. Readers see all of them at once.
    pub fn apply(&self, commits: Vec<Commit>) {
        let Some(last) = commits.last().map(|commit| commit.revision) else {
            return;
        };
        let mut state = self.state.write();
        let bytes_before = state.history.bytes();
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
        let added = state.history.bytes() - bytes_before;
        state.cap_history();
        let touched = state.log.take_touched();
        self.trim_to(&mut state, bytes_before.saturating_sub(added));
        drop(state);
        self.reached.send_replace(last);
        touched.iter().for_each(|signal| signal.notify_waiters());
    }

    /// Moves on to a revision at which no object changed.
    pub fn advance(&self, revision: Revision) {
        let mut state = self.state.write();
        if revision > state.applied {
            state.applied = revision;
            drop(state);
            self.reached.send_replace(revision);
        }
    }

    /// Takes on other rules by which clusters share memory. History beyond them is given up at
    /// once.
    pub fn share(&self, sharing: Sharing) {
        let mut state = self.state.write();
        state.share(sharing);
        state.cap_history();
        let bytes_max = state.history_bytes_max;
        self.trim_to(&mut state, bytes_max);
    }

    /// Waits until `revision` is applied.
    pub async fn reached(&self, revision: Revision) {
        // The sender lives as long as `self`, so that this cannot fail.
        let _ = self.reached.subscribe().wait_for(|applied| *applied >= revision).await;
    }

    /// Returns the latest revision that was applied.
    pub fn applied(&self) -> Revision {
        self.state.read().applied
    }

    /// Returns the oldest revision that can be requested.
    pub fn floor(&self) -> Revision {
        self.state.read().floor
    }

    /// Returns the estimated size of the history since the last compaction in bytes, for metrics.
    pub fn history_bytes(&self) -> usize {
        self.state.read().history.bytes()
    }

    /// Returns the measures of the state. Those of a file are the engine's to add.
    pub fn measures(&self) -> Measures {
        let state = self.state.read();
        Measures {
            revision: state.applied,
            floor: state.floor,
            keys: state.keys.len(),
            history_changes: state.history.len(),
            history_bytes: state.history.bytes(),
            compactions: self.compactions.get(),
            file: None,
        }
    }

    /// Returns the revisions at which the object of an encoded key was last written and created.
    pub fn current(&self, encoded: &[u8]) -> Option<(Revision, Revision)> {
        self.state.read().current(encoded)
    }

    /// Discards the history before `upto`.
    ///
    /// # Errors
    /// [`Gone::Future`] when `upto` is not applied yet.
    pub fn compact(&self, upto: Revision) -> Result<(), Gone> {
        let mut state = self.state.write();
        if upto > state.applied {
            return Err(Gone::Future {
                asked: upto,
                latest: state.applied,
            });
        }
        state.raise_floor(upto);
        self.compactions.inc();
        loop {
            let limit = self.trim_limit();
            if !state.trim(limit) {
                let floor = state.floor;
                state.log.shrink(floor);
                return Ok(());
            }
            // Lets readers and the writer take the lock between chunks.
            RwLockWriteGuard::bump(&mut state);
        }
    }

    /// Makes a revision, all of which is written, the one that is read.
    pub(crate) fn finish_reload(&self, revision: Revision) {
        let mut state = self.state.write();
        state.applied = revision;
        state.raise_floor(revision);
        state.log.mark_lost(revision);
        let limit = self.trim_limit();
        while state.trim(limit) {}
        state.log.wake_all();
        drop(state);
        self.reached.send_replace(revision);
    }

    pub(crate) fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.write())
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read())
    }

    /// Fills an index, if no read did before. Others read and write meanwhile.
    pub(crate) fn fill(&self, index: &'static Index) {
        if self.read(|state| state.indexes.is_complete(index)) {
            return;
        }
        let _alone = self.filling.lock();
        if self.read(|state| state.indexes.is_complete(index)) {
            return;
        }
        let mut state = self.state.write();
        let mut filling = Filling::begin(&mut state, index);
        while !filling.step(&mut state, CHUNK_ENTRIES) {
            RwLockWriteGuard::bump(&mut state);
        }
    }

    pub(crate) fn keep_count(&self, scope: &Scope, revision: Revision, count: usize) {
        self.state.write().keep_count(scope, revision, count);
    }

    pub(crate) fn unsubscribe(&self, scope: &Scope) {
        let mut state = self.state.write();
        let floor = state.floor;
        state.log.unsubscribe(scope, floor);
    }

    /// Pins the latest revision, for a snapshot.
    pub(crate) fn pin_latest(&self) -> Revision {
        let state = self.state.read();
        self.pin(state.applied);
        state.applied
    }

    /// Pins a revision, for a snapshot.
    ///
    /// # Errors
    /// [`Gone`] when the revision is below the floor or not applied yet.
    pub(crate) fn pin_at(&self, revision: Revision) -> Result<(), Gone> {
        let state = self.state.read();
        state.check(revision)?;
        self.pin(revision);
        Ok(())
    }

    /// Registers a cursor on the changes of a scope after a revision. Returns the signal that wakes
    /// it.
    ///
    /// # Errors
    /// [`Gone`] when changes after the revision are lost, or it is not applied yet.
    pub(crate) fn subscribe(&self, scope: &Scope, after: Revision) -> Result<Arc<Notify>, Gone> {
        let mut state = self.state.write();
        state.check(after)?;
        state.check_scope(scope, after)?;
        Ok(state.log.subscribe(scope))
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

    /// Trims one chunk of the history, and more until it has at most `bytes`, as far as the floor
    /// and the pins allow.
    ///
    /// The caller asks for twice what it added: so the history stays below its cap however large a
    /// batch is, and what a pin kept above the cap shrinks with every commit after it. A change is
    /// trimmed once, so the work is in proportion to what was written.
    fn trim_to(&self, state: &mut RwLockWriteGuard<'_, State>, bytes: usize) {
        loop {
            let limit = self.trim_limit();
            if !state.trim(limit) || state.history.bytes() <= bytes {
                return;
            }
            // Lets readers take the lock between chunks.
            RwLockWriteGuard::bump(state);
        }
    }

    /// Returns the oldest revision that a snapshot reads at. Changes after it stay.
    fn trim_limit(&self) -> Revision {
        let pinned = self.pins.lock().first_key_value().map(|(revision, _)| *revision);
        pinned.unwrap_or(Revision(u64::MAX))
    }
}
