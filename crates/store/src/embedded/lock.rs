//! Exclusive lock on the directory of a store: a locked file that describes its holder. The kernel
//! releases the lock with the process, so that the file of a killed process, or a reused pid,
//! blocks nobody.

use super::OpenError;
use std::{
    fs::{self, File, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
};

/// The lock, held from open until the last flush.
pub(super) struct DirLock {
    _file: File,
}

/// Maximum number of bytes that are read of a lock file.
const HOLDER_BYTES_MAX: u64 = 512;

impl DirLock {
    pub(super) fn take(dir: &Path, holder: &str) -> Result<Self, OpenError> {
        make_dir(dir).map_err(|source| OpenError::Io {
            path: dir.into(),
            source,
        })?;
        let path = dir.join("lock");
        let failed = |source| OpenError::Io {
            path: path.clone(),
            source,
        };
        let mut file = private_file(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The text is for people only; an unreadable file must not hide that it is locked.
                let _ = (&file).take(HOLDER_BYTES_MAX).read_to_string(&mut text);
                let holder = if text.trim().is_empty() {
                    "another process".into()
                } else {
                    text.trim().to_owned()
                };
                return Err(OpenError::InUse {
                    dir: dir.into(),
                    holder,
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let mut text = format!("pid {}", std::process::id());
        if !holder.is_empty() {
            text = format!("{text} ({holder})");
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        Ok(DirLock { _file: file })
    }
}

/// Opens or creates a file that only its owner can read.
pub(super) fn private_file(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Creates a directory that only its owner can enter.
pub(super) fn make_dir(dir: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}
