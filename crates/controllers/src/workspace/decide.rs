//! What becomes of one workspace.

use super::{
    birth::{self, Duties, shorten_owner, show_list},
    world::World,
};
use crate::write::{count_generation, drop_condition, drop_finalizer, list, mark, sort_conditions, text};
use insula_api::{
    Condition, Json, condition,
    names::{annotations, api_versions, finalizers, labels, well_known},
    set_condition,
};
use insula_registry::{Intent, Plan, admission::types, ids};
use insula_store::Entry;
use serde_json::json;

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
    let Some(own) = world.types.first() else {
        let name = text(old, "/spec/type/name");
        let message = format!("workspace type {name:?} cannot be resolved: create it, or delete this workspace");
        return unschedulable(world, entry, old, message);
    };
    if let Err(why) = &world.place {
        return unschedulable(world, entry, old, why.clone());
    }
    let mut value = old.clone();
    let cluster = &world.fresh_name;
    let path = world.parent_path.join(&entry.key.name);
    let duties = Duties::of(&world.types);

    value["spec"]["cluster"] = json!(cluster.as_str());
    value["spec"]["URL"] = json!(format!("{}/clusters/{path}", world.external_url));
    count_generation(&mut value);
    for (key, said) in [
        (annotations::WORKSPACE_CLUSTER, cluster.as_str()),
        (annotations::SHARD, well_known::SHARD),
    ] {
        mark(&mut value, "annotations", key, said);
    }
    value["metadata"]["finalizers"] = with_finalizer(&value, finalizers::WORKSPACE);
    set_condition(&mut value, &Condition::holds("WorkspaceScheduled"), world.now);
    show(&mut value, duties.phase(), &duties.waiting, world);

    let logical = logical_cluster(world, (entry, old), own, &duties);
    let mut intents = parent.clone();
    intents.push(Intent::Update(entry.clone(), value));
    intents.push(Intent::Create(ids::logical_cluster(cluster), logical));
    intents.extend(birth::content(&world.types, cluster, &world.trust));
    Plan::of(intents)
}

fn unschedulable(world: &World, entry: &Entry, old: &Json, message: String) -> Plan {
    let mut value = old.clone();
    let problem = Condition::fails("WorkspaceScheduled", "Unschedulable", message);
    set_condition(&mut value, &problem, world.now);
    Plan {
        intents: vec![Intent::Update(entry.clone(), value)],
        again_after: Some(30),
    }
}

fn logical_cluster(world: &World, (workspace, said): (&Entry, &Json), own: &types::Resolved, duties: &Duties) -> Json {
    let meta = &workspace.object.meta;
    let mut value = json!({
        "apiVersion": api_versions::CORE, "kind": "LogicalCluster",
        "metadata": {
            "name": well_known::LOGICAL_CLUSTER,
            "annotations": {
                annotations::PATH: world.parent_path.join(&meta.name).as_str(),
                annotations::WORKSPACE_TYPE: own.reference.to_string(),
            },
        },
        "spec": {
            "directlyDeletable": false,
            "owner": {
                "apiVersion": api_versions::TENANCY, "resource": "workspaces", "name": &*meta.name,
                "cluster": workspace.key.cluster.as_str(), "uid": meta.uid.to_string(),
            },
        },
        "status": {"URL": format!("{}/clusters/{}", world.external_url, world.fresh_name)},
    });
    duties.write(&mut value, world.now);
    if let Some((owner, user)) = &world.owner {
        mark(&mut value, "annotations", annotations::WORKSPACE_OWNER, owner);
        value["spec"]["createdBy"] = user.clone();
    }
    if duties.waiting.is_empty() {
        shorten_owner(&mut value);
    }
    if let Some(groups) = said["metadata"]["annotations"][annotations::REQUIRED_GROUPS].as_str() {
        mark(&mut value, "annotations", annotations::REQUIRED_GROUPS, groups);
    }
    value
}

/// Shows in the Workspace what its LogicalCluster says.
fn mirror(world: &World, entry: &Entry, old: &Json) -> Plan {
    let mut value = old.clone();
    match &world.child {
        Some((_, child)) => {
            let waiting = birth::texts(child, "/status/initializers");
            set_condition(&mut value, &Condition::holds("WorkspaceScheduled"), world.now);
            show(&mut value, text(child, "/status/phase"), &waiting, world);
        }
        None => {
            let message =
                "the logical cluster of this workspace is gone, and its content with it: delete the workspace";
            let gone = Condition::fails("WorkspaceInitialized", "WorkspaceDisappeared", message);
            set_condition(&mut value, &gone, world.now);
            show_phase(&mut value, "Unavailable");
        }
    }
    Plan::of(vec![Intent::Update(entry.clone(), value)])
}

fn show(value: &mut Json, phase: &str, waiting: &[String], world: &World) {
    set_condition(value, &birth::initialized(waiting), world.now);
    sort_conditions(value);
    show_list(value, "initializers", waiting);
    let phase = match phase {
        "" => "Initializing",
        // Whoever finds a workspace broken says so in a condition of it.
        "Ready" if is_broken(value) => "Unavailable",
        phase => phase,
    };
    show_phase(value, phase);
    if phase == "Ready" {
        shorten_owner(value);
    }
}

fn is_broken(workspace: &Json) -> bool {
    list(workspace, "/status/conditions")
        .iter()
        .any(|condition| condition["status"] == "False" && text(condition, "/type").starts_with("Workspace"))
}

pub(crate) fn show_phase(value: &mut Json, phase: &str) {
    if !value["status"].is_object() {
        value["status"] = json!({});
    }
    value["status"]["phase"] = json!(phase);
    mark(value, "labels", labels::PHASE, phase);
}

/// Passes the deletion on, and ends it when the logical cluster is gone.
fn delete(world: &World, entry: &Entry, old: &Json) -> Plan {
    let mut value = old.clone();
    let mut intents = Vec::new();
    match &world.child {
        None => drop_finalizer(&mut value, finalizers::WORKSPACE),
        Some((child_entry, child)) => {
            let terminators = birth::texts(child, "/status/terminators");
            let phase = if terminators.is_empty() {
                "Deleting"
            } else {
                "Terminating"
            };
            show_phase(&mut value, phase);
            show_list(&mut value, "terminators", &terminators);
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
    Plan::of(intents)
}

fn marked(child: &Json, world: &World) -> Json {
    let mut child = child.clone();
    child["metadata"]["deletionTimestamp"] = json!(world.now.to_string());
    child["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    child["metadata"]["finalizers"] = with_finalizer(&child, finalizers::LOGICAL_CLUSTER);
    count_generation(&mut child);
    let waits = !list(&child, "/status/terminators").is_empty();
    show_phase(&mut child, if waits { "Terminating" } else { "Deleting" });
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
