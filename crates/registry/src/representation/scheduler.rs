//! Fair scheduling of large conversions. Tenants alternate, and so do the requests of one tenant,
//! one piece at a time.
//!
//! A list of ten thousand objects keeps all workers busy while it is alone. A page of another
//! tenant that arrives meanwhile waits only for the pieces in progress.

use super::job::Job;
use insula_api::ClusterName;
use std::{collections::VecDeque, ops::Range, sync::Arc};

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
