//! Turns for the long computations of writes: patches of long lists, and validation and policies of
//! large objects.
//!
//! Such a computation leaves the threads that answer. The writes of one payer take turns, and all
//! payers together compute on fewer threads than there are cores. So the payer who sends many large
//! patches at once waits for its own, and what others send goes between them.

use futures_util::lock::{Mutex, MutexGuard, OwnedMutexGuard};
use insula_api::ClusterName;
use insula_catalog::Catalog;
use insula_store::Snapshot;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Bytes of the body and the present object together from which on a computation waits for its
/// turn. Below, it takes about a millisecond at most.
const HEAVY_BYTES: usize = 64 << 10;

type Payers = parking_lot::Mutex<HashMap<Arc<str>, Arc<Mutex<()>>>>;

/// The turns of all payers.
pub struct HeavyWork {
    payers: Payers,
    /// One for each computation that may run at a time.
    lanes: Vec<Mutex<()>>,
    next: AtomicUsize,
}

/// A turn of a payer. Dropping it lets the payer's next write begin.
pub(crate) struct WriteTurn<'a> {
    work: &'a HeavyWork,
    payer: Arc<str>,
    held: Option<OwnedMutexGuard<()>>,
}

impl HeavyWork {
    /// Returns turns on a machine with `cores` cores. One core, if there are several, is left to
    /// others.
    pub fn new(cores: usize) -> Self {
        HeavyWork {
            payers: Payers::default(),
            lanes: (0..cores.saturating_sub(1).max(1)).map(|_| Mutex::new(())).collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// Waits for the turn of a write that works on `bytes` bytes in a cluster; `None` for one that
    /// needs none. The write takes its snapshot in its turn and keeps the turn until its commit:
    /// else each of many patches of one object would conflict with the one before. Cancellation
    /// gives the turn up.
    pub(crate) async fn turn(&self, now: Snapshot, cluster: &ClusterName, bytes: usize) -> Option<WriteTurn<'_>> {
        if bytes < HEAVY_BYTES {
            return None;
        }
        let owner = now.usage(cluster).payer.map(|(payer, _)| payer);
        // A held snapshot would keep history alive during the wait.
        drop(now);
        // No user has the name of a cluster with this mark.
        let payer = owner.unwrap_or_else(|| format!("\0{cluster}").into());
        Some(self.of_payer(payer).await)
    }

    async fn of_payer(&self, payer: Arc<str>) -> WriteTurn<'_> {
        let lock = self.payers.lock().entry(payer.clone()).or_default().clone();
        // Created before the wait, so that a cancelled wait also removes the lock.
        let mut turn = WriteTurn {
            work: self,
            payer,
            held: None,
        };
        turn.held = Some(lock.lock_owned().await);
        turn
    }

    async fn lane(&self) -> MutexGuard<'_, ()> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.lanes[next % self.lanes.len()].lock().await
    }
}

/// Runs the computation of a write: aside if the write has a turn.
pub(crate) async fn run<T>(turn: Option<&WriteTurn<'_>>, catalog: &Catalog, work: impl FnOnce() -> T) -> T {
    let Some(turn) = turn else { return work() };
    let _lane = turn.work.lane().await;
    catalog.run_aside(work)
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        self.held.take();
        let mut payers = self.work.payers.lock();
        // Each waiter holds a reference to the lock. Without any the entry is removed.
        if payers.get(&self.payer).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            payers.remove(&self.payer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_payer_has_one_turn_at_a_time_and_leaves_nothing() {
        let work = HeavyWork::new(4);
        let first = work.of_payer("eve".into()).now_or_never().expect("nobody holds it");
        let mut second = Box::pin(work.of_payer("eve".into()));
        assert!(second.as_mut().now_or_never().is_none(), "the first one holds it");
        let other = work.of_payer("bob".into()).now_or_never().expect("another payer");
        drop(first);
        let second = second.now_or_never().expect("it is free");
        drop((second, other));
        assert!(work.payers.lock().is_empty());
    }

    #[test]
    fn fewer_run_than_there_are_cores() {
        let work = HeavyWork::new(2);
        let lane = work.lane().now_or_never().expect("it is free");
        assert!(work.lane().now_or_never().is_none());
        drop(lane);
        assert!(work.lane().now_or_never().is_some());
    }
}
