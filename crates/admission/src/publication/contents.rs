//! Comparison of a stored object with the one that a publication writes.

use insula_api::{
    Json,
    names::annotations::{ACCEPT_INCOMPATIBLE, ACCEPTED_ONCE, CONFIRM_REMOVAL},
};
use serde_json::json;

/// Returns true if a schema has the annotation that accepts incompatible versions.
pub fn is_accepted(schema: &Json) -> bool {
    schema["metadata"]["annotations"][ACCEPT_INCOMPATIBLE] == "true"
}

/// Returns true if the stored object has the wanted contents. A server adds the validation of
/// names to a schema.
pub fn has_same_contents(there: &Json, wanted: &Json) -> bool {
    let mut spec = there["spec"].clone();
    let has_validation = wanted["spec"].get("nameValidation").is_some();
    if let Some(spec) = spec
        .as_object_mut()
        .filter(|_| !has_validation && wanted["kind"] == "APIResourceSchema")
    {
        spec.remove("nameValidation");
    }
    // An accepted incompatibility is an annotation, the only one that a publication adds later.
    spec == wanted["spec"] && (is_accepted(there) || !is_accepted(wanted))
}

/// Returns the stored object with the wanted contents: `spec`, and the annotations of a
/// publication.
pub fn updated(there: Json, wanted: &Json) -> Json {
    let mut new = there;
    new["spec"] = wanted["spec"].clone();
    for word in [CONFIRM_REMOVAL, ACCEPTED_ONCE] {
        if let Some(said) = wanted["metadata"]["annotations"].get(word) {
            new["metadata"]["annotations"][word] = said.clone();
        }
    }
    if is_accepted(wanted) {
        new["metadata"]["annotations"][ACCEPT_INCOMPATIBLE] = json!("true");
    }
    new
}
