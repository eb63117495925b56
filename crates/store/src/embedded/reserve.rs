//! Disk space that is reserved for a full disk: the file `reserve`, whose blocks are allocated.
//!
//! A write that finds no space releases a part of the reserve and goes on. From then on the store
//! is full: it takes only transactions that free space, until the whole reserve can be allocated
//! again.
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

/// Bytes that are released at once. Small, because other programs on the same disk use released
/// space, too.
const STEP_BYTES: u64 = 1 << 20;
/// Divisor of the reserve that gives the bytes of one batch: a batch writes more bytes than its
/// objects have.
const BATCH_SHARE: u64 = 4;
/// Maximum number of bytes of a batch. A larger batch would only take longer.
const BATCH_BYTES_MAX: u64 = 16 << 20;

/// The reserve of a store.
pub(super) struct Reserve {
    /// A disk that allocates blocks when it grows.
    disk: Box<dyn Disk>,
    size: u64,
    held: Mutex<u64>,
}

impl Reserve {
    /// Allocates `size` bytes, if there is space for them. A size of 0 means no reserve; an
    /// existing file is then left alone.
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

    /// Releases a part. Returns false when there is nothing left.
    pub(super) fn give(&self) -> bool {
        let mut held = self.held.lock();
        let left = held.saturating_sub(STEP_BYTES);
        let given = *held > 0 && self.disk.set_len(left).is_ok();
        if given {
            *held = left;
        }
        given
    }

    /// Returns true unless a part was released. Allocates nothing.
    pub(super) fn is_untouched(&self) -> bool {
        *self.held.lock() == self.size
    }

    /// Allocates what is missing, and returns true when the reserve is whole. There has to be space
    /// for half as much again, so that the next write does not release it at once.
    pub(super) fn is_whole(&self) -> bool {
        let mut held = self.held.lock();
        if *held == self.size {
            return true;
        }
        let enough = self.disk.set_len(self.size + self.size / 2).is_ok();
        let target = if enough { self.size } else { *held };
        // Space that cannot be released stays allocated.
        if self.disk.set_len(target).is_ok() {
            *held = target;
        }
        enough
    }

    /// Returns the bytes of free space that the disk needs before the reserve can be whole.
    pub(super) fn wanting(&self) -> u64 {
        (self.size + self.size / 2).saturating_sub(*self.held.lock())
    }

    /// Allocates as much of the missing part as the disk has space for.
    pub(super) fn take(&self) {
        let mut held = self.held.lock();
        while *held < self.size {
            let more = (*held + STEP_BYTES).min(self.size);
            if self.disk.set_len(more).is_err() {
                // Space that cannot be released stays allocated.
                let _ = self.disk.set_len(*held);
                return;
            }
            *held = more;
        }
    }

    /// Returns the alarm of a full disk, while the reserve is not whole.
    pub(super) fn alarm(&self) -> Option<String> {
        (!self.is_whole()).then(|| {
            let (held, size) = (*self.held.lock() >> 20, self.size >> 20);
            format!(
                "the disk is full: {held} of {size} MiB of the reserve are left, and only deletions are taken; \
             free some space"
            )
        })
    }

    /// Returns the bytes of transactions in one batch at most.
    pub(super) fn batch_bytes(&self) -> u64 {
        match self.size {
            0 => BATCH_BYTES_MAX,
            size => BATCH_BYTES_MAX.min(size / BATCH_SHARE),
        }
    }

    /// Refuses transactions that a full store does not take.
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
