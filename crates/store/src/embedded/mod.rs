//! The durable engine in one file: redb written by one thread.
//!
//! ```text
//! commit ─┐                   ┌ decide each on MVCC + batch ┐
//! commit ─┼─ bounded queue ─▶ │ one redb transaction, fsync │ ─▶ MVCC ─▶ answers, in revision order
//! commit ─┘                   └ while the next batch forms ─┘
//! ```
//!
//! Nothing is shown or answered before it is on disk. All objects are in memory; the file is read
//! at open only, and the history from before it is not known: watches go on from the revision at
//! open, older ones are gone. After a failed write or fsync nobody knows what the disk holds: this
//! process never writes again, and a restart reads the truth.

pub(crate) mod checksum;
mod committer;
mod disk;
mod file;
mod lock;
mod record;
mod reserve;
mod restore;

use crate::{
    BoxFuture, CommitError, Cursor, Gone, Mvcc, Snapshot, SnapshotError, Store, Txn,
    embedded::{
        committer::{Job, Status},
        disk::{AllocatedFile, FileDisk},
        file::{Disks, Loaded, ObjectFile},
        lock::{DirLock, private_file},
        reserve::Reserve,
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
pub use restore::{Restore, RestoreError};

/// What can be chosen.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the lock file describes this process besides its pid, e.g.
    /// `insula start, 127.0.0.1:6443, since 09:40`.
    pub holder: String,
    /// Memory for pages of the file. Small, because reads never come here.
    pub cache_bytes: usize,
    /// Transactions that wait to be written; further ones wait to be queued.
    pub queue: usize,
    /// Bytes of disk that are kept for the time when it is full, so that deletions are still taken.
    /// 0 for none.
    pub reserve_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            holder: String::new(),
            cache_bytes: 16 << 20,
            queue: 4096,
            reserve_bytes: 0,
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
    #[error("the store's file is unusable: {0}. {RESTORE}")]
    File(String),
    /// Written by another version.
    #[error("the store has format {found}, this version reads {supported}")]
    Format {
        /// What the file says.
        found: u64,
        /// What can be read.
        supported: u64,
    },
    /// An object does not verify or decode. Nothing is served from a store with holes.
    #[error("the stored object {key} is damaged: {reason}. {RESTORE}")]
    Damaged {
        /// Its key.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// Writes that were acknowledged are not there.
    #[error("objects.redb {}, but revision {acknowledged} was acknowledged. {RESTORE}", found_words(*.found))]
    Lost {
        /// The newest revision that verifies.
        found: Option<Revision>,
        /// The newest revision on record.
        acknowledged: Revision,
    },
    /// Every object may verify, but together they are not what was acknowledged.
    #[error("the store is damaged: {0}. {RESTORE}")]
    Inconsistent(String),
}

/// Advice against damage.
const RESTORE: &str = "Nothing of it is served; restore a backup (insula backup restore)";

fn found_words(found: Option<Revision>) -> String {
    found.map_or_else(
        || "is missing or empty".to_owned(),
        |found| format!("ends at revision {found}"),
    )
}

impl OpenError {
    fn lost(found: Option<Revision>, acknowledged: Revision) -> Self {
        OpenError::Lost { found, acknowledged }
    }
}

/// The contract on one disk.
pub struct EmbeddedStore {
    mvcc: Arc<Mvcc>,
    status: Arc<Status>,
    /// `None` only while it is dropped.
    jobs: Option<mpsc::Sender<Job>>,
    committer: Mutex<Option<JoinHandle<()>>>,
    upgraded_from: Option<u64>,
    reserve: Arc<Reserve>,
}

/// Opens the record and the objects of a directory. The record is made first, so that objects
/// without one are either of an older format or have lost it.
fn open_files(dir: &Path, reserve_bytes: u64) -> Result<Disks, OpenError> {
    let open = |name: &str| {
        let path = dir.join(name);
        let opened = private_file(&path).and_then(|file| {
            // A file that is not in its directory after a power cut is a lost store, however well
            // its bytes were synced.
            std::fs::File::open(dir)?.sync_all()?;
            Ok(file)
        });
        opened.map_err(|source| OpenError::Io { path, source })
    };
    let emptied = |name: &str| std::fs::metadata(dir.join(name)).is_ok_and(|file| file.len() == 0);
    if emptied("objects.redb") && !dir.join("acknowledged").exists() {
        return Err(OpenError::Inconsistent(
            "objects.redb is empty, and no record says that it always was; if nothing was ever stored, remove it"
                .into(),
        ));
    }
    Ok(Disks {
        reserve: open_reserve(Box::new(AllocatedFile(FileDisk(open("reserve")?))), reserve_bytes)?,
        record: Box::new(FileDisk(open("acknowledged")?)),
        objects: Box::new(FileDisk(open("objects.redb")?)),
    })
}

fn open_reserve(disk: Box<dyn Disk>, bytes: u64) -> Result<Arc<Reserve>, OpenError> {
    let reserve = Reserve::new(disk, bytes).map_err(|source| OpenError::Io {
        path: "reserve".into(),
        source,
    });
    Ok(Arc::new(reserve?))
}

/// Opens and verifies. redb may panic on bytes that it did not write; that is damage like any
/// other.
fn open_guarded(disks: Disks, cache_bytes: usize) -> Result<Loaded, OpenError> {
    let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ObjectFile::open(disks, cache_bytes)));
    opened.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(OpenError::File(format!(
            "objects.redb, which its engine failed to read: {}",
            text.unwrap_or_default()
        )))
    })
}

impl EmbeddedStore {
    /// Opens the store in a directory, which is made (0700) if it is missing. Blocks while it reads
    /// all objects.
    pub fn open(dir: &Path, options: Options) -> Result<Self, OpenError> {
        let lock = DirLock::take(dir, &options.holder)?;
        let disks = open_files(dir, options.reserve_bytes)?;
        let loaded = open_guarded(disks, options.cache_bytes)?;
        Self::start(loaded, Some(lock), &options)
    }

    /// Opens the store on disks of the caller's, which nobody else uses: for fault tests and the
    /// simulator. The third one is for the reserve; its length is space that the others cannot
    /// have.
    pub fn open_on([objects, record, reserve]: [Box<dyn Disk>; 3], options: Options) -> Result<Self, OpenError> {
        let disks = Disks {
            objects,
            record,
            reserve: open_reserve(reserve, options.reserve_bytes)?,
        };
        let loaded = open_guarded(disks, options.cache_bytes)?;
        Self::start(loaded, None, &options)
    }

    /// The older format that the store had when it was opened, if it was upgraded.
    pub fn upgraded_from(&self) -> Option<u64> {
        self.upgraded_from
    }

    fn start(loaded: Loaded, lock: Option<DirLock>, options: &Options) -> Result<Self, OpenError> {
        let Loaded {
            file,
            revision,
            entries,
            upgraded_from,
        } = loaded;
        let mvcc = Mvcc::load(revision, entries);
        let reserve = file.reserve().clone();
        let status = Arc::new(Status::default());
        let (jobs, queue) = mpsc::channel(options.queue.max(1));
        let spawned = {
            let (mvcc, status) = (mvcc.clone(), status.clone());
            // The one thread that a library starts: fsync blocks, and a batch must form while the
            // last one is flushed, whatever the caller's runtime is doing. It ends when the store
            // is closed or dropped.
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
            upgraded_from,
            reserve,
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

    fn alarm(&self) -> Option<String> {
        self.reserve.alarm()
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
