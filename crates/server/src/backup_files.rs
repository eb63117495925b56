//! The directory of backups that the server takes for `BackupService`.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use insula_admin::{
    backups::is_name,
    host::{BackupFile, BackupFiles, NewBackup},
};
use insula_store::backup::peek;

use crate::config::{BackupConfig, Config};

/// Ending of complete backups, and of those that are being written.
const ENDING: &str = ".backup";
const PARTIAL: &str = ".partial";
/// Ending of backups that a client is sending.
const UPLOAD: &str = ".upload";

/// A directory of backups, with its limits.
pub(crate) struct Directory {
    path: PathBuf,
    /// Backups at most.
    count_max: usize,
    /// Bytes of all backups at most.
    bytes_max: u64,
}

impl Directory {
    /// Returns the directory of the configuration. It is created with the first backup.
    pub(crate) fn new(config: &Config) -> Self {
        let BackupConfig {
            directory,
            max_backups,
            max_megabytes,
        } = &config.backup;
        Directory {
            path: directory.clone().unwrap_or_else(|| config.data_dir.join("backups")),
            count_max: *max_backups,
            bytes_max: max_megabytes.saturating_mul(1 << 20),
        }
    }

    fn file(&self, name: &str) -> io::Result<PathBuf> {
        // Names come from callers, and must not lead out of the directory.
        match is_name(name) {
            true => Ok(self.path.join(format!("{name}{ENDING}"))),
            false => Err(io::ErrorKind::InvalidFilename.into()),
        }
    }

    /// Removes what clients have sent to a process that was killed.
    ///
    /// # Errors
    /// The directory cannot be read, or a file cannot be deleted.
    pub(crate) fn remove_uploads(&self) -> io::Result<()> {
        self.remove(UPLOAD)
    }

    fn remove(&self, ending: &str) -> io::Result<()> {
        for (name, _) in self.names(ending)? {
            fs::remove_file(self.path.join(format!("{name}{ending}")))?;
        }
        Ok(())
    }

    /// Creates a file for a backup that is being written or received, of at least some bytes.
    fn begin(&self, name: &str, ending: &str, wanted: u64) -> io::Result<Box<dyn NewBackup>> {
        let file = self.file(name)?;
        let mut directory = fs::DirBuilder::new();
        directory.recursive(true).mode(0o700).create(&self.path)?;
        // One backup is written and one received at a time: others of the kind are of runs that
        // ended.
        self.remove(ending)?;
        let known = self.names(ENDING)?;
        let begun = self.names(if ending == UPLOAD { PARTIAL } else { UPLOAD })?;
        let bytes: u64 = known.iter().chain(&begun).map(|(_, bytes)| bytes).sum();
        let is_full = bytes >= self.bytes_max || wanted > self.bytes_max - bytes;
        if known.len() + begun.len() >= self.count_max || is_full {
            let text = format!(
                "it holds {} backups of {} MiB, and at most {} of {} MiB (backup.maxBackups, backup.maxMegabytes): \
                 delete one",
                known.len(),
                bytes >> 20,
                self.count_max,
                self.bytes_max >> 20
            );
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        let partial = self.path.join(format!("{name}{ending}"));
        let mut options = OpenOptions::new();
        let opened = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&partial)?;
        Ok(Box::new(Partial {
            opened,
            partial,
            file,
            left: match ending {
                UPLOAD => wanted,
                _ => self.bytes_max - bytes,
            },
            is_finished: false,
        }))
    }

    /// Returns the names and sizes of the files with an ending.
    fn names(&self, ending: &str) -> io::Result<Vec<(String, u64)>> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().into_string().unwrap_or_default();
            if let Some(name) = name.strip_suffix(ending).filter(|name| is_name(name)) {
                found.push((name.to_owned(), entry.metadata()?.len()));
            }
        }
        Ok(found)
    }
}

impl BackupFiles for Directory {
    fn list(&self) -> io::Result<Vec<BackupFile>> {
        let files = self.names(ENDING)?.into_iter().filter_map(|(name, bytes)| {
            let opened = File::open(self.path.join(format!("{name}{ENDING}")));
            // A file that is no backup, or is just being deleted, is not listed.
            let summary = opened.ok().and_then(|file| peek(io::BufReader::new(file)).ok())?;
            Some(BackupFile { name, bytes, summary })
        });
        Ok(files.collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn NewBackup>> {
        self.begin(name, PARTIAL, 0)
    }

    fn receive(&self, name: &str, bytes: u64) -> io::Result<Box<dyn NewBackup>> {
        self.begin(name, UPLOAD, bytes)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self.file(name)?)?))
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.file(name)?)?;
        sync(&self.path)
    }

    fn path(&self, name: &str) -> String {
        self.path.join(format!("{name}{ENDING}")).display().to_string()
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// A backup that is being written.
struct Partial {
    opened: File,
    partial: PathBuf,
    file: PathBuf,
    /// Bytes that may still be written.
    left: u64,
    is_finished: bool,
}

impl Write for Partial {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(|| {
            let text = "the backup does not fit backup.maxMegabytes: delete others, or raise the limit";
            io::Error::new(io::ErrorKind::QuotaExceeded, text)
        })?;
        self.opened.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.opened.flush()
    }
}

impl NewBackup for Partial {
    fn read_back(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(&self.partial)?))
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.opened.sync_all()?;
        fs::rename(&self.partial, &self.file)?;
        self.is_finished = true;
        sync(self.file.parent().unwrap_or(Path::new(".")))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_finished {
            // The next backup removes what stays.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_limits_and_shows_complete_backups_only() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory {
            path: dir.path().join("backups"),
            count_max: 1,
            bytes_max: 200,
        };
        assert!(directory.list().unwrap().is_empty());
        drop(directory.create("a").unwrap());
        assert_eq!(directory.names(PARTIAL).unwrap(), []);
        let mut large = directory.create("a").unwrap();
        assert_eq!(
            large.write_all(&[0; 201]).unwrap_err().kind(),
            io::ErrorKind::QuotaExceeded
        );
        drop(large);
        let mut one = directory.create("a").unwrap();
        one.write_all(b"no backup").unwrap();
        one.finish().unwrap();
        assert!(directory.list().unwrap().is_empty(), "not a backup");
        let full = directory.create("b").err().unwrap();
        assert_eq!(full.kind(), io::ErrorKind::QuotaExceeded, "{full}");
        for name in ["../a", "", "A", "a/b", "a.b"] {
            assert!(directory.open(name).is_err(), "{name}");
        }
        directory.delete("a").unwrap();
        drop(directory.create("b").unwrap());
    }
}
