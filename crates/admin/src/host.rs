//! The server around the admin services: its files, settings and health. The program implements
//! it, because only there code reads files and starts threads.

use futures_util::future::BoxFuture;
use insula_api::{Json, Timestamp};
use insula_auth::{audit::Filter, certificate::Mark};
use insula_meter::Meter;
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

    /// Signs a certificate of a user and their groups with the server's own CA. It ends no later
    /// than the CA. Blocks.
    ///
    /// # Errors
    /// The reason why this server cannot sign.
    fn sign_client(&self, user: &str, groups: &[String], end: CertificateEnd) -> Result<ClientCertificate, String>;

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

    /// Creates the objects that every installation has, where they are missing.
    ///
    /// # Errors
    /// The reason why they cannot be written.
    fn bootstrap(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Reads up to `most` events of this server's audit log, the newest first, that a filter
    /// selects and that were written before a position: that of an earlier page. Blocks.
    ///
    /// # Errors
    /// The log cannot be read, or the request has ended.
    fn audit_events(
        &self,
        filter: &Filter,
        most: usize,
        before: Option<&str>,
        meter: &Meter,
    ) -> Result<AuditPage, String>;

    /// Returns the newest revision that is older than an age in seconds, if this run knows one.
    fn revision_before(&self, seconds: u64) -> Option<insula_api::Revision>;
}

/// A page of the audit log.
#[derive(Debug)]
pub struct AuditPage {
    /// The events, the newest first.
    pub events: Vec<Json>,
    /// The position where the next page begins; `None` when there is no more.
    pub next: Option<String>,
}

/// The end of a client certificate.
#[derive(Debug, Clone, Copy)]
pub struct CertificateEnd {
    /// The last second in which it is valid.
    pub at: Timestamp,
    /// Mark of the credential with which it is made, and with which it ends.
    pub mark: Option<Mark>,
}

/// A client certificate with its key, both in PEM.
#[derive(Debug)]
pub struct ClientCertificate {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// Last second in which it is valid.
    pub not_after: Timestamp,
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

    /// Creates a backup that a client sends, of this many bytes. It exists once it is finished.
    ///
    /// # Errors
    /// As for [`BackupFiles::create`].
    fn receive(&self, name: &str, bytes: u64) -> io::Result<Box<dyn NewBackup>>;

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
    /// Opens what was written, from its beginning.
    ///
    /// # Errors
    /// The file cannot be read.
    fn read_back(&self) -> io::Result<Box<dyn Read + Send>>;

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
