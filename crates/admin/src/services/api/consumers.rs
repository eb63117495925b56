//! `ApiService`: consumers of an export, and the versions that they use.

use super::{
    manifests::text,
    objects::{self, items, moment, resource_name, time},
    rollout::{for_each_binding, up_to_date},
};
use crate::{pages::Page, services::workspace::delete_time, status};
use insula_access::WorkspaceNames;
use insula_api::{
    ClusterName, Json, ObjectKey, Scope, Timestamp,
    kinds::{self, ApiBinding, ApiExport, RETIREMENT_DAYS},
};
use insula_catalog::{
    Error,
    exports::ExportName,
    ids,
    version_uses::{UseRecord, for_each_of_export, record_of},
};
use insula_meter::{Ended, Meter};
use insula_pipeline::Refusal;
use insula_proto::admin::v1::{
    Consumer, ListConsumersRequest, OfferedResource, RemovedObjects, StoredVersion, UsedVersion, VersionUsage,
};
use insula_registry::{Deps, rewrite};
use insula_store::Snapshot;
use serde_json::json;
use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};
use tonic::Status;

/// Seconds of a day.
const DAY_SECONDS: i64 = 86_400;

/// Units for an object of which the stored version is read.
const COUNT_UNITS: u64 = 10;

/// Units for a binding, of whose workspace the roles are read.
const CONSUMER_UNITS: u64 = 1_000;

/// Detail of a page of consumers.
#[derive(Clone, Copy)]
pub(super) enum Detail {
    /// The versions that each binding uses.
    Uses,
    /// The objects of each binding are counted by the version in which they are stored, too.
    Objects,
}

/// Returns the detail of a request.
pub(super) fn detail(request: &ListConsumersRequest) -> Detail {
    if request.count_objects {
        Detail::Objects
    } else {
        Detail::Uses
    }
}

/// Returns a page of the bindings of an export, and the token of the next one.
pub(super) fn page(
    (snapshot, names): (&Snapshot, &WorkspaceNames),
    export: &ExportName,
    page: &Page,
    (detail, meter): (Detail, &Meter),
) -> Result<(Vec<Consumer>, String), Status> {
    let after = page.after.as_ref();
    let after = after.and_then(|(_, at)| rewrite::key_at(ids::apibindings(), at));
    let (mut found, mut last, mut next) = (Vec::new(), None, String::new());
    let mut ended = None;
    for_each_binding(snapshot, export, after.as_ref(), |key, binding| {
        if found.len() == page.size {
            let last = last.as_ref().map(rewrite::position).unwrap_or_default();
            next = page.next(snapshot.revision(), &last);
            return ControlFlow::Break(());
        }
        let stored = meter.spend(CONSUMER_UNITS).and_then(|()| match detail {
            Detail::Uses => Ok(Vec::new()),
            Detail::Objects => stored(snapshot, (export, key), binding, meter),
        });
        match stored {
            Ok(stored_versions) => found.push(Consumer {
                stored_versions,
                ..consumer((snapshot, names), key, binding)
            }),
            Err(why) => {
                ended = Some(why);
                return ControlFlow::Break(());
            }
        }
        last = Some(key.clone());
        ControlFlow::Continue(())
    });
    match ended {
        Some(why) => Err(status::refused(&Refusal::Verb(Error::Ended(why)))),
        None => Ok((found, next)),
    }
}

/// Counts the objects of a binding by the version in which they are stored. The storage version is
/// among them, also without an object.
fn stored(
    snapshot: &Snapshot,
    (export, binding): (&ExportName, &ObjectKey),
    value: &Json,
    meter: &Meter,
) -> Result<Vec<StoredVersion>, Ended> {
    let view: ApiBinding = kinds::read(value);
    let mut all = Vec::new();
    for bound in &view.status.bound_resources {
        let schema = objects::published(snapshot, &export.cluster, "APIResourceSchema", &bound.schema.name);
        let storage = schema.as_ref().and_then(|schema| {
            let mut versions = items(schema, "/spec/versions");
            versions.find(|version| version["storage"] == true)
        });
        let storage = storage.map_or("", |version| text(version, "/name"));
        let mut counts = BTreeMap::from([(storage.to_owned(), 0)]);
        let mut paid = Ok(());
        snapshot.for_each(&Scope::cluster(bound.id(), binding.cluster.clone()), |entry| {
            paid = meter.spend(COUNT_UNITS);
            if paid.is_err() {
                return ControlFlow::Break(());
            }
            let version = entry.object.version();
            match counts.get_mut(version) {
                Some(count) => *count += 1,
                None => drop(counts.insert(version.to_owned(), 1)),
            }
            ControlFlow::Continue(())
        });
        paid?;
        let name = resource_name(&bound.group, &bound.resource);
        let counts = counts.into_iter().filter(|(version, _)| !version.is_empty());
        all.extend(counts.map(|(version, objects)| StoredVersion {
            current: version == storage,
            version: format!("{name}/{version}"),
            objects,
        }));
    }
    Ok(all)
}

