//! APIExportEndpointSlices: the URL under which a provider finds all objects of its API, once a
//! workspace binds it.

use crate::{
    runtime::Reconciler,
    write::{list, sort_conditions, text},
};
use insula_api::{
    ClusterName, ClusterPath, Condition, Json, LabelSelector, ObjectKey, ResourceId, Scope, Timestamp, names::labels,
    set_condition,
};
use insula_registry::{Intent, Plan, Registry, admission::digest, ids, locate};
use insula_store::{Change, Entry, Snapshot};
use serde_json::json;
use std::{ops::ControlFlow, sync::Arc};

/// Reconciles APIExportEndpointSlices.
pub(crate) struct EndpointSlices {
    registry: Arc<Registry>,
}

/// World of a slice.
pub(crate) struct World {
    slice: Option<(Entry, Json)>,
    /// Cluster of the export, whether the export exists or not.
    cluster: ClusterName,
    export: Option<Entry>,
    /// Some workspace binds the export.
    consumed: bool,
    /// Selector of shards of the Partition that it names, if that exists.
    partition: Option<String>,
    /// The partition selects this shard, or the slice names no partition.
    chosen: bool,
    external_url: String,
    now: Timestamp,
}

/// References of a slice, read once for each revision of it.
#[derive(Debug)]
struct Reference {
    path: String,
    name: String,
    partition: String,
}

impl Reference {
    fn read(slice: &Json) -> Self {
        Reference {
            path: text(slice, "/spec/export/path").to_owned(),
            name: text(slice, "/spec/export/name").to_owned(),
            partition: text(slice, "/spec/partition").to_owned(),
        }
    }
}

impl EndpointSlices {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        EndpointSlices { registry }
    }
}

impl Reconciler for EndpointSlices {
    type Key = ObjectKey;
    type World = World;

    fn name(&self) -> &'static str {
        "endpointslice"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![
            ids::apiexportendpointslices(),
            ids::apiexports(),
            ids::apibindings(),
            ids::partitions(),
            ids::shards(),
        ]
    }

    /// Returns the slices of an export when it, or a binding to it, is created or deleted.
    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        if change.key.resource == ids::apiexportendpointslices() {
            return if change.new.is_some() {
                vec![change.key.clone()]
            } else {
                Vec::new()
            };
        }
        if change.key.resource == ids::partitions() {
            let mut keys = Vec::new();
            let scope = Scope::cluster(ids::apiexportendpointslices(), change.key.cluster.clone());
            snapshot.for_each(&scope, |slice| {
                if slice
                    .object
                    .parsed(|object| Reference::read(&object.body_value()))
                    .partition
                    == *change.key.name
                {
                    keys.push(slice.key.clone());
                }
                ControlFlow::Continue(())
            });
            return keys;
        }
        if change.key.resource == ids::shards() {
            return partitioned(snapshot);
        }
        if change.old.is_some() && change.new.is_some() {
            return Vec::new();
        }
        let name = match &*change.key.resource.resource {
            "apiexports" => change.key.name.to_string(),
            _ => {
                let object = change.new.as_ref().or(change.old.as_ref().map(|old| &old.object));
                let value = object.map(|object| object.body_value()).unwrap_or_default();
                text(&value, "/spec/reference/export/name").to_owned()
            }
        };
        let mut keys = Vec::new();
        snapshot.for_each(&Scope::everywhere(ids::apiexportendpointslices()), |slice| {
            if slice.object.parsed(|object| Reference::read(&object.body_value())).name == name {
                keys.push(slice.key.clone());
            }
            ControlFlow::Continue(())
        });
        keys
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> World {
        let slice = snapshot.get(key).map(|entry| {
            let value = entry.object.body_value();
            (entry, value)
        });
        let reference = Reference::read(slice.as_ref().map_or(&Json::Null, |(_, value)| value));
        let cluster = match reference.path.is_empty() {
            true => key.cluster.clone(),
            false => ClusterPath::parse(&reference.path)
                .ok()
                .and_then(|path| locate::locate(snapshot, &path).ok())
                .unwrap_or_else(|| key.cluster.clone()),
        };
        let export = ObjectKey::cluster_scoped(ids::apiexports(), cluster.clone(), &reference.name);
        let partition = ObjectKey::cluster_scoped(ids::partitions(), key.cluster.clone(), &reference.partition);
        let partition = snapshot
            .get(&partition)
            .and_then(|partition| crate::partition::selector(&partition.object.body_value()["spec"]["selector"]).ok());
        let shards = snapshot.range(&Scope::cluster(ids::shards(), ClusterName::root()), None, usize::MAX);
        let chosen = |selector: &LabelSelector| shards.iter().any(|shard| selector.matches(&shard.object.meta.labels));
        World {
            chosen: reference.partition.is_empty() || partition.as_ref().is_some_and(chosen),
            partition: partition.map(|selector| selector.to_string()),
            consumed: is_consumed(snapshot, &digest::export_label(&cluster, &reference.name)),
            export: snapshot.get(&export),
            cluster,
            slice,
            external_url: self.registry.external_url.clone(),
            now: self.registry.clock.now(),
        }
    }

    fn decide(&self, world: &World) -> Plan {
        decide(world)
    }
}

