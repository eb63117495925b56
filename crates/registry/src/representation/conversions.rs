//! The converted objects, both finished and in progress, by object and version.

use super::job::Job;
use bytes::Bytes;
use insula_api::Object;
use insula_catalog::{Result, Served};
use insula_store::Entry;
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// Maximum bytes of converted objects in the cache, over all tenants.
pub const CACHE_BYTES_MAX: usize = 256 << 20;
const SHARDS: usize = 16;

/// The cache key of an object in a version. It identifies the object by its address. A dry run and
/// the removal of the last finalizer return different content under an existing revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    object: usize,
    revision: u64,
    fingerprint: u64,
    /// The index among the API's versions.
    version: usize,
}

impl Key {
    pub(super) fn new(served: &Served, entry: &Entry, version: &str) -> Key {
        Key {
            object: Arc::as_ptr(&entry.object).addr(),
            revision: entry.revision.0,
            fingerprint: served.api.fingerprint,
            // An unknown version is refused before anything is cached.
            version: served
                .api
                .versions
                .iter()
                .position(|known| &*known.name == version)
                .unwrap_or(usize::MAX),
        }
    }
}

/// A job that waits for a conversion of another job, and the object's index in the waiting job.
type Waiting = (Arc<Job>, usize);

enum Slot {
    Making(Vec<Waiting>),
    Kept {
        bytes: Bytes,
        /// Keeps the allocation, so that no other object gets the same address.
        _object: Weak<Object>,
    },
}

/// The result of a job's claim on an object.
pub(super) enum Assignment {
    /// The object is in the cache.
    Kept(Bytes),
    /// This job converts the object and calls [`Conversions::settle`].
    Mine,
    /// Another job converts the object and delivers the result.
    Others,
}

#[derive(Default)]
struct Shard {
    map: HashMap<Key, Slot>,
    /// Keys of the finished conversions, oldest first.
    order: VecDeque<Key>,
    bytes: usize,
}

impl Shard {
    /// Stores a conversion and returns the previous slot. Evicts the oldest conversions above the
    /// limit.
    fn keep(&mut self, key: Key, object: &Arc<Object>, bytes: Bytes) -> Option<Slot> {
        self.order.push_back(key);
        self.bytes += bytes.len();
        let kept = Slot::Kept {
            bytes,
            _object: Arc::downgrade(object),
        };
        let before = self.map.insert(key, kept);
        while self.bytes > CACHE_BYTES_MAX / SHARDS {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(Slot::Kept { bytes: gone, .. }) = self.map.remove(&oldest) {
                self.bytes -= gone.len();
            }
        }
        before
    }
}

/// Converted objects. The oldest are evicted first.
#[derive(Default)]
pub(super) struct Conversions {
    shards: [Mutex<Shard>; SHARDS],
    count: AtomicU64,
}

impl Conversions {
    /// Returns the number of conversions so far.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn shard(&self, key: Key) -> &Mutex<Shard> {
        // The shard need be neither secret nor ordered. The revision alone spreads objects well
        // enough.
        &self.shards[key.revision as usize % SHARDS]
    }

    /// Appends a cached object, or returns `false` if it is not cached. Copies under the shard's
    /// lock: a reference count would cost more, because it lies in other memory.
    pub(super) fn copy(&self, key: Key, out: &mut Vec<u8>) -> bool {
        match self.shard(key).lock().map.get(&key) {
            Some(Slot::Kept { bytes, .. }) => {
                out.extend_from_slice(bytes);
                true
            }
            Some(Slot::Making(_)) | None => false,
        }
    }

    pub(super) fn keeps(&self, key: Key) -> bool {
        matches!(self.shard(key).lock().map.get(&key), Some(Slot::Kept { .. }))
    }

    /// Claims object `at` of a job: returns it from the cache, or decides which job converts it.
    pub(super) fn claim(&self, key: Key, job: &Arc<Job>, at: usize) -> Assignment {
        let mut shard = self.shard(key).lock();
        match shard.map.get_mut(&key) {
            Some(Slot::Kept { bytes, .. }) => Assignment::Kept(bytes.clone()),
            Some(Slot::Making(waiting)) => {
                waiting.push((job.clone(), at));
                Assignment::Others
            }
            None => {
                shard.map.insert(key, Slot::Making(Vec::new()));
                Assignment::Mine
            }
        }
    }

    /// Stores the result of a claimed conversion and delivers it to all waiting jobs. Errors are
    /// not cached.
    pub(super) fn settle(&self, key: Key, object: &Arc<Object>, result: &Result<Bytes>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut shard = self.shard(key).lock();
        let before = match result {
            Ok(bytes) => shard.keep(key, object, bytes.clone()),
            Err(_) => shard.map.remove(&key),
        };
        drop(shard);
        if let Some(Slot::Making(waiting)) = before {
            for (job, at) in waiting {
                job.fill(at, result.clone());
            }
        }
    }

    /// Stores the form of an object that was just written, unless a job converts it already: that
    /// job delivers to its waiting jobs itself.
    pub(super) fn keep(&self, key: Key, object: &Arc<Object>, bytes: Bytes) {
        let mut shard = self.shard(key).lock();
        if !shard.map.contains_key(&key) {
            shard.keep(key, object, bytes);
        }
    }
}
