//! Moves the objects of the earlier layout to their slots, beside everything else: see `layout.rs`.
//!
//! A moved object has a new revision, as after any write, and is the same otherwise: watches show
//! it once more. Any number of servers move at the same time; each transaction has guards on what
//! it moves.

use crate::{
    keys::{Keys, Layout, next_key},
    layout::{split_created, with_created},
    mirror::Mirror,
};
use etcd_client::{Compare, CompareOp, Error, GetOptions, KeyValue, KvClient, Txn, TxnOp, TxnOpResponse};
use insula_api::{ObjectKey, Revision};
use std::{convert::Infallible, time::Duration};

/// Objects that one transaction moves. Each takes two comparisons and two operations.
const MOVED_MAX: usize = insula_store::TXN_OPS_MAX / 2;
/// Bytes that one transaction moves, unless one object is larger.
const MOVED_BYTES_MAX: usize = 1 << 20;
/// Pause between two looks whether the slots have begun, or after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Pause after each page, in which etcd works for others alone: about as long as the page takes.
const BREATH: Duration = Duration::from_millis(5);

impl Mirror {
    /// Moves what there is to move, from time to time, until it is dropped.
    pub(crate) async fn relocate(&self) -> Infallible {
        let sleep = &self.members.options().sleep;
        loop {
            if self.keys.slots_began().is_none() {
                sleep(PAUSE).await;
                continue;
            }
            match self.relocate_all().await {
                Ok(0) => {}
                Ok(objects) => tracing::info!(objects, "objects were moved to their slots in etcd"),
                // A full etcd, or one that does not answer, which those tell who need it.
                Err(error) => {
                    tracing::debug!(%error, "objects were not moved to their slots in etcd");
                    sleep(PAUSE).await;
                    continue;
                }
            }
            // A server of an earlier program may have written late.
            sleep(self.members.options().audit_interval).await;
        }
    }

    /// Moves all objects, and returns the number of those that this server moved.
    async fn relocate_all(&self) -> Result<usize, Error> {
        let mut all = 0;
        loop {
            let (moved, failed) = self.relocate_once(false).await?;
            all += moved;
            match (moved, failed) {
                (_, 0) => return Ok(all),
                // Some of each batch are others', or were written late.
                (0, _) => return Ok(all + self.relocate_once(true).await?.0),
                _ => {}
            }
        }
    }

    /// Moves the objects of each page together, or one by one. Returns the numbers of objects that
    /// it moved and did not move. Of two servers that meet at a page one goes on to the next, so
    /// that they share the work.
    async fn relocate_once(&self, singly: bool) -> Result<(usize, usize), Error> {
        let (mut from, end) = self.keys.earlier_objects();
        let (mut moved, mut failed) = (0, 0);
        loop {
            let mut kv = self.members.current().await?.kv;
            let options = GetOptions::new()
                .with_range(end.clone())
                .with_limit(i64::try_from(MOVED_MAX).unwrap_or(i64::MAX));
            let page = kv.get(from.clone(), Some(options)).await?;
            for batch in batches(&self.keys, page.kvs()) {
                let done = match singly {
                    true => relocate_singly(&mut kv, &self.keys, &batch).await?,
                    false if relocate_if_unchanged(&mut kv, &self.keys, &batch).await? => batch.len(),
                    false => 0,
                };
                moved += done;
                failed += batch.len() - done;
            }
            match page.kvs().last().filter(|_| page.more()) {
                Some(last) => from = next_key(last.key()),
                None => return Ok((moved, failed)),
            }
            (self.members.options().sleep)(BREATH).await;
        }
    }
}

/// Splits the objects of a page into what one transaction moves.
fn batches<'a>(keys: &Keys, kvs: &'a [KeyValue]) -> Vec<Vec<&'a KeyValue>> {
    let mut batches: Vec<Vec<&KeyValue>> = Vec::new();
    let mut bytes = 0;
    for kv in kvs.iter().filter(|kv| slot_key(keys, kv).is_some()) {
        bytes += kv.value().len();
        match batches.last_mut() {
            Some(batch) if bytes <= MOVED_BYTES_MAX => batch.push(kv),
            _ => {
                bytes = kv.value().len();
                batches.push(vec![kv]);
            }
        }
    }
    batches
}

/// Moves those of some objects that nobody has changed meanwhile, and returns their number. Deletes
/// what a server of an earlier program has written beside an object in its slot: programs of this
/// format have decided that one.
async fn relocate_singly(kv: &mut KvClient, keys: &Keys, batch: &[&KeyValue]) -> Result<usize, Error> {
    let mut moved = 0;
    for one in batch {
        moved += usize::from(relocate_if_unchanged(kv, keys, &[*one]).await?);
        drop_stray(kv, keys, one).await?;
    }
    Ok(moved)
}

/// Moves objects together, unless somebody has changed one of them meanwhile.
async fn relocate_if_unchanged(kv: &mut KvClient, keys: &Keys, batch: &[&KeyValue]) -> Result<bool, Error> {
    let (mut compares, mut operations) = (Vec::new(), Vec::new());
    for found in batch {
        let Some(slot) = slot_key(keys, found) else { continue };
        let (told, stored) = split_created(found.value());
        let created = told.unwrap_or(Revision(found.create_revision().unsigned_abs()));
        compares.push(unchanged(found));
        compares.push(Compare::create_revision(slot.clone(), CompareOp::Equal, 0));
        operations.push(TxnOp::put(slot, with_created(created, stored), None));
        operations.push(TxnOp::delete(found.key(), None));
    }
    let txn = Txn::new().when(compares).and_then(operations);
    Ok(kv.txn(txn).await?.succeeded())
}

/// Deletes an object of the earlier layout, if there is one in its slot.
async fn drop_stray(kv: &mut KvClient, keys: &Keys, found: &KeyValue) -> Result<(), Error> {
    let Some(slot) = slot_key(keys, found) else {
        return Ok(());
    };
    let taken = Compare::create_revision(slot, CompareOp::Greater, 0);
    let delete = TxnOp::delete(found.key(), None);
    let txn = Txn::new().when([unchanged(found), taken]).and_then([delete]);
    kv.txn(txn).await.map(drop)
}

fn unchanged(found: &KeyValue) -> Compare {
    Compare::mod_revision(found.key(), CompareOp::Equal, found.mod_revision())
}

/// Returns the key of an object in its slot. A key that is none stays: the load refuses it.
fn slot_key(keys: &Keys, found: &KeyValue) -> Option<Vec<u8>> {
    let (_, encoded) = keys.encoded(found.key())?;
    Some(keys.object(&ObjectKey::decode(encoded).ok()?, Layout::Slot))
}

/// Moves objects with these keys of the earlier layout to their slots.
pub(crate) async fn relocate_keys(kv: &mut KvClient, keys: &Keys, earlier: &[&[u8]]) -> Result<(), Error> {
    for some in earlier.chunks(MOVED_MAX) {
        let gets: Vec<TxnOp> = some.iter().map(|key| TxnOp::get(*key, None)).collect();
        let answer = kv.txn(Txn::new().and_then(gets)).await?;
        let found = answer.op_responses().into_iter().filter_map(|response| match response {
            TxnOpResponse::Get(got) => got.kvs().first().cloned(),
            _ => None,
        });
        let found: Vec<KeyValue> = found.collect();
        for batch in batches(keys, &found) {
            if !relocate_if_unchanged(kv, keys, &batch).await? {
                relocate_singly(kv, keys, &batch).await?;
            }
        }
    }
    Ok(())
}
