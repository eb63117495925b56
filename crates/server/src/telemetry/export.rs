//! Export of metrics to a collector by OTLP over gRPC, periodically. No request waits for it.

use std::{env, sync::Arc, time::Duration};

use insula_apiserver::query::percent_decoded;
use opentelemetry_proto::{
    tonic::{
        collector::metrics::v1::{ExportMetricsServiceRequest, metrics_service_client::MetricsServiceClient},
        common::v1::InstrumentationScope,
        metrics::v1::{ResourceMetrics, ScopeMetrics},
        resource::v1::Resource,
    },
    transform::common::tonic::ResourceAttributesWithSchema,
};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, timeout},
};
use tonic::{
    Request,
    metadata::{MetadataKey, MetadataMap},
    transport::Channel,
};

use super::{SEND, SERVICE, outage::Outage};
use crate::{
    VERSION,
    metrics::{
        ExportOutcome, Exports, Metrics, Signal,
        otlp::{self, Moments},
    },
};

/// OpenTelemetry's variables with headers for a collector that asks for a credential, the one that
/// wins first. The exporter of spans reads its own.
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];

/// Periodic export of metrics.
pub(super) struct MetricExport {
    client: MetricsServiceClient<Channel>,
    headers: MetadataMap,
    resource: Resource,
    exports: Exports,
    outage: Outage,
    period: Duration,
}

impl MetricExport {
    pub(super) fn new(
        channel: Channel,
        resource: &opentelemetry_sdk::Resource,
        exports: Exports,
        period: Duration,
    ) -> Self {
        let given = HEADERS.iter().find_map(|name| env::var(name).ok()).unwrap_or_default();
        MetricExport {
            client: MetricsServiceClient::new(channel),
            headers: headers(&given),
            resource: Resource {
                attributes: ResourceAttributesWithSchema::from(resource).attributes.0,
                ..Resource::default()
            },
            exports,
            outage: Outage::new("metrics"),
            period,
        }
    }

    /// Sends metrics until the server ends, and once more then.
    pub(super) async fn run(self, metrics: Arc<Metrics>, mut stop: watch::Receiver<bool>) {
        let mut ticks = interval(self.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is at once.
        ticks.tick().await;
        loop {
            let is_last = tokio::select! {
                _ = ticks.tick() => false,
                // A sender that is gone ends it as well.
                _ = stop.wait_for(|stop| *stop) => true,
            };
            self.send(&metrics).await;
            if is_last {
                return;
            }
        }
    }

    async fn send(&self, metrics: &Metrics) {
        let (metrics, count) = otlp::metrics(&metrics.text(), Moments::since(metrics.started()));
        let scope = InstrumentationScope {
            name: SERVICE.to_owned(),
            version: VERSION.to_owned(),
            ..InstrumentationScope::default()
        };
        let mut request = Request::new(ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope),
                    metrics,
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        });
        *request.metadata_mut() = self.headers.clone();
        let mut client = self.client.clone();
        let cause = match timeout(SEND, client.export(request)).await {
            Ok(Ok(answer)) => {
                let refused = answer.into_inner().partial_success;
                let refused = refused.map_or(0, |partial| partial.rejected_data_points);
                let refused = u64::try_from(refused).unwrap_or_default().min(count);
                self.exports.count(Signal::Metrics, ExportOutcome::Failed, refused);
                self.exports
                    .count(Signal::Metrics, ExportOutcome::Sent, count - refused);
                self.outage.record(Ok(()));
                return;
            }
            Ok(Err(status)) => status.to_string(),
            Err(_) => format!("no answer within {} s", SEND.as_secs()),
        };
        self.exports.count(Signal::Metrics, ExportOutcome::Failed, count);
        self.outage.record(Err(&cause));
    }
}

/// Parses `name=value,name=value` with percent-encoded values. What is no header is left out, as by
/// the exporter of spans.
fn headers(text: &str) -> MetadataMap {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    let header = |(name, value): (&str, &str)| {
        let name = MetadataKey::from_bytes(name.trim().to_ascii_lowercase().as_bytes()).ok()?;
        Some((name, percent_decoded(value.trim()).parse().ok()?))
    };
    let mut headers = MetadataMap::new();
    pairs.filter_map(header).for_each(|(name, value)| {
        headers.insert(name, value);
    });
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_in_examples() {
        for (text, want) in [
            ("", &[][..]),
            ("a=1", &[("a", "1")]),
            (" A = 1 ,b=x%3Dy%20z,", &[("a", "1"), ("b", "x=y z")]),
            ("no value,=1,a b=2,c=%0a,d=4", &[("d", "4")]),
        ] {
            let got = headers(text);
            assert_eq!(got.len(), want.len(), "{text}");
            for (name, value) in want {
                assert_eq!(got.get(*name).and_then(|got| got.to_str().ok()), Some(*value), "{text}");
            }
        }
    }
}
