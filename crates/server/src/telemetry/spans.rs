//! Spans of OpenTelemetry: which are recorded, what waits for the collector, and attributes that
//! are known late.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use insula_api::measure::TRACE;
use opentelemetry::{
    Context, KeyValue,
    trace::{Link, SpanKind, Status, TraceContextExt, TraceId},
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{
        BatchConfigBuilder, BatchSpanProcessor, Sampler, SamplingDecision, SamplingResult, ShouldSample,
        Span as SdkSpan, SpanData, SpanExporter, SpanProcessor,
    },
};
use tracing::{Metadata, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::outage::Outage;
use crate::metrics::{ExportOutcome, Exports, Signal};

/// Maximum number of spans that wait for the collector: a few megabytes.
const QUEUE_SPANS: usize = 4096;
/// Maximum number of spans of one message.
const BATCH_SPANS: usize = 512;
/// Time in which spans gather for a message.
const LINGER: Duration = Duration::from_millis(500);
/// Maximum number of bytes of a text.
const TEXT_BYTES_MAX: usize = 256;

/// Returns true for spans of traces. All others are context of log lines.
pub(super) fn is_traced(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == TRACE
}

/// Sampler of requests. A request's spans are recorded if its caller records the trace; a trace
/// that begins here is recorded with a given frequency. A span outside of requests is not.
#[derive(Debug, Clone)]
pub(super) struct Requests(Sampler);

impl Requests {
    /// Creates a sampler that records so many of a million traces.
    pub(super) fn new(per_million: u64) -> Self {
        Requests(Sampler::TraceIdRatioBased(per_million as f64 / 1e6))
    }
}

impl ShouldSample for Requests {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let caller = parent.map(|parent| parent.span().span_context().clone());
        let (is_sampled, trace_state) = match caller.filter(|caller| caller.is_valid()) {
            Some(caller) => (caller.is_sampled(), caller.trace_state().clone()),
            None if *kind == SpanKind::Server => {
                return self.0.should_sample(parent, trace, name, kind, attributes, links);
            }
            None => Default::default(),
        };
        SamplingResult {
            decision: match is_sampled {
                true => SamplingDecision::RecordAndSample,
                false => SamplingDecision::Drop,
            },
            attributes: Vec::new(),
            trace_state,
        }
    }
}

/// Queue of spans for the collector. What does not fit is dropped and counted; no request waits.
///
/// The SDK's own processor has the same limit, and tells nobody what it dropped.
#[derive(Debug)]
pub(super) struct Queue {
    batches: BatchSpanProcessor,
    waiting: Arc<AtomicUsize>,
    exports: Exports,
}

