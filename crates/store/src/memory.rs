//! A store without durability, for tests, benchmarks and the simulator. A commit is done when the
//! call returns, without a thread, so that a run with the same seed replays.

use crate::{
    BoxFuture, CommitError, Cursor, Gone, Measures, Mvcc, Pinned, Sharing, SnapshotError, Store, Txn,
    plan::{Decision, Overlay, decide},
};
use insula_api::{Revision, Scope};
use parking_lot::Mutex;
use std::sync::Arc;

/// A store in memory alone.
pub struct MemoryStore {
    mvcc: Arc<Mvcc>,
    /// Held while a transaction is decided and applied: one writer at a time. False once closed.
    open: Mutex<bool>,
}

impl MemoryStore {
    /// Creates an empty store at revision 1.
    pub fn new() -> Self {
        MemoryStore {
            mvcc: Mvcc::new(Revision(1)),
            open: Mutex::new(true),
        }
    }

    fn commit_now(&self, txn: Txn) -> Result<Revision, CommitError> {
        txn.check_size()?;
        let open = self.open.lock();
        if !*open {
            return Err(CommitError::Unavailable("the store is closed".into()));
        }
        let next = Revision(self.mvcc.applied().0 + 1);
        match decide(&self.mvcc, &mut Overlay::default(), txn, next)? {
            Decision::Nothing => Ok(self.mvcc.applied()),
            Decision::Commit(commit, _) => {
                self.mvcc.apply(vec![commit]);
                Ok(next)
            }
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>> {
        Box::pin(async move { self.commit_now(txn) })
    }

    fn snapshot(&self, at_least: Revision) -> BoxFuture<'_, Result<Pinned, SnapshotError>> {
        Box::pin(async move {
            self.mvcc.reached(at_least).await;
            Ok(self.mvcc.latest())
        })
    }

    fn at_revision(&self, exactly: Revision) -> Result<Pinned, Gone> {
        self.mvcc.at_revision(exactly)
    }

    fn latest(&self) -> Pinned {
        self.mvcc.latest()
    }

    fn watch(&self, scope: Scope, after: Revision) -> Result<Cursor, Gone> {
        self.mvcc.watch(scope, after)
    }

    fn compact(&self, upto: Revision) -> BoxFuture<'_, Result<(), Gone>> {
        Box::pin(async move { self.mvcc.compact(upto) })
    }

    fn health(&self) -> Result<(), String> {
        if *self.open.lock() {
            Ok(())
        } else {
            Err("the store is closed".into())
        }
    }

    fn share(&self, sharing: Sharing) {
        self.mvcc.share(sharing);
    }

    fn measures(&self) -> Measures {
        self.mvcc.measures()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { *self.open.lock() = false })
    }
}
