//! Rules for the data of ConfigMaps and Secrets.

use insula_api::{FieldError, FieldPath, Json};
use serde_json::json;

/// Maximum bytes of data in a ConfigMap or a Secret.
pub(super) const DATA_MAX: usize = 1024 * 1024;

/// Checks that the fields of an object that is marked immutable do not change.
pub(super) fn immutable(new: &Json, old: &Json, fields: &[&str]) -> Vec<FieldError> {
    if old["immutable"] != true {
        return Vec::new();
    }
    let text = "field is immutable when `immutable` is set";
    let mut errors = Vec::new();
    if new["immutable"] != true {
        errors.push(FieldError::forbidden(&FieldPath::new("immutable"), text));
    }
    for field in fields.iter().filter(|field| new.get(field) != old.get(field)) {
        errors.push(FieldError::forbidden(&FieldPath::new(field), text));
    }
    errors
}

/// Returns the refusal of too much data.
pub(super) fn too_long(path: &FieldPath) -> FieldError {
    FieldError::too_long(path, DATA_MAX)
}

/// Checks a key by Kubernetes' rule for keys of ConfigMaps and Secrets (`IsConfigMapKey`).
pub(super) fn check_key(path: &FieldPath, key: &str, errors: &mut Vec<FieldError>) {
    let mut problem = |text: &str| errors.push(FieldError::invalid_text(path, json!(key).to_string(), text));
    if key.len() > 253 {
        problem("must be no more than 253 bytes");
    }
    if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) {
        problem(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        );
    }
    if key == "." {
        problem("must not be '.'");
    } else if key == ".." {
        problem("must not be '..'");
    } else if key.starts_with("..") {
        problem("must not start with '..'");
    }
}
