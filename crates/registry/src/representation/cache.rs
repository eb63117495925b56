//! The cache of converted objects, and the workers that fill it.

use super::{
    conversions::{Assignment, Conversions, Key},
    job::Job,
    scheduler::{ConversionScheduler, Piece, Workers},
};
use bytes::Bytes;
use insula_access::Target;
use insula_api::Json;
use insula_catalog::{Error, Result, stored::value};
use insula_store::Entry;
use parking_lot::Mutex;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// A cache of converted objects that evicts the oldest first.
pub struct Cache {
    pub(super) converted: Conversions,
    scheduler: Mutex<ConversionScheduler>,
    workers: Workers,
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
            converted: Conversions::default(),
            scheduler: Mutex::default(),
            workers,
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
        for (at, key) in mine {
            let entry = &job.entries[at];
            // Other jobs wait for the claimed objects, and the worker serves other tenants. A panic
            // here must not break either.
            let made = catch_unwind(AssertUnwindSafe(|| encode(&value(served, entry, version)?)));
            let made = made.unwrap_or_else(|_| Err(Error::Internal("a conversion broke off".into())));
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