/// Returns the slices that name a partition.
fn partitioned(snapshot: &Snapshot) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    snapshot.for_each(&Scope::everywhere(ids::apiexportendpointslices()), |slice| {
        let reference = slice.object.parsed(|object| Reference::read(&object.body_value()));
        if !reference.partition.is_empty() {
            keys.push(slice.key.clone());
        }
        ControlFlow::Continue(())
    });
    keys
}

fn is_consumed(snapshot: &Snapshot, label: &str) -> bool {
    let mut found = false;
    snapshot.for_each(&Scope::everywhere(ids::apibindings()), |binding| {
        found = binding.object.meta.label(labels::EXPORT) == Some(label);
        if found {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    found
}

fn decide(world: &World) -> Plan {
    let Some((entry, old)) = &world.slice else {
        return Plan::rest();
    };
    if entry.object.meta.is_deleting() {
        return Plan::rest();
    }
    let name = text(old, "/spec/export/name");
    let owned = list(old, "/metadata/ownerReferences")
        .iter()
        .any(|owner| owner["kind"] == "APIExport");
    if world.export.is_none() && owned {
        return Plan::of(vec![Intent::Delete(entry.clone())]);
    }
    let mut value = old.clone();
    let export = match world.export {
        Some(_) => Condition::holds("APIExportValid"),
        None => {
            let message = format!("Error getting APIExport {}|{name}", world.cluster);
            Condition::fails("APIExportValid", "APIExportNotFound", message)
        }
    };
    set_condition(&mut value, &export, world.now);
    let partition = match (text(old, "/spec/partition"), &world.partition) {
        ("", _) | (_, Some(_)) => Condition::holds("PartitionValid"),
        (partition, None) => {
            let message = format!("partition.topology.kcp.io {partition:?} not found");
            Condition::fails("PartitionValid", "PartitionInvalidReference", message)
        }
    };
    set_condition(&mut value, &partition, world.now);
    sort_conditions(&mut value);
    match &world.partition {
        Some(selector) => value["status"]["shardSelector"] = json!(selector),
        None => drop(
            value["status"]
                .as_object_mut()
                .map(|status| status.remove("shardSelector")),
        ),
    }
    let url = format!("{}/services/apiexport/{}/{name}", world.external_url, world.cluster);
    match world.consumed && world.chosen && world.export.is_some() {
        true => value["status"]["endpoints"] = json!([{"url": url}]),
        false => drop(value["status"].as_object_mut().map(|status| status.remove("endpoints"))),
    }
    Plan::of(vec![Intent::Update(entry.clone(), value)])
}
