//! Default bindings: APIBindings that the type of a workspace creates in it, once at its beginning
//! or maintained for its whole life.

use crate::{
    loaded::Loaded,
    write::{count_generation, list},
};
use insula_access::workspace_types;
use insula_api::{
    ClusterName, ClusterPath, Json, ObjectKey,
    kinds::{self, ApiBinding, ApiExport, LogicalCluster},
    names::{annotations, api_versions, finalizers, labels},
};
use insula_catalog::{digest, ids, locate};
use insula_registry::Intent;
use insula_store::{Entry, Snapshot};
use serde_json::json;

/// Export that the type of a workspace binds in it.
pub(crate) struct DefaultBinding {
    pub(crate) path: String,
    pub(crate) export: String,
    /// The APIExport, if it exists.
    pub(crate) found: Option<Loaded<ApiExport>>,
    pub(crate) key: ObjectKey,
    pub(crate) binding: Option<Loaded<ApiBinding>>,
}

/// Time for which the workspace type manages a binding.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Until the binding exists (`InitializeOnly`).
    First,
    /// As long as the workspace exists (`Maintain`).
    Always,
}

/// Returns the default bindings of a cluster's type and of all that it extends: those types that
/// `wanted` accepts.
pub(crate) fn for_cluster(
    snapshot: &Snapshot,
    cluster: &ClusterName,
    wanted: impl Fn(&workspace_types::TypeView) -> bool,
) -> Vec<DefaultBinding> {
    let Some(own) = workspace_types::of_cluster(snapshot, cluster) else {
        return Vec::new();
    };
    let mut found: Vec<DefaultBinding> = Vec::new();
    let types = workspace_types::closure(snapshot, own);
    let bindings = types.iter().filter(|t| wanted(&t.view)).flat_map(|t| {
        // Without a path the export is in the type's own workspace.
        let own = &t.reference.path;
        let declared = t.view.default_bindings.iter();
        declared.map(move |(path, export)| (if path.is_empty() { own } else { path }, export))
    });
    for (path, export) in bindings {
        if workspace_types::is_built_in(path, export) || found.iter().any(|b| b.path == *path && b.export == *export) {
            continue;
        }
        let exporter = ClusterPath::parse(path)
            .ok()
            .and_then(|p| locate::locate(snapshot, &p).ok());
        let name = digest::default_binding_name(cluster, path, export);
        let key = ObjectKey::cluster_scoped(ids::apibindings(), cluster.clone(), &name);
        found.push(DefaultBinding {
            found: exporter.and_then(|exporter| {
                let key = ObjectKey::cluster_scoped(ids::apiexports(), exporter, export);
                Loaded::get(snapshot, &key)
            }),
            binding: Loaded::get(snapshot, &key),
            key,
            path: path.clone(),
            export: export.clone(),
        });
    }
    found
}

impl DefaultBinding {
    /// Returns the write that the binding needs, if any; none without the export.
    pub(crate) fn keep(&self, logical: &Entry, keep: Keep) -> Option<Intent> {
        let export = self.found.as_ref()?;
        let spec = spec(&self.path, &self.export, &export.value);
        match &self.binding {
            Some(_) if keep == Keep::First => None,
            Some(binding) if !binding.is_deleting() && binding.value["spec"] != spec => {
                let mut value = binding.value.clone();
                value["spec"] = spec;
                count_generation(&mut value);
                Some(binding.update(value))
            }
            Some(_) => None,
            None => {
                let mut binding = json!({
                    "apiVersion": api_versions::APIS_V1ALPHA2, "kind": "APIBinding",
                    "metadata": {
                        "finalizers": [finalizers::API_BINDING],
                        "labels": {labels::EXPORT: digest::export_label(&export.entry.key.cluster, &self.export)},
                    },
                    "spec": spec,
                });
                let logical: LogicalCluster = kinds::read(&logical.object.body_value());
                if let Some(path) = logical.metadata.annotation(annotations::PATH) {
                    binding["metadata"]["annotations"] = json!({annotations::PATH: path});
                }
                Some(Intent::Create(self.key.clone(), binding))
            }
        }
    }
}

/// Returns the spec of a binding to an export that accepts the permission claims of the export, as
/// in kcp: whoever chooses a type accepts what its default bindings claim, Secrets included.
fn spec(path: &str, name: &str, export: &Json) -> Json {
    let claims: Vec<Json> = list(export, "/spec/permissionClaims")
        .iter()
        .map(|claim| {
            let mut claim = claim.clone();
            let selector = claim
                .as_object_mut()
                .and_then(|fields| fields.remove("defaultSelector"))
                .filter(Json::is_object);
            claim["selector"] = selector.unwrap_or_else(|| json!({"matchAll": true}));
            claim["state"] = json!("Accepted");
            claim
        })
        .collect();
    let mut spec = json!({"reference": {"export": {"path": path, "name": name}}});
    if !claims.is_empty() {
        spec["permissionClaims"] = json!(claims);
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_accepted_by_default() {
        let claim = |resource: &str, selector: Json| {
            json!({"resource": resource, "verbs": ["get"],
            "defaultSelector": selector})
        };
        let labels = json!({"matchLabels": {"for": "us"}});
        let export = json!({"spec": {"permissionClaims": [
            claim("configmaps", Json::Null), claim("secrets", json!({"matchAll": true})), claim("pods", labels.clone()),
        ]}});
        let accepted = spec("root:p", "e", &export)["permissionClaims"].take();
        let accepted: Vec<(&Json, &Json)> = list(&accepted, "")
            .iter()
            .map(|claim| (&claim["resource"], &claim["selector"]))
            .collect();
        assert_eq!(
            accepted,
            [
                (&json!("configmaps"), &json!({"matchAll": true})),
                (&json!("secrets"), &json!({"matchAll": true})),
                (&json!("pods"), &labels)
            ]
        );
    }
}
