//! Metrics that parts of the server own: the store, the limits, watches, conversions, the queues of
//! controllers, and the status of exports. They are read when somebody asks for them.

use std::{
    fmt,
    sync::{Arc, OnceLock, Weak},
};

use insula_api::measure::{Counter, Distribution};
use insula_apiserver::ApiServer;
use insula_controllers::QueueMeasures;
use insula_meter::ServerWork;
use insula_store::Measures;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet},
    metrics::MetricType,
    registry::Unit,
};

use crate::api_usage::{self, Rollout, VersionUse};

/// Series of exported versions. Those with the fewest tenants are left out, and counted.
const VERSIONS_MAX: usize = 1_000;
/// Exports with series of their rollout. Those with the fewest bindings are left out, and counted.
const ROLLOUTS_MAX: usize = 200;

/// Workspaces with series of what they store, and owners. Those that store less are left out.
const LARGEST_MAX: usize = 10;
/// Resources with series of the objects that they have.
pub(super) const LARGEST_RESOURCES_MAX: usize = 200;

/// The parts.
pub(crate) struct Sources {
    /// Weak, because its store counts commits in the metrics.
    pub(crate) api: Weak<ApiServer>,
    pub(crate) queues: Vec<Arc<QueueMeasures>>,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

/// Collector of the queues, by the names of client-go.
#[derive(Debug)]
pub(super) struct Queues(pub(super) Arc<OnceLock<Sources>>);

/// Collector of all other parts.
#[derive(Debug)]
pub(super) struct Parts(pub(super) Arc<OnceLock<Sources>>);

impl Collector for Queues {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        match self.0.get() {
            Some(sources) => write_queues(&mut Families(encoder), &sources.queues),
            None => Ok(()),
        }
    }
}

impl Collector for Parts {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(api) = self.0.get().and_then(|sources| sources.api.upgrade()) else {
            return Ok(());
        };
        let out = &mut Families(encoder);
        write_store(out, &api.registry.store.measures())?;
        write_storage(out, &api)?;
        write_limits(out, &api)?;
        write_conversions(out, &api)?;
        write_extensions(out, &api)?;
        let exports = api_usage::read(&api.registry.store.latest().for_server(ServerWork::Housekeeping));
        write_versions(out, &exports.uses)?;
        write_rollouts(out, &exports.rollouts)
    }
}

/// Labels of a series.
type Labels<'a> = &'a [(&'static str, &'a str)];

/// Writer of families of metrics.
pub(super) struct Families<'a>(pub(super) DescriptorEncoder<'a>);

/// Writer of the series of a family.
pub(super) struct Family<'a>(MetricEncoder<'a>);

