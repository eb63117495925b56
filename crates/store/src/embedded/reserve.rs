//! Space kept for a full disk: the file `reserve`, whose blocks are real.
//!
//! A write that finds no space takes a part of the reserve and goes on. From then on the store is
//! full: it takes transactions that free space, and nothing else, until the whole reserve can be
//! had again.
//!
//! ```text
//! 64 of 64 MiB held             everything is taken
//! less                          deletions, and writes to objects that are being deleted
//! less than a half              deletions
//! nothing, and no space either  the write fails, and the store ends as after any failed write
//! ```

use super::Disk;
use crate::{CommitError, Txn, Write};
use parking_lot::Mutex;
use std::io;

/// Given up at once. Small, because others on the same disk take what is given up, too.
const STEP_BYTES: u64 = 1 << 20;
/// Of the reserve, the part for one batch: what a batch writes is more than what it holds.
const BATCH_SHARE: u64 = 4;
/// The largest batch. A larger one would only take longer.
const BATCH_BYTES_MAX: u64 = 16 << 20;

/// The reserve of a store.
pub(super) struct Reserve {
    /// Allocates blocks when it grows.
    disk: Box<dyn Disk>,
    size: u64,
    held: Mutex<u64>,
}

impl Reserve {
    /// Takes `size` bytes, if there is space for them. A size of 0 is no reserve; a file of before
    /// is left alone then.
    pub(super) fn new(disk: Box<dyn Disk>, size: u64) -> io::Result<Self> {
        if size == 0 {
            let held = Mutex::new(0);
            return Ok(Reserve { disk, size, held });
        }
        let held = disk.len()?.min(size);
        disk.set_len(held)?;
        let reserve = Reserve {
            disk,
            size,
            held: Mutex::new(held),
        };
        reserve.is_whole();
        Ok(reserve)
    }

    /// Gives up a part. Returns false when there is nothing left.
    pub(super) fn give(&self) -> bool {
        let mut held = self.held.lock();
        let left = held.saturating_sub(STEP_BYTES);
        let given = *held > 0 && self.disk.set_len(left).is_ok();
        if given {
            *held = left;
        }
        given
    }

    /// Returns true when all of it is held, after trying to take what is missing. There has to be
    /// space for half as much again, so that it is not given up with the next write.
    pub(super) fn is_whole(&self) -> bool {
        let mut held = self.held.lock();
        if *held == self.size {
            return true;
        }
        let enough = self.disk.set_len(self.size + self.size / 2).is_ok();
        let target = if enough { self.size } else { *held };
        // What cannot be cut is held all the same.
        if self.disk.set_len(target).is_ok() {
            *held = target;
        }
        enough
    }

    /// Bytes of space without which it is not whole.
    pub(super) fn wanting(&self) -> u64 {
        (self.size + self.size / 2).saturating_sub(*self.held.lock())
    }

    /// Takes what there is of what is missing.
    pub(super) fn take(&self) {
        let mut held = self.held.lock();
        while *held < self.size {
            let more = (*held + STEP_BYTES).min(self.size);
            if self.disk.set_len(more).is_err() {
                // What cannot be cut is held all the same.
                let _ = self.disk.set_len(*held);
                return;
            }
            *held = more;
        }
    }

    /// Says that the store is full, while it is.
    pub(super) fn alarm(&self) -> Option<String> {
        (!self.is_whole()).then(|| {
            let (held, size) = (*self.held.lock() >> 20, self.size >> 20);
            format!("the disk is full: {held} of {size} MiB of the reserve are left, and only deletions are taken; free some space")
        })
    }

    /// Bytes of transactions that are written at once.
    pub(super) fn batch_bytes(&self) -> u64 {
        match self.size {
            0 => BATCH_BYTES_MAX,
            size => BATCH_BYTES_MAX.min(size / BATCH_SHARE),
        }
    }

    /// Refuses what a full store does not take.
    pub(super) fn check(&self, txn: &Txn) -> Result<(), CommitError> {
        let is_low = *self.held.lock() < self.size / 2;
        let frees = txn.writes.iter().all(|write| match write {
            Write::Delete(_) => true,
            Write::Put(_, object) => !is_low && object.meta.deletion_timestamp.is_some(),
        });
        if frees || self.is_whole() {
            return Ok(());
        }
        Err(CommitError::Full(
            "the disk of the server is full, and only deletions are taken until there is space again".into(),
        ))
    }
}

/// Returns true for errors that more space would have prevented.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
