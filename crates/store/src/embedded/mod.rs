//! The durable engine in one file: redb written by one thread.
//!
//! ```text
//! commit ─┐                   ┌ decide each on MVCC + batch ┐
//! commit ─┼─ bounded queue ─▶ │ one redb transaction, fsync │ ─▶ MVCC ─▶ answers, in revision order
//! commit ─┘                   └ while the next batch forms ─┘
//! ```
//!
//! Nothing is shown or answered before it is on disk. All objects are in memory; the file is read at open only, and the
//! history from before it is not known: watches go on from the revision at open, older ones are gone. After a failed
//! write or fsync nobody knows what the disk holds: this process never writes again, and a restart reads the truth.

mod committer;
mod disk;
mod file;
mod lock;

use crate::{
    BoxFuture, CommitError, Cursor, Gone, Mvcc, Snapshot, SnapshotError, Store, Txn,
    embedded::{
        committer::{Job, Status},
        disk::Backend,
        file::ObjectFile,
        lock::DirLock,
    },
};
use insula_api::{Revision, Scope};
use parking_lot::Mutex;
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};
use tokio::sync::{mpsc, oneshot};

pub use disk::Disk;

/// What can be chosen.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the lock file describes this process besides its pid, e.g. `insula start, 127.0.0.1:6443, since 09:40`.
    pub holder: String,
    /// Memory for pages of the file. Small, because reads never come here.
    pub cache_bytes: usize,
    /// Transactions that wait to be written; further ones wait to be queued.
    pub queue: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            holder: String::new(),
            cache_bytes: 16 << 20,
            queue: 4096,
        }
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{} is in use by {holder}; stop it or choose another directory", .dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// What the lock file says.
        holder: String,
    },
    /// The file system said no.
    #[error("cannot use {}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// redb cannot read its file, or write it.
    #[error("the store's file is unusable: {0}")]
    File(String),
    /// Written by another version.
    #[error("the store has format {found}, this version reads {supported}")]
    Format {
        /// What the file says.
        found: u64,
        /// What can be read.
        supported: u64,
    },
    /// An object does not decode. Nothing is served from a store with holes.
    #[error("the stored object {key} is damaged: {reason}")]
    Damaged {
        /// Its key.
        key: String,
        /// What is wrong.
        reason: String,
    },
}

/// The contract on one disk.
pub struct EmbeddedStore {
    mvcc: Arc<Mvcc>,
    status: Arc<Status>,
    /// `None` only while it is dropped.
    jobs: Option<mpsc::Sender<Job>>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

impl EmbeddedStore {
    /// Opens the store in a directory, which is made (0700) if it is missing. Blocks while it reads all objects.
    pub fn open(dir: &Path, options: Options) -> Result<Self, OpenError> {
        let lock = DirLock::take(dir, &options.holder)?;
        let file = ObjectFile::open(dir, options.cache_bytes)?;
        Self::start(file, Some(lock), &options)
    }

    /// Opens the store on a disk of the caller's, which nobody else uses: for fault tests and the simulator.
    pub fn open_on(disk: impl Disk, options: Options) -> Result<Self, OpenError> {
        let file = ObjectFile::on(Backend(disk), options.cache_bytes)?;
        Self::start(file, None, &options)
    }

    fn start(file: ObjectFile, lock: Option<DirLock>, options: &Options) -> Result<Self, OpenError> {
        let (revision, entries) = file.load()?;
        let mvcc = Mvcc::load(revision, entries);
        let status = Arc::new(Status::default());
        let (jobs, queue) = mpsc::channel(options.queue.max(1));
        let spawned = {
            let (mvcc, status) = (mvcc.clone(), status.clone());
            // The one thread that a library starts: fsync blocks, and a batch must form while the last one is flushed,
            // whatever the caller's runtime is doing. It ends when the store is closed or dropped.
            std::thread::Builder::new().name("insula-commit".into()).spawn(move || {
                committer::run(&mvcc, &status, file, queue);
                drop(lock);
            })
        };
        let committer = spawned.map_err(|source| OpenError::Io {
            path: "thread insula-commit".into(),
            source,
        })?;
        Ok(EmbeddedStore {
            mvcc,
            status,
            jobs: Some(jobs),
            committer: Mutex::new(Some(committer)),
        })
    }

    async fn hand_over(&self, txn: Txn) -> Result<Revision, CommitError> {
        txn.check_size()?;
        self.status.check().map_err(CommitError::Unavailable)?;
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs.as_ref().expect("the queue is there until drop");
        if jobs.send(Job::Commit { txn, answer }).await.is_err() {
            return Err(CommitError::Unavailable(self.status.words()));
        }
        match answered.await {
            Ok(result) => result,
            Err(_) => Err(CommitError::Unknown(self.status.words())),
        }
    }

    fn join(&self) {
        if let Some(committer) = self.committer.lock().take() {
            // A panic over there has been seen: it marks the status.
            let _ = committer.join();
        }
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        // Waits for the last flush, so that whoever opens the directory next finds it free.
        self.jobs = None;
        self.join();
    }
}

impl Store for EmbeddedStore {
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>> {
        Box::pin(self.hand_over(txn))
    }

    fn snapshot(&self, at_least: Revision) -> BoxFuture<'_, Result<Snapshot, SnapshotError>> {
        Box::pin(async move {
            if self.mvcc.applied() < at_least {
                self.status.check().map_err(SnapshotError::Unavailable)?;
                self.mvcc.reached(at_least).await;
            }
            Ok(self.mvcc.latest())
        })
    }

    fn at(&self, exactly: Revision) -> Result<Snapshot, Gone> {
        self.mvcc.at(exactly)
    }

    fn latest(&self) -> Snapshot {
        self.mvcc.latest()
    }

    fn watch(&self, scope: Scope, after: Revision) -> Result<Cursor, Gone> {
        self.mvcc.watch(scope, after)
    }

    fn compact(&self, upto: Revision) -> BoxFuture<'_, Result<(), Gone>> {
        Box::pin(async move { self.mvcc.compact(upto) })
    }

    fn health(&self) -> Result<(), String> {
        self.status.check()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (closed, done) = oneshot::channel();
            let jobs = self.jobs.as_ref().expect("the queue is there until drop");
            // Either way it has stopped: an error says that it had before.
            if jobs.send(Job::Close { closed }).await.is_ok() {
                let _ = done.await;
            }
            self.join();
        })
    }
}
