//! Bundles and objects in short notation.
//!
//! Schemas:
//! `{spec: {name: string, tags: {"*": string}, colors: [{n: string}], "keyed[n]": [{n: string}]}}`;
//! a name that ends in `!` is required; `$: {…}` is a schema as it is.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared by several test files"
)]

pub mod api_model;
pub mod apis;
pub mod laws;
pub mod model;
pub mod releases;
pub mod suggested;
pub mod values;
pub mod written;

use insula_api::FieldPath;
use insula_conversion::{Bundle, LossPolicy, VersionSchema, parse_rules};
use insula_schema::Structural;
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;

pub fn yaml(text: &str) -> Json {
    serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

pub fn schema(short: &Json) -> Json {
    let mut out = fields(short.as_object().unwrap());
    let properties = out["properties"].as_object_mut().unwrap();
    properties.insert("apiVersion".into(), json!({"type": "string"}));
    properties.insert("kind".into(), json!({"type": "string"}));
    properties.insert("metadata".into(), json!({"type": "object"}));
    out
}

fn fields(map: &Map<String, Json>) -> Json {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, short) in map {
        let (name, need) = name.strip_suffix('!').map_or((name.as_str(), false), |n| (n, true));
        let (name, key) = name
            .split_once('[')
            .map_or((name, None), |(n, k)| (n, k.strip_suffix(']')));
        let mut child = expand(short);
        if let Some(key) = key {
            child["x-kubernetes-list-type"] = json!("map");
            child["x-kubernetes-list-map-keys"] = key.split(',').collect();
        }
        properties.insert(name.into(), child);
        if need {
            required.push(name.to_owned());
        }
    }
    let mut out = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        out["required"] = json!(required);
    }
    out
}

fn expand(short: &Json) -> Json {
    match short {
        Json::String(kind) if kind == "any" => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        Json::String(kind) if kind == "anything" => json!({"x-kubernetes-preserve-unknown-fields": true}),
        Json::String(kind) => json!({"type": kind}),
        Json::Array(items) => json!({"type": "array", "items": expand(&items[0])}),
        Json::Object(map) => match (map.get("$"), map.get("*")) {
            (Some(raw), _) => raw.clone(),
            (None, Some(values)) => json!({"type": "object", "additionalProperties": expand(values)}),
            _ => fields(map),
        },
        other => panic!("{other} is no schema"),
    }
}

/// Compiles `{storage, versions: {v1: …}, unserved: [v3], rules: {…}, none: true}`.
pub fn bundle(doc: &Json) -> Result<Bundle, Vec<String>> {
    let unserved = |name: &str| doc["unserved"].as_array().is_some_and(|u| u.iter().any(|v| v == name));
    let versions = doc["versions"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, short)| VersionSchema {
            name: name.clone(),
            served: !unserved(name),
            schema: Arc::new(Structural::parse_trusted(&schema(short)).unwrap()),
        });
    let path = FieldPath::new("spec");
    let print = |errors: Vec<insula_api::FieldError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    let rules = doc
        .get("rules")
        .map(|rules| parse_rules(rules, &path))
        .transpose()
        .map_err(|malformed| print(malformed.errors))?;
    let storage = doc["storage"].as_str().unwrap_or("v1");
    let loss_policy = if doc["none"] == true {
        LossPolicy::None
    } else {
        LossPolicy::Lossless
    };
    Bundle::compile(
        "example.io",
        versions.collect(),
        storage,
        rules.as_ref(),
        loss_policy,
        &path,
    )
    .map_err(print)
}

pub fn bundle_of(text: &str) -> Bundle {
    bundle(&yaml(text)).unwrap_or_else(|e| panic!("{e:#?}"))
}

/// Completes an object from its interesting part.
pub fn object(version: &str, part: &Json) -> Json {
    let mut out = json!({"apiVersion": format!("example.io/{version}"), "kind": "Widget", "metadata": {"name": "w"}});
    for (name, value) in part.as_object().unwrap() {
        if name == "metadata" {
            out["metadata"]
                .as_object_mut()
                .unwrap()
                .extend(value.as_object().unwrap().clone());
        } else {
            out[name] = value.clone();
        }
    }
    out
}
