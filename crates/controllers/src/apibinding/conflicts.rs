//! Naming conflicts with other APIs of a cluster.

use super::world::Resource;
use insula_api::{
    ClusterPath, ObjectKey,
    kinds::{self, ApiBinding},
};
use insula_registry::{Api, Names, Origin, Registry, ids};
use insula_store::Snapshot;

/// Another API of the cluster.
#[derive(Debug, Clone)]
pub(crate) struct ServedApi {
    /// The object that brings it, as messages name it.
    pub(crate) origin: String,
    pub(crate) group: String,
    pub(crate) names: Names,
}

/// Returns every bound or defined API of the cluster that the binding does not bring.
pub(super) fn others(registry: &Registry, snapshot: &Snapshot, own: &ObjectKey) -> Vec<ServedApi> {
    let mut others = Vec::new();
    for served in registry.catalog.claimed(snapshot, &own.cluster) {
        let origin = match &served.origin {
            Origin::Bound { binding } if *binding == own.name => continue,
            Origin::Bound { binding } => {
                let key = ObjectKey::cluster_scoped(ids::apibindings(), own.cluster.clone(), binding);
                let value = snapshot.get(&key).map(|entry| entry.object.body_value());
                describe_binding(binding, &kinds::read(&value.unwrap_or_default()))
            }
            Origin::Local { definition } => describe_definition(definition),
            Origin::System => continue,
        };
        others.push(ServedApi {
            origin,
            group: served.api.group.to_string(),
            names: served.api.names.clone(),
        });
    }
    others
}

fn describe_definition(name: &str) -> String {
    format!("CustomResourceDefinition {name:?}")
}

fn describe_binding(name: &str, binding: &ApiBinding) -> String {
    let reference = &binding.spec.reference.export;
    let export = &reference.name;
    match ClusterPath::parse(&reference.path) {
        Ok(path) => format!("APIBinding {name:?} bound to APIExport {path}:{export}"),
        Err(_) => format!("APIBinding {name:?} bound to local APIExport {export:?}"),
    }
}

/// Returns the first conflict, with the message of kcp.
pub(super) fn find(resource: &Resource, api: &Api, others: &[ServedApi]) -> Option<String> {
    if resource.built_in {
        let Resource { group, name, .. } = resource;
        return Some(format!(
            "naming conflict with the built-in API {group:?}: spec.names.plural={name} is forbidden"
        ));
    }
    let named = others.iter().filter(|other| other.group == *api.group);
    if resource.route_is_taken && !named.clone().any(|other| other.names.plural == api.names.plural) {
        let plural = &api.names.plural;
        return Some(format!(
            "naming conflict with an API that is not served: spec.names.plural={plural} is forbidden"
        ));
    }
    named
        .filter_map(|other| Some((other, clash(&api.names, &other.names)?)))
        .next()
        .map(|(other, clash)| format!("naming conflict with {}: spec.names.{clash} is forbidden", other.origin))
}

fn clash(wanted: &Names, taken: &Names) -> Option<String> {
    let resources = |name: &str| {
        *taken.plural == *name || *taken.singular == *name || taken.short_names.iter().any(|short| short == name)
    };
    let kinds = |kind: &str| *taken.kind == *kind || *taken.list_kind == *kind;
    let single = |field: &str, name: &str, taken: bool| taken.then(|| format!("{field}={name}"));
    let short: Vec<&str> = wanted
        .short_names
        .iter()
        .map(String::as_str)
        .filter(|name| resources(name))
        .collect();
    single("plural", &wanted.plural, resources(&wanted.plural))
        .or_else(|| single("singular", &wanted.singular, resources(&wanted.singular)))
        .or_else(|| (!short.is_empty()).then(|| format!("shortNames=[{}]", short.join(" "))))
        .or_else(|| single("kind", &wanted.kind, kinds(&wanted.kind)))
        .or_else(|| single("listKind", &wanted.list_kind, kinds(&wanted.list_kind)))
}
