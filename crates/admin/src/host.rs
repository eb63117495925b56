//! The server around the admin services: its files, settings and health. The program implements
//! it, because only there code reads files and starts threads.

use futures_util::future::BoxFuture;
use insula_api::Json;
use insula_store::backup::Summary;
use std::{
    io::{self, Read, Write},
    sync::Arc,
};
use tokio::sync::oneshot;
use tonic::Status;

/// The server around the admin services.
pub trait Host: Send + Sync {
    /// Runs work that blocks on a thread of its own.
    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>);

    /// Returns the directory of backups.
    fn backups(&self) -> Arc<dyn BackupFiles>;

    /// Runs the checks of `/readyz`: name and outcome.
    fn checks(&self) -> BoxFuture<'_, Vec<(&'static str, Result<(), String>)>>;

    /// Returns the effective configuration, without secrets.
    fn config(&self) -> Json;

    /// Returns the present level of the log.
    fn log_level(&self) -> String;

    /// Checks a level of the log, and sets it unless `check_only`.
    ///
    /// # Errors
    /// The reason why it is no level, or why the log of this server has none.
    fn set_log_level(&self, level: &str, check_only: bool) -> Result<(), String>;

    /// Returns the metrics that name no tenant, as OpenMetrics text.
    fn metrics(&self) -> String;

    /// Returns the state of the runtime: threads, tasks, requests in flight.
    fn runtime(&self) -> Json;

    /// Returns the newest revision that is older than an age in seconds, if this run knows one.
    fn revision_before(&self, seconds: u64) -> Option<insula_api::Revision>;
}

/// The directory of backups. All calls block.
pub trait BackupFiles: Send + Sync {
    /// Returns the backups that are complete.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn list(&self) -> io::Result<Vec<BackupFile>>;

    /// Creates a backup, which exists once it is finished.
    ///
    /// # Errors
    /// The file cannot be created, or the directory holds as much as it may
    /// ([`io::ErrorKind::QuotaExceeded`]).
    fn create(&self, name: &str) -> io::Result<Box<dyn NewBackup>>;

    /// Opens a backup.
    ///
    /// # Errors
    /// The file cannot be read.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// Deletes a backup.
    ///
    /// # Errors
    /// The file cannot be deleted.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// Returns the path of a backup, for commands.
    fn path(&self, name: &str) -> String;
}

/// A complete backup in the directory.
#[derive(Debug, Clone)]
pub struct BackupFile {
    /// Its name.
    pub name: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// Its header, number of objects and hash.
    pub summary: Summary,
}

/// A backup that is being written. Dropping this abandons it.
pub trait NewBackup: Write + Send {
    /// Flushes the file to the disk and gives it its name.
    ///
    /// # Errors
    /// The file cannot be written.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Runs work that blocks, and waits for it.
pub(crate) async fn blocking<T: Send + 'static>(
    host: &dyn Host,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    let (sender, receiver) = oneshot::channel();
    host.run_blocking(Box::new(move || {
        // The caller may be gone.
        let _ = sender.send(work());
    }));
    receiver.await.map_err(|_| Status::unavailable("the server is ending"))
}
