//! Metrics of the server: one registry of Prometheus, read by two exporters, `/metrics` and OTLP
//! when a collector is configured.
//!
//! Label sets are closed: every label is an enum, so that no tenant, name or path can create a new
//! series. A server with a hundred thousand workspaces has as many series as one with three. Labels
//! that are names (of exported versions, rollouts, conversions, and of resources in [`kubernetes`])
//! have a limit on their series.

pub(crate) mod format;
mod kubernetes;
mod labels;
pub(crate) mod otlp;
mod process;
mod sources;

use std::{
    sync::{Arc, OnceLock, atomic::AtomicI64},
    time::{Duration, SystemTime},
};

use insula_api::Timestamp;
use insula_edge::port::{ClosedFor, PortMetrics, RequestKind};
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};

pub(crate) use labels::{AuditOutcome, CallOutcome, ExportOutcome, Purpose, Signal};
pub use labels::{Class, CodeClass, CommitOutcome, Effect};
pub(crate) use sources::Sources;

use labels::{
    AuditLabels, CallLabels, ClosedLabels, CommitLabels, EffectLabels, ExportLabels, ReasonLabel, RequestLabels,
    VerbLabel,
};
use sources::{Parts, Queues};

/// All metrics. Counting is a few atomic operations.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<RequestLabels, Histogram, fn() -> Histogram>,
    /// The same requests by resource, under the names of Kubernetes.
    by_resource: Arc<kubernetes::Requests>,
    in_flight: Family<EffectLabels, Gauge>,
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
    audit_queue: Gauge<i64, AtomicI64>,
    call_seconds: Family<CallLabels, Histogram, fn() -> Histogram>,
    exported: Exports,
    started: SystemTime,
    /// Parts of the server that own metrics, once they are built.
    sources: Arc<OnceLock<Sources>>,
}

/// Counts of the telemetry for the collector, by signal and outcome.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exports(Family<ExportLabels, Counter>);

impl Exports {
    /// Counts spans, or points of metrics.
    pub(crate) fn count(&self, signal: Signal, outcome: ExportOutcome, count: u64) {
        self.0.get_or_create(&ExportLabels { signal, outcome }).inc_by(count);
    }
}

