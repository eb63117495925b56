//! Restore of a backup into a new store.

use super::{
    Options,
    file::{Loaded, ObjectFile},
    lock::DirLock,
    open_files, open_guarded,
};
use crate::Entry;
use insula_api::Revision;
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// Objects in one transaction while a store is filled.
const BATCH: usize = 1000;

/// A new store that is filled in a temporary directory, and renamed when it is whole: an
/// interrupted restore leaves nothing that a server would start on.
pub struct Restore {
    into: PathBuf,
    unfinished: PathBuf,
    file: ObjectFile,
    lock: DirLock,
    batch: Vec<Entry>,
}

/// Reason why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The directory is not empty.
    #[error("{} is not empty: restore into a new directory", .0.display())]
    NotEmpty(PathBuf),
    /// The backup is damaged.
    #[error(transparent)]
    Backup(#[from] crate::backup::BackupError),
    /// The new store cannot be written.
    #[error("cannot write the new store: {0}")]
    Write(String),
}

fn failed(error: impl std::fmt::Display) -> RestoreError {
    RestoreError::Write(error.to_string())
}

impl Restore {
    /// Begins a store below a data directory that is missing or empty.
    ///
    /// # Errors
    /// [`RestoreError::NotEmpty`] for a data directory in use, or a failure to create the store.
    pub fn begin(data_dir: &Path, name: &str) -> Result<Self, RestoreError> {
        if fs::read_dir(data_dir).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(RestoreError::NotEmpty(data_dir.to_owned()));
        }
        let unfinished = data_dir.join(format!("{name}.restoring"));
        super::lock::make_dir(data_dir).map_err(failed)?;
        let lock = DirLock::take(&unfinished, "insula backup restore").map_err(failed)?;
        // Without a reserve: a backup that does not fit is not restored.
        let options = Options::default();
        let disks = open_files(&unfinished, &options).map_err(failed)?;
        let Loaded { file, .. } = open_guarded(disks, options.cache_bytes).map_err(failed)?;
        Ok(Restore {
            into: data_dir.join(name),
            unfinished,
            file,
            lock,
            batch: Vec::new(),
        })
    }

    /// Adds an object.
    ///
    /// # Errors
    /// [`RestoreError::Write`] when the disk cannot be written.
    pub fn put(&mut self, entry: Entry) -> Result<(), RestoreError> {
        self.batch.push(entry);
        if self.batch.len() == BATCH {
            self.write(super::record::FIRST)?;
        }
        Ok(())
    }

    /// Ends the store at a revision, and renames it to its final name.
    ///
    /// # Errors
    /// [`RestoreError::Write`] when the disk cannot be written.
    pub fn finish(mut self, revision: Revision) -> Result<(), RestoreError> {
        self.write(revision)?;
        let Restore {
            into,
            unfinished,
            file,
            lock,
            ..
        } = self;
        drop(file);
        drop(lock);
        let moved = || -> io::Result<()> {
            File::open(&unfinished)?.sync_all()?;
            fs::rename(&unfinished, &into)?;
            File::open(into.parent().unwrap_or(Path::new(".")))?.sync_all()
        };
        moved().map_err(failed)
    }

    /// Removes an unfinished store.
    ///
    /// # Errors
    /// [`RestoreError::Write`] when its directory cannot be removed.
    pub fn abandon(self) -> Result<(), RestoreError> {
        let unfinished = self.unfinished.clone();
        drop(self);
        fs::remove_dir_all(unfinished).map_err(failed)
    }

    fn write(&mut self, revision: Revision) -> Result<(), RestoreError> {
        let batch = std::mem::take(&mut self.batch);
        self.file.fill(&batch, revision).map_err(failed)
    }
}
