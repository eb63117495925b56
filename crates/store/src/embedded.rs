//! The durable engine on one file: a redb database that one thread writes.
//!
//! ```text
//! commit ─┐                   ┌ decide each on MVCC + batch ┐
//! commit ─┼─ bounded queue ─▶ │ one redb transaction, fsync │ ─▶ MVCC ─▶ answers, by revision
//! commit ─┘                   └ while the next batch forms ─┘
//! ```
//!
//! No commit is visible or acknowledged before it is on disk. All objects are in memory. The files
//! are read at open only, with the newest history (see `tail.rs`): watches from there go on, older
//! ones are gone. After a failed write or fsync the contents of the disk are uncertain: this
//! process never writes again, and a restart reads what the disk holds.

mod backend;
pub(crate) mod checksum;
mod committer;
mod disk;
mod file;
mod lock;
mod record;
mod reserve;
mod restore;
mod tail;

use crate::{
    BoxFuture, CommitError, Cursor, Entry, Gone, Measures, Mvcc, Pinned, Sharing, SnapshotError, Store, Txn,
    embedded::{
        backend::Shared,
        committer::{Job, Status},
        disk::{AllocatedFile, FileDisk},
        file::{Disks, Loaded, ObjectFile},
        lock::{DirLock, private_file},
        reserve::Reserve,
        tail::Tail,
    },
    plan::{Step, undo},
};
use insula_api::{Clock, Revision, Scope};
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

/// Options of the embedded store.
#[derive(Clone)]
pub struct Options {
    /// Description of this process in the lock file, besides its pid, e.g.
    /// `insula start, 127.0.0.1:6443, since 09:40`.
    pub holder: String,
    /// Bytes of memory for pages of the file. Small, because reads of objects never use the file.
    pub cache_bytes: usize,
    /// Transactions that are queued for writing at most; further ones wait for a place in the
    /// queue.
    pub queue: usize,
    /// Bytes of disk space that are reserved for a full disk, so that deletions are still taken. 0
    /// for none.
    pub reserve_bytes: u64,
    /// Bytes of disk space of a new file for the newest history. 0 for none.
    pub history_bytes: u64,
    /// Clock that times flushes, for metrics. Without one they are not timed.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            holder: String::new(),
            cache_bytes: 16 << 20,
            queue: 4096,
            reserve_bytes: 0,
            history_bytes: 64 << 20,
            clock: None,
        }
    }
}

/// Reason why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses the directory.
    #[error("{} is in use by {holder}; stop it or choose another directory", .dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// Description of that process, from the lock file.
        holder: String,
    },
    /// A file or directory cannot be used.
    #[error("cannot use {}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// redb can neither read nor write its file.
    #[error("the store's file is unusable: {0}. {RESTORE}")]
    File(String),
    /// The store was written in another format.
    #[error("the store has format {found}, this version reads {supported}")]
    Format {
        /// Format of the file.
        found: u64,
        /// Format that this version reads.
        supported: u64,
    },
    /// An object does not verify or decode. A store with holes is not served.
    #[error("the stored object {key} is damaged: {reason}. {RESTORE}")]
    Damaged {
        /// Key of the object.
        key: String,
        /// Description of the damage.
        reason: String,
    },
    /// Acknowledged writes are missing.
    #[error("objects.redb {}, but revision {acknowledged} was acknowledged. {RESTORE}", describe_found(*.found))]
    Lost {
        /// The newest revision that verifies.
        found: Option<Revision>,
        /// The newest revision on record.
        acknowledged: Revision,
    },
    /// Each object may verify, but together they are not the acknowledged state.
    #[error("the store is damaged: {0}. {RESTORE}")]
    Inconsistent(String),
}

/// Commits of the history on disk that are applied at once.
const COMMITS_AT_ONCE: usize = 1000;

/// Advice against damage.
const RESTORE: &str = "Nothing of it is served; restore a backup (insula backup restore)";

