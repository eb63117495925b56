//! Writes to a part of an object: everything outside the part stays as the old object has it.

use insula_api::Json;
use insula_catalog::{Served, object::metadata_of};
use serde_json::json;

/// Returns the old object with the new status. Some built-in kinds also take labels and
/// annotations.
pub(super) fn status_only(served: &Served, new: Json, old: &Json) -> Json {
    let mut merged = old.clone();
    match new.get("status") {
        Some(status) => merged["status"] = status.clone(),
        None => remove(&mut merged, "status"),
    }
    if served.api.strategy.traits().status_takes_metadata {
        for field in ["labels", "annotations"] {
            match new["metadata"].get(field) {
                Some(value) => merged["metadata"][field] = value.clone(),
                None => {
                    metadata_of(&mut merged).remove(field);
                }
            }
        }
    }
    merged
}

/// Returns the old object with the new `spec.finalizers`.
pub(super) fn finalizers_only(new: &Json, old: &Json) -> Json {
    let mut merged = old.clone();
    if !merged["spec"].is_object() {
        merged["spec"] = json!({});
    }
    match new["spec"].get("finalizers") {
        Some(finalizers) => merged["spec"]["finalizers"] = finalizers.clone(),
        None => remove(&mut merged["spec"], "finalizers"),
    }
    merged
}

/// Removes a field of an object.
pub(super) fn remove(object: &mut Json, field: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(field);
    }
}
