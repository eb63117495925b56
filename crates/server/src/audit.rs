//! Audit log: one line for every request, with its user, its subject and its outcome.
//!
//! ```text
//! RequestAudit ─ Record ─▶ stages of the request ─▶ Event
//!     ─▶ bounded queue ─▶ one thread ─▶ audit.log ─▶ audit-….log
//! ```
//! A request never waits for the disk: its event goes into a queue, and one thread writes all
//! queued events with one call. The setting `audit.whenFull` decides what happens when the queue is
//! full; lost events are counted.

mod file;
pub(crate) mod read;
mod request;
mod writer;

use std::{
    io::{self, ErrorKind},
    path::PathBuf,
    sync::Arc,
};

use insula_api::Clock;
use insula_auth::audit::{Log, Policy};

use crate::{
    StartError,
    config::{AuditConfig, Config},
    files,
    metrics::Metrics,
};

pub(crate) use request::RequestAudit;
pub(crate) use writer::Writer;

/// Default policy: the metadata of every request except those for health.
const DEFAULT_POLICY: &str = include_str!("audit/policy.yaml");

/// Opens the log and starts its writer. Events after the writer is closed are lost, and counted.
pub(crate) fn open(
    config: &Config,
    policy: Policy,
    clock: Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
) -> Result<(Arc<Log>, Arc<Writer>), StartError> {
    let writer = Arc::new(Writer::start(&config.audit, path(config), Arc::clone(metrics))?);
    let log = Log {
        policy,
        clock,
        sink: Arc::clone(&writer) as Arc<dyn insula_auth::audit::Sink>,
    };
    Ok((Arc::new(log), writer))
}

/// Returns the path of the log.
pub(crate) fn path(config: &Config) -> PathBuf {
    let given = config.audit.file.clone();
    given.unwrap_or_else(|| config.data_dir.join("audit").join("audit.log"))
}

/// Checks that the log of the settings can be a file, without making it.
///
/// # Errors
/// Its path is a directory, or leads through a file.
pub(crate) fn check(config: &AuditConfig) -> Result<(), StartError> {
    let Some(path) = &config.file else { return Ok(()) };
    let refused = |kind, cause: &str| Err(StartError::write(path, io::Error::new(kind, cause)));
    if path.is_dir() {
        return refused(
            ErrorKind::IsADirectory,
            "it is a directory: audit.file names a file in it",
        );
    }
    let above = path.ancestors().skip(1).find(|above| above.exists());
    if above.is_some_and(|above| !above.is_dir()) {
        return refused(
            ErrorKind::NotADirectory,
            "its path leads through a file: correct audit.file",
        );
    }
    Ok(())
}

/// Reads the policy of the settings.
///
/// # Errors
/// The file cannot be read, or is no policy.
pub(crate) fn policy(config: &AuditConfig) -> Result<Policy, StartError> {
    let (path, text) = match &config.policy {
        Some(path) => {
            let text = files::read(path)?;
            let missing = || StartError::read(path, std::io::ErrorKind::NotFound.into());
            (path.clone(), text.ok_or_else(missing)?)
        }
        None => (PathBuf::from("the default audit policy"), DEFAULT_POLICY.to_owned()),
    };
    let wrong = |cause: String| StartError::AuditPolicy {
        path: path.clone(),
        cause,
    };
    let document = serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    Policy::parse(&document).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_policy_is_one() {
        policy(&AuditConfig::default()).expect("is one");
    }

    #[test]
    fn a_policy_that_cannot_be_used_is_refused_with_its_file_and_field() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy.yaml");
        std::fs::write(
            &path,
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metdata\n",
        )
        .unwrap();
        let config = AuditConfig {
            policy: Some(path.clone()),
            ..AuditConfig::default()
        };
        let refusal = policy(&config).expect_err("is none").to_string();
        assert!(refusal.contains(&path.display().to_string()), "{refusal}");
        assert!(
            refusal.contains("rules[0].level: Unsupported value: \"Metdata\""),
            "{refusal}"
        );
        std::fs::remove_file(&path).unwrap();
        assert!(policy(&config).is_err());
    }
}
