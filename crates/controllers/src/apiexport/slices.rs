//! APIExportEndpointSlices: the URL under which a provider finds all objects of its API, once a
//! workspace binds it.

use crate::{loaded::Loaded, runtime::Reconciler, workspace::base_url, write::sort_conditions};
use insula_api::{
    ClusterName, ClusterPath, Condition, LabelSelector, Object, ObjectKey, ResourceId, Scope, Timestamp,
    kinds::{self, ApiBinding, ApiExportEndpointSlice, Partition},
    set_condition,
};
use insula_catalog::{exports::ExportName, ids, locate};
use insula_registry::{Deps, Intent, Plan};
use insula_store::{Change, Entry, Index, Snapshot};
use serde_json::json;
use std::{ops::ControlFlow, sync::Arc};

/// Reconciles APIExportEndpointSlices.
pub(crate) struct EndpointSlices {
    registry: Arc<Deps>,
}

/// World of a slice.
pub(crate) struct World {
    /// The slice, if it exists.
    slice: Option<Loaded<ApiExportEndpointSlice>>,
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

impl EndpointSlices {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
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
        let key = &change.key;
        if key.resource == ids::apiexportendpointslices() {
            return change.new.iter().map(|_| key.clone()).collect();
        }
        if key.resource == ids::partitions() {
            let scope = Scope::cluster(ids::apiexportendpointslices(), key.cluster.clone());
            return slices(snapshot, &scope, |slice| slice.spec.partition == *key.name);
        }
        if key.resource == ids::shards() {
            let partitioned = snapshot.indexed(&PARTITIONED_SLICES, "").into_iter();
            return partitioned.map(|slice| slice.key).collect();
        }
        if change.old.is_some() && change.new.is_some() {
            return Vec::new();
        }
        let name = match &*key.resource.resource {
            "apiexports" => key.name.to_string(),
            _ => {
                let object = change.new.as_ref().or(change.old.as_ref().map(|old| &old.object));
                let value = object.map(|object| object.body_value()).unwrap_or_default();
                kinds::read::<ApiBinding>(&value).spec.reference.export.name
            }
        };
        let of_export = snapshot.indexed(&SLICES_BY_EXPORT, &name).into_iter();
        of_export.map(|slice| slice.key).collect()
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> World {
        let slice = Loaded::<ApiExportEndpointSlice>::get(snapshot, key);
        let spec = slice.as_ref().map(|slice| slice.view.spec.clone()).unwrap_or_default();
        let cluster = match spec.export.path.is_empty() {
            true => key.cluster.clone(),
            false => ClusterPath::parse(&spec.export.path)
                .ok()
                .and_then(|path| locate::locate(snapshot, &path).ok())
                .unwrap_or_else(|| key.cluster.clone()),
        };
        let export = ObjectKey::cluster_scoped(ids::apiexports(), cluster.clone(), &spec.export.name);
        let partition = ObjectKey::cluster_scoped(ids::partitions(), key.cluster.clone(), &spec.partition);
        let partition = Loaded::<Partition>::get(snapshot, &partition)
            .and_then(|partition| crate::partition::selector(&partition.view.spec.selector).ok());
        let shards = snapshot.range(&Scope::cluster(ids::shards(), ClusterName::root()), None, usize::MAX);
        let chosen = |selector: &LabelSelector| shards.iter().any(|shard| selector.matches(&shard.object.meta.labels));
        World {
            chosen: spec.partition.is_empty() || partition.as_ref().is_some_and(chosen),
            partition: partition.map(|selector| selector.to_string()),
            consumed: ExportName::new(&cluster, &spec.export.name).is_bound(snapshot),
            export: snapshot.get(&export),
            cluster,
            slice,
            external_url: base_url(&self.registry, snapshot),
            now: self.registry.clock.now(),
        }
    }

    fn decide(&self, world: &World) -> Plan {
        decide(world)
    }
}

/// Slices by the name of their export.
static SLICES_BY_EXPORT: Index = Index {
    resource: ids::apiexportendpointslices,
    values: |_: &ObjectKey, slice: &Object, each: &mut dyn FnMut(&str)| each(&slice.parsed(read).spec.export.name),
};

/// Slices with a partition, by the empty text.
static PARTITIONED_SLICES: Index = Index {
    resource: ids::apiexportendpointslices,
    values: |_: &ObjectKey, slice: &Object, each: &mut dyn FnMut(&str)| {
        if !slice.parsed(read).spec.partition.is_empty() {
            each("");
        }
    },
};

fn read(slice: &Object) -> ApiExportEndpointSlice {
    kinds::read(&slice.body_value())
}

/// Returns the slices of a scope that a predicate selects.
fn slices(snapshot: &Snapshot, scope: &Scope, is_wanted: impl Fn(&ApiExportEndpointSlice) -> bool) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    snapshot.for_each(scope, |slice| {
        if is_wanted(&slice.object.parsed(read)) {
            keys.push(slice.key.clone());
        }
        ControlFlow::Continue(())
    });
    keys
}

fn decide(world: &World) -> Plan {
    let Some(slice) = world.slice.as_ref().filter(|slice| !slice.is_deleting()) else {
        return Plan::rest();
    };
    let spec = &slice.view.spec;
    let name = &spec.export.name;
    let mut owners = slice.entry.object.meta.owner_references.iter();
    if world.export.is_none() && owners.any(|owner| owner.kind == "APIExport") {
        return Plan::new(vec![Intent::Delete(slice.entry.clone())]);
    }
    let mut value = slice.value.clone();
    let export = match world.export {
        Some(_) => Condition::holds("APIExportValid"),
        None => {
            let message = format!("Error getting APIExport {}|{name}", world.cluster);
            Condition::fails("APIExportValid", "APIExportNotFound", message)
        }
    };
    set_condition(&mut value, &export, world.now);
    let partition = match (&*spec.partition, &world.partition) {
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
    Plan::new(vec![slice.update(value)])
}
