//! Storage of objects under one total order of revisions, with snapshots and watches.
//!
//! [`Store`] is the contract. Its state is one structure in memory, [`Mvcc`]: the index of the
//! store, the watch cache and the informer cache in one. Engines differ in where a commit becomes
//! durable before [`Mvcc`] shows it: [`MemoryStore`] nowhere, [`embedded::EmbeddedStore`] in a
//! file, `insula-store-etcd` on an etcd cluster. All engines pass [`conformance`].
//!
//! Revisions by example: put a → 2, put b → 3, delete a → 4. A snapshot at 3 holds a and b whatever
//! comes after it; a watch after 2 gives {3: b put}, {4: a deleted}; after compaction to 4 a watch
//! after 4 goes on and one after 2 is [`Gone`].
//!
//! This crate knows nothing of API versions, conversion or authorization.
#![warn(missing_docs)]

pub mod backup;
pub mod conformance;
mod counts;
pub mod embedded;
mod history;
mod indexes;
mod largest;
mod log;
mod measures;
mod memory;
pub mod model;
mod mvcc;
mod plan;
mod reload;
mod scan;
mod slots;
mod snapshot;
mod state;
mod txn;
pub mod usage;
mod watch;

use insula_api::{Revision, Scope};
use std::pin::Pin;

pub use indexes::{Index, Values};
pub use largest::Largest;
pub use log::{Change, Prior};
pub use measures::{FileMeasures, Measures};
pub use memory::MemoryStore;
pub use mvcc::{Commit, Mvcc};
pub use reload::Reload;
pub use scan::Scan;
pub use slots::{SLOTS, server_of, slot};
pub use snapshot::{Pinned, Snapshot};
pub use state::Entry;
pub use txn::{CommitError, Gone, Guard, SnapshotError, TXN_BYTES_MAX, TXN_OPS_MAX, Txn, TxnLimit, Write};
pub use usage::{Payers, Sharing};
pub use watch::Cursor;

/// Format of stored objects. A program refuses a store of a later format.
///
/// Format 1, of the embedded store alone, has no checksums. Format 2 has other names of internal
/// resources than format 3; the server that owns these names moves the objects, and all engines
/// keep programs of format 2 away before the first object has moved. Format 4 has other keys in
/// etcd than format 3, and is the same in the embedded store, whose files stay at 3.
pub const FORMAT: u64 = 4;

/// A boxed future, so that `dyn Store` works.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Member of a cluster that holds a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Id.
    pub id: u64,
    /// Name.
    pub name: String,
    /// URLs for clients.
    pub client_urls: Vec<String>,
    /// True if it does not vote.
    pub learner: bool,
}

/// Storage of objects under one total order of revisions. The whole state of the system follows
/// from the changes in this order.
pub trait Store: Send + Sync {
    /// Applies all writes of a transaction at one new revision, or none of them. [`Store::latest`]
    /// shows them by the time this returns.
    ///
    /// A transaction that changes nothing (only deletes of absent keys) takes no new revision and
    /// returns the current one. Of two writes to one key the later one counts. Dropping the future
    /// does not undo a transaction that was already queued.
    ///
    /// # Errors
    /// The variant of [`CommitError`] says whether anything was written, and what a caller can do.
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>>;

    /// Returns a consistent view that is no older than `at_least`, and waits until there is one.
    /// The caller bounds the wait.
    ///
    /// `Revision(0)` asks for a view that includes every commit acknowledged before the call, by
    /// any server.
    ///
    /// # Errors
    /// Fails when the store cannot tell its current revision, or will never reach `at_least`.
    fn snapshot(&self, at_least: Revision) -> BoxFuture<'_, Result<Pinned, SnapshotError>>;

    /// Returns the view at exactly this revision, for lists with an exact `resourceVersion` and for
    /// continue tokens.
    ///
    /// # Errors
    /// [`Gone`] when the revision is compacted, or newer than the latest one that this process has
    /// applied.
    fn at_revision(&self, exactly: Revision) -> Result<Pinned, Gone>;

    /// Returns the view at the latest revision that this process has applied, without waiting.
    fn latest(&self) -> Pinned;

    /// Returns a cursor over every change in `scope` after the revision `after`: in order, in whole
    /// revisions, each change once. `Revision(0)` is no special case: take a snapshot, and watch
    /// after its revision.
    ///
    /// # Errors
    /// [`Gone`] when the revision is compacted, or newer than the latest one that this process has
    /// applied.
    fn watch(&self, scope: Scope, after: Revision) -> Result<Cursor, Gone>;

    /// Discards the history before the revision `upto`. Views and watches from `upto` on stay
    /// possible, older ones are [`Gone`]. Compacting twice is no error.
    ///
    /// # Errors
    /// [`Gone::Future`] when `upto` is newer than the latest revision that this process has
    /// applied.
    fn compact(&self, upto: Revision) -> BoxFuture<'_, Result<(), Gone>>;

    /// Checks whether the store can ever take commits again.
    ///
    /// # Errors
    /// The reason why only a restart helps: a failed write to disk, an etcd that was rolled back,
    /// or a call of [`Store::close`].
    fn health(&self) -> Result<(), String>;

    /// Checks whether the store can be used now. May send a request to what the store depends on,
    /// and takes seconds when there is no answer.
    ///
    /// # Errors
    /// The reason why the store cannot be used: it has ended, or what it depends on is unreachable
    /// and may come back.
    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::ready(self.health()))
    }

    /// Returns the reason why the store takes only some commits: a full disk. Checks first whether
    /// there is space again.
    fn alarm(&self) -> Option<String> {
        None
    }

    /// Returns the members of the cluster that holds the store; none for a store of one process.
    ///
    /// # Errors
    /// The reason why the cluster does not answer.
    fn members(&self) -> BoxFuture<'_, Result<Vec<Member>, String>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Takes on other rules by which clusters share memory, before the first request.
    fn share(&self, sharing: Sharing);

    /// Returns measures of the store, for metrics. Takes constant time.
    fn measures(&self) -> Measures;

    /// Finishes the queued commits, flushes and stops. Later commits fail with
    /// [`CommitError::Unavailable`]; reads go on.
    fn close(&self) -> BoxFuture<'_, ()>;
}
