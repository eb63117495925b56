//! Structural checks: a type everywhere, junctors that only restrict, metadata without
//! restrictions.

use super::{alternatives, children};
use crate::keyword::{flag, text};
use insula_api::{FieldError, FieldPath, Json};

const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Field,
    Item,
}

pub(super) fn check(schema: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    structure(schema, Level::Root, path, errors);
    alternatives(schema, path, |branch, at| complete(branch, at, schema, path, errors));
}

fn properties(schema: &Json) -> Option<&serde_json::Map<String, Json>> {
    schema
        .get("properties")
        .and_then(Json::as_object)
        .filter(|p| !p.is_empty())
}

fn structure(schema: &Json, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    types(schema, level, path, errors);
    extensions(schema, path, errors);
    if level == Level::Root || flag(schema, EMBEDDED) {
        metadata(schema, level, path, errors);
    }
    restrictions(schema, path, errors);
    for name in ["items", "additionalProperties"] {
        if let Some(child @ Json::Object(_)) = schema.get(name) {
            let below = if name == "items" { Level::Item } else { Level::Field };
            structure(child, below, &path.child(name), errors);
        }
    }
    for (name, child) in properties(schema).into_iter().flatten() {
        structure(child, Level::Field, &path.child("properties").key(name), errors);
    }
}

fn types(schema: &Json, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    let at = path.child("type");
    if flag(schema, EMBEDDED) && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind {
            "" => FieldError::required(&at, why),
            other => FieldError::invalid(&at, &Json::from(other), why),
        });
    } else if kind.is_empty() && !flag(schema, INT_OR_STRING) && !flag(schema, PRESERVE) {
        errors.push(FieldError::required(
            &at,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Field => "must not be empty for specified object fields",
                Level::Item => "must not be empty for specified array items",
            },
        ));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(
            &at,
            &Json::from(kind),
            "must be object at the root",
        ));
    }
    let additional = matches!(
        schema.get("additionalProperties"),
        Some(Json::Object(_) | Json::Bool(_))
    );
    if level == Level::Root && additional {
        errors.push(FieldError::forbidden(
            &path.child("additionalProperties"),
            "must not be used at the root",
        ));
    }
    if kind == "array" && !matches!(schema.get("items"), Some(Json::Object(_) | Json::Array(_))) {
        errors.push(FieldError::required(&path.child("items"), "must be specified"));
    }
}

fn extensions(schema: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if flag(schema, INT_OR_STRING) {
        for name in [PRESERVE, EMBEDDED] {
            if flag(schema, name) {
                let why = "must be false if x-kubernetes-int-or-string is true";
                errors.push(FieldError::invalid(&path.child(name), &Json::Bool(true), why));
            }
        }
    }
    if !flag(schema, EMBEDDED) {
        return;
    }
    if !flag(schema, PRESERVE) && properties(schema).is_none() {
        let why =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(&path.child("properties"), why));
    }
    if schema.get("additionalProperties").is_some_and(|a| !a.is_null()) {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(&path.child("additionalProperties"), why));
    }
}

fn metadata(schema: &Json, level: Level, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(fields) = properties(schema) else { return };
    let path = path.child("properties");
    for (name, want) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
        let Some(field) = fields.get(name) else { continue };
        let kind = text(field, "type");
        if kind != want {
            let why = format!("must be {want}");
            errors.push(FieldError::invalid(
                &path.key(name).child("type"),
                &Json::from(kind),
                why,
            ));
        }
    }
    let Some(metadata) = fields.get("metadata") else { return };
    let path = path.key("metadata");
    if level == Level::Root && !is_plain_metadata(metadata) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(&path, why));
    }
    no_embedded(metadata, &path, errors);
}

/// Returns true for metadata that restricts nothing but the name. Go reads null, false, zero and
/// what is empty as absent; defaults have an error of their own.
fn is_plain_metadata(metadata: &Json) -> bool {
    let is_name = |field: &String| field == "name" || field == "generateName";
    metadata
        .as_object()
        .into_iter()
        .flatten()
        .all(|(keyword, value)| match (&**keyword, value) {
            ("type" | "default" | "id" | "$schema" | "externalDocs" | "example", _) => true,
            ("properties", Json::Object(fields)) => fields.keys().all(is_name),
            (_, Json::Null | Json::Bool(false)) => true,
            (_, Json::String(text)) => text.is_empty(),
            (_, Json::Array(list)) => list.is_empty(),
            _ => false,
        })
}

fn no_embedded(schema: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if flag(schema, EMBEDDED) {
        errors.push(FieldError::forbidden(
            &path.child(EMBEDDED),
            "must not be used inside of resource meta",
        ));
    }
    children(schema, path, |child, at| no_embedded(child, at, errors));
}

