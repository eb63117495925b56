//! Properties of transactions, and their guards as etcd compares them.

use etcd_client::{Compare, CompareOp};
use insula_store::{Guard, Txn, Write};

/// Returns true for a transaction that cannot happen without a new revision.
pub(crate) fn changes_something(txn: &Txn) -> bool {
    let exists = |write: &Write| {
        txn.guards.iter().any(|guard| match guard {
            Guard::Absent(_) => false,
            Guard::At(key, _) | Guard::Exists(key) => key == write.key(),
        })
    };
    txn.writes.iter().any(|write| match write {
        Write::Put(..) => true,
        Write::Delete(_) => exists(write),
    })
}

/// Returns the comparison of a guard with what is at a key.
pub(crate) fn compare(key: Vec<u8>, guard: &Guard) -> Compare {
    match guard {
        Guard::Absent(_) => Compare::create_revision(key, CompareOp::Equal, 0),
        Guard::Exists(_) => Compare::create_revision(key, CompareOp::Greater, 0),
        // A revision that no key can have never holds; 0 would mean "absent" to etcd.
        Guard::At(_, revision) => {
            let revision = i64::try_from(revision.0)
                .ok()
                .filter(|revision| *revision > 0)
                .unwrap_or(i64::MAX);
            Compare::mod_revision(key, CompareOp::Equal, revision)
        }
    }
}

/// Returns true for a transaction that a full etcd executes.
pub(crate) fn only_deletes(txn: &Txn) -> bool {
    txn.writes.iter().all(|write| matches!(write, Write::Delete(_)))
}
