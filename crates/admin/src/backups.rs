//! Backups in the directory of the server, and the restore of workspaces and of the installation.
//!
//! A workspace is restored as it was: names, UIDs and internal objects included. Its LogicalCluster
//! is written last, so that nobody reaches the workspace and no controller acts in it before all
//! objects are there.

mod create;
pub(crate) mod precondition;
mod restore;
mod tree;
mod waiting;
mod wanted;

pub(crate) use tree::{Links, Tree};
pub(crate) use wanted::Wanted;

use crate::{
    host::{BackupFile, Host},
    operations::{Failure, Job, Running},
    workers::WorkerPool,
};
use insula_api::{ClusterName, Json, ObjectKey};
use insula_catalog::{earlier_names::present_key, ids};
use insula_registry::Deps;
use insula_store::{
    Snapshot,
    backup::{self, BackupError, ContentHash, Hash},
};
use serde_json::json;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::Semaphore;
use tonic::Code;

/// The kinds of operations.
pub(crate) const CREATE: &str = "CreateBackup";
pub(crate) const VERIFY: &str = "VerifyBackup";
pub(crate) const RESTORE: &str = "RestoreBackup";

/// Shared state of the jobs.
#[derive(Clone)]
struct Shared {
    registry: Arc<Deps>,
    workers: Arc<WorkerPool>,
    host: Arc<dyn Host>,
    version: String,
    /// The backup that is written, until its file has its name.
    creating: Arc<Semaphore>,
}

/// Returns the jobs of backups.
pub(crate) fn jobs(
    registry: &Arc<Deps>,
    workers: &Arc<WorkerPool>,
    host: &Arc<dyn Host>,
    version: &str,
) -> Vec<Arc<dyn Job>> {
    let shared = Shared {
        registry: Arc::clone(registry),
        workers: Arc::clone(workers),
        host: Arc::clone(host),
        version: version.to_owned(),
        creating: Arc::new(Semaphore::new(1)),
    };
    vec![
        Arc::new(create::Create(shared.clone())),
        Arc::new(create::Verify(shared.clone())),
        Arc::new(restore::Restore(shared)),
    ]
}

impl Shared {
    /// Runs work of an operation on a thread of low priority. One backup, verification or restore
    /// runs at a time. An operation that is cancelled while it waits for the thread ends at once.
    async fn run<T: Send + 'static>(
        &self,
        running: &Running,
        work: impl FnOnce(&Running) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let has_begun = Arc::new(AtomicBool::new(false));
        let (begins, own) = (Arc::clone(&has_begun), running.clone());
        let queue = ClusterName::system_admin();
        let done = self.workers.run(&queue, move || {
            begins.store(true, Ordering::Release);
            match own.is_cancelled() {
                true => Err(Failure::cancelled()),
                false => work(&own),
            }
        });
        let cancelled = async {
            running.cancelled().await;
            // Work that has begun looks at the request to end by itself, and cleans up.
            if has_begun.load(Ordering::Acquire) {
                std::future::pending().await
            }
        };
        tokio::select! {
            done = done => done.unwrap_or_else(|| Err(Failure::new(Code::Unavailable, "the server is ending"))),
            () = cancelled => Err(Failure::cancelled()),
        }
    }
}

/// Returns the UID of the logical cluster `root`, which identifies the installation.
pub(crate) fn installation(snapshot: &Snapshot) -> String {
    let entry = snapshot.get(&ids::logical_cluster(&ClusterName::root()));
    entry.map_or_else(String::new, |entry| entry.object.meta.uid.to_string())
}

/// Describes a failure of the directory.
pub(crate) fn io_failure(error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => Code::NotFound,
        io::ErrorKind::QuotaExceeded | io::ErrorKind::StorageFull => Code::ResourceExhausted,
        _ => Code::Unavailable,
    };
    Failure::new(code, format!("the directory of backups: {error}"))
}

/// Describes a failure to read a file.
pub(crate) fn read_failure(error: BackupError) -> Failure {
    match error {
        BackupError::Io(error) => io_failure(&error),
        damaged => Failure::new(Code::DataLoss, damaged.to_string()),
    }
}

/// Opens a backup for an operation, whose reading ends when the operation is cancelled.
fn open(host: &dyn Host, name: &str, running: &Running) -> io::Result<Box<dyn io::Read + Send>> {
    Ok(Box::new(Interruptible {
        file: host.backups().open(name)?,
        running: running.clone(),
    }))
}

/// A file that an operation reads until it is cancelled.
struct Interruptible {
    file: Box<dyn io::Read + Send>,
    running: Running,
}

impl io::Read for Interruptible {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.running.is_cancelled() {
            true => Err(io::Error::other("the operation was cancelled")),
            false => self.file.read(into),
        }
    }
}

/// Reads a whole file and compares every checksum in it.
pub(crate) fn check(file: impl io::Read) -> Result<backup::Summary, BackupError> {
    read_file(file).map(|(summary, _)| summary)
}

fn read(file: impl io::Read) -> Result<(backup::Summary, Hash), Failure> {
    read_file(file).map_err(read_failure)
}

fn read_file(file: impl io::Read) -> Result<(backup::Summary, Hash), BackupError> {
    let mut content = ContentHash::default();
    let read = backup::read(io::BufReader::with_capacity(1 << 20, file), |_, entry| {
        if counts(&present_key(&entry.key)) {
            content.add(&entry.key, &entry.object);
        }
        Ok::<_, BackupError>(())
    });
    Ok((read?, content.finish()))
}

/// Returns true for objects that count for the hash of the content. Bundles are shared between
/// workspaces: a backup has them only in case that they are gone.
fn counts(key: &ObjectKey) -> bool {
    key.cluster != ClusterName::bound_crds() && tree::is_content(key)
}

fn result(name: &str, summary: &backup::Summary, content: Hash) -> Json {
    json!({
        "name": name, "workspace": summary.header.workspace, "revision": summary.header.revision.0.to_string(),
        "objects": summary.objects, "sha256": summary.hash.to_string(), "contentSha256": content.to_string(),
    })
}

/// Returns true for a text that can be the name of a backup.
pub fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=64).contains(&name.len()) && name.chars().all(allowed)
}

/// Finds a backup.
pub(crate) fn find(host: &dyn Host, name: &str) -> Result<BackupFile, Failure> {
    let files = host.backups().list().map_err(|error| io_failure(&error))?;
    let found = files.into_iter().find(|file| file.name == name);
    found.ok_or_else(|| Failure::new(Code::NotFound, format!("backup {name:?} not found")))
}
