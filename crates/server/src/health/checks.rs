//! Checks of the server's parts, and their reports in the format of Kubernetes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header::CONTENT_TYPE};
use insula_apiserver::{HealthReports, query::Query};
use insula_edge::port::Lifecycle;
use insula_store::{BoxFuture, Store};
use tokio::sync::Mutex;

use crate::{certificates::Alarm, config::StoreChoice};

/// Time for which the result of a probe of the store is reused.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The outcome of one check.
type Check = (&'static str, Result<(), String>);

/// Checks of the server's parts.
pub(crate) struct Checks {
    pub(crate) store: Arc<dyn Store>,
    /// Name of the store's check: on etcd that of Kubernetes, `etcd`.
    store_name: &'static str,
    /// The latest probe of the store and its time. Locked while a probe runs, so that concurrent
    /// requests share it.
    probed: Mutex<Option<(Instant, Result<(), String>)>>,
    lifecycle: Lifecycle,
    /// The last failed reload of certificates.
    certificates: Arc<Alarm>,
}

impl Checks {
    pub(crate) fn new(
        store: &Arc<dyn Store>,
        choice: &StoreChoice,
        lifecycle: &Lifecycle,
        certificates: Arc<Alarm>,
    ) -> Arc<Self> {
        let store_name = match choice {
            StoreChoice::Etcd(_) => "etcd",
            StoreChoice::Embedded | StoreChoice::Memory => "store",
        };
        Arc::new(Self {
            store: Arc::clone(store),
            store_name,
            probed: Mutex::default(),
            lifecycle: lifecycle.clone(),
            certificates,
        })
    }

    /// Runs the checks of `/readyz` and `/healthz`.
    pub(crate) async fn ready(&self) -> Vec<Check> {
        let serving = if self.lifecycle.is_ready() {
            Ok(())
        } else {
            Err("starting, or shutting down".to_owned())
        };
        let store = (self.store_name, self.probe().await);
        vec![("ping", Ok(())), ("serving", serving), store]
    }

    /// Runs the checks of `/livez`. The server is alive while it drains and while etcd is
    /// unreachable: a restart would not help. It is not alive when the store can never write again:
    /// a restart reads the state from the disk or from etcd.
    fn live(&self) -> Vec<Check> {
        vec![("ping", Ok(())), (self.store_name, self.store.health())]
    }

    /// Probes the store, at most once in [`PROBE_INTERVAL`]: health is open to everybody.
    async fn probe(&self) -> Result<(), String> {
        let mut probed = self.probed.lock().await;
        if let Some((at, outcome)) = &*probed
            && at.elapsed() < PROBE_INTERVAL
        {
            return outcome.clone();
        }
        let outcome = self.store.ready().await;
        *probed = Some((Instant::now(), outcome.clone()));
        outcome
    }

    /// Runs the checks of a report, or one of them.
    pub(super) async fn report<'a>(&self, name: &'a str, check: Option<&str>, query: Option<&str>) -> Report<'a> {
        let checks = match name {
            "livez" => self.live(),
            _ => self.ready().await,
        };
        if let Some(check) = check {
            let check = checks.into_iter().find(|(known, _)| *known == check);
            return Report::One(check.map(|(_, outcome)| outcome));
        }
        let query = Query::parse(query.unwrap_or_default());
        let excluded = query.pairs().iter().filter(|(name, _)| name == "exclude");
        Report::All(All {
            name,
            checks,
            // An alarm is no failure. With a full disk reads and deletions work, and clients that
            // free space must get through; with a refused certificate the previous one is in use.
            alarms: [("disk", self.store.alarm()), ("certificate", self.certificates.get())],
            excluded: excluded.map(|(_, check)| check.clone()).collect(),
            is_verbose: query.get("verbose").is_some(),
        })
    }
}

impl HealthReports for Checks {
    fn report<'a>(&'a self, path: &'a str, query: Option<&'a str>) -> BoxFuture<'a, Response> {
        let (name, check) = parts(path);
        Box::pin(async move {
            let report = Checks::report(self, name, check, query).await;
            report.into_response(Reasons::Withheld)
        })
    }
}

