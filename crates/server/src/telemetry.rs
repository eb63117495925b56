//! Logs, traces and OTLP, set up once for the process. With `metrics`, the only module that uses
//! OpenTelemetry.
//!
//! ```text
//! spans   ─▶ tracing-opentelemetry ─▶ Queue, in batches ─▶ collector
//! Metrics ─▶ MetricExport, periodically ─────────────────▶ collector
//! ```

pub(crate) mod context;
mod export;
mod outage;
pub(crate) mod spans;

use std::{
    env,
    ffi::OsString,
    io::IsTerminal,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use insula_api::{Rng, measure::TRACE};
use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_otlp::{WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{SdkTracer, SdkTracerProvider},
};
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use tonic::transport::{Channel, Endpoint};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{FilterExt, LevelFilter, filter_fn},
    layer::SubscriberExt,
    registry::LookupSpan,
    reload,
    util::SubscriberInitExt,
};

use crate::{
    StartError, VERSION,
    config::{Config, LogFormat, TelemetryConfig},
    metrics::{Exports, Metrics},
};
use export::MetricExport;
use spans::{Queue, Requests};

const SERVICE: &str = "insula";
/// Time in which the collector has to take a message.
const SEND: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(2);
/// Time at the end for telemetry that is left.
const FLUSH: Duration = Duration::from_secs(5);

/// Export of telemetry. Does nothing without a collector.
#[derive(Default)]
pub(crate) struct Telemetry {
    exports: Exports,
    collector: Option<Collector>,
    stop: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// The level of the log.
    pub(crate) log: LogLevel,
}

struct Collector {
    traces: SdkTracerProvider,
    channel: Channel,
    resource: Resource,
    /// Time between two exports of metrics.
    period: Duration,
}

/// Levels that a directive without a target may name.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The level of the log, which can be changed while the program runs. A server that does not own
/// the log of its process has none.
#[derive(Clone, Default)]
pub struct LogLevel(Option<Arc<Reload>>);

struct Reload {
    present: Mutex<String>,
    set: Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>,
}

impl LogLevel {
    /// Returns the present level.
    pub(crate) fn present(&self) -> Option<String> {
        let reload = self.0.as_ref()?;
        let present = reload.present.lock().unwrap_or_else(PoisonError::into_inner);
        Some(present.clone())
    }

    /// Checks a level, and sets it unless `check_only`.
    ///
    /// # Errors
    /// The text is no level, or the server does not own the log.
    pub(crate) fn set(&self, level: &str, check_only: bool) -> Result<(), String> {
        let filter = filter(level)?;
        let reload = self
            .0
            .as_ref()
            .ok_or("this server does not own the log of its process")?;
        if !check_only {
            let mut present = reload.present.lock().unwrap_or_else(PoisonError::into_inner);
            (reload.set)(filter)?;
            level.clone_into(&mut present);
        }
        Ok(())
    }
}

/// Reads a level, or directives by module.
///
/// # Errors
/// The text is neither. The message lists the levels.
pub(crate) fn filter(level: &str) -> Result<EnvFilter, String> {
    // A single word is a level, and not the name of a module that the filter would take it for: it
    // would silence all others.
    let is_level = |part: &str| part.contains('=') || LEVELS.contains(&&*part.trim().to_ascii_lowercase());
    if let Some(part) = level.split(',').find(|part| !is_level(part)) {
        let levels = LEVELS.join(", ");
        return Err(format!(
            "`{part}` is not one of {levels}, or a directive such as insula_store=debug"
        ));
    }
    EnvFilter::try_new(level).map_err(|error| error.to_string())
}

/// Installs the subscriber of the process. A program calls it once; servers in tests and
/// demonstrations do without.
///
/// Call it inside a tokio runtime, which the connection of the exporter needs. Without an endpoint
/// there is no exporter.
pub(crate) fn install(config: &Config, rng: &dyn Rng) -> Result<Telemetry, StartError> {
    let logs = |cause: String| StartError::Telemetry { what: "logs", cause };
    let filter = filter(&config.log.level).map_err(|error| logs(format!("log.level: {error}")))?;
    let mut telemetry = Telemetry::default();
    // Without a collector the filter stands before everything, and spans of traces are disabled
    // where they are written.
    let Some(endpoint) = &config.telemetry.otlp_endpoint else {
        let (filter, handle) = reload::Layer::new(without_traces(filter));
        let subscriber = tracing_subscriber::registry().with(lines(config)).with(filter);
        subscriber.try_init().map_err(|error| logs(error.to_string()))?;
        telemetry.log = log_level(config, handle);
        return Ok(telemetry);
    };
    let collector = connect(endpoint, &config.telemetry, telemetry.exports.clone(), rng)?;
    let (filter, handle) = reload::Layer::new(without_traces(filter));
    let traced = filter_fn(spans::is_traced).and(LevelFilter::INFO);
    let subscriber = tracing_subscriber::registry()
        .with(lines(config).with_filter(filter))
        .with(layer(collector.traces.tracer(SERVICE)).with_filter(traced));
    subscriber.try_init().map_err(|error| logs(error.to_string()))?;
    telemetry.log = log_level(config, handle);
    telemetry.collector = Some(collector);
    Ok(telemetry)
}

