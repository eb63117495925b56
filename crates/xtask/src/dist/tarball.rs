//! Tar archives whose bytes depend on names, modes and contents alone: the same release is the same
//! bytes on every machine.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// Owner of files in packages and in the root of an image.
pub(super) const ROOT: u64 = 0;

/// An archive in the making. Entries stand in the order in which they are added.
pub(super) struct Tarball {
    builder: Builder<Vec<u8>>,
    /// Time of all entries, in seconds since 1970.
    seconds: u64,
}

impl Tarball {
    pub(super) fn new(seconds: u64) -> Self {
        Self {
            builder: Builder::new(Vec::new()),
            seconds,
        }
    }

    /// Adds a file.
    pub(super) fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        let mut header = self.header(EntryType::Regular, mode, ROOT);
        header.set_size(bytes.len() as u64);
        let added = self.builder.append_data(&mut header, path, bytes);
        added.with_context(|| format!("cannot archive {path}"))
    }

    /// Adds a folder. Its path ends with a slash.
    pub(super) fn folder(&mut self, path: &str, mode: u32, owner: u64) -> Result<()> {
        let mut header = self.header(EntryType::Directory, mode, owner);
        let added = self.builder.append_data(&mut header, path, io::empty());
        added.with_context(|| format!("cannot archive {path}"))
    }

    /// Adds a folder of the disk with all below it under another path, by name. Files that their
    /// owner may execute are executable by all.
    pub(super) fn tree(&mut self, from: &Path, to: &str) -> Result<()> {
        self.folder(&format!("{to}/"), 0o755, ROOT)?;
        let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        paths.sort_unstable();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let to = format!("{to}/{name}");
            match path.is_dir() {
                true => self.tree(&path, &to)?,
                false => self.file(&to, mode(&path)?, &read(&path)?)?,
            }
        }
        Ok(())
    }

    /// Returns the archive.
    pub(super) fn finish(self) -> Result<Vec<u8>> {
        Ok(self.builder.into_inner()?)
    }

    fn header(&self, kind: EntryType, mode: u32, owner: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(owner);
        header.set_gid(owner);
        header.set_mtime(self.seconds);
        header.set_size(0);
        header
    }
}

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(unix)]
fn mode(path: &Path) -> Result<u32> {
    use std::os::unix::fs::PermissionsExt;

    let mode = fs::metadata(path)?.permissions().mode();
    Ok(if mode & 0o100 == 0 { 0o644 } else { 0o755 })
}

#[cfg(not(unix))]
fn mode(_: &Path) -> Result<u32> {
    Ok(0o644)
}

/// Compresses bytes. The result has no name and no time.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}
