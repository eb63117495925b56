//! Backups in the directory of the server, and the restore of workspaces.
//!
//! A workspace is restored as it was: names, UIDs and internal objects included. Its LogicalCluster
//! is written last, so that nobody reaches the workspace and no controller acts in it before all
//! objects are there.

mod create;
mod restore;
mod tree;

pub(crate) use restore::{Wanted, precondition};
pub(crate) use tree::{Links, Tree};

use crate::{
    host::{BackupFile, Host},
    operations::{Failure, Job},
    workers::WorkerPool,
};
use insula_api::{ClusterName, Json};
use insula_catalog::ids;
use insula_registry::Deps;
use insula_store::{
    Snapshot,
    backup::{self, BackupError, ContentHash, Hash},
};
use serde_json::json;
use std::{io, sync::Arc};
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
    };
    vec![
        Arc::new(create::Create(shared.clone())),
        Arc::new(create::Verify(shared.clone())),
        Arc::new(restore::Restore(shared)),
    ]
}

impl Shared {
    /// Runs work on a thread of low priority. One backup, verification or restore runs at a time.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let done = self.workers.run(&ClusterName::system_admin(), work).await;
        done.unwrap_or_else(|| Err(Failure::new(Code::Unavailable, "the server is ending")))
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

fn read_failure(error: BackupError) -> Failure {
    match error {
        BackupError::Io(error) => io_failure(&error),
        damaged => Failure::new(Code::DataLoss, damaged.to_string()),
    }
}

/// Reads a whole backup and returns the hash of its content.
fn verify(host: &dyn Host, name: &str) -> Result<(backup::Summary, Hash), Failure> {
    read(host.backups().open(name).map_err(|error| io_failure(&error))?)
}

/// Reads a whole file and compares every checksum in it.
pub(crate) fn check(file: impl io::Read) -> Result<backup::Summary, Failure> {
    read(file).map(|(summary, _)| summary)
}

fn read(file: impl io::Read) -> Result<(backup::Summary, Hash), Failure> {
    let mut content = ContentHash::default();
    let read = backup::read(io::BufReader::with_capacity(1 << 20, file), |header, entry| {
        if counts(header, &entry.key.cluster) {
            content.add(&entry.key, &entry.object);
        }
        Ok::<_, BackupError>(())
    });
    Ok((read.map_err(read_failure)?, content.finish()))
}

/// Returns true for clusters whose objects count for the hash of the content. Bundles are shared
/// between workspaces: a backup of a workspace has them only in case that they are gone.
fn counts(header: &backup::Header, cluster: &ClusterName) -> bool {
    header.workspace.is_empty() || *cluster != ClusterName::bound_crds()
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
