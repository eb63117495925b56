//! Log file with rotation: it is renamed when it is large, and old files are removed when they are
//! too many or too old.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use insula_api::Timestamp;

const OWNER_ONLY: u32 = 0o600;
const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
const BYTES_PER_MEGABYTE: u64 = 1 << 20;

/// Limits of a rotated file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keep {
    /// Bytes of one file.
    pub(super) bytes: u64,
    /// Number of old files.
    pub(super) backups: usize,
    /// Age of an old file; 0 for no limit.
    pub(super) age: Duration,
}

impl Keep {
    pub(super) fn new(megabytes: u64, backups: usize, days: u64) -> Self {
        Keep {
            bytes: megabytes.saturating_mul(BYTES_PER_MEGABYTE),
            backups,
            age: Duration::from_secs(days.saturating_mul(SECONDS_PER_DAY)),
        }
    }
}

/// The open file and its limits.
pub(super) struct Rotated {
    path: PathBuf,
    keep: Keep,
    file: File,
    length: u64,
}

impl Rotated {
    pub(super) fn open(path: PathBuf, keep: Keep) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(OWNER_ONLY)
            .open(&path)?;
        let length = file.metadata()?.len();
        Ok(Rotated {
            path,
            keep,
            file,
            length,
        })
    }

    /// Writes whole lines. After a failure the file has its previous length.
    pub(super) fn write(&mut self, lines: &[u8], now: Timestamp) -> io::Result<()> {
        let written = lines.len() as u64;
        if self.length > 0 && self.length + written > self.keep.bytes {
            self.rotate(now)?;
        }
        if let Err(error) = self.file.write_all(lines) {
            // Half a line would corrupt the next one. If this fails, too, nothing else helps.
            drop(self.file.set_len(self.length));
            return Err(error);
        }
        self.length += written;
        Ok(())
    }

    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        let (path, keep) = (self.path.clone(), self.keep);
        // A number distinguishes several files of one second.
        let backup = (0..).map(|n| backup(&path, now, n)).find(|backup| !backup.exists());
        fs::rename(&path, backup.unwrap_or_else(|| path.clone()))?;
        *self = Rotated::open(path, keep)?;
        self.forget()
    }

    /// Removes old files that are too many or too old.
    fn forget(&self) -> io::Result<()> {
        let backups = backups(&self.path)?;
        let many = backups.len().saturating_sub(self.keep.backups);
        for (index, path) in backups.iter().enumerate() {
            if index < many || self.is_old(path)? {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn is_old(&self, path: &Path) -> io::Result<bool> {
        if self.keep.age.is_zero() {
            return Ok(false);
        }
        let age = SystemTime::now().duration_since(fs::metadata(path)?.modified()?);
        Ok(age.is_ok_and(|age| age > self.keep.age))
    }
}

/// Returns the rotated files of a log, the oldest first.
pub(super) fn backups(path: &Path) -> io::Result<Vec<PathBuf>> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let (stem, extension) = parts(path);
    let mut backups = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A date begins with a digit: `audit-notes.log` is not a rotated file.
        let dated = name
            .strip_prefix(&format!("{stem}-"))
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if dated.is_some_and(|rest| rest.ends_with(&extension)) {
            backups.push(path);
        }
    }
    // Names sort as their dates do.
    backups.sort_unstable();
    Ok(backups)
}

/// Splits a file name: `audit.log` is `audit` and `.log`.
fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let extension = text(path.extension());
    let dot = if extension.is_empty() { "" } else { "." };
    (text(path.file_stem()), format!("{dot}{extension}"))
}

/// Returns the name of a rotated file, as Kubernetes' rotation writes it:
/// `audit-2026-11-21T09-40-00.000.log`.
fn backup(path: &Path, now: Timestamp, n: usize) -> PathBuf {
    let (stem, extension) = parts(path);
    let date = now.to_string().trim_end_matches('Z').replace(':', "-");
    path.with_file_name(format!("{stem}-{date}.{n:03}{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn large_files_are_renamed_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        fs::write(dir.path().join("audit-notes.log"), "mine").unwrap();
        let keep = Keep {
            bytes: 10,
            backups: 2,
            age: Duration::ZERO,
        };
        let mut file = Rotated::open(path.clone(), keep).unwrap();
        let now = Timestamp(1_700_000_000);
        for line in ["first\n", "second\n", "third\n", "fourth\n"] {
            file.write(line.as_bytes(), now).unwrap();
        }
        let want = [
            "audit-2023-11-14T22-13-20.001.log",
            "audit-2023-11-14T22-13-20.002.log",
            "audit-notes.log",
            "audit.log",
        ];
        assert_eq!(names(dir.path()), want);
        assert_eq!(fs::read_to_string(&path).unwrap(), "fourth\n");
        let mut again = Rotated::open(path.clone(), keep).unwrap();
        again.write(b"5\n", now).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "fourth\n5\n",
            "what is there is kept"
        );
    }
}