impl Families<'_> {
    fn begin<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        unit: Option<&'s Unit>,
        kind: MetricType,
    ) -> Result<Family<'s>, fmt::Error> {
        // As the registry writes the help of the metrics that it holds.
        let help = format!("{help}.");
        self.0.encode_descriptor(name, &help, unit, kind).map(Family)
    }

    pub(super) fn counters<'s>(&'s mut self, name: &'s str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.begin(name, help, None, MetricType::Counter)
    }

    pub(super) fn gauges<'s>(&'s mut self, name: &'s str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.begin(name, help, None, MetricType::Gauge)
    }

    pub(super) fn seconds<'s>(&'s mut self, name: &'s str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.begin(name, help, Some(&Unit::Seconds), MetricType::Histogram)
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, count: u64) -> fmt::Result {
        self.counters(name, help)?.count(&[], count)
    }

    /// Writes a gauge without labels.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: i64) -> fmt::Result {
        self.gauges(name, help)?.level(&[], value)
    }

    /// Writes a gauge of bytes without labels.
    pub(super) fn bytes(&mut self, name: &str, help: &str, value: i64) -> fmt::Result {
        let mut family = self.begin(name, help, Some(&Unit::Bytes), MetricType::Gauge)?;
        family.level(&[], value)
    }

    /// Writes a gauge of seconds without labels.
    pub(super) fn time(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let family = self.begin(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        let mut encoder = family.0;
        encoder.encode_gauge(&value)
    }

    /// Writes a count of seconds without labels.
    pub(super) fn time_count(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let family = self.begin(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        let mut encoder = family.0;
        encoder.encode_counter::<NoLabelSet, f64, f64>(&value, None)
    }
}

impl Family<'_> {
    pub(super) fn count(&mut self, labels: Labels<'_>, count: u64) -> fmt::Result {
        match labels {
            [] => self.0.encode_counter::<NoLabelSet, u64, f64>(&count, None),
            labels => {
                let mut encoder = self.0.encode_family(&labels)?;
                encoder.encode_counter::<NoLabelSet, u64, f64>(&count, None)
            }
        }
    }

    pub(super) fn level(&mut self, labels: Labels<'_>, value: i64) -> fmt::Result {
        match labels {
            [] => self.0.encode_gauge(&value),
            labels => self.0.encode_family(&labels)?.encode_gauge(&value),
        }
    }

    pub(super) fn spread(&mut self, labels: Labels<'_>, read: &Distribution) -> fmt::Result {
        let bounds = read.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(read.counts.iter().copied()).collect();
        match labels {
            [] => self
                .0
                .encode_histogram::<NoLabelSet>(read.sum, read.count(), &buckets, None),
            labels => {
                let mut encoder = self.0.encode_family(&labels)?;
                encoder.encode_histogram::<NoLabelSet>(read.sum, read.count(), &buckets, None)
            }
        }
    }
}