fn consumer((snapshot, names): (&Snapshot, &WorkspaceNames), key: &ObjectKey, binding: &Json) -> Consumer {
    let resources = objects::bound(binding);
    let (up_to_date, message) = up_to_date(binding);
    let versions = resources.iter().flat_map(|resource| used(snapshot, key, resource));
    Consumer {
        workspace: names.name(&key.cluster).to_string(),
        cluster: key.cluster.to_string(),
        binding: key.name.to_string(),
        phase: text(binding, "/status/phase").to_owned(),
        versions: versions.collect(),
        resources,
        up_to_date,
        message,
        delete_time: delete_time(binding),
        stored_versions: Vec::new(),
    }
}

/// Returns the versions of a bound resource that its workspace used.
fn used(snapshot: &Snapshot, binding: &ObjectKey, resource: &OfferedResource) -> Vec<UsedVersion> {
    let route = ids::resource_route(&binding.cluster, &resource.group, &resource.resource);
    let entry = snapshot.get(&record_of(&route));
    let record = entry.and_then(|entry| UseRecord::current(snapshot, &entry));
    let versions = record.iter().filter_map(|record| record.as_ref().as_ref());
    let versions = versions
        .flat_map(|record| &record.versions)
        .map(|(version, at)| UsedVersion {
            version: format!("{}/{version}", resource_name(&resource.group, &resource.resource)),
            last_used: Some(moment(*at)),
        });
    versions.collect()
}

/// Counts the uses of the offered versions in the status of an export anew. What the status had is
/// a summary, which the server makes seconds after the uses.
pub(super) fn count_uses(registry: &Deps, snapshot: &Snapshot, cluster: &ClusterName, export: &mut Json) {
    if registry.uses.is_disabled() {
        return;
    }
    let view: ApiExport = kinds::read(export);
    // Without protection the count still covers a time.
    let days = match view.spec.retirement_days() {
        0 => RETIREMENT_DAYS,
        days => days,
    };
    let now = registry.clock.now();
    let name = ExportName {
        cluster: cluster.clone(),
        name: text(export, "/metadata/name").into(),
    };
    let mut found: BTreeMap<(Arc<str>, Arc<str>), (u64, Timestamp)> = BTreeMap::new();
    let mut earliest = None;
    for_each_of_export(snapshot, &name, |key, record| {
        for (version, at) in &record.versions {
            let (tenants, last) = found.entry((key.name.clone(), version.clone())).or_insert((0, *at));
            *tenants += u64::from(now.since(*at) < i64::from(days) * DAY_SECONDS);
            *last = (*last).max(*at);
            earliest = Some(earliest.map_or(*at, |known: Timestamp| known.min(*at)));
        }
    });
    let usage = objects::offered(export).into_iter().flat_map(|offered| {
        let route = ids::resource_route(cluster, &offered.group, &offered.resource).name;
        let schema = objects::published(snapshot, cluster, "APIResourceSchema", &offered.schema);
        let versions = schema.map(|mut schema| schema["spec"]["versions"].take());
        let versions = versions.as_ref().and_then(Json::as_array).cloned().unwrap_or_default();
        let served = versions.into_iter().filter(|version| version["served"] == true);
        let rows = served.map(|version| {
            let version = text(&version, "/name");
            let mut row = json!({"group": offered.group, "resource": offered.resource, "version": version,
                "tenants": 0});
            if let Some((tenants, last)) = found.get(&(route.clone(), version.into())) {
                row["tenants"] = (*tenants).into();
                row["lastUsed"] = last.to_string().into();
            }
            row
        });
        rows.collect::<Vec<_>>()
    });
    let usage: Json = usage.collect();
    export["status"]["usage"] = usage;
    if text(export, "/status/usageSince").is_empty() {
        // As the first summary will say. Requests are counted before it.
        let first = earliest.map_or(now, |first| first.min(now));
        export["status"]["usageSince"] = first.to_string().into();
    }
}

/// Returns the use of each offered version, the time since which uses are counted, and the days
/// within which one counts.
pub(super) fn usage(export: &Json) -> (Vec<VersionUsage>, Option<prost_types::Timestamp>, i32) {
    let view: ApiExport = kinds::read(export);
    let versions = items(export, "/status/usage").map(|usage| VersionUsage {
        version: format!(
            "{}/{}",
            resource_name(text(usage, "/group"), text(usage, "/resource")),
            text(usage, "/version")
        ),
        workspaces: usage["tenants"].as_i64().unwrap_or_default(),
        last_used: time(usage, "/lastUsed"),
    });
    let days = i32::try_from(view.spec.retirement_days()).unwrap_or(i32::MAX);
    (versions.collect(), time(export, "/status/usageSince"), days)
}

/// Returns the objects that go with a binding.
pub(super) fn removed(snapshot: &Snapshot, cluster: &ClusterName, binding: &Json) -> Vec<RemovedObjects> {
    let view: ApiBinding = kinds::read(binding);
    let removed = view.status.bound_resources.iter().map(|bound| {
        let scope = Scope::cluster(bound.id(), cluster.clone());
        RemovedObjects {
            group: bound.group.clone(),
            resource: bound.resource.clone(),
            objects: i64::try_from(snapshot.count(&scope)).unwrap_or(i64::MAX),
        }
    });
    removed.collect()
}
