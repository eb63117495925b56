//! Deciding a transaction: pure, over what is applied and what earlier transactions of the same batch will do.

use crate::{Commit, CommitError, Mvcc, Txn, Write};
use insula_api::Revision;
use std::{collections::HashMap, sync::Arc};

/// The keys that a batch changes, as they will be when it is durable: revision of the last write, or deleted.
#[derive(Default)]
pub(crate) struct Overlay {
    written: HashMap<Arc<[u8]>, Option<Revision>>,
}

/// What becomes of one transaction.
pub(crate) enum Decision {
    /// It changes something, at the next revision.
    Commit(Commit),
    /// Its guards hold and it changes nothing.
    Nothing,
}

/// Checks the guards of `txn` and says what it does at revision `next`. The caller is the only writer of `mvcc`.
pub(crate) fn decide(mvcc: &Mvcc, overlay: &mut Overlay, txn: Txn, next: Revision) -> Result<Decision, CommitError> {
    let found = |overlay: &Overlay, encoded: &[u8]| match overlay.written.get(encoded) {
        Some(pending) => *pending,
        None => mvcc.current(encoded),
    };
    for guard in &txn.guards {
        let found = found(overlay, &guard.key().encode());
        if !guard.holds(found) {
            return Err(CommitError::Conflict {
                key: guard.key().clone(),
                found,
            });
        }
    }
    let mut writes = Vec::with_capacity(txn.writes.len());
    for write in txn.without_overridden().writes {
        let encoded = write.key().encode();
        let (key, object) = match write {
            Write::Put(key, object) => (key, Some(object)),
            Write::Delete(key) if found(overlay, &encoded).is_some() => (key, None),
            Write::Delete(_) => continue,
        };
        overlay.written.insert(encoded, object.is_some().then_some(next));
        writes.push((key, object));
    }
    Ok(if writes.is_empty() {
        Decision::Nothing
    } else {
        Decision::Commit(Commit { revision: next, writes })
    })
}
