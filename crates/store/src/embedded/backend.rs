//! The disk under redb: sealed at the end, with a reserve of space for a full disk.

use super::{
    disk::Disk,
    reserve::{Reserve, is_full},
};
use crate::FileMeasures;
use insula_api::{
    Clock,
    measure::{Histogram, SECONDS},
};
use std::{
    fmt, io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The disk under redb, shared with the code that opened it.
pub(super) struct Shared {
    disk: Box<dyn Disk>,
    reserve: Arc<Reserve>,
    /// Set before redb closes. redb verifies a file that was not closed cleanly when it opens it;
    /// after a clean end the next start would trust pages that nobody has verified.
    sealed: AtomicBool,
    last_read: AtomicU64,
    /// Clock that times flushes, if the owner of the store has given one.
    clock: OnceLock<Arc<dyn Clock>>,
    syncs: Histogram,
}

impl Shared {
    pub(super) fn new(disk: Box<dyn Disk>, reserve: Arc<Reserve>) -> Arc<Self> {
        Arc::new(Shared {
            disk,
            reserve,
            sealed: AtomicBool::new(false),
            last_read: AtomicU64::new(0),
            clock: OnceLock::new(),
            syncs: Histogram::new(SECONDS),
        })
    }

    /// Times the flushes from now on.
    pub(super) fn time_syncs(&self, clock: Arc<dyn Clock>) {
        drop(self.clock.set(clock));
    }

    /// Returns the measures of the file.
    pub(super) fn measures(&self) -> FileMeasures {
        FileMeasures {
            bytes: self.disk.len().unwrap_or_default(),
            syncs: self.syncs.read(),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let disk = self.writable()?;
        let Some(clock) = self.clock.get() else {
            return disk.sync();
        };
        let begun = clock.monotonic_micros();
        let synced = disk.sync();
        self.syncs.observe_micros(begun, clock.monotonic_micros());
        synced
    }

    pub(super) fn is_empty(&self) -> io::Result<bool> {
        self.disk.is_empty()
    }

    /// Ends all writing.
    pub(super) fn seal(&self) {
        self.sealed.store(true, Ordering::Relaxed);
    }

    /// Returns the offset of the latest read in bytes. Pages are verified as they are read, so that
    /// after a failure it is the offset of the damaged page.
    pub(super) fn last_read(&self) -> u64 {
        self.last_read.load(Ordering::Relaxed)
    }

    pub(super) fn reserve(&self) -> &Arc<Reserve> {
        &self.reserve
    }

    fn writable(&self) -> io::Result<&dyn Disk> {
        if self.sealed.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok(&*self.disk)
    }

    /// Writes, and releases a part of the reserve when there is no space. Retries only a refused
    /// write, never a flush.
    fn with_reserve(&self, write: impl Fn(&dyn Disk) -> io::Result<()>) -> io::Result<()> {
        let disk = self.writable()?;
        loop {
            match write(disk) {
                Err(error) if is_full(&error) && self.reserve.give() => {}
                done => return done,
            }
        }
    }
}

/// The disk as redb uses it.
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
        self.0.with_reserve(|disk| disk.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.with_reserve(|disk| disk.write(offset, data))
    }
}
