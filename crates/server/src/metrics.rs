//! Metrics of the server, as Prometheus text on `/metrics`, and over OTLP when a collector is
//! configured.
//!
//! Label sets are closed: every label is an enum, so that no tenant, name or path can create a new
//! series. A server with a hundred thousand workspaces has as many series as one with three. Only
//! the use of exported versions has labels of providers; the number of its series has a limit.

use std::{
    sync::{Mutex, PoisonError, atomic::AtomicI64},
    time::Duration,
};

use opentelemetry::{
    KeyValue,
    metrics::{Counter as OtlpCounter, Histogram as OtlpHistogram, Meter},
};
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};

use insula_api::Timestamp;

use crate::api_usage::VersionUse;

/// Verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// A request for no resource.
    Other,
}

/// Origin of the requested kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Class {
    /// Insula's and Kubernetes' own.
    System,
    /// Bound from an export.
    Bound,
    /// From a definition in the same workspace.
    Local,
    /// Served by an extension server.
    Aggregated,
    /// None: health, discovery, OpenAPI, metrics.
    NonResource,
    /// None: a call of a gRPC service.
    Call,
}

/// Class of the status of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum CodeClass {
    /// 1xx and 2xx.
    Success,
    /// 3xx.
    Redirect,
    /// 4xx.
    ClientError,
    /// 5xx.
    ServerError,
}

impl From<http::StatusCode> for CodeClass {
    fn from(code: http::StatusCode) -> Self {
        match code.as_u16() {
            ..300 => Self::Success,
            300..400 => Self::Redirect,
            400..500 => Self::ClientError,
            _ => Self::ServerError,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: Verb,
    class: Class,
    code: CodeClass,
}

/// Effect of a request: read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Effect {
    /// Changes nothing.
    ReadOnly,
    /// May change something.
    Mutating,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EffectLabels {
    effect: Effect,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CommitLabels {
    outcome: CommitOutcome,
}

/// Outcome of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum CommitOutcome {
    /// The commit is durable.
    Committed,
    /// A guard did not hold.
    Conflict,
    /// The commit failed, or its outcome is unknown.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AuditLabels {
    outcome: AuditOutcome,
}

/// Outcome of an audit event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum AuditOutcome {
    /// The event is in the log.
    Written,
    /// There was no room in the queue, or on the disk.
    Lost,
}

/// Series of exported versions. Those with the fewest tenants are left out, and counted.
const VERSIONS_MAX: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabels {
    export: String,
    resource: String,
    version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClosedLabels {
    reason: ClosedFor,
}

/// Reason why the server closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum ClosedFor {
    /// No request for too long.
    Idle,
    /// The headers of a request took too long.
    Headers,
    /// The client did not take its answer.
    Stalled,
    /// Its address had too many connections without a credential.
    Address,
    /// Another connection needed the slot.
    Full,
}

/// All metrics. Counting is a few atomic operations.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<RequestLabels, Histogram, fn() -> Histogram>,
    in_flight: Family<EffectLabels, Gauge>,
    watches: Gauge<i64, AtomicI64>,
    connections: Gauge<i64, AtomicI64>,
    connections_closed: Family<ClosedLabels, Counter>,
    streams_reset: Counter,
    handshake_failures: Counter,
    message_bytes: Gauge<i64, AtomicI64>,
    commit_seconds: Family<CommitLabels, Histogram, fn() -> Histogram>,
    audit_events: Family<AuditLabels, Counter>,
    disk_full: Gauge<i64, AtomicI64>,
    certificate_expiry: Gauge<i64, AtomicI64>,
    certificates_refused: Gauge<i64, AtomicI64>,
    version_last_use: Family<VersionLabels, Gauge>,
    version_tenants: Family<VersionLabels, Gauge>,
    versions_left_out: Gauge<i64, AtomicI64>,
    /// Locked while the use of versions is set and written.
    versions: Mutex<()>,
    otlp: Option<Otlp>,
}

struct Otlp {
    request_seconds: OtlpHistogram<f64>,
    commit_seconds: OtlpHistogram<f64>,
    handshake_failures: OtlpCounter<u64>,
}

