//! Turns for the writes of large objects: patches of long lists, and validation and policies.
//!
//! The large writes of one payer go one after the other. So the payer who sends many patches at
//! once waits for its own, without a thread for each that waits. Between payers the request's meter
//! divides the cores.

use futures_util::lock::{Mutex, OwnedMutexGuard};
use insula_api::ClusterName;
use insula_catalog::{Result, Served};
use insula_store::Pinned;
use std::{collections::HashMap, sync::Arc};

/// Bytes of the body and the present object together from which on a computation waits for its
/// turn. Below, it takes about a millisecond at most.
const HEAVY_BYTES: usize = 64 << 10;

/// Times that the bytes of a write are walked: decoded, completed, validated, compared, encoded.
const WALKS: usize = 4;

type Payers = parking_lot::Mutex<HashMap<Arc<str>, Arc<Mutex<()>>>>;

/// The turns of all payers.
#[derive(Default)]
pub struct HeavyWork {
    payers: Payers,
}

/// A turn of a payer. Dropping it lets the payer's next write begin.
pub(crate) struct WriteTurn<'a> {
    work: &'a HeavyWork,
    payer: Arc<str>,
    held: Option<OwnedMutexGuard<()>>,
}

impl HeavyWork {
    /// Waits for the turn of a write that works on `bytes` bytes in a cluster; `None` for one that
    /// needs none. The write takes its snapshot in its turn and keeps the turn until its commit:
    /// else each of many patches of one object would conflict with the one before. Cancellation
    /// gives the turn up.
    pub(crate) async fn turn(&self, now: Pinned, cluster: &ClusterName, bytes: usize) -> Option<WriteTurn<'_>> {
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
}

/// Spends the work of a write on `bytes` bytes, before it is done.
///
/// # Errors
/// The request has ended.
pub(crate) fn spend(served: &Served, bytes: usize) -> Result<()> {
    Ok(served.meter.spend_bytes(bytes.saturating_mul(WALKS))?)
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
        let work = HeavyWork::default();
        let first = work.of_payer("eve".into()).now_or_never().expect("nobody holds it");
        let mut second = Box::pin(work.of_payer("eve".into()));
        assert!(second.as_mut().now_or_never().is_none(), "the first one holds it");
        let other = work.of_payer("bob".into()).now_or_never().expect("another payer");
        drop(first);
        let second = second.now_or_never().expect("it is free");
        drop((second, other));
        assert!(work.payers.lock().is_empty());
    }
}
