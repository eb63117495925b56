//! The disk as a trait, so that tests and the simulator can tear writes and fail flushes. The real engine uses redb's own
//! file access.

use std::{fmt, io};

/// Bytes that survive when they were synced. Called by one thread at a time for writing.
pub trait Disk: Send + Sync + 'static {
    /// How many bytes there are.
    fn len(&self) -> io::Result<u64>;

    /// Whether there are none.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills the buffer from an offset; all of it must exist.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes at an offset below the length. May be lost, whole or in part, until the next sync.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Grows with zeros, or cuts.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes all writes so far durable.
    fn sync(&self) -> io::Result<()>;
}

/// What redb sees.
pub(super) struct Backend<D>(pub(super) D);

impl<D> fmt::Debug for Backend<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Backend")
    }
}

impl<D: Disk> redb::StorageBackend for Backend<D> {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}
