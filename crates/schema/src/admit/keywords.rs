//! Unsupported keywords, and meaningless combinations of keywords.

use super::{alternatives, children};
use crate::keyword::{flag, strings, text};
use crate::regexp;
use insula_api::{FieldError, FieldPath, Json};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const UNSUPPORTED: [&str; 6] = [
    "$ref",
    "id",
    "definitions",
    "dependencies",
    "patternProperties",
    "additionalItems",
];
const LIST_TYPE: &str = "x-kubernetes-list-type";
const LIST_MAP_KEYS: &str = "x-kubernetes-list-map-keys";
const MAP_TYPE: &str = "x-kubernetes-map-type";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

pub(super) fn check(schema: &Json, path: &FieldPath, is_root: bool, errors: &mut Vec<FieldError>) {
    unsupported(schema, path, errors);
    if is_root && flag(schema, "nullable") {
        errors.push(FieldError::forbidden(
            &path.child("nullable"),
            "nullable cannot be true at the root",
        ));
    }
    if schema.get(PRESERVE) == Some(&Json::Bool(false)) {
        let why = "must be true or undefined";
        errors.push(FieldError::invalid(&path.child(PRESERVE), &Json::Bool(false), why));
    }
    map_type(schema, path, errors);
    list_type(schema, path, errors);
    children(schema, path, |child, at| check(child, at, false, errors));
    alternatives(schema, path, |branch, at| check(branch, at, false, errors));
}

fn unsupported(schema: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for name in UNSUPPORTED {
        let given = match schema.get(name) {
            None | Some(Json::Null) => false,
            Some(Json::String(text)) => !text.is_empty(),
            Some(Json::Object(map)) => name == "additionalItems" || !map.is_empty(),
            Some(_) => true,
        };
        if given {
            errors.push(FieldError::forbidden(
                &path.child(name),
                format!("{name} is not supported"),
            ));
        }
    }
    if !text(schema, "$schema").is_empty() {
        errors.push(FieldError::invalid_text(
            path,
            "\"\"",
            "OpenAPIV3Schema 'schema' is not supported",
        ));
    }
    if flag(schema, "uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(&path.child("uniqueItems"), why));
    }
    if matches!(schema.get("items"), Some(Json::Array(_))) {
        let why = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(&path.child("items"), why));
    }
    let kind = text(schema, "type");
    if kind == "null" {
        let why = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(&path.child("type"), why));
    }
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(
            &path.child("type"),
            &Json::from(kind),
            &TYPES,
        ));
    }
    let properties = schema
        .get("properties")
        .and_then(Json::as_object)
        .is_some_and(|p| !p.is_empty());
    if properties
        && matches!(
            schema.get("additionalProperties"),
            Some(Json::Object(_) | Json::Bool(false))
        )
    {
        let why = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(&path.child("additionalProperties"), why));
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Some(why) = regexp::parse(pattern).err()
    {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(&path.child("pattern"), &Json::from(pattern), why));
    }
}

fn type_must_be(schema: &Json, want: &str, because: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    let why = format!("must be {want} if {because} is specified");
    if kind.is_empty() {
        errors.push(FieldError::required(&path.child("type"), why));
    } else if kind != want {
        errors.push(FieldError::invalid(&path.child("type"), &Json::from(kind), why));
    }
}

fn map_type(schema: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(Json::String(map_type)) = schema.get(MAP_TYPE) else {
        return;
    };
    type_must_be(schema, "object", MAP_TYPE, path, errors);
    if !["atomic", "granular"].contains(&map_type.as_str()) {
        let at = path.child(MAP_TYPE);
        errors.push(FieldError::not_supported(
            &at,
            &Json::from(map_type.as_str()),
            &["atomic", "granular"],
        ));
    }
}

fn list_type(schema: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let keys = strings(schema, LIST_MAP_KEYS);
    let list_type = schema.get(LIST_TYPE).and_then(Json::as_str);
    let at = path.child(LIST_TYPE);
    if let Some(list_type) = list_type {
        type_must_be(schema, "array", LIST_TYPE, path, errors);
        let known = ["atomic", "set", "map"];
        if text(schema, "type") == "array" && !known.contains(&list_type) {
            errors.push(FieldError::not_supported(&at, &Json::from(list_type), &known));
        }
    }
    if !keys.is_empty() && list_type != Some("map") {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type {
            None => FieldError::required(&at, why),
            Some(other) => FieldError::invalid(&at, &Json::from(other), why),
        });
    }
    match (list_type, schema.get("items")) {
        (Some("map"), items) => keyed(&keys, items.filter(|i| i.is_object()), path, errors),
        (Some("set"), Some(items @ Json::Object(_))) => set(items, &path.child("items"), errors),
        _ => {}
    }
}

fn set(items: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if flag(items, "nullable") {
        let why = "cannot be nullable when x-kubernetes-list-type is set";
        errors.push(FieldError::forbidden(&path.child("nullable"), why));
    }
    let (name, wrong) = match text(items, "type") {
        "array" => (LIST_TYPE, !matches!(text(items, LIST_TYPE), "" | "atomic")),
        "object" => (MAP_TYPE, text(items, MAP_TYPE) != "atomic"),
        _ => return,
    };
    if wrong {
        let given = items.get(name).unwrap_or(&Json::Null);
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        errors.push(FieldError::invalid(&path.child(name), given, why));
    }
}

fn keyed(keys: &[String], items: Option<&Json>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let at = path.child(LIST_MAP_KEYS);
    if keys.is_empty() {
        errors.push(FieldError::required(
            &at,
            "must not be empty if x-kubernetes-list-type is map",
        ));
    }
    let Some(items) = items else {
        let why = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(&path.child("items"), why));
        return;
    };
    let path = path.child("items");
    if flag(items, "nullable") {
        let why = "cannot be nullable when x-kubernetes-list-type is map";
        errors.push(FieldError::forbidden(&path.child("nullable"), why));
    }
    let kind = text(items, "type");
    if kind != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(&path.child("type"), &Json::from(kind), why));
        return;
    }
    let shown = Json::from(keys);
    let required = strings(items, "required");
    for (i, key) in keys.iter().enumerate() {
        if keys.iter().take(i).any(|earlier| earlier == key) {
            errors.push(FieldError::invalid(&at, &shown, "must not contain duplicate entries"));
            continue;
        }
        let Some(property) = items.get("properties").and_then(|p| p.get(key)) else {
            errors.push(FieldError::invalid(
                &at,
                &shown,
                "entries must all be names of item properties",
            ));
            continue;
        };
        let path = path.child("properties").key(key);
        if matches!(text(property, "type"), "array" | "object") {
            // Kubernetes prints the type of the item here, not that of the key.
            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(&path.child("type"), &Json::from(kind), why));
        }
        if flag(property, "nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(&path.child("nullable"), why));
        }
        if property.get("default").is_none_or(Json::is_null) && !required.contains(key) {
            let why =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(&path.child("default"), why));
        }
    }
}
