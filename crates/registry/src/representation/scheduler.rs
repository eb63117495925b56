//! Large conversions take turns: tenant after tenant, and among a tenant's requests one after the
//! other, a piece each.
//!
//! So a list of ten thousand objects keeps all workers busy while it is alone, and a page of
//! another tenant that comes meanwhile waits for the pieces that are in hand.

use super::{cache::Cache, job::Job};
use insula_api::ClusterName;
use std::{collections::VecDeque, ops::Range, sync::Arc};

/// What a worker does.
pub type Work = Box<dyn FnOnce() + Send>;

/// Does a piece of work at a tenant's cost.
pub type Pay = dyn Fn(&ClusterName, &mut dyn FnMut()) + Send + Sync;

/// Who converts.
#[derive(Clone)]
pub struct Workers {
    /// How many work at once.
    pub width: usize,
    /// Starts one where it holds up nobody else. It returns when there is nothing left to do.
    pub start: Arc<dyn Fn(Work) + Send + Sync>,
    /// Does each piece.
    pub pay: Arc<Pay>,
}

impl Workers {
    /// Nobody but who asks.
    pub fn none() -> Self {
        Workers {
            width: 1,
            start: Arc::new(|work| work()),
            pay: Arc::new(|_, work| work()),
        }
    }
}

/// A piece of a job.
struct Piece {
    tenant: ClusterName,
    job: Arc<Job>,
    piece: Range<usize>,
}

/// Jobs that have pieces left.
#[derive(Default)]
pub(super) struct ConversionScheduler {
    /// Tenants in the order of their turns, each with its jobs in the order of theirs; none of them
    /// is without.
    tenants: VecDeque<(ClusterName, VecDeque<Arc<Job>>)>,
    /// Workers that look here until nothing is left.
    working: usize,
}

impl ConversionScheduler {
    fn add(&mut self, tenant: &ClusterName, job: Arc<Job>) {
        match self.tenants.iter_mut().find(|(known, _)| known == tenant) {
            Some((_, jobs)) => jobs.push_back(job),
            None => self.tenants.push_back((tenant.clone(), VecDeque::from([job]))),
        }
    }

    /// Whose turn it is, and with what.
    fn next(&mut self) -> Option<Piece> {
        while let Some((tenant, mut jobs)) = self.tenants.pop_front() {
            let job = jobs.pop_front();
            let piece = job.and_then(|job| job.take().map(|piece| (job, piece)));
            jobs.extend(piece.as_ref().map(|(job, _)| job.clone()));
            if !jobs.is_empty() {
                self.tenants.push_back((tenant.clone(), jobs));
            }
            if let Some((job, piece)) = piece {
                return Some(Piece { tenant, job, piece });
            }
        }
        None
    }
}

/// Puts a job in the line, and starts workers as far as there are less than may be.
pub(super) fn enqueue(cache: &Arc<Cache>, tenant: &ClusterName, job: &Arc<Job>) {
    let starting = {
        let mut scheduler = cache.scheduler.lock();
        scheduler.add(tenant, job.clone());
        let starting = cache.workers.width.max(1).saturating_sub(scheduler.working);
        scheduler.working += starting;
        starting
    };
    for _ in 0..starting {
        let cache = cache.clone();
        (cache.workers.start.clone())(Box::new(move || work(&cache)));
    }
}

fn work(cache: &Cache) {
    while turn(cache) {}
}

/// Does one piece; `false` where none is left.
pub(super) fn turn(cache: &Cache) -> bool {
    let Some(Piece { tenant, job, piece }) = next_or_leave(cache) else {
        return false;
    };
    (cache.workers.pay)(&tenant, &mut || job.run(cache, piece.clone()));
    true
}

/// Under one lock: a job that comes after it finds a worker, or sees that one has left.
fn next_or_leave(cache: &Cache) -> Option<Piece> {
    let mut scheduler = cache.scheduler.lock();
    let next = scheduler.next();
    if next.is_none() {
        scheduler.working -= 1;
    }
    next
}
