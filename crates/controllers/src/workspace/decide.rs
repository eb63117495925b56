//! Decision about one workspace.

use super::{
    birth::{self, Lifecycle, shorten_owner},
    phase::{show_list, show_phase},
    world::{World, move_url},
};
use crate::{
    loaded::Loaded,
    write::{self, count_generation, drop_condition, drop_finalizer, list, mark, sort_conditions, text},
};
use insula_access::workspace_types;
use insula_api::{
    Condition, Json, condition,
    kinds::{LogicalCluster, Workspace, WorkspacePhase},
    names::{annotations, api_versions, finalizers, well_known},
    set_condition,
};
use insula_catalog::{digest, ids};
use insula_registry::{Intent, Plan, grace};
use serde_json::json;

/// Seconds until a workspace that cannot be scheduled is tried again.
const UNSCHEDULABLE_SECONDS: u64 = 30;

/// The condition that tells what the deletion waits for.
const CONTENT_DELETED: &str = "WorkspaceContentDeleted";

pub(super) fn decide(world: &World) -> Plan {
    let Some(workspace) = &world.workspace else {
        return Plan::rest();
    };
    let spec = &workspace.view.spec;
    match (workspace.is_deleting(), !spec.cluster.is_empty()) {
        (true, _) => match grace_left(world, workspace) {
            Some(seconds) => await_deletion(world, workspace, seconds),
            None => delete(world, workspace),
        },
        (false, true) => mirror(world, workspace),
        // The content of a mount is on another server.
        (false, false) if spec.mount.is_some() => Plan::rest(),
        (false, false) => schedule(world, workspace),
    }
}

/// Names the logical cluster, creates it, and writes its address into the Workspace.
fn schedule(world: &World, workspace: &Loaded<Workspace>) -> Plan {
    let Some(parent) = &world.parent else {
        return Plan::rest();
    };
    let Some(own) = world.types.first() else {
        let name = &workspace.view.spec.r#type.name;
        let message = format!("workspace type {name:?} cannot be resolved: create it, or delete this workspace");
        return unschedulable(world, workspace, message);
    };
    if let Err(why) = &world.shard {
        return unschedulable(world, workspace, why.clone());
    }
    let mut value = workspace.value.clone();
    let cluster = &world.fresh_name;
    let path = world.parent_path.join(&workspace.entry.key.name);
    let lifecycle = Lifecycle::from_types(&world.types);

    value["spec"]["cluster"] = json!(cluster.as_str());
    value["spec"]["URL"] = json!(format!("{}/clusters/{path}", world.external_url));
    count_generation(&mut value);
    mark(
        &mut value,
        "annotations",
        annotations::WORKSPACE_CLUSTER,
        cluster.as_str(),
    );
    mark(&mut value, "annotations", annotations::SHARD, well_known::SHARD);
    let hash = digest::shard_hash(well_known::SHARD);
    mark(&mut value, "annotations", annotations::SHARD_HASH, &hash);
    value["metadata"]["finalizers"] = with_finalizer(&value, finalizers::WORKSPACE);
    set_condition(&mut value, &Condition::holds("WorkspaceScheduled"), world.now);
    show(&mut value, lifecycle.phase(), &lifecycle.waiting, world);
    show_list(&mut value, "terminators", &lifecycle.terminators);

    let mut intents = parent.clone();
    intents.push(workspace.update(value));
    intents.push(Intent::Create(
        ids::logical_cluster(cluster),
        logical_cluster(world, workspace, own, &lifecycle),
    ));
    intents.extend(birth::content(&world.types, cluster, &world.trust));
    Plan::new(intents)
}

fn unschedulable(world: &World, workspace: &Loaded<Workspace>, message: String) -> Plan {
    let mut value = workspace.value.clone();
    let problem = Condition::fails("WorkspaceScheduled", "Unschedulable", message);
    set_condition(&mut value, &problem, world.now);
    Plan {
        intents: vec![workspace.update(value)],
        again_after: Some(UNSCHEDULABLE_SECONDS),
    }
}

/// Returns the LogicalCluster of a new workspace.
fn logical_cluster(
    world: &World,
    workspace: &Loaded<Workspace>,
    own: &workspace_types::Resolved,
    lifecycle: &Lifecycle,
) -> Json {
    let (key, meta) = (&workspace.entry.key, &workspace.entry.object.meta);
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
                "cluster": key.cluster.as_str(), "uid": meta.uid.to_string(),
            },
        },
        "status": {"URL": format!("{}/clusters/{}", world.external_url, world.fresh_name)},
    });
    lifecycle.write(&mut value, world.now);
    if let Some(creator) = &world.creator {
        mark(
            &mut value,
            "annotations",
            annotations::WORKSPACE_OWNER,
            &creator.annotation,
        );
        value["spec"]["createdBy"] = creator.user.clone();
    }
    if lifecycle.waiting.is_empty() {
        shorten_owner(&mut value);
    }
    if let Some(groups) = workspace.view.metadata.annotation(annotations::REQUIRED_GROUPS) {
        mark(&mut value, "annotations", annotations::REQUIRED_GROUPS, groups);
    }
    if let Some(freeze) = &world.freeze {
        mark(&mut value, "annotations", annotations::FROZEN_ABOVE, freeze);
    }
    value
}

