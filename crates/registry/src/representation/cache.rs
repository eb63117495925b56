//! The cache of converted objects, both finished and in progress, and the workers that fill it.

use super::scheduler::{ConversionScheduler, Job, Piece, Workers};
use bytes::Bytes;
use insula_access::Target;
use insula_api::{
    Json, Object,
    measure::{Counter, TopCounts},
};
use insula_catalog::{Error, Result, Served, metering::Metering, stored::value};
use insula_store::Entry;
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// Maximum bytes of converted objects in the cache, over all tenants.
pub const CACHE_BYTES_MAX: usize = 256 << 20;
const SHARDS: usize = 16;

/// Resources whose conversions are counted, and those among them that metrics show. Others are one
/// sum: tenants choose the names.
const COUNTED_MAX: usize = 1024;
const SHOWN_MAX: usize = 50;

/// Measures of conversions, for metrics.
#[derive(Debug)]
pub struct ConversionMeasures {
    /// Conversions by resource, as `<plural>.<group>`.
    pub by_resource: TopCounts,
    /// Objects that could not be converted.
    pub failures: Counter,
    /// Objects that were found in the cache.
    pub hits: Counter,
}

impl Default for ConversionMeasures {
    fn default() -> Self {
        ConversionMeasures {
            by_resource: TopCounts::new(COUNTED_MAX, SHOWN_MAX),
            failures: Counter::default(),
            hits: Counter::default(),
        }
    }
}

/// A cache of converted objects that evicts the oldest first.
pub struct Cache {
    /// Measures of conversions.
    pub measures: ConversionMeasures,
    pub(super) converted: Conversions,
    scheduler: Mutex<ConversionScheduler>,
    workers: Workers,
    /// Amounts of workspaces that are not stored yet: conversions, and all else that is metered.
    pub metering: Metering,
}

impl Default for Cache {
    /// Creates a cache without workers. The requesting task converts.
    fn default() -> Self {
        Cache::new(Workers::none())
    }
}

impl Cache {
    /// Creates a cache that gives large conversions to workers.
    pub fn new(workers: Workers) -> Self {
        Cache {
            measures: ConversionMeasures::default(),
            converted: Conversions::default(),
            scheduler: Mutex::default(),
            workers,
            metering: Metering::default(),
        }
    }

    /// Returns the number of conversions so far.
    pub fn conversions(&self) -> u64 {
        self.converted.count()
    }

    /// Caches the written object in the target's version, so that its writer and later readers need
    /// no conversion.
    pub(crate) fn keep(&self, target: &Target, entry: &Entry, shown: Option<Json>) {
        let Some(mut shown) = shown else { return };
        shown["metadata"]["resourceVersion"] = Json::String(entry.revision.to_string());
        let Ok(bytes) = encode(&shown) else { return };
        let key = Key::new(&target.served, entry, &target.version);
        self.converted.keep(key, &entry.object, bytes);
    }

    /// Runs a small job at once. Schedules a larger one and starts workers up to the maximum.
    pub(super) fn begin(self: &Arc<Self>, target: &Target, job: &Arc<Job>) {
        if job.is_one_piece() {
            let all = Piece {
                tenant: target.cluster.clone(),
                job: job.clone(),
                range: 0..job.len(),
            };
            return self.convert(all);
        }
        let starting = self
            .scheduler
            .lock()
            .enqueue(&target.cluster, job.clone(), self.workers.width);
        for _ in 0..starting {
            let cache = self.clone();
            (self.workers.start)(Box::new(move || while cache.convert_next() {}));
        }
    }

    /// Converts one piece and charges its tenant, or returns `false` if none is left.
    pub(super) fn convert_next(&self) -> bool {
        let Some(piece) = self.scheduler.lock().next_or_leave() else {
            return false;
        };
        let tenant = piece.tenant.clone();
        let mut piece = Some(piece);
        (self.workers.pay)(&tenant, &mut || {
            if let Some(piece) = piece.take() {
                self.convert(piece);
            }
        });
        true
    }

    /// Converts a piece. Claims all of its objects first. Another job that wants the same objects
    /// then skips ahead and does not wait for each.
    fn convert(&self, Piece { job, range, .. }: Piece) {
        let (served, version) = (&job.target.served, &*job.target.version);
        let mut mine = Vec::with_capacity(range.len());
        for at in range {
            let key = Key::new(served, &job.entries[at], version);
            match self.converted.claim(key, &job, at) {
                Assignment::Kept(bytes) => job.fill(at, Ok(bytes)),
                Assignment::Mine => mine.push((at, key)),
                Assignment::Others => {}
            }
        }
        if !mine.is_empty() {
            let names = served.names();
            let resource = match &**served.group() {
                "" => names.plural.to_string(),
                group => format!("{}.{group}", names.plural),
            };
            self.measures.by_resource.add(&resource, mine.len() as u64);
        }
        for (at, key) in mine {
            let entry = &job.entries[at];
            // Other jobs wait for the claimed objects, and the worker serves other tenants. A panic
            // here must not break either.
            let made = catch_unwind(AssertUnwindSafe(|| encode(&value(served, entry, version)?)));
            let made = made.unwrap_or_else(|_| Err(Error::Internal("a conversion broke off".into())));
            if made.is_err() {
                self.measures.failures.inc();
            }
            self.converted.settle(key, &entry.object, &made);
            job.fill(at, made);
        }
    }
}

/// Returns the JSON of an object without spare capacity, because the cache may keep it for long.
pub(super) fn encode(value: &Json) -> Result<Bytes> {
    serde_json::to_vec(value)
        .map(|bytes| Bytes::from(bytes.into_boxed_slice()))
        .map_err(|error| Error::Internal(error.to_string()))
}

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
type WaitingJob = (Arc<Job>, usize);

enum Slot {
    Making(Vec<WaitingJob>),
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
