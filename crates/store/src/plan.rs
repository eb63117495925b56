//! Decisions on transactions: pure functions of the applied state and of the earlier transactions
//! in the same batch; and the way back, from objects to what they were before some commits.

use crate::{Commit, CommitError, Entry, Mvcc, Txn, Write};
use insula_api::{Object, ObjectKey, Revision};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// The keys that a batch changes, with their objects once the batch is durable; `None` is a
/// deletion. It is also the write set of the disk: a key written twice in a batch goes there once.
pub(crate) type Overlay = BTreeMap<Arc<[u8]>, Option<Pending>>;

/// An object with its revisions: one that is not durable yet, or one that was replaced.
#[derive(Clone)]
pub(crate) struct Pending {
    pub(crate) revision: Revision,
    pub(crate) created: Revision,
    pub(crate) object: Arc<Object>,
}

/// Encoded keys that a commit wrote, with the object before or nothing.
pub(crate) type Replaced = Vec<(Arc<[u8]>, Option<Pending>)>;

/// A commit by what it replaced.
pub(crate) struct Step {
    pub(crate) revision: Revision,
    pub(crate) replaced: Replaced,
}

/// Effect of a transaction whose guards hold.
pub(crate) enum Decision {
    /// The transaction changes objects, at the offered revision.
    Commit(Commit, Step),
    /// The transaction changes nothing and takes no revision.
    Nothing,
}

/// Checks the guards of `txn` and returns its effect at revision `next`. The caller is the only
/// writer of `mvcc`.
pub(crate) fn decide(mvcc: &Mvcc, overlay: &mut Overlay, txn: Txn, next: Revision) -> Result<Decision, CommitError> {
    for guard in &txn.guards {
        let found = current(mvcc, overlay, &guard.key().encode()).map(|found| found.revision);
        if !guard.holds(found) {
            return Err(CommitError::Conflict {
                key: guard.key().clone(),
                found,
            });
        }
    }
    let mut writes = Vec::with_capacity(txn.writes.len());
    let mut replaced = Vec::with_capacity(txn.writes.len());
    for write in txn.without_overridden().writes {
        let encoded = write.key().encode();
        let found = current(mvcc, overlay, &encoded);
        match write {
            Write::Put(key, object) => {
                let created = found.as_ref().map_or(next, |found| found.created);
                replaced.push((encoded.clone(), found));
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
                replaced.push((encoded.clone(), found));
                overlay.insert(encoded, None);
                writes.push((key, None));
            }
            Write::Delete(_) => {}
        }
    }
    let revision = next;
    Ok(if writes.is_empty() {
        Decision::Nothing
    } else {
        Decision::Commit(Commit { revision, writes }, Step { revision, replaced })
    })
}

/// Returns the object of a key, if it exists.
fn current(mvcc: &Mvcc, overlay: &Overlay, encoded: &[u8]) -> Option<Pending> {
    match overlay.get(encoded) {
        Some(pending) => pending.clone(),
        None => mvcc.read(|state| state.newest(encoded)),
    }
}

/// Undoes some commits, the newest first, which are all since a revision. Returns the objects
/// before them, and the commits.
///
/// # Errors
/// Returns the objects as they were given if they are not what the commits left.
pub(crate) fn undo(entries: Vec<Entry>, steps: &[Step]) -> Result<(Vec<Entry>, Vec<Commit>), Vec<Entry>> {
    let keys = steps.iter().flat_map(|step| &step.replaced);
    let mut touched: HashMap<Arc<[u8]>, Option<Entry>> = keys.map(|(key, _)| (key.clone(), None)).collect();
    let mut before = Vec::with_capacity(entries.len());
    for entry in entries {
        match touched.get_mut(&*entry.key.encode()) {
            Some(place) => *place = Some(entry),
            None => before.push(entry),
        }
    }
    let left: Vec<Entry> = touched.values().flatten().cloned().collect();
    let commits: Option<Vec<Commit>> = steps.iter().rev().map(|step| undo_one(&mut touched, step)).collect();
    let Some(mut commits) = commits else {
        before.extend(left);
        return Err(before);
    };
    commits.reverse();
    before.extend(touched.into_values().flatten());
    Ok((before, commits))
}

/// Undoes a commit. Returns nothing if one of its objects is not what it wrote.
fn undo_one(objects: &mut HashMap<Arc<[u8]>, Option<Entry>>, step: &Step) -> Option<Commit> {
    let mut writes = Vec::with_capacity(step.replaced.len());
    for (encoded, old) in &step.replaced {
        let key = ObjectKey::decode(encoded).ok()?;
        let old = old.clone().map(|old| Entry {
            key: key.clone(),
            object: old.object,
            revision: old.revision,
            created: old.created,
        });
        let is_older = old.as_ref().is_none_or(|old| old.revision < step.revision);
        let is_change = old.is_some();
        let new = objects.insert(encoded.clone(), old).flatten();
        let is_written = new.as_ref().map_or(is_change, |new| new.revision == step.revision);
        if !is_older || !is_written {
            return None;
        }
        writes.push((key, new.map(|new| new.object)));
    }
    Some(Commit {
        revision: step.revision,
        writes,
    })
}
