//! Objects in one order: revisions, snapshots, watches.
//!
//! [`Store`] is the contract. Its state is one structure in memory, [`Mvcc`], which is at once the
//! store's index, the watch cache and the informer cache; engines differ in where a commit becomes
//! durable before it shows there: [`MemoryStore`] nowhere, [`embedded::EmbeddedStore`] in a file,
//! `insula-store-etcd` on an etcd cluster. All of them pass [`conformance`].
//!
//! Revisions by example: put a → 2, put b → 3, delete a → 4. A snapshot at 3 holds a and b whatever
//! comes after it; a watch after 2 gives {3: b put}, {4: a deleted}; after compaction to 4 a watch
//! after 4 goes on and one after 2 is [`Gone`].
//!
//! This crate knows nothing of versions, conversion or tenants' rights.

pub mod backup;
pub mod conformance;
pub mod embedded;
mod memory;
pub mod model;
mod mvcc;
mod plan;
mod snapshot;
mod state;
mod tally;
mod txn;
mod watch;

use insula_api::{Revision, Scope};
use std::pin::Pin;

pub use memory::MemoryStore;
pub use mvcc::{Commit, Mvcc};
pub use snapshot::{Entry, Snapshot};
pub use txn::{CommitError, Gone, Guard, SnapshotError, TXN_BYTES_MAX, TXN_OPS_MAX, Txn, TxnLimit, Write};
pub use watch::{Change, Cursor, Prior};

/// A boxed future, so that `dyn Store` works.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Objects in one order. Everything the system believes is a fold over this.
pub trait Store: Send + Sync {
    /// All writes at one new revision, or none. When it answers, [`Store::latest`] shows them.
    ///
    /// A transaction that changes nothing (only deletes of absent keys) mints no revision and
    /// answers the current one. Of two writes to one key the later counts. Dropping the future does
    /// not undo a transaction that was handed over.
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>>;

    /// A consistent view no older than `at_least`, waiting for it if need be: the caller bounds the
    /// wait.
    ///
    /// `Revision(0)` asks for a view no older than any commit acknowledged before the call, by
    /// whichever server.
    fn snapshot(&self, at_least: Revision) -> BoxFuture<'_, Result<Snapshot, SnapshotError>>;

    /// The view at exactly this revision: lists at an exact revision, continue tokens.
    fn at(&self, exactly: Revision) -> Result<Snapshot, Gone>;

    /// What this process has applied, without a wait.
    fn latest(&self) -> Snapshot;

    /// Every change in `scope` after `after`: in order, whole revisions, each once. `Revision(0)`
    /// is no special case: take a snapshot, and watch after its revision.
    fn watch(&self, scope: Scope, after: Revision) -> Result<Cursor, Gone>;

    /// Forgets what was before `upto`: views and watches from `upto` on stay possible, older ones
    /// are [`Gone`]. Compacting twice is no error; compacting the future is.
    fn compact(&self, upto: Revision) -> BoxFuture<'_, Result<(), Gone>>;

    /// Why this store takes no commits any more, where only another start helps: a failed write to
    /// disk, an etcd that was rolled back, a `close`.
    fn health(&self) -> Result<(), String>;

    /// Why this store cannot be used now: it has ended, or what it depends on is away and may come
    /// back. May ask others, and takes seconds when they are silent.
    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::ready(self.health()))
    }

    /// What keeps this store from taking all commits, while it takes some: a full disk. Looks
    /// whether that is over.
    fn alarm(&self) -> Option<String> {
        None
    }

    /// Finishes what was handed over, flushes, stops. Later commits are
    /// [`CommitError::Unavailable`]; reads go on.
    fn close(&self) -> BoxFuture<'_, ()>;
}
