//! Virtual workspaces in documents: the verbs that discovery lists, and the prefix of paths.

use insula_access::lifecycle::LifecycleController;
use insula_api::{ClusterName, Json, Verb};
use insula_catalog::{Served, exports::ExportName};
use insula_pipeline::{Scope, VirtualWorkspace, without_identity};

/// Adapts a discovery document: verbs in alphabetical order, and only those that may be used.
pub(crate) fn adapt_discovery(view: &VirtualWorkspace, scope: &Scope, served: &[Served], document: &mut Json) {
    // Within a cluster the document is that of the cluster.
    if matches!(view, VirtualWorkspace::LifecycleController(_)) && scope.cluster.is_some() {
        return;
    }
    let read_only = |served: &&Served| match view {
        VirtualWorkspace::Export(export) => export.only_reads(&scope.snapshot, served),
        VirtualWorkspace::Schemas(_) | VirtualWorkspace::LifecycleController(_) | VirtualWorkspace::Unknown => true,
    };
    let read_only: Vec<&str> = served
        .iter()
        .filter(read_only)
        .map(|served| &*served.names().plural)
        .collect();
    sort_verbs(document, &read_only);
    if matches!(view, VirtualWorkspace::LifecycleController(_)) {
        hide_verbs_of_subresources(document);
    }
}

/// Lists subresources without verbs, as kcp's lifecycle views do.
fn hide_verbs_of_subresources(document: &mut Json) {
    let resources = document["resources"].as_array_mut();
    for entry in resources.into_iter().flatten() {
        if entry["name"].as_str().is_some_and(|name| name.contains('/')) {
            entry["verbs"] = Json::Null;
        }
    }
}

fn sort_verbs(document: &mut Json, read_only: &[&str]) {
    match document {
        Json::Object(fields) => {
            let named = |field: &str| fields.get(field).and_then(Json::as_str);
            let reads = named("name")
                .or(named("resource"))
                .is_some_and(|name| read_only.contains(&without_identity(name.split('/').next().unwrap_or(name))));
            if let Some(Json::Array(verbs)) = fields.get_mut("verbs") {
                verbs.retain(|verb| !reads || verb.as_str().and_then(Verb::named).is_some_and(Verb::reads));
                verbs.sort_unstable_by(|a, b| a.as_str().cmp(&b.as_str()));
            }
            fields.values_mut().for_each(|value| sort_verbs(value, read_only));
        }
        Json::Array(items) => items.iter_mut().for_each(|item| sort_verbs(item, read_only)),
        _ => {}
    }
}

/// Returns the prefix of a scope's paths, for documents that name paths.
pub(crate) fn base(scope: &Scope) -> String {
    match (&scope.view, &scope.path) {
        (Some(VirtualWorkspace::Export(export)), _) => base_of_export(export, scope.cluster.as_ref()),
        (Some(VirtualWorkspace::Schemas(consumer)), _) => format!("/services/apiresourceschema/{consumer}/clusters/*"),
        (Some(VirtualWorkspace::LifecycleController(lifecycle)), _) => {
            base_of_lifecycle(lifecycle, scope.cluster.as_ref())
        }
        (None, Some(path)) => format!("/clusters/{path}"),
        (Some(VirtualWorkspace::Unknown), _) | (None, None) => String::new(),
    }
}

/// Prefix of the virtual workspace's paths.
fn base_of_export(export: &ExportName, cluster: Option<&ClusterName>) -> String {
    let cluster = cluster.map_or("*", ClusterName::as_str);
    format!(
        "/services/apiexport/{}/{}/clusters/{cluster}",
        export.cluster, export.name
    )
}

/// Prefix of the virtual workspace's paths.
fn base_of_lifecycle(lifecycle: &LifecycleController, cluster: Option<&ClusterName>) -> String {
    let cluster = cluster.map_or("*", ClusterName::as_str);
    format!(
        "/services/{}/{}/clusters/{cluster}",
        lifecycle.service(),
        lifecycle.name()
    )
}
