//! The disk as a trait, so that tests and the simulator can tear writes, fail flushes and flip
//! bits.

use std::{
    fmt,
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

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

/// A file of the file system.
pub(super) struct FileDisk(pub(super) File);

impl Disk for FileDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// The disk under redb, shared with whoever opened it.
pub(super) struct Shared {
    disk: Box<dyn Disk>,
    /// Set before redb closes. A file that was never closed cleanly is verified whole when it is
    /// opened; a clean end would let the next start trust pages that nobody has looked at.
    sealed: AtomicBool,
    last_read: AtomicU64,
}

impl Shared {
    pub(super) fn new(disk: Box<dyn Disk>) -> Arc<Self> {
        Arc::new(Shared {
            disk,
            sealed: AtomicBool::new(false),
            last_read: AtomicU64::new(0),
        })
    }

    pub(super) fn is_empty(&self) -> io::Result<bool> {
        self.disk.is_empty()
    }

    /// Ends all writing.
    pub(super) fn seal(&self) {
        self.sealed.store(true, Ordering::Relaxed);
    }

    /// The offset of the latest read. Pages are verified as they are read, so it is that of the
    /// page that failed.
    pub(super) fn last_read(&self) -> u64 {
        self.last_read.load(Ordering::Relaxed)
    }

    fn writable(&self) -> io::Result<&dyn Disk> {
        if self.sealed.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok(&*self.disk)
    }
}

/// What redb sees.
pub(super) struct Backend(pub(super) Arc<Shared>);

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Backend")
    }
}

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.disk.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.last_read.store(offset, Ordering::Relaxed);
        self.0.disk.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.writable()?.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.writable()?.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.writable()?.write(offset, data)
    }
}
