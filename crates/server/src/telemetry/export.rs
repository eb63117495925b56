//! Export of metrics to a collector by OTLP over gRPC, periodically. No request waits for it.

use std::{sync::Arc, time::Duration};

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
use tonic::transport::Channel;

use super::{SEND, SERVICE};
use crate::{
    VERSION,
    metrics::{
        ExportOutcome, Exports, Metrics, Signal,
        otlp::{self, Moments},
    },
};

/// Periodic export of metrics.
pub(super) struct MetricExport {
    client: MetricsServiceClient<Channel>,
    resource: Resource,
    exports: Exports,
    period: Duration,
}

impl MetricExport {
    pub(super) fn new(
        channel: Channel,
        resource: &opentelemetry_sdk::Resource,
        exports: Exports,
        period: Duration,
    ) -> Self {
        MetricExport {
            client: MetricsServiceClient::new(channel),
            resource: Resource {
                attributes: ResourceAttributesWithSchema::from(resource).attributes.0,
                ..Resource::default()
            },
            exports,
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
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope),
                    metrics,
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        };
        let mut client = self.client.clone();
        let cause = match timeout(SEND, client.export(request)).await {
            Ok(Ok(answer)) => {
                let refused = answer.into_inner().partial_success;
                let refused = refused.map_or(0, |partial| partial.rejected_data_points);
                let refused = u64::try_from(refused).unwrap_or_default().min(count);
                self.exports.count(Signal::Metrics, ExportOutcome::Failed, refused);
                self.exports
                    .count(Signal::Metrics, ExportOutcome::Sent, count - refused);
                return;
            }
            Ok(Err(status)) => status.to_string(),
            Err(_) => format!("no answer within {} s", SEND.as_secs()),
        };
        self.exports.count(Signal::Metrics, ExportOutcome::Failed, count);
        tracing::debug!(cause, count, "metrics did not reach the collector");
    }
}
