//! Settings of the export of telemetry.

use serde::{Deserialize, Serialize};

const MILLION: u64 = 1_000_000;

/// Telemetry that leaves the process. `/metrics` is always served and needs no setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TelemetryConfig {
    /// URL of an OpenTelemetry collector (OTLP over gRPC), as `http://host:4317`. `None` for no
    /// exporter.
    pub otlp_endpoint: Option<String>,
    /// Seconds between two exports of metrics.
    pub metrics_seconds: u64,
    /// Traces that begin here and are recorded, of a million. A caller's trace is recorded if the
    /// caller says so.
    pub sampling_rate_per_million: u64,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            metrics_seconds: 30,
            sampling_rate_per_million: MILLION,
        }
    }
}

impl TelemetryConfig {
    /// Returns the key of a setting that cannot be used, with the cause and the fix.
    pub(super) fn mistake(&self) -> Option<(&'static str, String)> {
        if self.metrics_seconds == 0 {
            return Some(("telemetry.metricsSeconds", "must be at least 1".to_owned()));
        }
        if self.sampling_rate_per_million > MILLION {
            let cause = format!("must be at most {MILLION}, which records every trace");
            return Some(("telemetry.samplingRatePerMillion", cause));
        }
        let url = self.otlp_endpoint.as_ref().filter(|url| !url.starts_with("http://"))?;
        let cause =
            format!("`{url}` must be an http:// URL; put a collector next to the server to send elsewhere over TLS");
        Some(("telemetry.otlpEndpoint", cause))
    }
}
