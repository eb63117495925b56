//! StorageVersionMigrations: the order of requests, and their status.

use crate::write::{drop_condition, text};
use insula_api::{ClusterName, Condition, Json, Revision, Scope, Timestamp, condition, set_condition};
use insula_catalog::ids;
use insula_store::{Entry, Snapshot};
use serde_json::json;

/// Returns the oldest unfinished request: they run one at a time, as in Kubernetes.
pub(super) fn next(snapshot: &Snapshot, cluster: &ClusterName, group: &str, plural: &str) -> Option<(Entry, Json)> {
    let scope = Scope::cluster(ids::storageversionmigrations(), cluster.clone());
    let all = snapshot.range(&scope, None, usize::MAX);
    let waiting = all.into_iter().filter_map(|entry| {
        let value = entry.object.body_value();
        let wanted = &value["spec"]["resource"];
        let same = text(wanted, "/group") == group && text(wanted, "/resource") == plural;
        (same && !is_done(&value) && !entry.object.meta.is_deleting()).then_some((entry, value))
    });
    waiting.min_by_key(|(entry, _)| entry.created)
}

fn is_done(request: &Json) -> bool {
    ["Succeeded", "Failed"]
        .iter()
        .any(|kind| condition(request, kind).is_some_and(|c| c["status"] == "True"))
}

/// Returns a request whose migration runs, with its progress in the message.
pub(super) fn run(request: &Json, progress: &str, revision: Revision, now: Timestamp) -> Json {
    let mut value = begun(request, revision);
    say(&mut value, "Running", "MigrationRunning", progress, now);
    value
}

/// Returns a request with the revision at which its migration began.
fn begun(request: &Json, revision: Revision) -> Json {
    let mut value = request.clone();
    if text(&value, "/status/resourceVersion").is_empty() {
        if !value["status"].is_object() {
            value["status"] = json!({});
        }
        value["status"]["resourceVersion"] = json!(revision.to_string());
    }
    value
}

pub(super) fn succeed(request: &Json, revision: Revision, now: Timestamp) -> Json {
    let mut value = begun(request, revision);
    drop_condition(&mut value, "Running");
    say(&mut value, "Succeeded", "StorageVersionMigrationSucceeded", "", now);
    value
}

pub(super) fn fail(request: &Json, why: &str, now: Timestamp) -> Json {
    let mut value = request.clone();
    drop_condition(&mut value, "Running");
    say(&mut value, "Failed", "StorageVersionMigrationFailed", why, now);
    value
}

fn say(value: &mut Json, kind: &str, reason: &str, message: &str, now: Timestamp) {
    set_condition(value, &Condition::holds(kind).because(reason, message), now);
    // Conditions of this kind always have a message in Kubernetes.
    let list = value.pointer_mut("/status/conditions").and_then(Json::as_array_mut);
    for shown in list.into_iter().flatten().filter(|c| c["type"] == kind) {
        shown["message"] = json!(message);
    }
}
