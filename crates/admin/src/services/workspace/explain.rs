//! Explanation of a workspace that is not ready: what is in the way, its cause and its fix.

use super::{content::Content, reading, right, text};
use crate::session::Session;
use insula_api::{
    ClusterName, Json, ObjectKey, Scope, Verb,
    names::{annotations, groups, well_known},
};
use insula_catalog::ids;
use insula_proto::admin::v1::{ExplainWorkspaceResponse, Finding, Workspace};
use insula_registry::Deps;
use std::ops::ControlFlow;

/// Maximum number of findings of one explanation.
const FINDINGS_MAX: usize = 100;

/// The fix for objects that finalizers hold.
const HELD_FIX: &str = "let the controllers of these objects remove their finalizers; if one is gone for good, remove \
                        its finalizer by hand";

/// State that an explanation looks at.
#[derive(Default)]
struct World {
    /// The Workspace in the parent; null for `root`.
    workspace: Json,
    /// The LogicalCluster, if the caller may read it.
    cluster: Option<Json>,
    /// APIBindings that are not bound or are deleted, if the caller may list them.
    bindings: Vec<Json>,
}

/// Explains a workspace that the caller may read.
pub(super) fn explain(registry: &Deps, session: &Session, workspace: Workspace) -> ExplainWorkspaceResponse {
    let cluster = ClusterName::parse(&workspace.cluster).ok();
    let may = |right| {
        let permit = |cluster| session.caller.permit(&session.snapshot, cluster, right).is_ok();
        cluster.as_ref().is_some_and(permit)
    };
    let is_inside = may(reading());
    let world = World {
        workspace: in_parent(session, &workspace).unwrap_or_default(),
        cluster: cluster.as_ref().filter(|_| is_inside).and_then(|cluster| {
            let entry = session.snapshot.get(&ids::logical_cluster(cluster))?;
            Some(entry.object.body_value())
        }),
        bindings: match &cluster {
            Some(cluster) if may(right(Verb::List, groups::APIS, "apibindings", "")) => bindings(session, cluster),
            _ => Vec::new(),
        },
    };
    let objects = [Some(&world.workspace), world.cluster.as_ref()];
    let names = |pointer: &str| {
        let lists = objects
            .iter()
            .flatten()
            .filter_map(|object| object.pointer(pointer)?.as_array());
        let mut names: Vec<String> = lists.flatten().map(text).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let is_deleting = objects.iter().flatten().any(|object| deletes(object));
    let mut content = Content::default();
    if let (true, Some(cluster)) = (is_deleting && is_inside, &cluster) {
        content.add(registry, session, cluster);
    }
    let mut findings = findings(&world);
    let ready = workspace.phase == "Ready" && findings.is_empty();
    if !is_deleting {
        findings.extend(removals(&world.bindings));
        findings.truncate(FINDINGS_MAX);
    }
    ExplainWorkspaceResponse {
        header: session.header(),
        ready,
        initializers: names("/status/initializers"),
        terminators: if is_deleting {
            names("/status/terminators")
        } else {
            Vec::new()
        },
        finalizers: if is_deleting {
            names("/metadata/finalizers")
        } else {
            Vec::new()
        },
        remaining: content.counts(),
        partial: cluster.is_some() && !is_inside,
        findings,
        workspace: Some(workspace),
    }
}

/// Returns the Workspace of a workspace that has a parent.
fn in_parent(session: &Session, workspace: &Workspace) -> Option<Json> {
    let parent = insula_api::ClusterPath::parse(&workspace.parent).ok()?;
    let parent = insula_catalog::locate::locate(&session.snapshot, &parent).ok()?;
    let read = right(Verb::Get, groups::TENANCY, "workspaces", &workspace.name);
    session.caller.permit(&session.snapshot, &parent, read).ok()?;
    let key = ObjectKey::cluster_scoped(ids::workspaces(), parent, &workspace.name);
    Some(session.snapshot.get(&key)?.object.body_value())
}

fn bindings(session: &Session, cluster: &ClusterName) -> Vec<Json> {
    let mut found = Vec::new();
    let scope = Scope::cluster(ids::apibindings(), cluster.clone());
    session.snapshot.for_each(&scope, |entry| {
        let binding = entry.object.body_value();
        if binding["status"]["phase"] != "Bound" || deletes(&binding) {
            found.push(binding);
        }
        match found.len() < FINDINGS_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    found
}

fn is_inactive(object: &Json) -> bool {
    let marks = &object["metadata"]["annotations"];
    annotations::INACTIVE.into_iter().any(|key| marks[key] == "true")
}

fn deletes(object: &Json) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Returns the end of the grace period of a deleted object.
fn grace_end(object: &Json) -> Option<String> {
    let metadata = &object["metadata"];
    let has_grace = metadata["deletionGracePeriodSeconds"].as_i64().is_some_and(|it| it > 0);
    has_grace.then(|| text(&metadata["deletionTimestamp"]))
}

/// Tells of deleted bindings: those in their grace period, and those whose objects are removed. A
/// workspace is ready all the same.
fn removals(bindings: &[Json]) -> impl Iterator<Item = Finding> {
    bindings.iter().filter(|binding| deletes(binding)).map(|binding| {
        let name = text(&binding["metadata"]["name"]);
        let subject = format!("apibinding {name}");
        if let Some(end) = grace_end(binding) {
            let cause = format!("is deleted, and its objects are kept until {end}");
            let fix = format!(
                "take the deletion back with UndeleteBinding (`insula unbind {name} --undelete`), or end the time \
                 with UnbindApi and immediately (`insula unbind {name} --now`)"
            );
            return finding(&subject, &cause, &fix);
        }
        let held = failed_conditions(binding).find(|(kind, ..)| kind == "BindingResourceDeleteSuccess");
        match held {
            Some((_, reason, message)) => {
                let cause = format!("is being deleted, and objects are left: {reason}: {message}");
                finding(&subject, &cause, HELD_FIX)
            }
            None => finding(
                &subject,
                "is being deleted: its objects go first",
                "wait: nothing holds it",
            ),
        }
    })
}

/// Decides what is in the way of a workspace: the most likely cause first.
fn findings(world: &World) -> Vec<Finding> {
    let World {
        workspace,
        cluster,
        bindings,
    } = world;
    let objects: Vec<&Json> = std::iter::once(workspace).chain(cluster).collect();
    let mut found = Vec::new();
    if objects.iter().any(|object| is_inactive(object)) {
        let cause = "its LogicalCluster is marked inactive, so requests to it are refused";
        let fix = format!(
            "remove the annotation {} from its LogicalCluster",
            annotations::INACTIVE[0]
        );
        found.push(finding("logical cluster", cause, &fix));
    }
    if let Some(end) = grace_end(workspace) {
        let cause = format!("is deleted, and its content is kept until {end}");
        let fix = "take the deletion back with UndeleteWorkspace, or end the time with DeleteWorkspace and immediately";
        found.push(finding("deletion", &cause, fix));
    } else if objects.iter().any(|object| deletes(object)) {
        deletion(&objects, &mut found);
    } else {
        preparation(&objects, bindings, &mut found);
    }
    found.dedup();
    found.truncate(FINDINGS_MAX);
    found
}

/// Finds what keeps a workspace from being ready.
fn preparation(objects: &[&Json], bindings: &[Json], found: &mut Vec<Finding>) {
    for initializer in all(objects, "/status/initializers") {
        let cause = "has not finished: it removes its name from the LogicalCluster's status when it has";
        let fix = match initializer.as_str() {
            well_known::BINDINGS_INITIALIZER => {
                "every default APIBinding of the type must be bound: look at those below, and at the exports that \
                 they name"
                    .to_owned()
            }
            other => format!("check that the controller of the WorkspaceType {other} runs and may use that type"),
        };
        found.push(finding(&format!("initializer {initializer}"), cause, &fix));
    }
    for binding in bindings.iter().filter(|binding| !deletes(binding)) {
        let failed = failed_conditions(binding).next();
        let cause = failed.map_or_else(
            || "is not bound yet".to_owned(),
            |(_, reason, message)| format!("is not bound: {reason}: {message}"),
        );
        let export = &binding["spec"]["reference"]["export"];
        let fix = format!(
            "check that the APIExport {:?} of {:?} exists, and that this workspace may bind it",
            text(&export["name"]),
            text(&export["path"])
        );
        found.push(finding(
            &format!("apibinding {}", text(&binding["metadata"]["name"])),
            &cause,
            &fix,
        ));
    }
    for object in objects {
        for (kind, reason, message) in failed_conditions(object) {
            let fix = match kind.as_str() {
                // The initializers above say more.
                "WorkspaceInitialized" if reason == "InitializerExists" => continue,
                "WorkspaceInitialized" => "delete the workspace, and create it again",
                "WorkspaceScheduled" => {
                    "put right what the message says: the type must exist, and a shard must take workspaces; the \
                     server tries again every 30 seconds"
                }
                _ => "whoever set this condition sets it to True, or removes it, once its cause is gone",
            };
            let cause = format!("is False: {reason}: {message}");
            found.push(finding(&format!("condition {kind}"), &cause, fix));
        }
    }
    let [workspace, ..] = objects else { return };
    if found.is_empty() && workspace["status"]["phase"] != "Ready" && workspace["spec"]["cluster"].is_null() {
        let mount = &workspace["spec"]["mount"];
        let (cause, fix) = match (workspace.is_null(), mount.is_null()) {
            (true, _) => return,
            (false, false) => (
                "its mount is not ready",
                "look at the status of the object in spec.mount.ref",
            ),
            (false, true) => (
                "no logical cluster is assigned yet",
                "wait: the server assigns one within seconds",
            ),
        };
        found.push(finding("workspace", cause, fix));
    }
}

/// Finds what a deletion waits for.
fn deletion(objects: &[&Json], found: &mut Vec<Finding>) {
    for terminator in all(objects, "/status/terminators") {
        let fix = format!("check that the controller of the WorkspaceType {terminator} runs and may use that type");
        let cause = "has not finished: it removes its name from the LogicalCluster's status when it has";
        found.push(finding(&format!("terminator {terminator}"), cause, &fix));
    }
    for (kind, reason, message) in objects.iter().flat_map(|object| failed_conditions(object)) {
        if kind == "WorkspaceContentDeleted" {
            found.push(finding("content", &format!("is left: {reason}: {message}"), HELD_FIX));
        }
    }
    for finalizer in all(objects, "/metadata/finalizers") {
        // The server's own follow from the content.
        if !finalizer.contains("kcp.io/") {
            let cause = "holds the deletion";
            let fix = "its controller removes it; if that is gone for good, remove it by hand";
            found.push(finding(&format!("finalizer {finalizer}"), cause, fix));
        }
    }
    if found.is_empty() {
        found.push(finding(
            "deletion",
            "is under way: the content goes first",
            "wait: nothing holds it",
        ));
    }
}

/// Returns the texts of a list in some objects, each once.
fn all(objects: &[&Json], pointer: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for item in objects
        .iter()
        .filter_map(|object| object.pointer(pointer)?.as_array())
        .flatten()
    {
        let item = text(item);
        if !texts.contains(&item) {
            texts.push(item);
        }
    }
    texts
}

/// Returns type, reason and message of the conditions that are false.
fn failed_conditions(object: &Json) -> impl Iterator<Item = (String, String, String)> {
    let conditions = object.pointer("/status/conditions").and_then(Json::as_array);
    let failed = conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["status"] == "False");
    failed.map(|condition| {
        (
            text(&condition["type"]),
            text(&condition["reason"]),
            text(&condition["message"]),
        )
    })
}

fn finding(subject: &str, cause: &str, fix: &str) -> Finding {
    Finding {
        subject: subject.to_owned(),
        cause: cause.to_owned(),
        fix: fix.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn explained(world: &World) -> Vec<[String; 2]> {
        let found = findings(world).into_iter();
        found.map(|finding| [finding.subject, finding.cause]).collect()
    }

    #[test]
    fn initializers_come_with_the_bindings_that_they_wait_for() {
        let waiting = json!({"spec": {"cluster": "c"}, "status": {"phase": "Initializing",
            "initializers": ["root:org:team", "system:apibindings"],
            "conditions": [{"type": "WorkspaceInitialized", "status": "False", "reason": "InitializerExists"}]}});
        let binding = json!({"metadata": {"name": "widgets"}, "status": {"conditions": [
            {"type": "APIExportValid", "status": "False", "reason": "APIExportNotFound", "message": "none"}]}});
        let world = World {
            workspace: waiting.clone(),
            cluster: Some(waiting),
            bindings: vec![binding],
        };
        let found = explained(&world);
        let subjects: Vec<&str> = found.iter().map(|[subject, _]| subject.as_str()).collect();
        assert_eq!(
            subjects,
            [
                "initializer root:org:team",
                "initializer system:apibindings",
                "apibinding widgets"
            ]
        );
        assert_eq!(found[2][1], "is not bound: APIExportNotFound: none");
    }

    #[test]
    fn a_workspace_that_cannot_be_scheduled_says_why() {
        let workspace = json!({"spec": {}, "status": {"phase": "Scheduling", "conditions": [
            {"type": "WorkspaceScheduled", "status": "False", "reason": "Unschedulable", "message": "no type"}]}});
        let world = World {
            workspace,
            ..World::default()
        };
        assert_eq!(
            explained(&world),
            [[
                "condition WorkspaceScheduled".to_owned(),
                "is False: Unschedulable: no type".to_owned()
            ]]
        );
    }

    #[test]
    fn a_deletion_says_what_it_waits_for() {
        let cluster = json!({"metadata": {"deletionTimestamp": "x", "finalizers": ["core.kcp.io/a", "example.io/f"]},
            "status": {"terminators": ["root:t"], "conditions": [
            {"type": "WorkspaceContentDeleted", "status": "False", "reason": "SomeFinalizersRemain"}]}});
        let world = World {
            cluster: Some(cluster),
            ..World::default()
        };
        let subjects: Vec<String> = explained(&world).into_iter().map(|[subject, _]| subject).collect();
        assert_eq!(subjects, ["terminator root:t", "content", "finalizer example.io/f"]);
    }

    #[test]
    fn a_binding_in_its_grace_period_is_told_from_one_that_is_held() {
        let kept = json!({"metadata": {"name": "kept", "deletionTimestamp": "2026-12-01T00:00:00Z",
            "deletionGracePeriodSeconds": 60}, "status": {"phase": "Bound"}});
        let held = json!({"metadata": {"name": "held", "deletionTimestamp": "x", "deletionGracePeriodSeconds": 0},
            "status": {"conditions": [{"type": "BindingResourceDeleteSuccess", "status": "False",
            "reason": "SomeFinalizersRemain", "message": "example.io/f in 1 resource instances"}]}});
        let causes: Vec<String> = removals(&[kept, held]).map(|finding| finding.cause).collect();
        assert_eq!(
            causes,
            [
                "is deleted, and its objects are kept until 2026-12-01T00:00:00Z",
                "is being deleted, and objects are left: SomeFinalizersRemain: example.io/f in 1 resource instances"
            ]
        );
    }

    #[test]
    fn a_ready_workspace_has_no_findings() {
        let ready = json!({"spec": {"cluster": "c"}, "status": {"phase": "Ready", "conditions": [
            {"type": "WorkspaceScheduled", "status": "True"}]}});
        let world = World {
            workspace: ready.clone(),
            cluster: Some(ready),
            bindings: Vec::new(),
        };
        assert!(findings(&world).is_empty());
    }
}