fn describe_found(found: Option<Revision>) -> String {
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

/// A durable store on one disk.
pub struct EmbeddedStore {
    mvcc: Arc<Mvcc>,
    status: Arc<Status>,
    /// `None` only while it is dropped.
    jobs: Option<mpsc::Sender<Job>>,
    committer: Mutex<Option<JoinHandle<()>>>,
    upgraded_from: Option<u64>,
    reserve: Arc<Reserve>,
    file: Arc<Shared>,
}

/// Opens the record and the objects of a directory. The record is made first, so that objects
/// without one are either of an older format or have lost it.
fn open_files(dir: &Path, options: &Options) -> Result<Disks, OpenError> {
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
        reserve: open_reserve(
            Box::new(AllocatedFile(FileDisk(open("reserve")?))),
            options.reserve_bytes,
        )?,
        history: Tail::new(Box::new(FileDisk(open("history")?)), options.history_bytes),
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

/// Opens and verifies the files. redb may panic on bytes that it did not write; such a panic counts
/// as damage.
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

/// Returns the state of objects with the history of the last commits.
fn with_history(revision: Revision, entries: Vec<Entry>, steps: Vec<Step>) -> Arc<Mvcc> {
    match undo(entries, &steps) {
        Ok((before, commits)) => {
            let begin = commits.first().map_or(revision, |first| Revision(first.revision.0 - 1));
            let mvcc = Mvcc::load(begin, before);
            let mut commits = commits.into_iter().peekable();
            while commits.peek().is_some() {
                mvcc.apply(commits.by_ref().take(COMMITS_AT_ONCE).collect());
            }
            mvcc
        }
        // Without the history; watches from before list again.
        Err(entries) => Mvcc::load(revision, entries),
    }
}

impl EmbeddedStore {
    /// Opens the store in a directory, which is created (mode 0700) if it is missing. Blocks while
    /// it reads all objects.
    ///
    /// # Errors
    /// [`OpenError`] when the directory is in use, unreadable or damaged.
    pub fn open(dir: &Path, options: Options) -> Result<Self, OpenError> {
        let lock = DirLock::take(dir, &options.holder)?;
        let disks = open_files(dir, &options)?;
        let loaded = open_guarded(disks, options.cache_bytes)?;
        Self::start(loaded, Some(lock), &options)
    }

    /// Opens the store on disks of the caller, for fault tests and the simulator. Nobody else may
    /// use these disks. The third one holds the reserve; its length is space that the others cannot
    /// use. The last one holds the newest history.
    ///
    /// # Errors
    /// [`OpenError`] when the disks are unreadable or damaged.
    pub fn open_on(disks: [Box<dyn Disk>; 4], options: Options) -> Result<Self, OpenError> {
        let [objects, record, reserve, history] = disks;
        let disks = Disks {
            objects,
            record,
            reserve: open_reserve(reserve, options.reserve_bytes)?,
            history: Tail::new(history, options.history_bytes),
        };
        let loaded = open_guarded(disks, options.cache_bytes)?;
        Self::start(loaded, None, &options)
    }

    /// Returns the older format that the store had before it was opened, if it was upgraded.
    pub fn upgraded_from(&self) -> Option<u64> {
        self.upgraded_from
    }

    fn start(loaded: Loaded, lock: Option<DirLock>, options: &Options) -> Result<Self, OpenError> {
        let Loaded {
            file,
            revision,
            entries,
            steps,
            upgraded_from,
        } = loaded;
        let mvcc = with_history(revision, entries, steps);
        let (reserve, shared) = (file.reserve().clone(), file.shared().clone());
        if let Some(clock) = &options.clock {
            shared.time_syncs(clock.clone());
        }
        let status = Arc::new(Status::default());
        let (jobs, queue) = mpsc::channel(options.queue.max(1));
        let spawned = {
            let (mvcc, status) = (mvcc.clone(), status.clone());
            // The only thread that a library crate starts: fsync blocks, and the next batch must
            // form while the last one is flushed, whatever the runtime of the caller does. The
            // thread ends when the store is closed or dropped.
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
            file: shared,
        })
    }

    async fn hand_over(&self, txn: Txn) -> Result<Revision, CommitError> {
        txn.check_size()?;
        self.status.check().map_err(CommitError::Unavailable)?;
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs.as_ref().expect("the queue is there until drop");
        if jobs.send(Job::Commit { txn, answer }).await.is_err() {
            return Err(CommitError::Unavailable(self.status.reason()));
        }
        match answered.await {
            Ok(result) => result,
            Err(_) => Err(CommitError::Unknown(self.status.reason())),
        }
    }

    fn join(&self) {
        if let Some(committer) = self.committer.lock().take() {
            // A panic of the thread is recorded already: it marks the status.
            let _ = committer.join();
        }
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        // Waits for the last flush, so that the directory is free for the next process.
        self.jobs = None;
        self.join();
    }
}

impl Store for EmbeddedStore {
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>> {
        Box::pin(self.hand_over(txn))
    }

    fn snapshot(&self, at_least: Revision) -> BoxFuture<'_, Result<Pinned, SnapshotError>> {
        Box::pin(async move {
            if self.mvcc.applied() < at_least {
                self.status.check().map_err(SnapshotError::Unavailable)?;
                self.mvcc.reached(at_least).await;
            }
            Ok(self.mvcc.latest())
        })
    }

    fn at_revision(&self, exactly: Revision) -> Result<Pinned, Gone> {
        self.mvcc.at_revision(exactly)
    }

    fn latest(&self) -> Pinned {
        self.mvcc.latest()
    }

    fn watch(&self, scope: Scope, after: Revision) -> Result<Cursor, Gone> {
        self.mvcc.watch(scope, after)
    }

    fn compact(&self, upto: Revision) -> BoxFuture<'_, Result<(), Gone>> {
        Box::pin(async move {
            if upto <= self.mvcc.applied() {
                // On disk before anybody sees it, so that a crash does not bring the history back.
                let (noted, done) = oneshot::channel();
                let jobs = self.jobs.as_ref().expect("the queue is there until drop");
                // A store that has stopped writes nothing any more.
                if jobs.send(Job::Compact { upto, noted }).await.is_ok() {
                    let _ = done.await;
                }
            }
            self.mvcc.compact(upto)
        })
    }

    fn health(&self) -> Result<(), String> {
        self.status.check()
    }

    fn alarm(&self) -> Option<String> {
        self.reserve.alarm()
    }

    fn share(&self, sharing: Sharing) {
        self.mvcc.share(sharing);
    }

    fn measures(&self) -> Measures {
        Measures {
            file: Some(self.file.measures()),
            ..self.mvcc.measures()
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (closed, done) = oneshot::channel();
            let jobs = self.jobs.as_ref().expect("the queue is there until drop");
            // The thread has stopped in both cases: an error means that it had stopped before.
            if jobs.send(Job::Close { closed }).await.is_ok() {
                let _ = done.await;
            }
            self.join();
        })
    }
}
