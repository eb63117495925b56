//! Namespaces, ConfigMaps, Secrets and ServiceAccounts.

use super::list_at;
use crate::{OnDelete, Strategy, Traits};
use insula_api::{FieldError, FieldPath, Json, Timestamp};
use serde_json::json;

/// Maximum bytes of data in a ConfigMap or a Secret.
const DATA_MAX: usize = 1024 * 1024;

/// Namespaces.
pub(super) struct Namespaces;

impl Strategy for Namespaces {
    fn traits(&self) -> Traits {
        Traits {
            deletes_to_object: true,
            own_deletion: true,
            ..Traits::BUILT_IN
        }
    }

    fn prepare_for_create(&self, new: &mut Json, _now: Timestamp) {
        if !new["spec"].is_object() {
            new["spec"] = json!({});
        }
        let finalizers = list_at(new, "spec", "finalizers");
        if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
            finalizers.push(json!("kubernetes"));
        }
        new["status"] = json!({"phase": "Active"});
        label_with_name(new);
    }

    /// Keeps the old `spec`: its finalizers change only through the `finalize` subresource.
    fn prepare_for_update(&self, new: &mut Json, old: &Json, _now: Timestamp) {
        if let Some(spec) = old.get("spec") {
            new["spec"] = spec.clone();
        }
        label_with_name(new);
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let at = FieldPath::new("spec").child("finalizers");
        let unqualified = new["spec"]["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|finalizer| {
                finalizer
                    .as_str()
                    .is_some_and(|name| name != "kubernetes" && !name.contains('/'))
            });
        let why = "name is neither a standard finalizer name nor is it fully qualified";
        unqualified
            .map(|finalizer| FieldError::invalid(&at, finalizer, why))
            .collect()
    }

    fn validate_update(&self, new: &Json, _old: &Json) -> Vec<FieldError> {
        let phase = &new["status"]["phase"];
        let deleting = !new["metadata"]["deletionTimestamp"].is_null();
        let why = match (deleting, phase.as_str()) {
            (false, Some(phase)) if phase != "Active" => "may only be 'Active' if `deletionTimestamp` is empty",
            (true, Some(phase)) if phase != "Terminating" => {
                "may only be 'Terminating' if `deletionTimestamp` is not empty"
            }
            _ => return Vec::new(),
        };
        vec![FieldError::invalid(
            &FieldPath::new("status").child("Phase"),
            phase,
            why,
        )]
    }

    fn on_delete(&self, object: &mut Json, _now: Timestamp) -> OnDelete {
        if !self.is_held(object) {
            return OnDelete::Go;
        }
        object["status"]["phase"] = json!("Terminating");
        OnDelete::Hold
    }

    fn is_held(&self, object: &Json) -> bool {
        object
            .pointer("/spec/finalizers")
            .and_then(Json::as_array)
            .is_some_and(|list| !list.is_empty())
    }
}

fn label_with_name(namespace: &mut Json) {
    let name = namespace["metadata"]["name"].clone();
    if !namespace["metadata"]["labels"].is_object() {
        namespace["metadata"]["labels"] = json!({});
    }
    namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
}

/// ConfigMaps.
pub(super) struct ConfigMaps;

impl Strategy for ConfigMaps {
    fn traits(&self) -> Traits {
        Traits::BUILT_IN
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut size = 0;
        for field in ["data", "binaryData"] {
            for (key, value) in new[field].as_object().into_iter().flatten() {
                size += value.as_str().map_or(0, str::len);
                check_key(&FieldPath::new(field).key(key), key, &mut errors);
                if field == "data" && new["binaryData"].get(key).is_some() {
                    let text = "duplicate of key present in binaryData";
                    errors.push(FieldError::invalid(&FieldPath::new("data").key(key), &json!(key), text));
                }
            }
        }
        if size > DATA_MAX {
            errors.push(too_long(&FieldPath::new("[]")));
        }
        errors
    }

    fn validate_update(&self, new: &Json, old: &Json) -> Vec<FieldError> {
        immutable(new, old, &["data", "binaryData"])
    }
}

/// Secrets.
pub(super) struct Secrets;

impl Strategy for Secrets {
    fn traits(&self) -> Traits {
        Traits::BUILT_IN
    }

    fn default(&self, new: &mut Json) {
        if new["type"].as_str().is_none_or(str::is_empty) {
            new["type"] = json!("Opaque");
        }
        merge_string_data(new);
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut size = 0;
        for (key, value) in new["data"].as_object().into_iter().flatten() {
            size += value.as_str().map_or(0, |text| text.len() / 4 * 3);
            check_key(&FieldPath::new("data").key(key), key, &mut errors);
        }
        if size > DATA_MAX {
            errors.push(too_long(&FieldPath::new("data")));
        }
        check_type(new, &mut errors);
        errors
    }