impl Queue {
    /// Creates an empty queue in front of an exporter.
    pub(super) fn new(exporter: impl SpanExporter + 'static, exports: Exports) -> Self {
        let waiting = Arc::new(AtomicUsize::new(0));
        let counted = Counted {
            exporter,
            waiting: Arc::clone(&waiting),
            exports: exports.clone(),
            outage: Outage::new("traces"),
        };
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_SPANS)
            .with_max_export_batch_size(BATCH_SPANS)
            .with_scheduled_delay(LINGER);
        Queue {
            batches: BatchSpanProcessor::builder(counted)
                .with_batch_config(config.build())
                .build(),
            waiting,
            exports,
        }
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, span: &mut SdkSpan, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.waiting.fetch_add(1, Ordering::AcqRel) < QUEUE_SPANS {
            self.batches.on_end(span);
        } else {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            self.exports.count(Signal::Spans, ExportOutcome::Dropped, 1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// Exporter whose spans are counted.
#[derive(Debug)]
struct Counted<E> {
    exporter: E,
    waiting: Arc<AtomicUsize>,
    exports: Exports,
    outage: Outage,
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        self.waiting.fetch_sub(count, Ordering::AcqRel);
        let done = self.exporter.export(batch).await;
        let outcome = match done.is_ok() {
            true => ExportOutcome::Sent,
            false => ExportOutcome::Failed,
        };
        self.exports.count(Signal::Spans, outcome, count as u64);
        let cause = done.as_ref().err().map(|error| error as &dyn std::fmt::Display);
        self.outage.record(cause.map_or(Ok(()), Err));
        done
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// A span that gets its name and attributes as they are known. Nothing happens to a span that is
/// not one of a trace.
pub(crate) struct Recorded<'a>(pub(crate) &'a Span);

impl Recorded<'_> {
    /// Sets the name.
    pub(crate) fn name(&self, name: String) {
        self.0.context().span().update_name(name);
    }

    /// Adds an attribute with a text.
    pub(crate) fn text(&self, key: &'static str, text: &str) {
        if !self.0.is_disabled() {
            self.0.set_attribute(key, cut(text));
        }
    }

    /// Adds an attribute with a number.
    pub(crate) fn number(&self, key: &'static str, number: i64) {
        self.0.set_attribute(key, number);
    }

    /// Marks the span as failed.
    pub(crate) fn fail(&self, message: &str) {
        if !self.0.is_disabled() {
            self.0.set_status(Status::error(cut(message)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceState, TracerProvider};
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing::{field::Empty, info_span};
    use tracing_subscriber::{Layer, filter::filter_fn, layer::SubscriberExt};

    use super::*;
    use crate::metrics::Metrics;

    /// Exporter that keeps what it gets, once it may go on.
    #[derive(Debug, Clone, Default)]
    struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for Kept {
        async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().unwrap().append(&mut batch);
            Ok(())
        }
    }

    fn spans_of(per_million: u64, work: impl FnOnce()) -> Vec<SpanData> {
        let kept = Kept::default();
        let provider = SdkTracerProvider::builder()
            .with_sampler(Requests::new(per_million))
            .with_span_processor(Queue::new(kept.clone(), Exports::default()))
            .build();
        let layer = super::super::layer(provider.tracer("test")).with_filter(filter_fn(is_traced));
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, work);
        provider.shutdown().unwrap();
        kept.0.lock().unwrap().clone()
    }

    fn caller(is_sampled: bool) -> Context {
        let flags = TraceFlags::default().with_sampled(is_sampled);
        let state = TraceState::from_key_value([("a", "1")]).unwrap();
        let caller = SpanContext::new(TraceId::from(7), SpanId::from(8), flags, true, state);
        Context::new().with_remote_span_context(caller)
    }

    fn request() -> Span {
        info_span!(target: TRACE, parent: None, "request", otel.kind = "server")
    }

    #[test]
    fn spans_of_a_request_are_its_children() {
        let spans = spans_of(0, || {
            let request = request();
            request.set_parent(caller(true)).unwrap();
            request.in_scope(|| {
                info_span!("unrelated").in_scope(|| {
                    let inner = info_span!(target: TRACE, "inner", otel.kind = "client", n = 3, m = Empty);
                    inner.record("m", 4);
                    Recorded(&inner).fail("it broke");
                });
            });
            Recorded(&request).name("GET /x".to_owned());
            Recorded(&request).number("http.response.status_code", 200);
            info_span!(target: TRACE, "outside of requests").in_scope(|| ());
        });
        let [inner, request] = spans.as_slice() else {
            panic!("{spans:?}");
        };
        assert_eq!((&*request.name, &request.span_kind), ("GET /x", &SpanKind::Server));
        assert_eq!(request.parent_span_id, SpanId::from(8));
        assert_eq!((&*inner.name, &inner.span_kind), ("inner", &SpanKind::Client));
        assert_eq!(inner.parent_span_id, request.span_context.span_id());
        assert_eq!(inner.span_context.trace_id(), TraceId::from(7));
        assert_eq!(inner.span_context.trace_state().header(), "a=1");
        assert_eq!(inner.attributes, [KeyValue::new("n", 3), KeyValue::new("m", 4)]);
        assert_eq!(inner.status, Status::error("it broke"));
        assert!(inner.end_time <= request.end_time);
    }

    #[test]
    fn traces_that_are_not_sampled_are_continued_and_not_recorded() {
        let spans = spans_of(0, || {
            let continued = request();
            continued.set_parent(caller(false)).unwrap();
            let own = continued.context().span().span_context().clone();
            assert_eq!((own.trace_id(), own.is_sampled()), (TraceId::from(7), false));
            assert!(!request().context().span().span_context().is_sampled());
        });
        assert!(spans.is_empty(), "{spans:?}");
        let spans = spans_of(1_000_000, || drop(request()));
        assert_eq!(spans[0].parent_span_id, SpanId::INVALID);
    }

    #[test]
    fn a_full_queue_drops_spans_and_counts_them() {
        /// Exporter that waits for its end.
        #[derive(Debug)]
        struct Stuck(Arc<Mutex<()>>);

        impl SpanExporter for Stuck {
            async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
                drop(self.0.lock().unwrap());
                Ok(())
            }
        }

        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let exports = Exports::default();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(Queue::new(Stuck(Arc::clone(&gate)), exports.clone()))
            .build();
        let layer = super::super::layer(provider.tracer("test")).with_filter(filter_fn(is_traced));
        let metrics = Metrics::with_exports("1", exports);
        let counted = |outcome: &str| -> usize {
            let text = metrics.text();
            let name = format!("insula_otlp_exported_total{{signal=\"Spans\",outcome=\"{outcome}\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&name));
            line.and_then(|count| count.parse().ok()).expect("a count")
        };
        let ended = 2 * QUEUE_SPANS;
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            (0..ended).for_each(|_| drop(request()));
        });
        // One message at most has left the queue.
        let dropped = counted("Dropped");
        assert!(
            (QUEUE_SPANS - BATCH_SPANS..=QUEUE_SPANS).contains(&dropped),
            "{dropped}"
        );
        drop(closed);
        provider.shutdown().unwrap();
        assert_eq!((counted("Sent"), counted("Failed")), (ended - dropped, 0));
    }

    #[test]
    fn texts_are_cut_at_a_letter() {
        assert_eq!(cut(&"é".repeat(200)).len(), 256);
        assert_eq!(cut(&format!("a{}", "é".repeat(200))).len(), 255);
    }
}