/// Guard of a gauge: counts one until it is dropped.
#[must_use = "counts until it is dropped"]
pub struct GaugeGuard(Gauge<i64, AtomicI64>);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// Creates all metrics at zero. `meter` exports them to a configured collector as well.
    pub fn new(version: &str, meter: Option<&Meter>) -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("insula"),
            requests: Family::default(),
            // From a read in memory to the slowest allowed answer: 0.1 ms to 52 s.
            request_seconds: Family::new_with_constructor(|| Histogram::new(buckets(0.000_1, 20))),
            in_flight: Family::default(),
            watches: Gauge::default(),
            connections: Gauge::default(),
            connections_closed: Family::default(),
            streams_reset: Counter::default(),
            handshake_failures: Counter::default(),
            message_bytes: Gauge::default(),
            // An fsync takes 0.05 ms on a good disk and seconds on one that is dying.
            commit_seconds: Family::new_with_constructor(|| Histogram::new(buckets(0.000_05, 18))),
            audit_events: Family::default(),
            disk_full: Gauge::default(),
            certificate_expiry: Gauge::default(),
            certificates_refused: Gauge::default(),
            version_last_use: Family::default(),
            version_tenants: Family::default(),
            versions_left_out: Gauge::default(),
            versions: Mutex::default(),
            otlp: meter.map(Otlp::new),
        };
        metrics.register(version);
        metrics
    }

    fn register(&mut self, version: &str) {
        let registry = &mut self.registry;
        registry.register(
            "build",
            "The running version",
            Info::new(vec![("version", version.to_owned())]),
        );
        registry.register("requests", "Requests answered", self.requests.clone());
        registry.register_with_unit(
            "request_duration",
            "Time to answer; for watches to begin answering",
            Unit::Seconds,
            self.request_seconds.clone(),
        );
        registry.register("requests_in_flight", "Requests being answered", self.in_flight.clone());
        registry.register("watches", "Open watches", self.watches.clone());
        registry.register("connections", "Open connections", self.connections.clone());
        let help = "Connections that the server closed, by reason";
        registry.register("connections_closed", help, self.connections_closed.clone());
        let help = "HTTP/2 streams reset because their client did not take the answer";
        registry.register("stalled_streams_reset", help, self.streams_reset.clone());
        let help = "TLS handshakes that failed or took too long";
        registry.register("tls_handshake_failures", help, self.handshake_failures.clone());
        let help = "Messages of gRPC calls that are being received or worked on";
        registry.register_with_unit("grpc_message", help, Unit::Bytes, self.message_bytes.clone());
        let help = "Time from handing a transaction to the store to its answer";
        registry.register_with_unit("commit_duration", help, Unit::Seconds, self.commit_seconds.clone());
        registry.register("audit_events", "Events for the audit log", self.audit_events.clone());
        let help = "1 while the disk is full and only deletions are taken";
        registry.register("store_disk_full", help, self.disk_full.clone());
        let help = "Last second in which the certificate of the port is valid";
        let expiry = self.certificate_expiry.clone();
        registry.register_with_unit("tls_certificate_expiry_timestamp", help, Unit::Seconds, expiry);
        let help = "1 while the newest files of certificates cannot be used, and older ones are in use";
        registry.register("tls_certificates_refused", help, self.certificates_refused.clone());
        self.register_versions();
    }

    fn register_versions(&mut self) {
        let registry = &mut self.registry;
        let help = "Last use of an exported API version by a tenant, to the hour";
        let last_use = self.version_last_use.clone();
        registry.register_with_unit("api_version_last_use_timestamp", help, Unit::Seconds, last_use);
        let help = "Workspaces that used an exported API version within the days of its retirement";
        registry.register("api_version_tenants", help, self.version_tenants.clone());
        let help = "Exported API versions without series, because there are too many";
        registry.register("api_versions_left_out", help, self.versions_left_out.clone());
    }

    /// Counts an answered request.
    pub fn request(&self, verb: Verb, class: Class, code: http::StatusCode, took: Duration) {
        let labels = RequestLabels {
            verb,
            class,
            code: code.into(),
        };
        self.requests.get_or_create(&labels).inc();
        self.request_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        if let Some(otlp) = &self.otlp {
            let labels = [
                KeyValue::new("verb", format!("{verb:?}")),
                KeyValue::new("class", format!("{class:?}")),
                KeyValue::new("code", i64::from(code.as_u16() / 100)),
            ];
            otlp.request_seconds.record(took.as_secs_f64(), &labels);
        }
    }

    /// Counts audit events that were written or lost.
    pub(crate) fn audited(&self, outcome: AuditOutcome, count: u64) {
        if count > 0 {
            self.audit_events.get_or_create(&AuditLabels { outcome }).inc_by(count);
        }
    }

    /// Sets the gauge of a full disk.
    pub(crate) fn disk_full(&self, is_full: bool) {
        self.disk_full.set(i64::from(is_full));
    }

    /// Sets the end of the certificate's validity.
    pub(crate) fn certificate_expires(&self, at: Timestamp) {
        self.certificate_expiry.set(at.0);
    }

    /// Sets the gauge of certificates that cannot be used.
    pub(crate) fn certificates_refused(&self, are_refused: bool) {
        self.certificates_refused.set(i64::from(are_refused));
    }

    /// Counts a request in flight until the result is dropped.
    pub fn in_flight(&self, effect: Effect) -> GaugeGuard {
        gauge_guard(&self.in_flight.get_or_create_owned(&EffectLabels { effect }))
    }

    /// Sets the gauge of open watches.
    pub fn set_watches(&self, open: usize) {
        self.watches.set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    /// Counts an open connection until the result is dropped.
    pub(crate) fn connection(&self) -> GaugeGuard {
        gauge_guard(&self.connections)
    }

    /// Counts a connection that the server closed.
    pub(crate) fn closed(&self, reason: ClosedFor) {
        self.connections_closed.get_or_create(&ClosedLabels { reason }).inc();
    }

    /// Counts a reset stream whose client did not read its answer.
    pub(crate) fn stream_reset(&self) {
        self.streams_reset.inc();
    }

    /// Returns the gauge of the bytes of gRPC messages.
    pub(crate) fn message_bytes(&self) -> Gauge<i64, AtomicI64> {
        self.message_bytes.clone()
    }

    pub(crate) fn handshake_failed(&self) {
        self.handshake_failures.inc();
        if let Some(otlp) = &self.otlp {
            otlp.handshake_failures.add(1, &[]);
        }
    }

    /// Counts a commit that the store answered.
    pub fn commit(&self, outcome: CommitOutcome, took: Duration) {
        self.commit_seconds
            .get_or_create(&CommitLabels { outcome })
            .observe(took.as_secs_f64());
        if let Some(otlp) = &self.otlp {
            otlp.commit_seconds
                .record(took.as_secs_f64(), &[KeyValue::new("outcome", format!("{outcome:?}"))]);
        }
    }

    /// Returns all metrics as OpenMetrics text, with the use of exported versions, the most used
    /// first.
    pub(crate) fn text_with(&self, uses: &[VersionUse]) -> String {
        let _alone = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        self.version_last_use.clear();
        self.version_tenants.clear();
        let shown = &uses[..uses.len().min(VERSIONS_MAX)];
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.versions_left_out.set(count(uses.len() - shown.len()));
        for usage in shown {
            let labels = VersionLabels {
                export: usage.export.clone(),
                resource: usage.resource.clone(),
                version: usage.version.clone(),
            };
            if let Some(last) = usage.last_used {
                self.version_last_use.get_or_create(&labels).set(last.0);
            }
            self.version_tenants.get_or_create(&labels).set(count(usage.tenants));
        }
        self.text()
    }

    /// Returns all metrics as OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("a String takes everything");
        text
    }
}

