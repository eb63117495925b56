//! Record of acknowledged commits: the file `acknowledged` beside the objects.
//!
//! Two slots, written alternately, hold the latest acknowledged revision and the seal of the
//! objects at it. A slot is written after its commit is on disk and before the commit is answered.
//! redb falls back to an older commit when the newest does not verify; the record distinguishes
//! that from a commit that was never acknowledged.
//!
//! The record is not flushed with each commit. When a process is killed, the kernel has the record
//! already, so that every acknowledged commit is in it. A power cut may lose the last few slots,
//! but never the commits: then only damage to the newest commit in the same moment goes unnoticed.
//! A second flush per commit would double the latency of every write.

use super::{
    Disk, OpenError,
    checksum::{Seal, short},
};
use insula_api::Revision;
use std::io;

/// An empty store's revision. Not 0, which means "any" wherever clients write a revision.
pub(super) const FIRST: Revision = Revision(1);

const MAGIC: [u8; 16] = *b"insula-record 2\n";
/// Slots do not share a page, so that a lost page leaves the other slot.
const SLOT_BYTES: usize = 4096;
/// Magic, sequence, revision, sum, checksum.
const USED_BYTES: usize = 16 + 8 + 8 + 16 + 8;
/// Slots written between two flushes.
const FLUSH_EVERY: u64 = 256;

/// The opened record.
pub(super) struct Record {
    disk: Box<dyn Disk>,
    /// Sequence number of the newest slot.
    sequence: u64,
    newest: Option<Seal>,
}

impl Record {
    /// Reads the record. An empty file has no slot yet; a file in which no slot verifies is
    /// damaged.
    pub(super) fn read(disk: Box<dyn Disk>) -> Result<Self, OpenError> {
        let unreadable = |source| OpenError::Io {
            path: "acknowledged".into(),
            source,
        };
        let len = disk.len().map_err(unreadable)?;
        let mut record = Record {
            disk,
            sequence: 0,
            newest: None,
        };
        if len == 0 {
            return Ok(record);
        }
        for slot in 0..2 {
            let mut bytes = [0; USED_BYTES];
            let offset = (slot * SLOT_BYTES) as u64;
            // A truncated file has the other slot, or none.
            if offset + USED_BYTES as u64 > len {
                continue;
            }
            record.disk.read(offset, &mut bytes).map_err(unreadable)?;
            if let Some((sequence, seal)) = decode(&bytes)
                && sequence > record.sequence
            {
                (record.sequence, record.newest) = (sequence, Some(seal));
            }
        }
        if record.newest.is_none() && !record.is_torn_first(len) {
            return Err(OpenError::Inconsistent(
                "acknowledged: neither of its two slots (offsets 0 and 4096) verifies".into(),
            ));
        }
        Ok(record)
    }

    /// Returns true for a file whose first flush never ended: bytes that were not written are zero.
    fn is_torn_first(&self, len: u64) -> bool {
        let mut bytes = vec![0; len.min(2 * SLOT_BYTES as u64) as usize];
        self.disk.read(0, &mut bytes).is_ok() && bytes.iter().all(|byte| *byte == 0)
    }

    /// Returns the newest seal in the record.
    pub(super) fn newest(&self) -> Option<Seal> {
        self.newest
    }

    /// Writes both slots at open, one after the other, so that one of them verifies at any moment.
    pub(super) fn reset(&mut self, seal: Seal) -> io::Result<()> {
        if self.disk.len()? != 2 * SLOT_BYTES as u64 {
            self.disk.set_len(2 * SLOT_BYTES as u64)?;
        }
        for _slot in 0..2 {
            self.put(seal)?;
            self.flush()?;
        }
        Ok(())
    }

    /// Records a commit that is on disk, before it is answered.
    pub(super) fn note(&mut self, seal: Seal) -> io::Result<()> {
        let first = self.newest.is_none_or(|newest| newest.revision == FIRST);
        self.put(seal)?;
        // The first one is flushed, since an empty record marks a store without data.
        if first { self.flush() } else { Ok(()) }
    }

    /// Flushes after every [`FLUSH_EVERY`] slots. Called when the answers are sent.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        if self.sequence.is_multiple_of(FLUSH_EVERY) {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Flushes the file.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.disk.sync()
    }

    fn put(&mut self, seal: Seal) -> io::Result<()> {
        self.sequence += 1;
        let offset = (self.sequence % 2) * SLOT_BYTES as u64;
        self.disk.write(offset, &encode(self.sequence, seal))?;
        self.newest = Some(seal);
        Ok(())
    }
}

fn encode(sequence: u64, seal: Seal) -> [u8; USED_BYTES] {
    let mut bytes = [0; USED_BYTES];
    bytes[..16].copy_from_slice(&MAGIC);
    bytes[16..24].copy_from_slice(&sequence.to_le_bytes());
    bytes[24..32].copy_from_slice(&seal.revision.0.to_le_bytes());
    bytes[32..48].copy_from_slice(&seal.sum.to_le_bytes());
    let checksum = short(&bytes[..48]);
    bytes[48..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; USED_BYTES]) -> Option<(u64, Seal)> {
    let number = |from: usize| Some(u64::from_le_bytes(*bytes.get(from..)?.first_chunk()?));
    if bytes[..16] != MAGIC || number(48)? != short(&bytes[..48]) {
        return None;
    }
    let seal = Seal {
        revision: Revision(number(24)?),
        sum: u128::from_le_bytes(*bytes[32..].first_chunk()?),
    };
    Some((number(16)?, seal))
}
