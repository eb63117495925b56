//! Snapshots: consistent views of all objects at one revision, and walks that somebody pays for.

use crate::{
    Gone, Index, Mvcc,
    counts::COUNTED_MIN,
    state::{CHUNK_ENTRIES, Entry, Slot, State},
    usage::{ClusterUsage, Usage},
};
use insula_api::{ClusterName, ObjectKey, ResourceId, Revision, Scope};
use insula_meter::{Meter, ServerWork};
use std::{
    collections::BTreeMap,
    fmt,
    ops::{Bound, ControlFlow, Deref},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Objects that a walk visits between two payments.
pub(crate) const PAID_ENTRIES: usize = 64;

/// Price of an object on a walk: so that the meter looks at the clock between two payments, however
/// long the visits take.
pub(crate) const ENTRY_UNITS: u64 = 80;

/// Price of a key that a walk passes without reading the object.
pub(crate) const KEY_UNITS: u64 = 6;

/// The objects at one revision, read one by one. Cheap to take and to clone.
///
/// A pinned state keeps the history that it reads, so that reads of the latest one never fail and
/// never show a hole. One at an older revision may read where a cluster's history was cut since:
/// [`Pinned::check_reads`] tells it. Hold it for one request or one decision; to come back later
/// keep its revision and call [`crate::Store::at_revision`].
///
/// It has no walks: who walks says first who pays.
///
/// ```compile_fail
/// # fn shown(state: &insula_store::Pinned, scope: &insula_api::Scope) {
/// state.range(scope, None, 10);
/// # }
/// ```
/// ```
/// # use {insula_api::Scope, insula_meter::Meter, insula_store::Pinned};
/// # fn shown(state: &Pinned, scope: &Scope, request: &Meter) {
/// state.charged_to(request).range(scope, None, 10);
/// # }
/// ```
#[derive(Clone)]
pub struct Pinned(Arc<Pin>);

/// A [`Pinned`] state with a payer, which can be walked as well.
///
/// The payer is the request that the walk answers, or the server itself. A walk for a request takes
/// turns with others by its [`Meter`], and **stops** when that has ended: what it found is no
/// verdict then, and whoever writes by it asks [`Snapshot::meter`] first.
#[derive(Clone)]
pub struct Snapshot {
    state: Pinned,
    payer: Meter,
}

struct Pin {
    mvcc: Arc<Mvcc>,
    revision: Revision,
    /// The oldest revision at which all that was read here could be read whole, if that is later
    /// than the snapshot's.
    whole_from: AtomicU64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.mvcc.unpin(self.revision);
    }
}

impl Mvcc {
    /// Returns the latest view.
    pub fn latest(self: &Arc<Self>) -> Pinned {
        Pinned::new(self.clone(), self.pin_latest())
    }

    /// Returns the view at a revision.
    ///
    /// # Errors
    /// [`Gone`] when the revision is below the floor or not applied yet.
    pub fn at_revision(self: &Arc<Self>, revision: Revision) -> Result<Pinned, Gone> {
        self.pin_at(revision)?;
        Ok(Pinned::new(self.clone(), revision))
    }
}

impl Pinned {
    /// Creates the state at a revision that the caller has pinned.
    fn new(mvcc: Arc<Mvcc>, revision: Revision) -> Self {
        Pinned(Arc::new(Pin {
            mvcc,
            revision,
            whole_from: AtomicU64::new(0),
        }))
    }

    /// Returns the state with a request that pays for walks over it.
    pub fn charged_to(&self, request: &Meter) -> Snapshot {
        Snapshot {
            state: self.clone(),
            payer: request.clone(),
        }
    }

    /// Returns the state for work that the server does for itself: nobody pays for walks over it,
    /// and nothing ends them.
    pub fn for_server(&self, _: ServerWork) -> Snapshot {
        self.charged_to(&Meter::unbounded())
    }

    /// Returns the revision of the view.
    pub fn revision(&self) -> Revision {
        self.0.revision
    }

    /// Checks that everything that was read from this snapshot and its clones was there as a whole.
    ///
    /// # Errors
    /// [`Gone`] when a read met a cluster whose history was cut after the snapshot's revision: what
    /// it returned may lack objects.
    pub fn check_reads(&self) -> Result<(), Gone> {
        match Revision(self.0.whole_from.load(Ordering::Relaxed)) {
            oldest if oldest > self.0.revision => Err(Gone::Compacted {
                asked: self.0.revision,
                oldest,
            }),
            _ => Ok(()),
        }
    }

    /// Checks that a scope can be read from this snapshot as a whole.
    ///
    /// # Errors
    /// [`Gone`] when its history was cut after the snapshot's revision.
    pub fn check_scope(&self, scope: &Scope) -> Result<(), Gone> {
        self.0.mvcc.read(|state| state.check_scope(scope, self.0.revision))
    }

