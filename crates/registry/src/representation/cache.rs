//! Converted objects: those that are kept, and those that somebody is making just now.

use super::{
    Workers, encode,
    job::Job,
    scheduler::{self, ConversionScheduler},
    show::Show,
};
use bytes::Bytes;
use insula_access::Target;
use insula_api::{Json, Object};
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

/// Bytes of converted objects that are kept, over all tenants.
pub const CACHE_BYTES_MAX: usize = 256 << 20;
const SHARDS: usize = 16;

/// An object in a version. The object is told by where it lies, and not by its key: a dry run and a
/// last finalizer's end answer with other content under a revision that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    object: usize,
    revision: u64,
    fingerprint: u64,
    /// Its place among the API's versions.
    version: usize,
}

impl Key {
    pub(super) fn new(served: &Served, entry: &Entry, version: &str) -> Key {
        Key {
            object: Arc::as_ptr(&entry.object).addr(),
            revision: entry.revision.0,
            fingerprint: served.api.fingerprint,
            // One that is not there is refused before anything is kept.
            version: served
                .api
                .versions
                .iter()
                .position(|known| &*known.name == version)
                .unwrap_or(usize::MAX),
        }
    }
}

/// Who waits for an object that another job makes: the job, and the object's place in it.
type Waiting = (Arc<Job>, usize);

enum Slot {
    Making(Vec<Waiting>),
    Kept {
        bytes: Bytes,
        /// Held, so that nothing else comes to lie where it lies.
        _object: Weak<Object>,
    },
}

/// What a job may do about an object.
pub(super) enum Assignment {
    /// Take it: it is made.
    Kept(Bytes),
    /// Make it, and [`Cache::settle`] it.
    Mine,
    /// Wait: who makes it will tell.
    Others,
}

#[derive(Default)]
struct Shard {
    map: HashMap<Key, Slot>,
    /// Those that are kept.
    order: VecDeque<Key>,
    bytes: usize,
}

impl Shard {
    /// What was there before is returned.
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

/// Converted objects, oldest out first.
pub struct Cache {
    shards: [Mutex<Shard>; SHARDS],
    pub(super) scheduler: Mutex<ConversionScheduler>,
    pub(super) workers: Workers,
    conversions: AtomicU64,
}

impl Default for Cache {
    /// Without workers: who asks converts.
    fn default() -> Self {
        Cache::new(Workers::none())
    }
}

impl Cache {
    /// A cache whose larger conversions workers do.
    pub fn new(workers: Workers) -> Self {
        Cache {
            shards: std::array::from_fn(|_| Mutex::default()),
            scheduler: Mutex::default(),
            workers,
            conversions: AtomicU64::new(0),
        }
    }

    /// Objects as clients of the target's version see them, one after the other.
    pub fn show<'a, E>(self: &'a Arc<Self>, target: &'a Target, entries: E) -> Show<'a, E>
    where
        E: Iterator<Item = &'a Entry> + Clone,
    {
        Show::new(self, target, entries)
    }

    /// How many conversions there were.
    pub fn conversions(&self) -> u64 {
        self.conversions.load(Ordering::Relaxed)
    }

    fn shard(&self, key: Key) -> &Mutex<Shard> {
        // Which shard is no secret and no order that anybody sees: the revision alone spreads
        // objects well enough.
        &self.shards[key.revision as usize % SHARDS]
    }

    /// Appends an object that is kept; `false` where it is not. The copy is made under the shard's
    /// lock: to count one more holder of the bytes would cost more, since the count lies elsewhere.
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

    /// What a job has to do about its object `at`.
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

    /// What was claimed is made, or cannot be made: who waits is told, and what was made is kept.
    pub(super) fn settle(&self, key: Key, object: &Arc<Object>, result: &Result<Bytes>) {
        self.conversions.fetch_add(1, Ordering::Relaxed);
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

    /// Keeps what was written in the target's version: whoever reads it there, its writer first,
    /// needs no conversion.
    pub(crate) fn keep(&self, target: &Target, entry: &Entry, shown: Option<Json>) {
        let Some(mut shown) = shown else { return };
        shown["metadata"]["resourceVersion"] = Json::String(entry.revision.to_string());
        let Ok(bytes) = encode(&shown) else { return };
        let key = Key::new(&target.served, entry, &target.version);
        let mut shard = self.shard(key).lock();
        // Who came first makes it, and tells those who wait.
        if !shard.map.contains_key(&key) {
            shard.keep(key, &entry.object, bytes);
        }
    }

    /// Does a job: a small one here, a larger one in turns with others.
    pub(super) fn begin(self: &Arc<Self>, target: &Target, job: &Arc<Job>) {
        if job.is_one_piece() {
            job.run(self, 0..job.len());
        } else {
            scheduler::enqueue(self, &target.cluster, job);
        }
    }
}
