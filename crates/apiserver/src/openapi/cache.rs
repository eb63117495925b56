//! Parts of documents, kept by their hashes, and made one at a time.

use super::{
    Extension, Part, Wanted,
    packed::{Document, Piece},
    serve::Payer,
    v2,
};
use insula_catalog::BlockingExecutor;
use insula_meter::{Ended, Meter, TenantPays};
use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};
use tokio::sync::Semaphore;

/// Compressed bytes of cached parts, of all tenants.
pub(super) const CACHE_BYTES_MAX: usize = 32 << 20;
/// Parts that are made at once. A part takes the memory of its largest API many times over, and
/// requests that wait for the same part find it made.
const MAKERS: usize = 1;

/// A finished part: in version 2, definitions and paths; in version 3 all in one.
pub(super) type Made = Arc<[Piece; 2]>;

/// A cache of parts of documents. The oldest part is evicted first.
pub struct Cache {
    /// Executor that makes the parts: many large schemas take a while.
    aside: BlockingExecutor,
    kept: Mutex<Kept>,
    makers: Semaphore,
    /// Users whose requests make parts now. Of each user one request waits for its turn at most.
    users: UserLocks,
}

impl Default for Cache {
    fn default() -> Self {
        Cache::new(|work| work())
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kept().fmt(f)
    }
}

#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) parts: HashMap<String, Made>,
    pub(super) order: VecDeque<String>,
    pub(super) bytes: usize,
    /// Evicted parts that answers still hold: a part larger than the cache is shared all the same.
    evicted: HashMap<String, Weak<[Piece; 2]>>,
}

impl Cache {
    /// Returns an empty cache whose parts are made on an executor.
    pub fn new(aside: BlockingExecutor) -> Self {
        Cache {
            aside,
            kept: Mutex::default(),
            makers: Semaphore::new(MAKERS),
            users: UserLocks::default(),
        }
    }

    /// Reads the version 2 document of an extension server.
    pub(crate) fn extension(&self, source: &[u8], of: (&str, &str)) -> Extension {
        let mut made = None;
        (self.aside)(&mut || made = Some(Extension::read(source, of)));
        made.unwrap_or_else(|| Extension::read(b"", of))
    }

    /// Returns a document. Parts that are not cached are made for a payer, one part at a time.
    ///
    /// # Errors
    /// The request may compute no further.
    pub(crate) async fn document(&self, wanted: &Wanted<'_>, payer: &Payer) -> Result<Document, Ended> {
        let parts = self.parts(wanted, payer).await?;
        let of = |at: usize| parts.iter().map(move |part| part[at].clone());
        let pieces = match wanted.form {
            None => of(0).collect(),
            Some(form) => {
                let [head, middle, tail] = v2::frame(form);
                let (definitions, paths) = (of(0), of(1));
                let all = std::iter::once(head).chain(definitions);
                all.chain([middle]).chain(paths).chain([tail]).collect()
            }
        };
        Ok(Document::new(pieces))
    }

    async fn parts(&self, wanted: &Wanted<'_>, payer: &Payer) -> Result<Vec<Made>, Ended> {
        let mut found: Vec<Option<Made>> = wanted.parts.iter().map(|part| self.find(part)).collect();
        if found.iter().any(Option::is_none) {
            let lock = self.users.for_user(&payer.user);
            let _turn = lock.lock().await;
            for (found, part) in found.iter_mut().zip(&wanted.parts) {
                if found.is_none() {
                    *found = Some(self.find_or_make(part, wanted, &payer.meter).await?);
                }
            }
        }
        let parts = found.into_iter().flatten();
        Ok(parts.chain(wanted.extensions.iter().cloned()).collect())
    }

    /// Finds a part, or makes it. The payer's meter ends the work, but gives it no turns: the one
    /// place of a maker is a turn already, and others wait for it.
    async fn find_or_make(&self, part: &Part<'_>, wanted: &Wanted<'_>, meter: &Meter) -> Result<Made, Ended> {
        let _maker = self.makers.acquire().await;
        if let Some(made) = self.find(part) {
            return Ok(made);
        }
        let mut made = Err(Ended::Closing);
        let make = || part.make(wanted.form, meter);
        // The task of the connection is charged for its thread.
        (self.aside)(&mut || made = meter.without_turns(TenantPays::ByRunner, make));
        Ok(self.keep(&part.hash, made?))
    }

    fn find(&self, part: &Part<'_>) -> Option<Made> {
        let kept = self.kept();
        let evicted = || kept.evicted.get(&part.hash).and_then(Weak::upgrade);
        kept.parts.get(&part.hash).cloned().or_else(evicted)
    }

    pub(super) fn keep(&self, hash: &str, made: Made) -> Made {
        let size = |made: &Made| made.iter().map(Piece::size).sum::<usize>() + hash.len() * 2;
        let mut kept = self.kept();
        if kept.parts.insert(hash.to_owned(), made.clone()).is_none() {
            kept.bytes += size(&made);
            kept.order.push_back(hash.to_owned());
        }
        kept.evicted.retain(|_, part| part.strong_count() > 0);
        while kept.bytes > CACHE_BYTES_MAX {
            let Some(oldest) = kept.order.pop_front() else { break };
            if let Some(gone) = kept.parts.remove(&oldest) {
                kept.bytes -= size(&gone);
                kept.evicted.insert(oldest, Arc::downgrade(&gone));
            }
        }
        made
    }

    /// A poisoned lock leaves at worst a part that is not counted.
    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock for each user that makes parts. Locks that nobody holds have no entry for long.
#[derive(Default)]
struct UserLocks(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

impl UserLocks {
    fn for_user(&self, user: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = locks.get(user).and_then(Weak::upgrade) {
            return known;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        locks.insert(user.to_owned(), Arc::downgrade(&lock));
        lock
    }
}
