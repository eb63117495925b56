//! Conversion jobs: the objects that one request waits for, converted in pieces by any free worker.

use crate::representation::{
    cache::{Assignment, Cache, Key},
    encode,
};
use bytes::Bytes;
use insula_access::Target;
use insula_catalog::{Error, Result, stored::value};
use insula_store::Entry;
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    future::poll_fn,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Poll, Waker},
};

/// Stored bytes of a piece: about thirty objects of 2 kB, at most a millisecond of work. A small
/// request behind large ones waits this long for each waiting tenant.
const PIECE_BYTES: usize = 64 << 10;

/// The conversions that one request waits for.
pub(super) struct Job {
    target: Target,
    entries: Vec<Entry>,
    progress: Mutex<Progress>,
}

struct Progress {
    made: VecDeque<Option<Result<Bytes>>>,
    /// The number of objects that were handed out to workers.
    taken: usize,
    /// The number of objects that are not converted yet.
    open: usize,
    waker: Option<Waker>,
}

impl Job {
    pub(super) fn new(target: &Target, entries: Vec<Entry>) -> Arc<Job> {
        let progress = Progress {
            made: entries.iter().map(|_| None).collect(),
            taken: 0,
            open: entries.len(),
            waker: None,
        };
        Arc::new(Job {
            target: target.clone(),
            entries,
            progress: Mutex::new(progress),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if the job is a single piece, which is cheaper to run than to share.
    pub(super) fn is_one_piece(&self) -> bool {
        self.piece(0, self.len()).end == self.len()
    }

    /// Returns the range of the next piece: at least one object.
    fn piece(&self, from: usize, end: usize) -> Range<usize> {
        let mut bytes = 0;
        let rest = self.entries[from..end].iter();
        let fitting = rest.take_while(|entry| {
            let begun = bytes < PIECE_BYTES;
            bytes += entry.object.body_len();
            begun
        });
        from..from + fitting.count()
    }

    /// Returns the next piece, or `None` if all pieces were handed out.
    pub(super) fn take(&self) -> Option<Range<usize>> {
        let mut progress = self.progress.lock();
        let end = progress.made.len();
        if progress.taken >= end {
            return None;
        }
        let piece = self.piece(progress.taken, end);
        progress.taken = piece.end;
        Some(piece)
    }

    /// Converts a piece. Claims all of its objects first. Another job that wants the same objects
    /// then skips ahead and does not wait for each.
    pub(super) fn run(self: &Arc<Self>, cache: &Cache, piece: Range<usize>) {
        let served = &self.target.served;
        let version = &*self.target.version;
        let mut mine = Vec::with_capacity(piece.len());
        for at in piece {
            let key = Key::new(served, &self.entries[at], version);
            match cache.claim(key, self, at) {
                Assignment::Kept(bytes) => self.fill(at, Ok(bytes)),
                Assignment::Mine => mine.push((at, key)),
                Assignment::Others => {}
            }
        }
        for (at, key) in mine {
            let entry = &self.entries[at];
            // Other jobs wait for the claimed objects, and the worker serves other tenants. A panic
            // here must not break either.
            let made = catch_unwind(AssertUnwindSafe(|| encode(&value(served, entry, version)?)));
            let made = made.unwrap_or_else(|_| Err(Error::Internal("a conversion broke off".into())));
            cache.settle(key, &entry.object, &made);
            self.fill(at, made);
        }
    }

    /// Stores the result of object `at`. After an error the remaining objects are dropped, because
    /// no reader goes past it.
    pub(super) fn fill(&self, at: usize, made: Result<Bytes>) {
        let mut progress = self.progress.lock();
        let failed = made.is_err();
        let Some(place) = progress.made.get_mut(at).filter(|place| place.is_none()) else {
            return;
        };
        *place = Some(made);
        progress.open -= 1;
        if failed {
            progress.made.truncate(at + 1);
            progress.open = progress.made.iter().filter(|made| made.is_none()).count();
        }
        if progress.open == 0
            && let Some(waker) = progress.waker.take()
        {
            drop(progress);
            waker.wake();
        }
    }

    /// Drops the remaining work of a cancelled request.
    fn cancel(&self) {
        let mut progress = self.progress.lock();
        progress.made.clear();
        progress.open = 0;
    }

    /// Waits for the objects and returns them in order, up to the first error.
    pub(super) async fn done(self: Arc<Self>) -> VecDeque<Result<Bytes>> {
        let waiting = Waiting(self);
        poll_fn(|context| {
            let mut progress = waiting.0.progress.lock();
            if progress.open == 0 {
                return Poll::Ready(std::mem::take(&mut progress.made).into_iter().flatten().collect());
            }
            progress.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// A waiting request. Dropping it cancels the rest of its job.
struct Waiting(Arc<Job>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
