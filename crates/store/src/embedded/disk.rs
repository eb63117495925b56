//! The disk as a trait, so that tests and the simulator can tear writes, fail flushes and flip
//! bits.

use std::{fs::File, io, os::unix::fs::FileExt};

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
