//! The server as the admin services see it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use insula_admin::host::{AuditPage, BackupFiles, CertificateEnd, ClientCertificate, Host};
use insula_api::{Json, Revision};
use insula_auth::audit::Filter;
use insula_meter::Meter;
use serde_json::json;

use crate::{audit, backup_files::Directory, client_certificates, config::Config, health::Health, telemetry::LogLevel};

/// Labels whose values tenants choose.
const TENANT_LABELS: [&str; 8] = [
    "owner=\"",
    "export=\"",
    "workspace=\"",
    "cluster=\"",
    "resource=\"",
    "api=\"",
    "group=\"",
    "user=\"",
];

/// Maximum number of marks that are kept.
const MARKS_MAX: usize = 4096;

/// Revisions of the past, with the times at which they were the latest.
#[derive(Default)]
pub(crate) struct Marks(Mutex<VecDeque<(i64, Revision)>>);

impl Marks {
    /// Notes the latest revision at a monotonic time in microseconds.
    pub(crate) fn note(&self, micros: i64, revision: Revision) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.len() == MARKS_MAX {
            marks.pop_front();
        }
        marks.push_back((micros, revision));
    }

    /// Returns the newest revision that was the latest at a time or before it.
    fn before(&self, micros: i64) -> Option<Revision> {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks
            .iter()
            .rev()
            .find(|(at, _)| *at <= micros)
            .map(|(_, revision)| *revision)
    }
}

/// The parts of the server that the admin services use.
pub(crate) struct ServerHost {
    config: Arc<Config>,
    health: Health,
    log: LogLevel,
    pub(crate) marks: Arc<Marks>,
}

impl ServerHost {
    /// Returns the parts of a server that starts: with an empty history, and without uploads of
    /// backups that a crash broke off.
    pub(crate) fn new(config: &Arc<Config>, health: &Health, log: LogLevel) -> Self {
        if let Err(cause) = Directory::new(config).remove_uploads() {
            tracing::warn!(%cause, "uploads of backups from before a crash are not removed");
        }
        ServerHost {
            config: Arc::clone(config),
            health: health.clone(),
            log,
            marks: Arc::default(),
        }
    }
}

impl Host for ServerHost {
    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        drop(tokio::task::spawn_blocking(work));
    }

    fn backups(&self) -> Arc<dyn BackupFiles> {
        Arc::new(Directory::new(&self.config))
    }

    fn sign_client(&self, user: &str, groups: &[String], end: CertificateEnd) -> Result<ClientCertificate, String> {
        let now = self.health.clock.now();
        client_certificates::sign(&self.config.data_dir, (user, groups), end, now)
    }

    fn checks(&self) -> insula_store::BoxFuture<'_, Vec<(&'static str, Result<(), String>)>> {
        Box::pin(self.health.checks.ready())
    }

    fn config(&self) -> Json {
        let mut config = serde_json::to_value(&*self.config).unwrap_or_default();
        redact(&mut config);
        config
    }

    fn log_level(&self) -> String {
        self.log.present().unwrap_or_else(|| self.config.log.level.clone())
    }

    fn set_log_level(&self, level: &str, check_only: bool) -> Result<(), String> {
        self.log.set(level, check_only)
    }

    /// Samples with labels that may name tenants or their APIs stay away.
    fn metrics(&self) -> String {
        let text = self.health.metrics.text();
        let names_tenant = |line: &&str| TENANT_LABELS.iter().any(|label| line.contains(label));
        let of_server = text.lines().filter(|line| !names_tenant(line));
        of_server.map(|line| format!("{line}\n")).collect()
    }

    fn runtime(&self) -> Json {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let memory = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned())
        };
        let tasks = tokio::runtime::Handle::try_current().map(|runtime| {
            let metrics = runtime.metrics();
            json!({"workers": metrics.num_workers(), "aliveTasks": metrics.num_alive_tasks(),
                "queued": metrics.global_queue_depth()})
        });
        json!({
            "threads": memory("Threads:"), "residentMemory": memory("VmRSS:"), "peakMemory": memory("VmHWM:"),
            "cores": crate::build::cores(), "runtime": tasks.unwrap_or_default(),
            "openWatches": self.health.api.limits.open_watches(),
            "operatingSystem": std::env::consts::OS, "architecture": std::env::consts::ARCH,
        })
    }

    fn bootstrap(&self) -> insula_store::BoxFuture<'_, Result<(), String>> {
        let registry = &self.health.api.registry;
        Box::pin(async move {
            let made = insula_controllers::bootstrap(registry).await;
            made.map_err(|cause| cause.to_string())
        })
    }

    fn audit_events(
        &self,
        filter: &Filter,
        most: usize,
        before: Option<&str>,
        meter: &Meter,
    ) -> Result<AuditPage, String> {
        let before = before.map(|text| text.parse().map_err(|()| format!("{text} is no position of the log")));
        let path = audit::path(&self.config);
        let page =
            audit::read::page(&path, filter, most, before.transpose()?, meter).map_err(|error| error.to_string())?;
        Ok(AuditPage {
            events: page.events,
            next: page.next.map(|next| next.to_string()),
        })
    }

    fn revision_before(&self, seconds: u64) -> Option<Revision> {
        let age = i64::try_from(seconds).ok()?.checked_mul(1_000_000)?;
        self.marks.before(self.health.clock.monotonic_micros() - age)
    }
}

/// Replaces credentials in URLs. The configuration has no other secrets: it names files.
fn redact(value: &mut Json) {
    match value {
        Json::String(text) => {
            if let Some((scheme, rest)) = text.split_once("://")
                && let Some((_, host)) = rest.rsplit_once('@')
            {
                *text = format!("{scheme}://REDACTED@{host}");
            }
        }
        Json::Array(items) => items.iter_mut().for_each(redact),
        Json::Object(fields) => fields.values_mut().for_each(redact),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_find_the_newest_revision_of_an_age() {
        let marks = Marks::default();
        assert_eq!(marks.before(100), None);
        marks.note(10, Revision(5));
        marks.note(20, Revision(9));
        assert_eq!(marks.before(9), None);
        assert_eq!(marks.before(19), Some(Revision(5)));
        assert_eq!(marks.before(20), Some(Revision(9)));
    }

    #[test]
    fn credentials_in_urls_are_replaced() {
        let mut config = json!({"a": {"url": "http://user:p@ss@host:1/x", "plain": "http://host"}, "b": ["x@y"]});
        redact(&mut config);
        assert_eq!(
            config,
            json!({"a": {"url": "http://REDACTED@host:1/x", "plain": "http://host"}, "b": ["x@y"]})
        );
    }
}