pub(super) fn int(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

fn write_store(out: &mut Families<'_>, store: &Measures) -> fmt::Result {
    out.gauge("store_revision", "The latest revision", int(store.revision.0))?;
    let help = "The oldest revision that can be read or watched";
    out.gauge("store_compacted_revision", help, int(store.floor.0))?;
    let help = "Keys in memory, with those of deleted objects in the history";
    out.gauge("store_keys", help, int(store.keys))?;
    let help = "Changes in the history that watches read";
    out.gauge("store_history_changes", help, int(store.history_changes))?;
    let help = "Estimated size of the history";
    out.bytes("store_history", help, int(store.history_bytes))?;
    let help = "Compactions of the history";
    out.counter("store_compactions", help, store.compactions)?;
    // Stores without a file have neither.
    let Some(file) = &store.file else { return Ok(()) };
    out.bytes("store_file", "Size of the file of the store", int(file.bytes))?;
    let help = "Time of each flush of the store's file to the disk";
    out.seconds("store_fsync_duration", help)?.spread(&[], &file.syncs)
}

fn write_storage(out: &mut Families<'_>, api: &ApiServer) -> fmt::Result {
    let largest = api
        .registry
        .store
        .latest()
        .for_server(ServerWork::Housekeeping)
        .largest(LARGEST_MAX);
    let help = "Objects of all workspaces";
    out.gauge("storage_objects", help, int(largest.all.objects))?;
    let help = "Bytes of the objects of all workspaces in memory, with their keys";
    out.bytes("storage", help, int(largest.all.bytes))?;
    let help = "Bytes of the objects of the workspaces that store most";
    let mut workspaces = out.begin("workspace_storage", help, Some(&Unit::Bytes), MetricType::Gauge)?;
    for (cluster, usage) in &largest.clusters {
        workspaces.level(&[("cluster", cluster.as_str())], int(usage.bytes))?;
    }
    let help = "Bytes of the objects of the owners whose workspaces store most";
    let mut owners = out.begin("owner_storage", help, Some(&Unit::Bytes), MetricType::Gauge)?;
    for (owner, usage) in &largest.payers {
        owners.level(&[("owner", owner)], int(usage.bytes))?;
    }
    Ok(())
}

fn write_limits(out: &mut Families<'_>, api: &ApiServer) -> fmt::Result {
    let help = "Requests refused with 429, by the limit";
    let mut refused = out.counters("rejected_requests", help)?;
    for (limit, counter) in api.limits.rejections.read() {
        refused.count(&[("limit", limit)], counter.get())?;
    }
    out.gauge("watches", "Open watches", int(api.limits.open_watches()))?;
    let mut ends = out.counters("watch_ends", "Watches that ended, by reason")?;
    for (reason, counter) in api.limits.watches.ends() {
        ends.count(&[("reason", reason)], counter.get())?;
    }
    let help = "Revisions that a watch is behind the store, at each of its bookmarks";
    let mut lag = out.begin("watch_lag_revisions", help, None, MetricType::Histogram)?;
    lag.spread(&[], &api.limits.watches.lag.read())
}

fn write_conversions(out: &mut Families<'_>, api: &ApiServer) -> fmt::Result {
    let measures = &api.registry.cache.measures;
    let help = "Objects converted for readers, by resource; the rest as other";
    let mut converted = out.counters("conversions", help)?;
    let (shown, others) = measures.by_resource.read();
    for (resource, count) in shown {
        converted.count(&[("resource", &*resource)], count)?;
    }
    // No resource has this name: a plural is followed by its group, or is built-in.
    converted.count(&[("resource", "other")], others)?;
    let count = |out: &mut Families<'_>, name, help, counter: &Counter| out.counter(name, help, counter.get());
    let help = "Objects that could not be converted for readers";
    count(out, "conversion_failures", help, &measures.failures)?;
    let help = "Objects whose conversion was found in the cache";
    count(out, "conversion_cache_hits", help, &measures.hits)
}

fn write_extensions(out: &mut Families<'_>, api: &ApiServer) -> fmt::Result {
    let help = "APIServices that are not available, of all workspaces, by reason";
    let mut present = out.gauges("aggregator_unavailable_apiservices", help)?;
    for (reason, count) in api.unavailable_services() {
        present.level(&[("reason", reason)], int(count))?;
    }
    let help = "APIServices that became unavailable, by reason";
    let mut lost = out.counters("aggregator_unavailable_apiservice", help)?;
    let mut counts = api.extensions.outages.read();
    counts.try_for_each(|(reason, count)| lost.count(&[("reason", reason)], count))
}

fn write_queues(out: &mut Families<'_>, queues: &[Arc<QueueMeasures>]) -> fmt::Result {
    let each = |mut family: Family<'_>, write: &dyn Fn(&mut Family<'_>, Labels<'_>, &QueueMeasures) -> fmt::Result| {
        queues
            .iter()
            .try_for_each(|queue| write(&mut family, &[("name", queue.name)], queue))
    };
    let help = "Keys that wait in the queue of a controller";
    each(out.gauges("workqueue_depth", help)?, &|family, labels, queue| {
        family.level(labels, queue.depth.get())
    })?;
    let help = "Keys added to the queue";
    each(out.counters("workqueue_adds", help)?, &|family, labels, queue| {
        family.count(labels, queue.adds.get())
    })?;
    let help = "Keys that failed and are attempted again later";
    each(out.counters("workqueue_retries", help)?, &|family, labels, queue| {
        family.count(labels, queue.retries.get())
    })?;
    let help = "Time that a key waited in the queue";
    let family = out.seconds("workqueue_queue_duration", help)?;
    each(family, &|family, labels, queue| {
        family.spread(labels, &queue.queue_seconds.read())
    })?;
    let family = out.seconds("workqueue_work_duration", "Time of the work on a key")?;
    each(family, &|family, labels, queue| {
        family.spread(labels, &queue.work_seconds.read())
    })
}

