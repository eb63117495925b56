//! Logs, traces and OTLP, set up once for the process. The only module that uses OpenTelemetry's
//! SDK.

use std::io::IsTerminal;

use opentelemetry::{
    metrics::{Meter, MeterProvider},
    trace::TracerProvider,
};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::{Resource, metrics::SdkMeterProvider, trace::SdkTracerProvider};
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

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
    let telemetry = match &config.telemetry.otlp_endpoint {
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