/// A request as metrics label it.
#[derive(Debug, Clone, Copy)]
pub struct Measured<'a> {
    /// Verb, class and resource.
    pub kind: &'a RequestKind,
    /// HTTP method.
    pub method: &'a http::Method,
    /// Path of a health check, or the empty text.
    pub check: &'static str,
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
    /// Creates all metrics at zero.
    pub fn new(version: &str) -> Self {
        Self::with_exports(version, Exports::default())
    }

    /// Creates all metrics at zero, with the counts of an export that exists.
    pub(crate) fn with_exports(version: &str, exported: Exports) -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            requests: Family::default(),
            // From a read in memory to the slowest allowed answer: 0.1 ms to 52 s.
            request_seconds: Family::new_with_constructor(|| Histogram::new(buckets(0.000_1, 20))),
            by_resource: Arc::default(),
            in_flight: Family::default(),
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
            audit_queue: Gauge::default(),
            // To the longest time-out of a webhook: 0.5 ms to 33 s.
            call_seconds: Family::new_with_constructor(|| Histogram::new(buckets(0.000_5, 17))),
            exported,
            started: SystemTime::now(),
            sources: Arc::default(),
        };
        metrics.begin_series();
        metrics.register(version);
        metrics
    }

    /// Creates the series of small label sets, so that the first event is an increase too.
    fn begin_series(&self) {
        for outcome in CommitOutcome::ALL {
            drop(self.commit_seconds.get_or_create(&CommitLabels { outcome }));
        }
        for outcome in [AuditOutcome::Written, AuditOutcome::Lost] {
            drop(self.audit_events.get_or_create(&AuditLabels { outcome }));
        }
        for reason in ClosedFor::ALL {
            let reason = ReasonLabel(reason);
            drop(self.connections_closed.get_or_create(&ClosedLabels { reason }));
        }
        for purpose in Purpose::ALL {
            for outcome in [CallOutcome::Answered, CallOutcome::Failed] {
                drop(self.call_seconds.get_or_create(&CallLabels { purpose, outcome }));
            }
        }
        for labels in ExportLabels::all() {
            drop(self.exported.0.get_or_create(&labels));
        }
    }

    fn register(&mut self, version: &str) {
        let process = process::Process(self.started);
        self.registry.register_collector(Box::new(process));
        self.registry
            .register_collector(Box::new(Queues(Arc::clone(&self.sources))));
        self.registry.register_collector(Box::new(kubernetes::Kubernetes {
            requests: Arc::clone(&self.by_resource),
            in_flight: self.in_flight.clone(),
            handshake_failures: self.handshake_failures.clone(),
            sources: Arc::clone(&self.sources),
        }));
        let registry = self.registry.sub_registry_with_prefix("insula");
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
        let help = "Events that wait to be written to the audit log";
        registry.register("audit_queue_events", help, self.audit_queue.clone());
        let help = "Time of requests to webhooks, token issuers and mounted servers";
        let calls = self.call_seconds.clone();
        registry.register_with_unit("outbound_request_duration", help, Unit::Seconds, calls);
        let help = "Spans and points of metrics for the collector, by outcome";
        registry.register("otlp_exported", help, self.exported.0.clone());
        registry.register_collector(Box::new(Parts(Arc::clone(&self.sources))));
    }

    /// Adds the parts of a built server. A second server of the process adds none.
    pub(crate) fn add_sources(&self, sources: Sources) {
        drop(self.sources.set(sources));
    }

    /// Returns the start of the process.
    pub(crate) fn started(&self) -> SystemTime {
        self.started
    }

    /// Counts an answered request.
    pub fn request(&self, request: Measured<'_>, code: http::StatusCode, took: Duration) {
        let class = Class::from(request.kind.class);
        let labels = RequestLabels {
            verb: VerbLabel(request.kind.verb),
            class,
            code: code.into(),
        };
        self.by_resource.count(&request, class, code, took);
        self.requests.get_or_create(&labels).inc();
        self.request_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts audit events that were written or lost.
    pub(crate) fn audited(&self, outcome: AuditOutcome, count: u64) {
        if count > 0 {
            self.audit_events.get_or_create(&AuditLabels { outcome }).inc_by(count);
        }
    }

    /// Returns the gauge of audit events that wait to be written.
    pub(crate) fn audit_queue(&self) -> &Gauge<i64, AtomicI64> {
        &self.audit_queue
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

    /// Returns the gauge of the bytes of gRPC messages.
    pub(crate) fn message_bytes(&self) -> Gauge<i64, AtomicI64> {
        self.message_bytes.clone()
    }

    /// Counts a commit that the store answered.
    pub fn commit(&self, outcome: CommitOutcome, took: Duration) {
        self.commit_seconds
            .get_or_create(&CommitLabels { outcome })
            .observe(took.as_secs_f64());
    }

    /// Counts a request to another server.
    pub(crate) fn called(&self, purpose: Purpose, outcome: CallOutcome, took: Duration) {
        let labels = CallLabels { purpose, outcome };
        self.call_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Returns all metrics as OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("a String takes everything");
        text
    }
}

impl PortMetrics for Metrics {
    fn opened(&self) {
        self.connections.inc();
    }

    fn ended(&self) {
        self.connections.dec();
    }

    fn closed(&self, reason: ClosedFor) {
        let reason = ReasonLabel(reason);
        self.connections_closed.get_or_create(&ClosedLabels { reason }).inc();
    }

    fn stream_reset(&self) {
        self.streams_reset.inc();
    }

    fn handshake_failed(&self) {
        self.handshake_failures.inc();
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
    use insula_api::Verb;
    use insula_edge::port::ResourceClass;

    use super::*;

    #[test]
    fn text_has_closed_labels_and_gauges_that_come_back() {
        let metrics = Metrics::new("1.2.3");
        let took = Duration::from_millis(3);
        let request = |verb: Verb, class: ResourceClass, code: http::StatusCode| {
            let kind = RequestKind {
                verb: Some(verb),
                class,
                resource: None,
            };
            let request = Measured {
                kind: &kind,
                method: &http::Method::GET,
                check: "",
            };
            metrics.request(request, code, took);
        };
        request(Verb::List, ResourceClass::Bound, http::StatusCode::OK);
        request(Verb::List, ResourceClass::Bound, http::StatusCode::CREATED);
        request(Verb::Get, ResourceClass::System, http::StatusCode::GONE);
        metrics.commit(CommitOutcome::Committed, took);
        metrics.called(Purpose::Issuer, CallOutcome::Failed, took);
        metrics.exported.count(Signal::Spans, ExportOutcome::Dropped, 7);
        drop(metrics.in_flight(Effect::Mutating));
        let text = metrics.text();
        for line in [
            "insula_build_info{version=\"1.2.3\"} 1",
            "insula_requests_total{verb=\"List\",class=\"Bound\",code=\"Success\"} 2",
            "insula_requests_total{verb=\"Get\",class=\"System\",code=\"ClientError\"} 1",
            "insula_request_duration_seconds_count{verb=\"List\",class=\"Bound\",code=\"Success\"} 2",
            "insula_commit_duration_seconds_count{outcome=\"Committed\"} 1",
            "insula_outbound_request_duration_seconds_count{purpose=\"Issuer\",outcome=\"Failed\"} 1",
            "insula_otlp_exported_total{signal=\"Spans\",outcome=\"Dropped\"} 7",
            "insula_requests_in_flight{effect=\"Mutating\"} 0",
        ] {
            assert!(text.lines().any(|got| got == line), "{line} in\n{text}");
        }
    }
}