    /// Warns about a TLS Secret whose certificate or key is not PEM.
    fn warnings(&self, new: &Json, _old: Option<&Json>) -> Vec<String> {
        let pair = [("tls.crt", "certificate"), ("tls.key", "key")];
        let bad = pair.into_iter().find(|(key, _)| !holds_pem(&new["data"][*key]));
        match (new["type"].as_str(), bad) {
            (Some("kubernetes.io/tls"), Some((_, what))) => {
                vec![format!("tls: failed to find any PEM data in {what} input")]
            }
            _ => Vec::new(),
        }
    }

    fn validate_update(&self, new: &Json, old: &Json) -> Vec<FieldError> {
        let mut errors = immutable(new, old, &["data"]);
        if new["type"] != old["type"] {
            errors.push(FieldError::invalid(
                &FieldPath::new("type"),
                &new["type"],
                "field is immutable",
            ));
        }
        errors
    }
}

/// ServiceAccounts.
pub(super) struct ServiceAccounts;

impl Strategy for ServiceAccounts {
    fn traits(&self) -> Traits {
        Traits {
            deletes_to_object: true,
            ..Traits::BUILT_IN
        }
    }

    fn prepare_for_create(&self, new: &mut Json, _now: Timestamp) {
        keep_names_of_secrets(new);
    }

    fn prepare_for_update(&self, new: &mut Json, _old: &Json, _now: Timestamp) {
        keep_names_of_secrets(new);
    }
}

/// Keeps only the names of an account's secrets. The secrets are in the account's namespace, so a
/// name identifies them.
fn keep_names_of_secrets(account: &mut Json) {
    for secret in account["secrets"].as_array_mut().into_iter().flatten() {
        if let Some(fields) = secret.as_object_mut() {
            fields.retain(|field, _| field == "name");
        }
    }
}

fn holds_pem(value: &Json) -> bool {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or_default());
    bytes.is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains("-----BEGIN "))
}

/// Checks the keys that Secrets of Kubernetes' own types must have.
fn check_type(secret: &Json, errors: &mut Vec<FieldError>) {
    let has = |key: &str| secret["data"].get(key).is_some();
    let data = |key: &str| FieldPath::new("data").key(key);
    let mut require = |keys: &[&str]| {
        errors.extend(
            keys.iter()
                .filter(|key| !has(key))
                .map(|key| FieldError::required(&data(key), "")),
        );
    };
    match secret["type"].as_str().unwrap_or_default() {
        "kubernetes.io/tls" => require(&["tls.crt", "tls.key"]),
        "kubernetes.io/ssh-auth" => require(&["ssh-privatekey"]),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => require(&["password", "username"]),
        "kubernetes.io/dockerconfigjson" => check_json(secret, ".dockerconfigjson", errors),
        "kubernetes.io/dockercfg" => check_json(secret, ".dockercfg", errors),
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if secret["metadata"]["annotations"][key]
                .as_str()
                .unwrap_or_default()
                .is_empty()
            {
                errors.push(FieldError::required(
                    &FieldPath::new("metadata").child("annotations").key(key),
                    "",
                ));
            }
        }
        _ => {}
    }
}

fn check_json(secret: &Json, key: &str, errors: &mut Vec<FieldError>) {
    use base64::Engine;
    let at = FieldPath::new("data").key(key);
    let Some(text) = secret["data"][key].as_str() else {
        errors.push(FieldError::required(&at, ""));
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes) {
        let why = if error.is_eof() {
            "unexpected end of JSON input"
        } else {
            "invalid JSON"
        };
        errors.push(FieldError::invalid(&at, &json!("<secret contents redacted>"), why));
    }
}

/// Moves `stringData` into `data`: it is a write-only form of that field.
fn merge_string_data(secret: &mut Json) {
    use base64::Engine;
    let Some(Json::Object(given)) = secret.as_object_mut().and_then(|map| map.remove("stringData")) else {
        return;
    };
    if !given.is_empty() && !secret["data"].is_object() {
        secret["data"] = json!({});
    }
    for (key, value) in given {
        let bytes = value.as_str().unwrap_or_default();
        secret["data"][key] = json!(base64::engine::general_purpose::STANDARD.encode(bytes));
    }
}

fn immutable(new: &Json, old: &Json, fields: &[&str]) -> Vec<FieldError> {
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

fn too_long(path: &FieldPath) -> FieldError {
    FieldError::too_long(path, DATA_MAX)
}

/// Kubernetes' rule for keys of ConfigMaps and Secrets (`IsConfigMapKey`).
fn check_key(path: &FieldPath, key: &str, errors: &mut Vec<FieldError>) {
    let mut problem = |text: &str| errors.push(FieldError::invalid_text(path, json!(key).to_string(), text));
    if key.len() > 253 {
        problem("must be no more than 253 bytes");
    }
    if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) {
        problem(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
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
