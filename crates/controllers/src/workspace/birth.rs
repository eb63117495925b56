//! How a logical cluster begins: who has to finish it first, and what its type puts into it.

use super::show_phase;
use crate::{
    account,
    namespace::fresh_namespace,
    write::{list, mark, text},
};
use insula_api::{
    ClusterName, Condition, Json, ObjectKey, Timestamp,
    names::{annotations, finalizers, labels, well_known},
    set_condition,
};
use insula_registry::{
    Intent,
    admission::{digest, types},
    ids,
};
use serde_json::json;

/// Labels by which the virtual workspaces of initializers and terminators find what waits for them.
const DUTIES: [(&str, &str); 2] = [
    ("initializers", labels::INITIALIZER_PREFIX),
    ("terminators", labels::TERMINATOR_PREFIX),
];

/// What is to be done to workspaces of a type before they are Ready, and before they go.
pub(crate) struct Duties {
    /// All initializers.
    pub(crate) initializers: Vec<String>,
    /// Those that are not done by making the workspace.
    pub(crate) waiting: Vec<String>,
    /// All terminators.
    pub(crate) terminators: Vec<String>,
}

impl Duties {
    /// The duties of a type that is given with all that it extends, itself first.
    pub(crate) fn of(types: &[types::Resolved]) -> Duties {
        // What is extended comes first, as it is done first.
        let of_types = |wanted: fn(&types::TypeView) -> bool| {
            let found = types.iter().rev().filter(move |found| wanted(&found.view));
            found.map(|found| (found.controller(), is_universal(found)))
        };
        let all = of_types(|view| view.initializer);
        let (mut initializers, mut waiting) = (Vec::new(), Vec::new());
        for (name, at_once) in all {
            if !at_once {
                waiting.push(name.clone());
            }
            initializers.push(name);
        }
        let bindings = || types.iter().flat_map(|found| &found.view.default_bindings);
        if bindings().next().is_some() {
            initializers.push(well_known::BINDINGS_INITIALIZER.to_owned());
        }
        if bindings().any(|(path, export)| !types::is_built_in(path, export)) {
            waiting.push(well_known::BINDINGS_INITIALIZER.to_owned());
        }
        Duties {
            initializers,
            waiting,
            terminators: of_types(|view| view.terminator).map(|(name, _)| name).collect(),
        }
    }

    /// Where a new cluster begins.
    pub(crate) fn phase(&self) -> &'static str {
        if self.waiting.is_empty() {
            "Ready"
        } else {
            "Initializing"
        }
    }

    /// Writes them into a new LogicalCluster.
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

fn is_universal(found: &types::Resolved) -> bool {
    found.cluster == ClusterName::root() && found.reference.name == well_known::UNIVERSAL
}

/// What types put into a new cluster.
pub(crate) fn content(types: &[types::Resolved], cluster: &ClusterName, trust: &std::sync::Arc<str>) -> Vec<Intent> {
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

/// The condition of a workspace that waits, or waits for nobody.
pub(crate) fn initialized(waiting: &[String]) -> Condition {
    if waiting.is_empty() {
        return Condition::holds("WorkspaceInitialized");
    }
    let message = format!("Initializers still exist: [{}]", waiting.join(" "));
    Condition::fails("WorkspaceInitialized", "InitializerExists", message).severity("Info")
}

/// The texts in a list of the status.
pub(crate) fn texts(object: &Json, pointer: &str) -> Vec<String> {
    let list = list(object, pointer).iter();
    list.filter_map(Json::as_str).map(str::to_owned).collect()
}

/// A list in the status; no list where it is empty.
pub(crate) fn show_list(object: &mut Json, field: &str, entries: &[String]) {
    if !entries.is_empty() {
        object["status"][field] = json!(entries);
    } else if let Some(status) = object["status"].as_object_mut() {
        status.remove(field);
    }
}

/// Labels a LogicalCluster with those it waits for.
pub(crate) fn label(logical: &mut Json) {
    for (field, prefix) in DUTIES {
        if let Some(labels) = logical["metadata"]["labels"].as_object_mut() {
            labels.retain(|key, _| !key.starts_with(prefix));
        }
        for name in texts(logical, &format!("/status/{field}")) {
            let (key, value) = digest::duty_label(prefix, &name);
            mark(logical, "labels", &key, &value);
        }
    }
}

/// Who owns a workspace is told in full to those who finish it; afterwards the name is enough.
pub(crate) fn shorten_owner(object: &mut Json) {
    let known = object["metadata"]["annotations"][annotations::WORKSPACE_OWNER].as_str();
    if let Some(owner) = known.and_then(|known| serde_json::from_str::<Json>(known).ok()) {
        let short = json!({"username": owner["username"]}).to_string();
        mark(object, "annotations", annotations::WORKSPACE_OWNER, &short);
    }
}
