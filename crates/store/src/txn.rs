//! Transactions, and the errors of a store.

use insula_api::{Object, ObjectKey, Revision};
use std::{collections::HashSet, fmt, sync::Arc};

/// Maximum number of guards in one transaction, and of writes. etcd's default is 128
/// (`--max-txn-ops`), of which the store on etcd needs one each for itself. Every engine has the
/// same limit, so that a transaction that fits one engine fits all.
pub const TXN_OPS_MAX: usize = 127;

/// Maximum number of bytes of keys and objects in one transaction. etcd refuses requests over 1.5
/// MiB (`--max-request-bytes`); the rest is room for framing.
pub const TXN_BYTES_MAX: usize = 1536 * 1024 - 64 * 1024;

/// Writes that happen together if every guard holds.
#[derive(Debug, Clone, Default)]
pub struct Txn {
    /// Conditions that all have to hold for the writes to happen.
    pub guards: Vec<Guard>,
    /// Changes that happen at one revision.
    pub writes: Vec<Write>,
}

/// A condition on one key, checked in the same instant as the writes happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// There is no such object.
    Absent(ObjectKey),
    /// The object is there and was last written at this revision.
    At(ObjectKey, Revision),
    /// The object is there, whatever its revision.
    Exists(ObjectKey),
}

/// A change to one key.
#[derive(Debug, Clone)]
pub enum Write {
    /// Creates or replaces an object.
    Put(ObjectKey, Arc<Object>),
    /// Removes an object; does nothing when it is absent.
    Delete(ObjectKey),
}

/// Reason why a transaction was not acknowledged. The variant says what a caller can do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A guard failed and nothing was written: read again and decide again.
    #[error("conflict on {key:?}: {}", describe_found(*.found))]
    Conflict {
        /// The key of the first guard that failed.
        key: ObjectKey,
        /// The revision at which the object there was last written; `None` if there is none.
        found: Option<Revision>,
    },
    /// Nothing was written, and a transaction of this size never will be: split it.
    #[error("transaction of {got} {limit}, at most {max} fit")]
    TooLarge {
        /// The limit that the transaction exceeds.
        limit: TxnLimit,
        /// Size of the transaction, in the unit of the limit.
        got: usize,
        /// Largest size that fits, in the unit of the limit.
        max: usize,
    },
    /// Nothing was written: the disk is full, and only deletions are taken until there is space
    /// again.
    #[error("{0}")]
    Full(String),
    /// The transaction may have happened or may still happen: read to find out.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// Nothing was written: the store takes no writes now.
    #[error("store unavailable: {0}")]
    Unavailable(String),
}

/// Limit of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TxnLimit {
    /// More than [`TXN_OPS_MAX`] guards, with one for each of [`Txn::unguarded_puts`].
    Guards,
    /// More than [`TXN_OPS_MAX`] writes.
    Writes,
    /// More than [`TXN_BYTES_MAX`] bytes.
    Bytes,
}

impl fmt::Display for TxnLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TxnLimit::Guards => "guards",
            TxnLimit::Writes => "writes",
            TxnLimit::Bytes => "bytes",
        })
    }
}

fn describe_found(found: Option<Revision>) -> String {
    found.map_or_else(
        || "it does not exist".to_owned(),
        |revision| format!("it is at revision {revision}"),
    )
}

/// Reason why a revision can neither be read nor be watched from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Gone {
    /// The history of the revision was compacted: list again.
    #[error("revision {asked} was compacted; the oldest is {oldest}")]
    Compacted {
        /// The requested revision.
        asked: Revision,
        /// The oldest revision that can still be requested.
        oldest: Revision,
    },
    /// This process has not applied the revision, or not yet.
    #[error("revision {asked} is in the future; the latest is {latest}")]
    Future {
        /// The requested revision.
        asked: Revision,
        /// The latest revision that was applied.
        latest: Revision,
    },
}

/// Reason why there is no snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The store cannot tell its current revision, or will never reach the requested one: try again
    /// later.
    #[error("store unavailable: {0}")]
    Unavailable(String),
}

impl Guard {
    /// Returns the key that the guard checks.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Guard::Absent(key) | Guard::At(key, _) | Guard::Exists(key) => key,
        }
    }

    /// Returns true if the guard holds for an object last written at `found`; `None` stands for no
    /// object.
    pub fn holds(&self, found: Option<Revision>) -> bool {
        match self {
            Guard::Absent(_) => found.is_none(),
            Guard::At(_, revision) => found == Some(*revision),
            Guard::Exists(_) => found.is_some(),
        }
    }
}

impl Write {
    /// Returns the key that the write changes.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Write::Put(key, _) | Write::Delete(key) => key,
        }
    }
}

impl Txn {
    /// Builds a transaction of one guard and one write.
    pub fn one(guard: Guard, write: Write) -> Self {
        Txn {
            guards: vec![guard],
            writes: vec![write],
        }
    }

    /// Checks the limits that all engines share.
    ///
    /// # Errors
    /// [`CommitError::TooLarge`] with the first limit that the transaction exceeds.
    pub fn check_size(&self) -> Result<(), CommitError> {
        let bytes = self.bytes();
        // Few transactions are so large that their puts have to be looked at.
        let guards = match self.guards.len() + self.writes.len() {
            all if all <= TXN_OPS_MAX => self.guards.len(),
            _ => self.guards.len() + self.unguarded_puts().count(),
        };
        for (limit, got, max) in [
            (TxnLimit::Writes, self.writes.len(), TXN_OPS_MAX),
            (TxnLimit::Guards, guards, TXN_OPS_MAX),
            (TxnLimit::Bytes, bytes, TXN_BYTES_MAX),
        ] {
            if got > max {
                return Err(CommitError::TooLarge { limit, got, max });
            }
        }
        Ok(())
    }

    /// Returns the keys of objects that are put without a guard. An engine that has to know what it
    /// replaces takes a guard of its own for each.
    pub fn unguarded_puts(&self) -> impl Iterator<Item = &ObjectKey> {
        let guarded: HashSet<&ObjectKey> = self.guards.iter().map(Guard::key).collect();
        self.puts().filter(move |key| !guarded.contains(key))
    }

    /// Returns the keys of objects that are put.
    pub fn puts(&self) -> impl Iterator<Item = &ObjectKey> {
        self.writes.iter().filter_map(|write| match write {
            Write::Put(key, _) => Some(key),
            Write::Delete(_) => None,
        })
    }

    /// Returns the size of the keys and objects in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let key_len = |key: &ObjectKey| {
            let resource = &key.resource;
            let parts = [
                &resource.group,
                &resource.resource,
                &resource.identity,
                &key.namespace,
                &key.name,
            ];
            parts.iter().map(|p| p.len()).sum::<usize>() + key.cluster.as_str().len() + 5
        };
        let guards: usize = self.guards.iter().map(|guard| key_len(guard.key())).sum();
        let writes = self.writes.iter().map(|write| match write {
            Write::Put(key, object) => {
                key_len(key) + object.body_len() + object.residual().map_or(0, |residual| residual.len())
            }
            Write::Delete(key) => key_len(key),
        });
        guards + writes.sum::<usize>()
    }

    /// Drops writes that a later one to the same key overrides.
    #[must_use]
    pub fn without_overridden(mut self) -> Self {
        if self.writes.len() > 1 {
            let mut seen = HashSet::with_capacity(self.writes.len());
            self.writes.reverse();
            self.writes.retain(|write| seen.insert(write.key().clone()));
            self.writes.reverse();
        }
        self
    }
}
