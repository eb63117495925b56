//! Writes to a part of an object: everything outside the part stays as the old object has it.

use insula_api::Json;
use insula_catalog::{Served, object::metadata_of};
use serde_json::json;

/// Returns the old object with the new status. Some kinds also take metadata.
pub(super) fn status_only(served: &Served, new: Json, old: &Json) -> Json {
    let mut merged = old.clone();
    match new.get("status") {
        Some(status) => merged["status"] = status.clone(),
        None => remove(&mut merged, "status"),
    }
    for field in served.api.strategy.traits().status_takes {
        match new["metadata"].get(field) {
            Some(value) => merged["metadata"][field] = value.clone(),
            None => {
                metadata_of(&mut merged).remove(*field);
            }
        }
    }
    merged
}

/// Returns an object with the metadata and the status of another one.
pub(super) fn metadata_and_status(from: Json, mut onto: Json) -> Json {
    let Json::Object(mut from) = from else { return onto };
    for field in ["metadata", "status"] {
        match from.remove(field) {
            Some(value) => onto[field] = value,
            None => remove(&mut onto, field),
        }
    }
    onto
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