    /// Returns the storage of a cluster and of its payer at the latest revision, whatever that of
    /// the snapshot is. Takes constant time.
    pub fn usage(&self, cluster: &ClusterName) -> ClusterUsage {
        self.0.mvcc.read(|state| state.usages.cluster_usage(cluster))
    }

    /// Returns the storage of a payer at the latest revision. Takes constant time.
    pub fn payer_usage(&self, payer: &str) -> Usage {
        self.0.mvcc.read(|state| state.usages.payer_usage(payer))
    }

    /// Notes a read of a scope whose history was cut. Nothing after the revision of a pinned
    /// snapshot is cut, so that the latest ones pay one comparison.
    pub(crate) fn note_read(&self, state: &State, resource: Option<&ResourceId>, cluster: Option<&ClusterName>) {
        if state.log.lost(None, None) > self.0.revision {
            let lost = state.log.lost(resource, cluster);
            self.0.whole_from.fetch_max(lost.0, Ordering::Relaxed);
        }
    }

    /// Returns the object of a key.
    pub fn get(&self, key: &ObjectKey) -> Option<Entry> {
        let encoded = key.encode();
        self.0.mvcc.read(|state| {
            self.note_read(state, Some(&key.resource), Some(&key.cluster));
            state.keys.get(&encoded)?.at_revision(self.0.revision)
        })
    }
}

impl Deref for Snapshot {
    type Target = Pinned;

    fn deref(&self) -> &Pinned {
        &self.state
    }
}

impl Snapshot {
    /// Returns the meter of the request that pays for walks.
    pub fn meter(&self) -> &Meter {
        &self.payer
    }

    pub(crate) fn mvcc(&self) -> &Mvcc {
        &self.state.0.mvcc
    }

