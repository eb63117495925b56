//! Objects that one request waits for, made in pieces by whoever has a hand free.

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

/// Stored bytes of a piece: some thirty objects of 2 kB, and a millisecond at most. It is what a
/// small request waits for behind a large one, for each tenant that waits.
const PIECE_BYTES: usize = 64 << 10;

/// What a request waits for.
pub(super) struct Job {
    target: Target,
    entries: Vec<Entry>,
    progress: Mutex<Progress>,
}

struct Progress {
    made: VecDeque<Option<Result<Bytes>>>,
    /// Objects before this one were handed out.
    taken: usize,
    /// Objects that are still to be made.
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

    /// Whether it is so little that to share it would cost more.
    pub(super) fn is_one_piece(&self) -> bool {
        self.piece(0, self.len()).end == self.len()
    }

    /// The objects from one on that are made in one go: at least one.
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

    /// Hands out the next piece; `None` when there is no more to do.
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

    /// Makes a piece. All of it is claimed at first, so that another job that wants the same
    /// objects goes on to its next ones in place of waiting for each.
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
            // Others wait for what was claimed, and a worker has turns of others to take: neither
            // may be lost by a fault here.
            let made = catch_unwind(AssertUnwindSafe(|| encode(&value(served, entry, version)?)));
            let made = made.unwrap_or_else(|_| Err(Error::Internal("a conversion broke off".into())));
            cache.settle(key, &entry.object, &made);
            self.fill(at, made);
        }
    }

    /// Object `at` is made. Behind one that cannot be made nobody looks: the rest is left.
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

    /// Nobody waits any more.
    fn cancel(&self) {
        let mut progress = self.progress.lock();
        progress.made.clear();
        progress.open = 0;
    }

    /// The objects in their order, up to the first one that cannot be made.
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

/// A request that waits. When it goes, what is left of its job goes.
struct Waiting(Arc<Job>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
