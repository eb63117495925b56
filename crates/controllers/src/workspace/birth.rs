//! Beginning of a logical cluster: the initializers that finish it, and the objects that its type
//! puts into it.

use super::phase::{show_list, show_phase};
use crate::{
    account,
    namespace::fresh_namespace,
    write::{list, mark},
};
use insula_access::workspace_types;
use insula_api::{
    ClusterName, Condition, Json, ObjectKey, Timestamp,
    names::{annotations, finalizers, labels, well_known},
    set_condition,
};
use insula_catalog::{digest, ids};
use insula_registry::Intent;
use serde_json::json;

/// Lists in the status with the prefix of their labels: the virtual workspaces of initializers and
/// terminators select by these the clusters that wait for them.
const WAITING_LABELS: [(&str, &str); 2] = [
    ("initializers", labels::INITIALIZER_PREFIX),
    ("terminators", labels::TERMINATOR_PREFIX),
];

/// Initializers and terminators of a new logical cluster.
pub(crate) struct Lifecycle {
    /// All initializers.
    pub(crate) initializers: Vec<String>,
    /// Initializers that are still to finish once the cluster is created.
    pub(crate) waiting: Vec<String>,
    /// All terminators.
    pub(crate) terminators: Vec<String>,
}

impl Lifecycle {
    /// Derives the lifecycle from a type and all that it extends, itself first.
    pub(crate) fn from_types(types: &[workspace_types::Resolved]) -> Lifecycle {
        // Extended types come first, because their initializers work first.
        let of_types = |has: fn(&workspace_types::TypeView) -> bool| {
            let found = types.iter().rev().filter(move |found| has(&found.view));
            found.map(|found| (found.controller(), is_universal(found)))
        };
        let (mut initializers, mut waiting) = (Vec::new(), Vec::new());
        for (name, is_done_at_once) in of_types(|view| view.initializer) {
            if !is_done_at_once {
                waiting.push(name.clone());
            }
            initializers.push(name);
        }
        let bindings = || types.iter().flat_map(|found| &found.view.default_bindings);
        if bindings().next().is_some() {
            initializers.push(well_known::BINDINGS_INITIALIZER.to_owned());
        }
        if bindings().any(|(path, export)| !workspace_types::is_built_in(path, export)) {
            waiting.push(well_known::BINDINGS_INITIALIZER.to_owned());
        }
        Lifecycle {
            initializers,
            waiting,
            terminators: of_types(|view| view.terminator).map(|(name, _)| name).collect(),
        }
    }

    /// Returns the first phase of the cluster.
    pub(crate) fn phase(&self) -> &'static str {
        if self.waiting.is_empty() {
            "Ready"
        } else {
            "Initializing"
        }
    }

    /// Writes it into a new LogicalCluster.
    pub(crate) fn write(&self, logical: &mut Json, now: Timestamp) {
        logical["metadata"]["finalizers"] = match self.terminators.is_empty() {
            true => json!([finalizers::LOGICAL_CLUSTER]),
            false => json!([finalizers::LOGICAL_CLUSTER, finalizers::TERMINATORS]),
        };
        for (field, all, status) in [
            ("initializers", &self.initializers, &self.waiting),
            ("terminators", &self.terminators, &self.terminators),
        ] {
            if !all.is_empty() {
                logical["spec"][field] = json!(all);
            }
            show_list(logical, field, status);
        }
        set_condition(logical, &initialized(&self.waiting), now);
        show_phase(logical, self.phase());
        label(logical);
    }
}

fn is_universal(found: &workspace_types::Resolved) -> bool {
    found.cluster == ClusterName::root() && found.reference.name == well_known::UNIVERSAL
}

/// Returns the objects that types put into a new cluster.
pub(crate) fn content(
    types: &[workspace_types::Resolved],
    cluster: &ClusterName,
    trust: &std::sync::Arc<str>,
) -> Vec<Intent> {
    let mut intents = Vec::new();
    if types.iter().any(is_universal) {
        for name in well_known::NAMESPACES {
            let key = ObjectKey::cluster_scoped(ids::namespaces(), cluster.clone(), name);
            intents.extend(account::of_fresh_namespace(&key, trust));
            intents.push(Intent::Create(key, fresh_namespace(name)));
        }
    }
    intents
}

/// Returns the condition `WorkspaceInitialized` for the initializers that are still to finish.
pub(crate) fn initialized(waiting: &[String]) -> Condition {
    if waiting.is_empty() {
        return Condition::holds("WorkspaceInitialized");
    }
    let message = format!("Initializers still exist: [{}]", waiting.join(" "));
    Condition::fails("WorkspaceInitialized", "InitializerExists", message).severity("Info")
}

/// Labels a LogicalCluster with the initializers and terminators that it waits for.
pub(crate) fn label(logical: &mut Json) {
    for (field, prefix) in WAITING_LABELS {
        if let Some(labels) = logical["metadata"]["labels"].as_object_mut() {
            labels.retain(|key, _| !key.starts_with(prefix));
        }
        let names = list(logical, &format!("/status/{field}")).iter();
        let names: Vec<String> = names.filter_map(Json::as_str).map(str::to_owned).collect();
        for name in names {
            let (key, value) = digest::lifecycle_label(prefix, &name);
            mark(logical, "labels", &key, &value);
        }
    }
}

/// Shortens the annotation with the creator of a workspace to the name. Initializers see the whole
/// user; afterwards the name is enough.
pub(crate) fn shorten_owner(object: &mut Json) {
    let known = object["metadata"]["annotations"][annotations::WORKSPACE_OWNER].as_str();
    if let Some(owner) = known.and_then(|known| serde_json::from_str::<Json>(known).ok()) {
        let short = json!({"username": owner["username"]}).to_string();
        mark(object, "annotations", annotations::WORKSPACE_OWNER, &short);
    }
}
