//! Fair scheduling of large conversions. Tenants alternate, and so do the requests of one tenant,
//! one piece at a time.
//!
//! A list of ten thousand objects keeps all workers busy while it is alone. A page of another
//! tenant that arrives meanwhile waits only for the pieces in progress.

use bytes::Bytes;
use insula_access::Target;
use insula_api::ClusterName;
use insula_catalog::Result;
use insula_store::Entry;
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    future::poll_fn,
    ops::Range,
    sync::Arc,
    task::{Poll, Waker},
};

/// Stored bytes of a piece: about thirty objects of 2 kB, at most a millisecond of work. A small
/// request behind large ones waits this long for each waiting tenant.
const PIECE_BYTES: usize = 64 << 10;

/// The loop that a worker runs.
pub type Work = Box<dyn FnOnce() + Send>;

/// Runs a piece of work and charges its tenant.
pub type Pay = dyn Fn(&ClusterName, &mut dyn FnMut()) + Send + Sync;

/// The workers that convert objects.
#[derive(Clone)]
pub struct Workers {
    /// Maximum number of concurrent workers.
    pub width: usize,
    /// Starts a worker where it delays no other request. The worker returns when no work is left.
    pub start: Arc<dyn Fn(Work) + Send + Sync>,
    /// Runs each piece and charges its tenant.
    pub pay: Arc<Pay>,
}

impl Workers {
    /// Returns no workers. The requesting task converts.
    pub fn none() -> Self {
        Workers {
            width: 1,
            start: Arc::new(|work| work()),
            pay: Arc::new(|_, work| work()),
        }
    }
}

/// The conversions that one request waits for.
pub(super) struct Job {
    pub(super) target: Target,
    pub(super) entries: Vec<Entry>,
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

/// A piece of a job.
pub(super) struct Piece {
    pub(super) tenant: ClusterName,
    pub(super) job: Arc<Job>,
    /// The positions of its objects in the job.
    pub(super) range: Range<usize>,
}

/// Jobs that have pieces left.
#[derive(Default)]
pub(super) struct ConversionScheduler {
    /// Tenants in the order of service, each with its jobs in the order of service. No tenant is
    /// without jobs.
    tenants: VecDeque<(ClusterName, VecDeque<Arc<Job>>)>,
    /// The number of running workers.
    working: usize,
}

impl ConversionScheduler {
    /// Enqueues a job and returns the number of workers to start for it.
    pub(super) fn enqueue(&mut self, tenant: &ClusterName, job: Arc<Job>, width: usize) -> usize {
        match self.tenants.iter_mut().find(|(known, _)| known == tenant) {
            Some((_, jobs)) => jobs.push_back(job),
            None => self.tenants.push_back((tenant.clone(), VecDeque::from([job]))),
        }
        let starting = width.max(1).saturating_sub(self.working);
        self.working += starting;
        starting
    }

    /// Returns the next piece, or signs the worker off if none is left. A job that is enqueued
    /// later finds a worker or starts one, because both happen under the scheduler's lock.
    pub(super) fn next_or_leave(&mut self) -> Option<Piece> {
        let next = self.next();
        if next.is_none() {
            self.working -= 1;
        }
        next
    }

    /// Returns the next piece and rotates its tenant and job to the back.
    fn next(&mut self) -> Option<Piece> {
        while let Some((tenant, mut jobs)) = self.tenants.pop_front() {
            let job = jobs.pop_front();
            let piece = job.and_then(|job| job.take().map(|piece| (job, piece)));
            jobs.extend(piece.as_ref().map(|(job, _)| job.clone()));
            if !jobs.is_empty() {
                self.tenants.push_back((tenant.clone(), jobs));
            }
            if let Some((job, piece)) = piece {
                return Some(Piece {
                    tenant,
                    job,
                    range: piece,
                });
            }
        }
        None
    }
}
