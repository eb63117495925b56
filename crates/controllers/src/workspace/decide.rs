//! What becomes of one workspace.

use super::{
    BINDINGS_INITIALIZER, CLUSTER_FINALIZER, FINALIZER, OWNER_ANNOTATION, PHASE_LABEL, TYPE_ANNOTATION, world::World,
};
use crate::{
    account,
    logicalcluster::{initialized, waits_for},
    namespace::fresh_namespace,
    write::{count_generation, drop_condition, drop_finalizer, list, mark, sort_conditions, text},
};
use insula_api::{ClusterName, Condition, Json, ObjectKey, condition, set_condition};
use insula_registry::{Intent, Plan, admission::types, ids, locate::REQUIRED_GROUPS};
use insula_store::Entry;
use serde_json::json;

/// Namespaces that a universal workspace begins with.
const NAMESPACES: [&str; 2] = ["default", "kube-system"];

pub(super) fn decide(world: &World) -> Plan {
    let Some((entry, value)) = &world.workspace else {
        return Plan::rest();
    };
    let placed = !text(value, "/spec/cluster").is_empty();
    match (entry.object.meta.is_deleting(), placed) {
        (true, _) => delete(world, entry, value),
        (false, true) => mirror(world, entry, value),
        // A mount has its content elsewhere.
        (false, false) if value["spec"]["mount"].is_object() => Plan::rest(),
        (false, false) => schedule(world, entry, value),
    }
}

/// Finds a name, makes the logical cluster, and says where it is.
fn schedule(world: &World, entry: &Entry, old: &Json) -> Plan {
    let Some(parent) = &world.parent else {
        return Plan::rest();
    };
    let mut value = old.clone();
    let Some(own) = world.types.first() else {
        let name = text(old, "/spec/type/name");
        let message = format!("workspace type {name:?} cannot be resolved: create it, or delete this workspace");
        let problem = Condition::fails("WorkspaceScheduled", "Unschedulable", message);
        set_condition(&mut value, &problem, world.now);
        return Plan {
            intents: vec![Intent::Update(entry.clone(), value)],
            again_after: Some(30),
        };
    };
    let cluster = &world.fresh_name;
    let path = world.parent_path.join(&entry.key.name);
    let (all, waiting) = initializers(&world.types);
    let phase = if waiting.is_empty() { "Ready" } else { "Initializing" };

    value["spec"]["cluster"] = json!(cluster.as_str());
    value["spec"]["URL"] = json!(format!("{}/clusters/{path}", world.external_url));
    count_generation(&mut value);
    mark(
        &mut value,
        "annotations",
        "internal.tenancy.kcp.io/cluster",
        cluster.as_str(),
    );
    mark(&mut value, "annotations", "core.kcp.io/shard", "root");
    let owner = owner_of(old);
    if !owner.is_null() {
        let short = json!({"username": owner["username"]});
        mark(&mut value, "annotations", OWNER_ANNOTATION, &short.to_string());
    }
    value["metadata"]["finalizers"] = with_finalizer(&value, FINALIZER);
    show(&mut value, phase, &waiting, world);

    let logical = logical_cluster(world, (entry, old), own, &owner, &all, &waiting, phase);
    let mut intents = parent.clone();
    intents.push(Intent::Update(entry.clone(), value));
    intents.push(Intent::Create(ids::logical_cluster(cluster), logical));
    if world.types.iter().any(is_universal) {
        for name in NAMESPACES {
            let key = ObjectKey::cluster_scoped(ids::namespaces(), cluster.clone(), name);
            intents.extend(account::of_fresh_namespace(&key, &world.trust));
            intents.push(Intent::Create(key, fresh_namespace(name)));
        }
    }
    Plan {
        intents,
        again_after: None,
    }
}

fn is_universal(found: &types::Resolved) -> bool {
    found.cluster == ClusterName::root() && found.reference.name == "universal"
}

/// All initializers of a type, and those that are not done by making the workspace.
fn initializers(types: &[types::Resolved]) -> (Vec<String>, Vec<String>) {
    let (mut all, mut waiting) = (Vec::new(), Vec::new());
    // What is extended comes first, as it is done first.
    for found in types.iter().rev().filter(|found| found.view.initializer) {
        let name = format!("{}:{}", found.cluster, found.reference.name);
        if !is_universal(found) {
            waiting.push(name.clone());
        }
        all.push(name);
    }
    let bindings = || types.iter().flat_map(|found| &found.view.default_bindings);
    if bindings().next().is_some() {
        all.push(BINDINGS_INITIALIZER.to_owned());
    }
    if bindings().any(|(path, export)| !types::is_built_in(path, export)) {
        waiting.push(BINDINGS_INITIALIZER.to_owned());
    }
    (all, waiting)
}