/// Copies the state of the LogicalCluster to the Workspace.
fn mirror(world: &World, workspace: &Loaded<Workspace>) -> Plan {
    let mut value = workspace.value.clone();
    match &world.child {
        Some(child) => {
            let status = &child.view.status;
            // Without a phase the cluster has just been created.
            let phase = status.phase.unwrap_or(WorkspacePhase::Initializing);
            move_url(&mut value, "/spec/URL", world.shard_url.as_deref());
            set_condition(&mut value, &Condition::holds("WorkspaceScheduled"), world.now);
            // Of a deletion that was taken back.
            drop_condition(&mut value, CONTENT_DELETED);
            show(&mut value, phase.as_str(), &status.initializers, world);
            show_list(&mut value, "terminators", &status.terminators);
        }
        None => {
            let message =
                "the logical cluster of this workspace is gone, and its content with it: delete the workspace";
            let gone = Condition::fails("WorkspaceInitialized", "WorkspaceDisappeared", message);
            set_condition(&mut value, &gone, world.now);
            show_phase(&mut value, "Unavailable");
        }
    }
    Plan::new(vec![workspace.update(value)])
}

/// Writes phase, initializers and conditions into a Workspace.
fn show(value: &mut Json, phase: &str, waiting: &[String], world: &World) {
    set_condition(value, &birth::initialized(waiting), world.now);
    sort_conditions(value);
    show_list(value, "initializers", waiting);
    let phase = match phase {
        "Ready" if is_broken(value) => "Unavailable",
        phase => phase,
    };
    show_phase(value, phase);
    if phase == "Ready" {
        shorten_owner(value);
    }
}

/// Returns true if some condition of the workspace is false: those who find a workspace broken set
/// one.
fn is_broken(workspace: &Json) -> bool {
    list(workspace, "/status/conditions")
        .iter()
        .any(|condition| condition["status"] == "False" && text(condition, "/type").starts_with("Workspace"))
}

/// Returns the seconds for which the deletion of a workspace may still be taken back: none once its
/// logical cluster is being deleted.
fn grace_left(world: &World, workspace: &Loaded<Workspace>) -> Option<u64> {
    world.child.as_ref().filter(|child| !child.is_deleting())?;
    write::grace_left(&workspace.entry.object.meta, world.now)
}

/// Shows that the content of a deleted workspace is still there.
fn await_deletion(world: &World, workspace: &Loaded<Workspace>, seconds: u64) -> Plan {
    let mut value = workspace.value.clone();
    show_phase(&mut value, WorkspacePhase::Deleting.as_str());
    let end = workspace.entry.object.meta.deletion_timestamp.unwrap_or(world.now);
    let message = format!("the content is kept until {end}, and the deletion can be taken back until then");
    write::await_deletion(
        &workspace.entry,
        value,
        (CONTENT_DELETED, message),
        (seconds, world.now),
    )
}

/// Passes the deletion on to the LogicalCluster, and ends it when that is gone.
fn delete(world: &World, workspace: &Loaded<Workspace>) -> Plan {
    let mut value = workspace.value.clone();
    let mut intents = Vec::new();
    if workspace.entry.object.meta.deletion_grace {
        grace::end(&mut value, world.now);
    }
    match &world.child {
        None => drop_finalizer(&mut value, finalizers::WORKSPACE),
        Some(child) => {
            show_phase(&mut value, deletion_phase(&child.view).as_str());
            show_list(&mut value, "terminators", &child.view.status.terminators);
            match condition(&child.value, CONTENT_DELETED) {
                Some(problem) => copy_condition(&mut value, problem),
                None => drop_condition(&mut value, CONTENT_DELETED),
            }
            if !child.is_deleting() {
                intents.push(child.update(marked_deleted(child, world)));
            }
        }
    }
    intents.push(workspace.update(value));
    Plan::new(intents)
}

fn deletion_phase(logical: &LogicalCluster) -> WorkspacePhase {
    match logical.status.terminators.is_empty() {
        true => WorkspacePhase::Deleting,
        false => WorkspacePhase::Terminating,
    }
}

/// Returns a LogicalCluster as a request to delete it leaves it.
fn marked_deleted(child: &Loaded<LogicalCluster>, world: &World) -> Json {
    let mut value = child.value.clone();
    value["metadata"]["deletionTimestamp"] = json!(world.now.to_string());
    value["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    value["metadata"]["finalizers"] = with_finalizer(&value, finalizers::LOGICAL_CLUSTER);
    count_generation(&mut value);
    // Where terminators are awaited, the phase follows in a write of its own: those who watch for
    // them get a change of the marked object, as from kcp.
    if child.view.status.terminators.is_empty() {
        show_phase(&mut value, WorkspacePhase::Deleting.as_str());
    }
    value
}

fn copy_condition(value: &mut Json, condition: &Json) {
    drop_condition(value, CONTENT_DELETED);
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

#[cfg(test)]
mod tests;