/// Types that a branch of a junctor may declare: none, except in the two spellings of "integer or
/// string" with junctors.
#[derive(Clone, Copy, PartialEq)]
enum Types {
    Forbidden,
    Allowed,
}

/// Returns true for exactly the branches `{type: integer}` and `{type: string}`, in this order.
fn is_int_or_string(branches: Option<&Json>) -> bool {
    let Some(Json::Array(list)) = branches else {
        return false;
    };
    let kinds: Vec<&str> = list.iter().map(|b| text(b, "type")).collect();
    kinds == ["integer", "string"] && list.iter().all(declares_only_type)
}

/// Returns true if a branch has no field but `type`. Go reads null, false and the empty text as
/// absent.
fn declares_only_type(branch: &Json) -> bool {
    let is_absent = |value: &Json| matches!(value, Json::Null | Json::Bool(false)) || value == "";
    let fields = branch.as_object().into_iter().flatten();
    fields
        .into_iter()
        .all(|(name, value)| name == "type" || is_absent(value))
}

/// Checks the junctors of a node that declares structure.
fn restrictions(schema: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let exempt = flag(schema, INT_OR_STRING);
    let any_of = exempt && is_int_or_string(schema.get("anyOf"));
    let first = schema.get("allOf").and_then(|a| a.get(0)).and_then(|b| b.get("anyOf"));
    let all_of = exempt && is_int_or_string(first);
    for name in ["allOf", "anyOf", "oneOf"] {
        for (i, branch) in schema
            .get(name)
            .and_then(Json::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let types = if name == "anyOf" && any_of {
                Types::Allowed
            } else {
                Types::Forbidden
            };
            let inner = if name == "allOf" && i == 0 && all_of {
                Types::Allowed
            } else {
                Types::Forbidden
            };
            restriction(branch, types, inner, &path.child(name).index(i), errors);
        }
    }
    if let Some(not @ Json::Object(_)) = schema.get("not") {
        restriction(not, Types::Forbidden, Types::Forbidden, &path.child("not"), errors);
    }
}

fn restriction(schema: &Json, types: Types, any_of: Types, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut forbid = |name: &str, must_be: &str| {
        errors.push(FieldError::forbidden(
            &path.child(name),
            format!("must be {must_be} to be structural"),
        ));
    };
    if types == Types::Forbidden && !text(schema, "type").is_empty() {
        forbid("type", "empty");
    }
    for name in ["title", "description"] {
        if !text(schema, name).is_empty() {
            forbid(name, "empty");
        }
    }
    let given = |name: &str| schema.get(name).is_some_and(|v| !v.is_null());
    for name in [
        "default",
        "additionalProperties",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    ] {
        if given(name) {
            forbid(name, "undefined");
        }
    }
    for name in ["nullable", PRESERVE, EMBEDDED, INT_OR_STRING] {
        if flag(schema, name) {
            forbid(name, "false");
        }
    }
    for name in ["x-kubernetes-list-map-keys", "x-kubernetes-validations"] {
        if schema.get(name).and_then(Json::as_array).is_some_and(|l| !l.is_empty()) {
            forbid(name, "empty");
        }
    }
    if let Some(fields) = properties(schema) {
        let path = path.child("properties");
        if fields.contains_key("metadata") {
            errors.push(FieldError::forbidden(
                &path.key("metadata"),
                "must not be specified in a nested context",
            ));
        }
        for (name, field) in fields {
            restriction(field, Types::Forbidden, Types::Forbidden, &path.key(name), errors);
        }
    }
    if let Some(items @ Json::Object(_)) = schema.get("items") {
        restriction(items, Types::Forbidden, Types::Forbidden, &path.child("items"), errors);
    }
    alternatives(schema, path, |branch, at| {
        let types = if at.as_str().contains(&format!("{path}.anyOf[")) {
            any_of
        } else {
            Types::Forbidden
        };
        restriction(branch, types, Types::Forbidden, at, errors);
    });
}

/// Checks that each field in a junctor of the root is also declared outside of it.
fn complete(branch: &Json, at: &FieldPath, schema: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(items @ Json::Object(_)) = branch.get("items") {
        let at = at.child("items");
        match schema.get("items") {
            Some(own @ Json::Object(_)) => complete(items, &at, own, &path.child("items"), errors),
            _ => errors.push(undeclared(&path.child("items"), &at)),
        }
    }
    for (name, field) in properties(branch).into_iter().flatten() {
        let (at, path) = (at.child("properties").key(name), path.child("properties").key(name));
        match schema.get("properties").and_then(|p| p.get(name)) {
            Some(own) => complete(field, &at, own, &path, errors),
            None => errors.push(undeclared(&path, &at)),
        }
    }
    alternatives(branch, at, |inner, at| complete(inner, at, schema, path, errors));
}

fn undeclared(path: &FieldPath, at: &FieldPath) -> FieldError {
    FieldError::required(path, format!("because it is defined in {at}"))
}
