//! The state in which the account of a token is looked up.

use crate::Unauthenticated;
use insula_api::Revision;
use insula_store::{Pinned, Store};
use std::sync::OnceLock;

/// The state in which a request looks up the account of its token: no older than what it reads, so
/// that a server whose copy is late lets in nobody whom another server has deleted.
#[derive(Debug, Default)]
pub struct AccountLookup {
    /// The request reads any state that this server has seen.
    reads_any: bool,
    seen: OnceLock<Revision>,
}

impl AccountLookup {
    /// A lookup for a request that reads whatever this server has seen: `reads_any`.
    pub fn new(reads_any: bool) -> Self {
        AccountLookup {
            reads_any,
            seen: OnceLock::new(),
        }
    }

    /// The revision of a state with every write that was acknowledged before the request came, if
    /// one was read: what else the request reads need not ask for it again.
    pub fn seen(&self) -> Option<Revision> {
        self.seen.get().copied()
    }

    /// Reads the state.
    ///
    /// # Errors
    /// The store cannot tell its current revision.
    pub(crate) async fn snapshot(&self, store: &dyn Store) -> Result<Pinned, Unauthenticated> {
        if self.reads_any {
            return Ok(store.latest());
        }
        let current = store.snapshot(Revision(0)).await;
        let current = current.map_err(|why| Unauthenticated::Unavailable(why.to_string()))?;
        // A request shows one token, so that nobody reads twice.
        let _ = self.seen.set(current.revision());
        Ok(current)
    }
}
