//! The disk as a trait, so that tests and the simulator can tear writes, fail flushes and flip
//! bits.

use super::reserve::{Reserve, is_full};
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

/// A disk: bytes that survive once they are synced. One thread at a time writes.
pub trait Disk: Send + Sync + 'static {
    /// Returns the length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Returns true if the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills the buffer from an offset.
    ///
    /// # Errors
    /// Fails if the disk ends before the buffer is full.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes at an offset below the length. Until the next sync the write may be lost, whole or in
    /// part.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Extends the disk with zeros, or truncates it.
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

/// A file whose blocks are allocated as soon as it grows: the reserve.
pub(super) struct AllocatedFile(pub(super) FileDisk);

impl Disk for AllocatedFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let before = self.len()?;
        if len <= before {
            return self.0.set_len(len);
        }
        let FileDisk(file) = &self.0;
        // Checked first, since an allocation that fails may have taken all free space.
        let space = rustix::fs::fstatvfs(file)?;
        if space.f_bavail.saturating_mul(space.f_frsize) < len - before {
            return Err(io::ErrorKind::StorageFull.into());
        }
        allocate(file, before, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

#[cfg(target_os = "linux")]
fn allocate(file: &File, from: u64, to: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), from, to - from) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => write_zeros(file, from, to),
        other => Ok(other?),
    }
}

#[cfg(not(target_os = "linux"))]
fn allocate(file: &File, from: u64, to: u64) -> io::Result<()> {
    write_zeros(file, from, to)
}

fn write_zeros(file: &File, mut from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    while from < to {
        let part = (to - from).min(zeros.len() as u64);
        file.write_all_at(&zeros[..part as usize], from)?;
        from += part;
    }
    file.sync_data()
}

/// The disk under redb, shared with the code that opened it.
pub(super) struct Shared {
    disk: Box<dyn Disk>,
    reserve: Arc<Reserve>,
    /// Set before redb closes. redb verifies a file that was not closed cleanly when it opens it;
    /// after a clean end the next start would trust pages that nobody has verified.
    sealed: AtomicBool,
    last_read: AtomicU64,
}

impl Shared {
    pub(super) fn new(disk: Box<dyn Disk>, reserve: Arc<Reserve>) -> Arc<Self> {
        Arc::new(Shared {
            disk,
            reserve,
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
        self.0.writable()?.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.with_reserve(|disk| disk.write(offset, data))
    }
}
