//! Decisions on transactions: pure functions of the applied state and of the earlier transactions
//! in the same batch.

use crate::{Commit, CommitError, Mvcc, Txn, Write};
use insula_api::{Object, Revision};
use std::{collections::BTreeMap, sync::Arc};

/// The keys that a batch changes, with their objects once the batch is durable; `None` is a
/// deletion. It is also the write set of the disk: a key written twice in a batch goes there once.
pub(crate) type Overlay = BTreeMap<Arc<[u8]>, Option<Pending>>;

/// An object that is not durable yet.
pub(crate) struct Pending {
    pub(crate) revision: Revision,
    pub(crate) created: Revision,
    pub(crate) object: Arc<Object>,
}

/// Effect of a transaction whose guards hold.
pub(crate) enum Decision {
    /// The transaction changes objects, at the offered revision.
    Commit(Commit),
    /// The transaction changes nothing and takes no revision.
    Nothing,
}

/// Checks the guards of `txn` and returns its effect at revision `next`. The caller is the only
/// writer of `mvcc`.
pub(crate) fn decide(mvcc: &Mvcc, overlay: &mut Overlay, txn: Txn, next: Revision) -> Result<Decision, CommitError> {
    for guard in &txn.guards {
        let found = current(mvcc, overlay, &guard.key().encode()).map(|(revision, _)| revision);
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
        let found = current(mvcc, overlay, &encoded);
        match write {
            Write::Put(key, object) => {
                let created = found.map_or(next, |(_, created)| created);
                overlay.insert(
                    encoded,
                    Some(Pending {
                        revision: next,
                        created,
                        object: object.clone(),
                    }),
                );
                writes.push((key, Some(object)));
            }
            Write::Delete(key) if found.is_some() => {
                overlay.insert(encoded, None);
                writes.push((key, None));
            }
            Write::Delete(_) => {}
        }
    }
    Ok(if writes.is_empty() {
        Decision::Nothing
    } else {
        Decision::Commit(Commit { revision: next, writes })
    })
}

/// Returns the revisions at which a key was last written and created, if it exists.
fn current(mvcc: &Mvcc, overlay: &Overlay, encoded: &[u8]) -> Option<(Revision, Revision)> {
    match overlay.get(encoded) {
        Some(pending) => pending.as_ref().map(|pending| (pending.revision, pending.created)),
        None => mvcc.current(encoded),
    }
}
