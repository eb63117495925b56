//! Logs, traces and OTLP, set up once for the process. The only module that uses OpenTelemetry's
//! SDK.

use std::{
    io::IsTerminal,
    sync::{Arc, Mutex, PoisonError},
};

use opentelemetry::{
    metrics::{Meter, MeterProvider},
    trace::TracerProvider,
};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::{Resource, metrics::SdkMeterProvider, trace::SdkTracerProvider};
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, reload, util::SubscriberInitExt};

use crate::{
    StartError,
    config::{Config, LogFormat},
};

const SERVICE: &str = "insula";

/// Exporters that have to be flushed at the end. Empty without a collector.
#[derive(Default)]
pub(crate) struct Telemetry {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
    /// The level of the log.
    pub(crate) log: LogLevel,
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
        // A single word is a level, and not the name of a module that the filter would take it for.
        let is_level = |part: &str| part.contains('=') || LEVELS.contains(&&*part.trim().to_ascii_lowercase());
        let wrong = level.split(',').find(|part| !is_level(part));
        if let Some(part) = wrong {
            let levels = LEVELS.join(", ");
            return Err(format!(
                "`{part}` is not one of {levels}, or a directive such as insula_store=debug"
            ));
        }
        let filter = EnvFilter::try_new(level).map_err(|error| error.to_string())?;
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

/// Installs the subscriber of the process. A program calls it once; servers in tests and
/// demonstrations do without.
///
/// Call it inside a tokio runtime, which the connection of the exporter needs. Without an endpoint
/// there is no exporter.
pub(crate) fn install(config: &Config) -> Result<Telemetry, StartError> {
    let logs = |cause: String| StartError::Telemetry { what: "logs", cause };
    let filter = EnvFilter::try_new(&config.log.level)
        .map_err(|error| logs(format!("log.level `{}`: {error}", config.log.level)))?;
    let (filter, handle) = reload::Layer::new(filter);
    let mut telemetry = match &config.telemetry.otlp_endpoint {
        Some(endpoint) => connect(endpoint)?,
        None => Telemetry::default(),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match config.log.format {
        LogFormat::Human => lines
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal())
            .boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    };
    let spans = telemetry.traces.as_ref().map(|provider| {
        let tracer = provider.tracer(SERVICE);
        tracing_opentelemetry::layer().with_tracer(tracer)
    });
    // The filter applies to both, so that a collector gets the spans that the logs name.
    tracing_subscriber::registry()
        .with(spans)
        .with(lines)
        .with(filter)
        .try_init()
        .map_err(|error| logs(error.to_string()))?;
    telemetry.log = LogLevel(Some(Arc::new(Reload {
        present: Mutex::new(config.log.level.clone()),
        set: Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string())),
    })));
    Ok(telemetry)
}

fn connect(endpoint: &str) -> Result<Telemetry, StartError> {
    let failed = |cause: String| StartError::Telemetry { what: "OTLP", cause };
    let resource = Resource::builder().with_service_name(SERVICE).build();
    let spans = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let metrics = opentelemetry_otlp::MetricExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .map_err(|error| failed(error.to_string()))?;
    Ok(Telemetry {
        log: LogLevel::default(),
        traces: Some(
            SdkTracerProvider::builder()
                .with_batch_exporter(spans)
                .with_resource(resource.clone())
                .build(),
        ),
        metrics: Some(
            SdkMeterProvider::builder()
                .with_periodic_exporter(metrics)
                .with_resource(resource)
                .build(),
        ),
    })
}

impl Telemetry {
    /// Returns the meter of the collector, if one is configured.
    pub(crate) fn meter(&self) -> Option<Meter> {
        self.metrics.as_ref().map(|provider| provider.meter(SERVICE))
    }

    /// Sends buffered telemetry. Blocks for seconds when the collector does not answer.
    pub(crate) fn flush(self) {
        let traces = self.traces.map_or(Ok(()), |provider| provider.shutdown());
        let metrics = self.metrics.map_or(Ok(()), |provider| provider.shutdown());
        if let Err(error) = traces.and(metrics) {
            tracing::warn!(%error, "the last traces or metrics did not reach the collector");
        }
    }
}