/// Returns the layer that records spans.
fn layer<S>(tracer: SdkTracer) -> OpenTelemetryLayer<S, SdkTracer>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    // No span has a place in the code: there are few of them, and their names are unique.
    tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        // Parents are those of `tracing`; nothing asks OpenTelemetry for the present span.
        .with_context_activation(false)
}

/// Takes the spans of traces out of a filter: they are no context of log lines, which name the
/// request.
fn without_traces(filter: EnvFilter) -> EnvFilter {
    filter.add_directive(format!("{TRACE}=off").parse().expect("a directive"))
}

fn log_level<S: 'static>(config: &Config, handle: reload::Handle<EnvFilter, S>) -> LogLevel {
    LogLevel(Some(Arc::new(Reload {
        present: Mutex::new(config.log.level.clone()),
        set: Box::new(move |filter| handle.reload(without_traces(filter)).map_err(|error| error.to_string())),
    })))
}

/// Returns the layer that writes log lines.
fn lines(config: &Config) -> Box<dyn Layer<Registry> + Send + Sync> {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match config.log.format {
        LogFormat::Human => lines
            .with_target(false)
            .with_ansi(has_colours(std::io::stderr().is_terminal(), env::var_os("NO_COLOR")))
            .boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    }
}

/// Returns true for a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
fn has_colours(is_terminal: bool, no_color: Option<OsString>) -> bool {
    is_terminal && no_color.is_none_or(|value| value.is_empty())
}

/// Creates the exporter of spans. It connects when there is something to send.
fn connect(endpoint: &str, config: &TelemetryConfig, exports: Exports, rng: &dyn Rng) -> Result<Collector, StartError> {
    let failed = |cause: String| StartError::Telemetry { what: "OTLP", cause };
    let channel = Endpoint::from_shared(endpoint.to_owned()).map_err(|error| failed(error.to_string()))?;
    let channel = channel.connect_timeout(CONNECT).timeout(SEND).connect_lazy();
    let instance = format!("{:016x}", rng.next_u64());
    let resource = Resource::builder()
        .with_service_name(SERVICE)
        .with_attributes([
            KeyValue::new("service.version", VERSION),
            KeyValue::new("service.instance.id", instance),
        ])
        .build();
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_channel(channel.clone())
        .with_timeout(SEND)
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let traces = SdkTracerProvider::builder()
        .with_sampler(Requests::new(config.sampling_rate_per_million))
        .with_span_processor(Queue::new(exporter, exports))
        .with_resource(resource.clone())
        .build();
    Ok(Collector {
        traces,
        channel,
        resource,
        period: Duration::from_secs(config.metrics_seconds),
    })
}

impl Telemetry {
    /// Creates the metrics of a server, and exports them from now on.
    pub(crate) fn metrics(&self) -> Arc<Metrics> {
        let metrics = Arc::new(Metrics::with_exports(VERSION, self.exports.clone()));
        if let Some(collector) = &self.collector {
            let Collector {
                channel,
                resource,
                period,
                ..
            } = collector;
            let export = MetricExport::new(channel.clone(), resource, self.exports.clone(), *period);
            let task = tokio::spawn(export.run(Arc::clone(&metrics), self.stop.subscribe()));
            self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        }
        metrics
    }

    /// Sends what is left. Takes seconds when the collector does not answer.
    pub(crate) async fn flush(self) {
        let Some(collector) = self.collector else { return };
        self.stop.send_replace(true);
        let tasks = self.tasks.into_inner().unwrap_or_else(PoisonError::into_inner);
        let metrics = timeout(FLUSH, futures_util::future::join_all(tasks));
        let traces = tokio::task::spawn_blocking(move || collector.traces.shutdown_with_timeout(FLUSH));
        let (metrics, traces) = tokio::join!(metrics, traces);
        if metrics.is_err() || !matches!(traces, Ok(Ok(()))) {
            tracing::warn!("the last traces or metrics did not reach the collector");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_words_and_directives() {
        for level in ["info", "WARN", "off", "info,insula_store=debug", "insula_store=trace"] {
            assert!(filter(level).is_ok(), "{level}");
        }
        for level in ["warning", "nope", "", "info,insula_store", "insula_store=warning"] {
            assert!(filter(level).is_err(), "{level}");
        }
    }

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        assert!(has_colours(true, None) && has_colours(true, Some(OsString::new())));
        assert!(!has_colours(true, Some("1".into())) && !has_colours(false, None));
    }
}