fn write_versions(out: &mut Families<'_>, uses: &[VersionUse]) -> fmt::Result {
    let shown = &uses[..uses.len().min(VERSIONS_MAX)];
    let help = "Last use of an exported API version by a tenant, to the hour";
    let name = "api_version_last_use_timestamp";
    let mut last_use = out.begin(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
    for usage in shown {
        if let Some(last) = usage.last_used {
            last_use.level(&version_labels(usage), last.0)?;
        }
    }
    let help = "Workspaces that used an exported API version within the days of its retirement";
    let mut tenants = out.gauges("api_version_tenants", help)?;
    for usage in shown {
        tenants.level(&version_labels(usage), int(usage.tenants))?;
    }
    let help = "Exported API versions without series, because there are too many";
    out.gauge("api_versions_left_out", help, int(uses.len() - shown.len()))
}

fn version_labels(usage: &VersionUse) -> [(&'static str, &str); 3] {
    [
        ("export", &usage.export),
        ("resource", &usage.resource),
        ("version", &usage.version),
    ]
}

fn write_rollouts(out: &mut Families<'_>, rollouts: &[Rollout]) -> fmt::Result {
    let shown = &rollouts[..rollouts.len().min(ROLLOUTS_MAX)];
    let help = "Bindings of an export by the state of the rollout of its present release";
    let mut bindings = out.gauges("rollout_bindings", help)?;
    for rollout in shown {
        let waiting = rollout.bindings.saturating_sub(rollout.current + rollout.held);
        for (state, count) in [
            ("Current", rollout.current),
            ("Held", rollout.held),
            ("Waiting", waiting),
        ] {
            bindings.level(&[("export", &*rollout.export), ("state", state)], int(count))?;
        }
    }
    let help = "Exports with a rollout and without series, because there are too many";
    out.gauge("rollouts_left_out", help, int(rollouts.len() - shown.len()))
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::*;

    type Write = dyn Fn(&mut Families<'_>) -> fmt::Result + Send + Sync;

    struct Written(Box<Write>);

    impl fmt::Debug for Written {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Written")
        }
    }

    impl Collector for Written {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            self.0(&mut Families(encoder))
        }
    }

    fn text(write: impl Fn(&mut Families<'_>) -> fmt::Result + Send + Sync + 'static) -> String {
        let mut registry = Registry::with_prefix("insula");
        registry.register_collector(Box::new(Written(Box::new(write))));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn the_series_of_versions_have_a_limit() {
        let usage = |index: usize| VersionUse {
            export: "root:provider:widgets".to_owned(),
            resource: "widgets.example.io".to_owned(),
            version: format!("v{index}"),
            tenants: index % 2,
            last_used: (index % 2 == 1).then_some(insula_api::Timestamp(1_795_255_200)),
        };
        let uses: Vec<VersionUse> = (1..=VERSIONS_MAX + 1).map(usage).collect();
        let text = text(move |out| write_versions(out, &uses));
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

    #[test]
    fn the_series_of_rollouts_have_a_limit() {
        let rollout = |index: usize| Rollout {
            export: format!("root:provider:e{index}"),
            bindings: 7,
            current: 3,
            held: 1,
        };
        let rollouts: Vec<Rollout> = (0..ROLLOUTS_MAX + 2).map(rollout).collect();
        let text = text(move |out| write_rollouts(out, &rollouts));
        for line in [
            "insula_rollout_bindings{export=\"root:provider:e0\",state=\"Waiting\"} 3",
            "insula_rollouts_left_out 2",
        ] {
            assert!(text.lines().any(|got| got == line), "{line} in\n{text}");
        }
        let series = text.lines().filter(|line| line.starts_with("insula_rollout_bindings{"));
        assert_eq!(series.count(), 3 * ROLLOUTS_MAX);
    }

    /// Measures of the parts are as the registry's own metrics are: cumulative buckets, units.
    #[test]
    fn distributions_are_cumulative() {
        let read = Distribution {
            bounds: &[0.001, 1.0],
            counts: vec![1, 2, 3],
            sum: 7.5,
        };
        let text = text(move |out| out.seconds("x", "Time")?.spread(&[("name", "a\"b")], &read));
        expect_test::expect![[r#"
            # HELP insula_x_seconds Time.
            # TYPE insula_x_seconds histogram
            # UNIT insula_x_seconds seconds
            insula_x_seconds_sum{name="a\"b"} 7.5
            insula_x_seconds_count{name="a\"b"} 6
            insula_x_seconds_bucket{le="0.001",name="a\"b"} 1
            insula_x_seconds_bucket{le="1.0",name="a\"b"} 3
            insula_x_seconds_bucket{le="+Inf",name="a\"b"} 6
            # EOF
        "#]]
        .assert_eq(&text);
    }
}
