//! Secrets.

use super::config_data::{DATA_MAX, check_key, immutable, too_long};
use crate::{Builtin, CellValue, Strategy, Table, TableColumn, Traits, kind::crd};
use insula_api::{FieldError, FieldPath, Json, names::annotations};
use serde_json::json;

/// Type of a Secret that the server fills with a token of a ServiceAccount.
pub const TOKEN_SECRET: &str = "kubernetes.io/service-account-token";

pub(super) const KINDS: &[Builtin] = &[Builtin {
    strategy: &Secrets,
    claimable: true,
    table: Some(Table::new(&[
        TableColumn::NAME,
        TableColumn::text("Type", TYPE_TEXT, CellValue::Text("/type")),
        TableColumn::text("Data", DATA_TEXT, CellValue::Entries(&["data"])),
        TableColumn::AGE,
    ])),
    ..Builtin::new(crd!("core_secrets"))
}];

const TYPE_TEXT: &str = "Used to facilitate programmatic handling of secret data. More info: \
    https://kubernetes.io/docs/concepts/configuration/secret/#secret-types";
const DATA_TEXT: &str = "Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' \
    or '.'. The serialized form of the secret data is a base64 encoded string, representing the arbitrary (possibly \
    non-string) data value here. Described in https://tools.ietf.org/html/rfc4648#section-4";

/// Secrets.
struct Secrets;

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
        TOKEN_SECRET => {
            let key = annotations::ACCOUNT_NAME;
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

/// Returns a text as the `data` of a Secret has it, in base64.
pub fn encoded(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Moves `stringData` into `data`: it is a write-only form of that field.
fn merge_string_data(secret: &mut Json) {
    let Some(Json::Object(given)) = secret.as_object_mut().and_then(|map| map.remove("stringData")) else {
        return;
    };
    if !given.is_empty() && !secret["data"].is_object() {
        secret["data"] = json!({});
    }
    for (key, value) in given {
        let bytes = value.as_str().unwrap_or_default();
        secret["data"][key] = json!(encoded(bytes));
    }
}
