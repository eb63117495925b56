//! Other APIs of the cluster of a binding.

use insula_api::{
    ClusterPath, ObjectKey, Timestamp,
    kinds::{self, ApiBinding},
};
use insula_catalog::{Names, Origin, ids};
use insula_registry::Deps;
use insula_store::Snapshot;

/// Another API of the cluster.
#[derive(Debug, Clone)]
pub(crate) struct ServedApi {
    /// The object that brings it, as messages name it.
    pub(crate) origin: String,
    /// A binding brings it.
    pub(crate) is_bound: bool,
    /// Name of that binding and end of its grace period, if it is deleted and keeps its objects.
    pub(crate) kept: Option<(String, Timestamp)>,
    pub(crate) group: String,
    pub(crate) names: Names,
}

/// Returns every bound or defined API of the cluster that the binding does not bring.
pub(super) fn others(registry: &Deps, snapshot: &Snapshot, own: &ObjectKey) -> Vec<ServedApi> {
    let mut others = Vec::new();
    for served in registry.catalog.routed(snapshot, &own.cluster) {
        let mut kept = None;
        let origin = match &served.origin {
            Origin::Bound { binding } if *binding == own.name => continue,
            Origin::Bound { binding } => {
                let key = ObjectKey::cluster_scoped(ids::apibindings(), own.cluster.clone(), binding);
                let entry = snapshot.get(&key);
                let meta = entry.as_ref().map(|entry| &entry.object.meta);
                let end = meta
                    .filter(|meta| meta.awaits_deletion())
                    .and_then(|meta| meta.deletion_timestamp);
                kept = end.map(|end| (binding.to_string(), end));
                let value = entry.map(|entry| entry.object.body_value());
                describe_binding(binding, &kinds::read(&value.unwrap_or_default()))
            }
            Origin::Local { definition } => definition.describe(),
            Origin::System => continue,
        };
        others.push(ServedApi {
            origin,
            is_bound: matches!(served.origin, Origin::Bound { .. }),
            kept,
            group: served.api.group.to_string(),
            names: served.api.names.clone(),
        });
    }
    others
}

fn describe_binding(name: &str, binding: &ApiBinding) -> String {
    let reference = &binding.spec.reference.export;
    let export = &reference.name;
    match ClusterPath::parse(&reference.path) {
        Ok(path) => format!("APIBinding {name:?} bound to APIExport {path}:{export}"),
        Err(_) => format!("APIBinding {name:?} bound to local APIExport {export:?}"),
    }
}