    /// Returns up to `limit` objects of a scope in key order, starting after the key `after` if
    /// given.
    pub fn range(&self, scope: &Scope, after: Option<&ObjectKey>, limit: usize) -> Vec<Entry> {
        let mut found = Vec::new();
        if limit > 0 {
            self.for_each_after(scope, after, |entry| {
                found.push(entry.clone());
                if found.len() < limit {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
        }
        found
    }

    /// Calls `visit` on the objects of a scope in key order until it breaks. `visit` runs outside
    /// the lock.
    pub fn for_each(&self, scope: &Scope, visit: impl FnMut(&Entry) -> ControlFlow<()>) {
        self.for_each_after(scope, None, visit);
    }

    /// Calls `visit` on the objects of a scope after a key, in key order, until it breaks. `visit`
    /// runs outside the lock.
    pub fn for_each_after(
        &self,
        scope: &Scope,
        after: Option<&ObjectKey>,
        visit: impl FnMut(&Entry) -> ControlFlow<()>,
    ) {
        self.walk(scope, after, |_| true, visit);
    }

    /// Calls `visit` on the objects of a scope whose keys are wanted. Other objects are skipped by
    /// their key alone.
    pub fn for_each_wanted(
        &self,
        scope: &Scope,
        wanted: impl Fn(&ObjectKey) -> bool,
        visit: impl FnMut(&Entry) -> ControlFlow<()>,
    ) {
        self.walk(scope, None, wanted, visit);
    }

    fn walk(
        &self,
        scope: &Scope,
        after: Option<&ObjectKey>,
        wanted: impl Fn(&ObjectKey) -> bool,
        mut visit: impl FnMut(&Entry) -> ControlFlow<()>,
    ) {
        let mut walk = Walk::new(scope, after);
        let mut chunk = Vec::new();
        // The first chunk is small, so that a page of ten objects does not read a thousand.
        let mut size = PAID_ENTRIES;
        while !walk.done {
            let mut passed = 0;
            self.mvcc().read(|state| {
                self.note_read(state, scope.resources.one(), scope.cluster.as_ref());
                walk.step(&state.keys, size, |_, slot| {
                    passed += 1;
                    if wanted(&slot.key) {
                        chunk.extend(slot.at_revision(self.revision()));
                    }
                });
            });
            if self.payer.spend(passed * KEY_UNITS).is_err() || self.show(&chunk, &mut visit).is_break() {
                return;
            }
            chunk.clear();
            size = CHUNK_ENTRIES;
        }
    }

    /// Calls `visit` on entries until it breaks or the payer's request has ended.
    fn show(&self, entries: &[Entry], visit: &mut impl FnMut(&Entry) -> ControlFlow<()>) -> ControlFlow<()> {
        for some in entries.chunks(PAID_ENTRIES) {
            if self.payer.spend(some.len() as u64 * ENTRY_UNITS).is_err() {
                return ControlFlow::Break(());
            }
            some.iter().try_for_each(&mut *visit)?;
        }
        ControlFlow::Continue(())
    }

    /// Calls `visit` on the objects that an index finds by a value, in key order, until it breaks.
    /// Other objects cost nothing. `visit` runs outside the lock.
    pub fn for_each_indexed(&self, index: &'static Index, value: &str, visit: impl FnMut(&Entry) -> ControlFlow<()>) {
        self.for_each_indexed_after((index, value), None, visit);
    }

    /// Calls `visit` on the objects after a key that an index finds by a value.
    pub fn for_each_indexed_after(
        &self,
        (index, value): (&'static Index, &str),
        after: Option<&ObjectKey>,
        mut visit: impl FnMut(&Entry) -> ControlFlow<()>,
    ) {
        let resource = (index.resource)();
        self.mvcc().fill(index);
        let (mut after, mut size) = (after.map(ObjectKey::encode), PAID_ENTRIES);
        // Another version of the object may have had the value.
        let mut visit = |entry: &Entry| match index.has((&entry.key, &entry.object), value) {
            true => visit(entry),
            false => ControlFlow::Continue(()),
        };
        loop {
            let (keys, found) = self.mvcc().read(|state| {
                self.note_read(state, Some(&resource), None);
                let keys = state.indexes.keys_after(index, value, (after.as_ref(), size));
                let slots = keys.iter().filter_map(|key| state.keys.get(key));
                let found: Vec<Entry> = slots.filter_map(|slot| slot.at_revision(self.revision())).collect();
                (keys, found)
            });
            if self.show(&found, &mut visit).is_break() || keys.len() < size {
                return;
            }
            after = keys.into_iter().next_back();
            size = CHUNK_ENTRIES;
        }
    }

    /// Returns true if an index finds an object by a value.
    pub fn has_indexed(&self, index: &'static Index, value: &str) -> bool {
        let mut has = false;
        self.for_each_indexed(index, value, |_| {
            has = true;
            ControlFlow::Break(())
        });
        has
    }

    /// Returns the objects that an index finds by a value, in key order.
    pub fn indexed(&self, index: &'static Index, value: &str) -> Vec<Entry> {
        let mut found = Vec::new();
        self.for_each_indexed(index, value, |entry| {
            found.push(entry.clone());
            ControlFlow::Continue(())
        });
        found
    }

    /// Returns the number of objects in a scope. Counts them by a walk when they are few, or when
    /// their number is requested for the first time.
    pub fn count(&self, scope: &Scope) -> usize {
        let (mvcc, revision) = (self.mvcc(), self.revision());
        if let Some(count) = mvcc.read(|state| state.count(scope, revision)) {
            return count;
        }
        let count = self.count_after(scope, None);
        // A walk that ended early has counted a part.
        if count >= COUNTED_MIN && self.payer.check().is_ok() {
            mvcc.keep_count(scope, revision, count);
        }
        count
    }

    /// Returns the number of objects in a scope after a key. Walks the keys without reading an
    /// object.
    pub fn count_after(&self, scope: &Scope, after: Option<&ObjectKey>) -> usize {
        let (mut walk, mut count) = (Walk::new(scope, after), 0);
        while !walk.done {
            let mut passed = 0;
            self.mvcc().read(|state| {
                self.note_read(state, scope.resources.one(), scope.cluster.as_ref());
                walk.step(&state.keys, CHUNK_ENTRIES, |_, slot| {
                    passed += 1;
                    count += usize::from(slot.exists_at(self.revision()));
                });
            });
            if self.payer.spend(passed * KEY_UNITS).is_err() {
                break;
            }
        }
        count
    }
}

/// A walk over the keys of a scope in steps, with the lock taken once for each step. Keys that are
/// added or removed between two steps make no difference at the revision of the snapshot.
pub(crate) struct Walk {
    prefix: Vec<u8>,
    next: Bound<Arc<[u8]>>,
    pub(crate) done: bool,
}

impl Walk {
    pub(crate) fn new(scope: &Scope, after: Option<&ObjectKey>) -> Self {
        let prefix = scope.prefix();
        let start = Bound::Included(Arc::from(prefix.as_slice()));
        let next = match after.map(ObjectKey::encode) {
            Some(key) if *key >= *prefix => Bound::Excluded(key),
            _ => start,
        };
        Walk {
            prefix,
            next,
            done: false,
        }
    }

    pub(crate) fn step(
        &mut self,
        keys: &BTreeMap<Arc<[u8]>, Slot>,
        size: usize,
        mut take: impl FnMut(&Arc<[u8]>, &Slot),
    ) {
        let range = (self.next.as_ref().map(|key| &**key), Bound::Unbounded);
        for (n, (key, slot)) in keys.range::<[u8], _>(range).enumerate() {
            if !key.starts_with(&self.prefix) {
                break;
            }
            take(key, slot);
            if n + 1 == size {
                self.next = Bound::Excluded(key.clone());
                return;
            }
        }
        self.done = true;
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({})", self.0.revision)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({}, {:?})", self.revision(), self.payer)
    }
}