/// Splits a path into the name of a report and that of one check.
pub(super) fn parts(path: &str) -> (&str, Option<&str>) {
    let path = path.trim_start_matches('/');
    match path.split_once('/') {
        Some((name, check)) => (name, Some(check)),
        None => (path, None),
    }
}

/// The reasons of failures in a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reasons {
    Shown,
    Withheld,
}

/// A report that is made and not yet written.
pub(super) enum Report<'a> {
    /// Of one check; `None` for one that does not exist.
    One(Option<Result<(), String>>),
    All(All<'a>),
}

/// A report of all checks.
pub(super) struct All<'a> {
    name: &'a str,
    checks: Vec<Check>,
    alarms: [(&'static str, Option<String>); 2],
    excluded: Vec<String>,
    is_verbose: bool,
}

impl Report<'_> {
    /// Returns true for a report with text that depends on the reader.
    pub(super) fn has_reasons(&self) -> bool {
        match self {
            Report::One(outcome) => matches!(outcome, Some(Err(_))),
            Report::All(all) => all.failed() || all.is_verbose,
        }
    }

    /// Writes the report in the format of Kubernetes.
    pub(super) fn into_response(self, reasons: Reasons) -> Response {
        match self {
            Report::One(None) => plain(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
            Report::One(Some(Ok(()))) => plain(StatusCode::OK, "ok".to_owned()),
            Report::One(Some(Err(reason))) => {
                let reason = shown(reasons, &reason);
                let text = format!("internal server error: {reason}\n");
                plain(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
            Report::All(all) => all.into_response(reasons),
        }
    }
}

impl All<'_> {
    fn failed(&self) -> bool {
        let mut checks = self.checks.iter();
        checks.any(|(check, outcome)| outcome.is_err() && !self.excludes(check))
    }

    fn excludes(&self, check: &str) -> bool {
        self.excluded.iter().any(|excluded| excluded == check)
    }

    fn into_response(self, reasons: Reasons) -> Response {
        let failed = self.failed();
        if !failed && !self.is_verbose {
            return plain(StatusCode::OK, "ok".to_owned());
        }
        let mut text = String::new();
        for (check, outcome) in &self.checks {
            match outcome {
                _ if self.excludes(check) => text += &format!("[+]{check} excluded: ok\n"),
                Ok(()) => text += &format!("[+]{check} ok\n"),
                Err(reason) => text += &format!("[-]{check} failed: {}\n", shown(reasons, reason)),
            }
        }
        let is_known = |excluded: &String| self.checks.iter().any(|(check, _)| check == excluded);
        let unknown: Vec<String> = self.excluded.iter().filter(|name| !is_known(name)).cloned().collect();
        if !unknown.is_empty() {
            text += &format!(
                "warn: some health checks cannot be excluded: no matches for {}\n",
                quoted(unknown)
            );
        }
        for (name, alarm) in &self.alarms {
            if let Some(alarm) = alarm {
                text += &format!("[!]{name} alarm: {}\n", shown(reasons, alarm));
            }
        }
        let (code, outcome) = if failed {
            (StatusCode::SERVICE_UNAVAILABLE, "failed")
        } else {
            (StatusCode::OK, "passed")
        };
        text += &format!("{} check {outcome}\n", self.name);
        plain(code, text)
    }
}

fn shown(reasons: Reasons, reason: &str) -> &str {
    match reasons {
        Reasons::Shown => reason,
        Reasons::Withheld => "reason withheld",
    }
}

/// Returns names in quotes, each once and in order.
fn quoted(mut names: Vec<String>) -> String {
    names.sort();
    names.dedup();
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    quoted.join(",")
}

fn plain(code: StatusCode, text: String) -> Response {
    let headers = [
        (CONTENT_TYPE.as_str(), "text/plain; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
    ];
    (code, headers, text).into_response()
}