impl Otlp {
    fn new(meter: &Meter) -> Self {
        let seconds = |name: &'static str| meter.f64_histogram(name).with_unit("s").build();
        Self {
            request_seconds: seconds("insula.request.duration"),
            commit_seconds: seconds("insula.commit.duration"),
            handshake_failures: meter.u64_counter("insula.tls.handshake.failures").build(),
        }
    }
}

fn gauge_guard(gauge: &Gauge<i64, AtomicI64>) -> GaugeGuard {
    gauge.inc();
    GaugeGuard(gauge.clone())
}

fn buckets(first: f64, count: u16) -> impl Iterator<Item = f64> {
    prometheus_client::metrics::histogram::exponential_buckets(first, 2.0, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_closed_labels_and_gauges_that_come_back() {
        let metrics = Metrics::new("1.2.3", None);
        let took = Duration::from_millis(3);
        metrics.request(Verb::List, Class::Bound, http::StatusCode::OK, took);
        metrics.request(Verb::List, Class::Bound, http::StatusCode::CREATED, took);
        metrics.request(Verb::Get, Class::System, http::StatusCode::GONE, took);
        metrics.commit(CommitOutcome::Committed, took);
        metrics.set_watches(2);
        metrics.set_watches(1);
        drop(metrics.in_flight(Effect::Mutating));
        let text = metrics.text();
        for line in [
            "insula_build_info{version=\"1.2.3\"} 1",
            "insula_requests_total{verb=\"List\",class=\"Bound\",code=\"Success\"} 2",
            "insula_requests_total{verb=\"Get\",class=\"System\",code=\"ClientError\"} 1",
            "insula_request_duration_seconds_count{verb=\"List\",class=\"Bound\",code=\"Success\"} 2",
            "insula_commit_duration_seconds_count{outcome=\"Committed\"} 1",
            "insula_watches 1",
            "insula_requests_in_flight{effect=\"Mutating\"} 0",
        ] {
            assert!(text.lines().any(|got| got == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn the_series_of_versions_have_a_limit() {
        let metrics = Metrics::new("1.2.3", None);
        let usage = |index: usize| VersionUse {
            export: "root:provider:widgets".to_owned(),
            resource: "widgets.example.io".to_owned(),
            version: format!("v{index}"),
            tenants: index % 2,
            last_used: (index % 2 == 1).then_some(insula_api::Timestamp(1_795_255_200)),
        };
        let uses: Vec<VersionUse> = (1..=VERSIONS_MAX + 3).map(usage).collect();
        metrics.text_with(&uses);
        // A scrape has only the versions of its own time.
        let text = metrics.text_with(&uses[..VERSIONS_MAX + 1]);
        let labels = |version| {
            format!("{{export=\"root:provider:widgets\",resource=\"widgets.example.io\",version=\"{version}\"}}")
        };
        for line in [
            format!(
                "insula_api_version_last_use_timestamp_seconds{} 1795255200",
                labels("v1")
            ),
            format!("insula_api_version_tenants{} 1", labels("v1")),
            format!("insula_api_version_tenants{} 0", labels("v2")),
            "insula_api_versions_left_out 1".to_owned(),
        ] {
            assert!(text.lines().any(|got| got == line), "{line} in\n{text}");
        }
        let series = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(series("insula_api_version_tenants{"), VERSIONS_MAX);
        assert_eq!(
            series("insula_api_version_last_use_timestamp_seconds{"),
            VERSIONS_MAX / 2
        );
    }
}
