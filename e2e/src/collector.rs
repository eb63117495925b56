//! An OpenTelemetry collector: OTLP over gRPC, decoded by OpenTelemetry's own definitions.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::{
        metrics::v1::{
            ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_server::{MetricsService, MetricsServiceServer},
        },
        trace::v1::{
            ExportTraceServiceRequest, ExportTraceServiceResponse,
            trace_service_server::{TraceService, TraceServiceServer},
        },
    },
    common::v1::{AnyValue, KeyValue, any_value::Value},
    metrics::v1::{metric::Data, number_data_point},
};
use tokio::net::TcpListener;
use tonic::{Request, Response, Status};

use crate::{PATIENCE, runtime, until};

/// A span that arrived. Ids are hexadecimal.
#[derive(Debug, Clone)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: i32,
    /// The trace.
    pub trace: String,
    /// Its id.
    pub id: String,
    /// The id of its parent; empty for none.
    pub parent: String,
    /// The `tracestate`.
    pub state: String,
    /// Attributes.
    pub attributes: BTreeMap<String, String>,
    /// True if it is marked as an error.
    pub is_error: bool,
    /// Nanoseconds since 1970 of its begin and end.
    pub time: (u64, u64),
}

/// Point of a metric that arrived.
#[derive(Debug, Clone)]
pub struct Point {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The number; of a distribution, the number of its observations.
    pub value: f64,
    /// The counts of the buckets of a distribution.
    pub buckets: Vec<u64>,
}

/// Metric that arrived.
#[derive(Debug, Clone)]
pub struct Metric {
    /// `gauge`, `counter` or `histogram`.
    pub kind: &'static str,
    /// Its unit.
    pub unit: String,
    /// Its series.
    pub points: Vec<Point>,
}

#[derive(Default)]
struct Received {
    resource: BTreeMap<String, String>,
    spans: Vec<Span>,
    metrics: BTreeMap<String, Metric>,
    /// Number of messages with metrics.
    exports: usize,
    /// Credentials of the last messages with spans and with metrics.
    credentials: [Option<String>; 2],
}

/// A running collector; it ends with the program.
pub struct Collector {
    url: String,
    received: Arc<Mutex<Received>>,
}

#[derive(Clone)]
struct Sink {
    received: Arc<Mutex<Received>>,
    /// True for a collector that takes messages and never answers.
    hangs: bool,
}

impl Collector {
    /// Starts a collector.
    pub fn start() -> Self {
        Self::serve(false, 0)
    }

    /// Starts a collector at a port.
    pub fn start_at(port: u16) -> Self {
        Self::serve(false, port)
    }

    /// Starts a collector that never answers.
    pub fn hanging() -> Self {
        Self::serve(true, 0)
    }

    fn serve(hangs: bool, port: u16) -> Self {
        let listener = runtime().block_on(TcpListener::bind(("127.0.0.1", port))).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Received::default()));
        let sink = Sink {
            received: Arc::clone(&received),
            hangs,
        };
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        let server = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(sink.clone()))
            .add_service(MetricsServiceServer::new(sink).max_decoding_message_size(64 << 20));
        runtime().spawn(server.serve_with_incoming(incoming));
        Self { url, received }
    }

    /// Returns the URL for `--otlp-endpoint`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the attributes of the process that sends.
    pub fn resource(&self) -> BTreeMap<String, String> {
        self.received.lock().unwrap().resource.clone()
    }

    /// Returns the credentials of the last messages with spans and with metrics.
    pub fn credentials(&self) -> [Option<String>; 2] {
        self.received.lock().unwrap().credentials.clone()
    }

    /// Returns all spans of a trace so far.
    pub fn trace(&self, trace: &str) -> Vec<Span> {
        let received = self.received.lock().unwrap();
        let spans = received.spans.iter();
        spans.filter(|span| span.trace == trace).cloned().collect()
    }

    /// Waits until the spans of a trace fulfil a condition, and returns them.
    pub fn trace_until(&self, trace: &str, enough: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let begun = std::time::Instant::now();
        loop {
            let spans = self.trace(trace);
            if enough(&spans) {
                return spans;
            }
            assert!(begun.elapsed() < PATIENCE, "{spans:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the next message with metrics, and returns what it holds, by name.
    pub fn next_metrics(&self) -> BTreeMap<String, Metric> {
        let known = self.received.lock().unwrap().exports;
        until("metrics arrive", || {
            let received = self.received.lock().unwrap();
            (received.exports > known).then(|| received.metrics.clone())
        })
    }
}

fn credential<T>(request: &Request<T>) -> Option<String> {
    let header = request.metadata().get("authorization")?;
    header.to_str().ok().map(str::to_owned)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(all: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(is)) => is.to_string(),
        other => format!("{other:?}"),
    };
    all.into_iter()
        .map(|attribute| (attribute.key, text(attribute.value)))
        .collect()
}

#[tonic::async_trait]
impl TraceService for Sink {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        let mut received = self.received.lock().unwrap();
        received.credentials[0] = credential(&request);
        for resource in request.into_inner().resource_spans {
            received.resource = attributes(resource.resource.unwrap_or_default().attributes);
            let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            received.spans.extend(spans.map(|span| Span {
                name: span.name,
                kind: span.kind,
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                state: span.trace_state,
                attributes: attributes(span.attributes),
                is_error: span.status.is_some_and(|status| status.code == 2),
                time: (span.start_time_unix_nano, span.end_time_unix_nano),
            }));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Sink {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        let credential = credential(&request);
        let resources = request.into_inner().resource_metrics.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_metrics);
        let metrics = scopes.flat_map(|scope| scope.metrics).map(|metric| {
            let (kind, points) = match metric.data {
                Some(Data::Gauge(gauge)) => ("gauge", gauge.data_points.into_iter().map(number).collect()),
                Some(Data::Sum(sum)) => {
                    assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
                    ("counter", sum.data_points.into_iter().map(number).collect())
                }
                Some(Data::Histogram(histogram)) => {
                    assert_eq!(histogram.aggregation_temporality, 2);
                    let points = histogram.data_points.into_iter().map(|point| Point {
                        labels: attributes(point.attributes),
                        value: point.count as f64,
                        buckets: point.bucket_counts,
                    });
                    ("histogram", points.collect())
                }
                other => panic!("{other:?}"),
            };
            let unit = metric.unit;
            (metric.name, Metric { kind, unit, points })
        });
        let metrics = metrics.collect();
        let mut received = self.received.lock().unwrap();
        received.metrics = metrics;
        received.credentials[1] = credential;
        received.exports += 1;
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

fn number(point: opentelemetry_proto::tonic::metrics::v1::NumberDataPoint) -> Point {
    let value = match point.value {
        Some(number_data_point::Value::AsDouble(number)) => number,
        Some(number_data_point::Value::AsInt(number)) => number as f64,
        None => f64::NAN,
    };
    Point {
        labels: attributes(point.attributes),
        value,
        buckets: Vec::new(),
    }
}