fn logical_cluster(
    world: &World,
    (workspace, said): (&Entry, &Json),
    own: &types::Resolved,
    owner: &Json,
    all: &[String],
    waiting: &[String],
    phase: &str,
) -> Json {
    let meta = &workspace.object.meta;
    let mut value = json!({
        "apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster",
        "metadata": {
            "name": "cluster",
            "finalizers": [CLUSTER_FINALIZER],
            "labels": {PHASE_LABEL: phase},
            "annotations": {
                "kcp.io/path": world.parent_path.join(&meta.name).as_str(),
                TYPE_ANNOTATION: own.reference.to_string(),
            },
        },
        "spec": {
            "directlyDeletable": false,
            "owner": {
                "apiVersion": "tenancy.kcp.io/v1alpha1", "resource": "workspaces", "name": &*meta.name,
                "cluster": workspace.key.cluster.as_str(), "uid": meta.uid.to_string(),
            },
        },
        "status": {"phase": phase, "URL": format!("{}/clusters/{}", world.external_url, world.fresh_name)},
    });
    if !all.is_empty() {
        value["spec"]["initializers"] = json!(all);
    }
    if !waiting.is_empty() {
        value["status"]["initializers"] = json!(waiting);
    }
    if let Some(groups) = said["metadata"]["annotations"][REQUIRED_GROUPS].as_str() {
        mark(&mut value, "annotations", REQUIRED_GROUPS, groups);
    }
    if !owner.is_null() {
        mark(
            &mut value,
            "annotations",
            OWNER_ANNOTATION,
            &json!({"username": owner["username"]}).to_string(),
        );
        value["spec"]["createdBy"] = owner.clone();
    }
    let initialized = if waiting.is_empty() {
        initialized()
    } else {
        waits_for(waiting)
    };
    set_condition(&mut value, &initialized, world.now);
    value
}

/// The user in the annotation that admission wrote.
fn owner_of(workspace: &Json) -> Json {
    let text = workspace["metadata"]["annotations"][OWNER_ANNOTATION].as_str();
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// Shows in the Workspace what its LogicalCluster says.
fn mirror(world: &World, entry: &Entry, old: &Json) -> Plan {
    let mut value = old.clone();
    match &world.child {
        Some((_, child)) => {
            let initializers: Vec<String> = list(child, "/status/initializers")
                .iter()
                .filter_map(|i| i.as_str().map(str::to_owned))
                .collect();
            show(&mut value, text(child, "/status/phase"), &initializers, world);
        }
        None => {
            let message =
                "the logical cluster of this workspace is gone, and its content with it: delete the workspace";
            let gone = Condition::fails("WorkspaceInitialized", "WorkspaceDisappeared", message);
            set_condition(&mut value, &gone, world.now);
            show_phase(&mut value, "Unavailable");
        }
    }
    Plan {
        intents: vec![Intent::Update(entry.clone(), value)],
        again_after: None,
    }
}

fn show(value: &mut Json, phase: &str, initializers: &[String], world: &World) {
    set_condition(value, &Condition::holds("WorkspaceScheduled"), world.now);
    let condition = if initializers.is_empty() {
        initialized()
    } else {
        waits_for(initializers)
    };
    set_condition(value, &condition, world.now);
    sort_conditions(value);
    show_phase(value, if phase.is_empty() { "Initializing" } else { phase });
    match initializers.is_empty() {
        true => drop(
            value["status"]
                .as_object_mut()
                .map(|status| status.remove("initializers")),
        ),
        false => value["status"]["initializers"] = json!(initializers),
    }
}

pub(crate) fn show_phase(value: &mut Json, phase: &str) {
    if !value["status"].is_object() {
        value["status"] = json!({});
    }
    value["status"]["phase"] = json!(phase);
    mark(value, "labels", PHASE_LABEL, phase);
}

/// Passes the deletion on, and ends it when the logical cluster is gone.
fn delete(world: &World, entry: &Entry, old: &Json) -> Plan {
    let mut value = old.clone();
    let mut intents = Vec::new();
    match &world.child {
        None => drop_finalizer(&mut value, FINALIZER),
        Some((child_entry, child)) => {
            show_phase(&mut value, "Deleting");
            match condition(child, "WorkspaceContentDeleted") {
                Some(problem) => copy_condition(&mut value, problem),
                None => drop_condition(&mut value, "WorkspaceContentDeleted"),
            }
            if !child_entry.object.meta.is_deleting() {
                intents.push(Intent::Update(child_entry.clone(), marked(child, world)));
            }
        }
    }
    intents.push(Intent::Update(entry.clone(), value));
    Plan {
        intents,
        again_after: None,
    }
}

fn marked(child: &Json, world: &World) -> Json {
    let mut child = child.clone();
    child["metadata"]["deletionTimestamp"] = json!(world.now.to_string());
    child["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    child["metadata"]["finalizers"] = with_finalizer(&child, CLUSTER_FINALIZER);
    count_generation(&mut child);
    show_phase(&mut child, "Deleting");
    child
}

fn copy_condition(value: &mut Json, condition: &Json) {
    drop_condition(value, "WorkspaceContentDeleted");
    if !value["status"]["conditions"].is_array() {
        value["status"]["conditions"] = json!([]);
    }
    if let Some(conditions) = value["status"]["conditions"].as_array_mut() {
        conditions.push(condition.clone());
    }
    sort_conditions(value);
}

fn with_finalizer(value: &Json, finalizer: &str) -> Json {
    let mut finalizers = list(value, "/metadata/finalizers").to_vec();
    if !finalizers.iter().any(|known| known == finalizer) {
        finalizers.push(json!(finalizer));
    }
    Json::Array(finalizers)
}
