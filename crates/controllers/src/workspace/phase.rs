//! Phase and lists in the status of Workspaces and LogicalClusters.

use crate::write::mark;
use insula_api::{Json, names::labels};
use serde_json::json;

/// Writes the phase: into `status.phase`, and into the label by which clients select it.
pub(crate) fn show_phase(value: &mut Json, phase: &str) {
    if !value["status"].is_object() {
        value["status"] = json!({});
    }
    value["status"]["phase"] = json!(phase);
    mark(value, "labels", labels::PHASE, phase);
}

/// Writes a list into the status; an empty one is left out.
pub(crate) fn show_list(object: &mut Json, field: &str, entries: &[String]) {
    if !entries.is_empty() {
        object["status"][field] = json!(entries);
    } else if let Some(status) = object["status"].as_object_mut() {
        status.remove(field);
    }
}
