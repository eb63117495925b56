//! One transaction, out.

use crate::{
    keys::Keys,
    revision_of,
    status::{failed_for_good, request_too_large},
};
use etcd_client::{Compare, CompareOp, Error, GetOptions, KvClient, TxnOp, TxnOpResponse};
use insula_api::Revision;
use insula_store::{CommitError, Guard, TXN_BYTES_MAX, Txn, TxnLimit, Write};

/// What etcd did.
pub(crate) struct Done {
    pub(crate) revision: Revision,
    /// Whether anything changed; if not, `revision` is just etcd's current one.
    pub(crate) changed: bool,
}

/// Sends a transaction whose keys are written once each.
pub(crate) async fn send(kv: &mut KvClient, keys: &Keys, txn: Txn) -> Result<Done, CommitError> {
    let Txn { guards, writes } = txn;
    let compares: Vec<Compare> = guards.iter().map(|guard| compare(keys, guard)).collect();
    let look = |guard: &Guard| TxnOp::get(keys.object(guard.key()), Some(GetOptions::new().with_keys_only()));
    let looks: Vec<TxnOp> = guards.iter().map(look).collect();
    let operations: Vec<TxnOp> = writes
        .iter()
        .map(|write| match write {
            Write::Put(key, object) => TxnOp::put(keys.object(key), object.to_stored(), None),
            Write::Delete(key) => TxnOp::delete(keys.object(key), None),
        })
        .collect();
    let bytes = || {
        writes
            .iter()
            .map(|write| {
                if let Write::Put(_, object) = write {
                    object.size()
                } else {
                    0
                }
            })
            .sum()
    };
    let request = etcd_client::Txn::new()
        .when(compares)
        .and_then(operations)
        .or_else(looks);
    let answer = kv.txn(request).await.map_err(|error| meaning(error, bytes))?;
    let responses = answer.op_responses();
    if !answer.succeeded() {
        return Err(conflict(guards, &responses));
    }
    let changed = responses.iter().any(|response| match response {
        TxnOpResponse::Delete(deleted) => deleted.deleted() > 0,
        TxnOpResponse::Put(_) => true,
        TxnOpResponse::Get(_) | TxnOpResponse::Txn(_) => false,
    });
    Ok(Done {
        revision: revision_of(answer.header()),
        changed,
    })
}

fn compare(keys: &Keys, guard: &Guard) -> Compare {
    let key = keys.object(guard.key());
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

/// Finds the guard that failed in what etcd saw in the same instant.
fn conflict(guards: Vec<Guard>, responses: &[TxnOpResponse]) -> CommitError {
    for (guard, response) in guards.iter().zip(responses) {
        let TxnOpResponse::Get(got) = response else { continue };
        let found = got.kvs().first().map(|kv| Revision(kv.mod_revision().unsigned_abs()));
        if !guard.holds(found) {
            return CommitError::Conflict {
                key: guard.key().clone(),
                found,
            };
        }
    }
    CommitError::Unavailable("etcd refused a transaction whose guards all hold".into())
}

fn meaning(error: Error, bytes: impl Fn() -> usize) -> CommitError {
    if request_too_large(&error) {
        return CommitError::TooLarge {
            limit: TxnLimit::Bytes,
            got: bytes(),
            max: TXN_BYTES_MAX,
        };
    }
    if failed_for_good(&error) {
        return CommitError::Unavailable(error.to_string());
    }
    CommitError::Unknown(error.to_string())
}
