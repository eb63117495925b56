//! Defaults: each must be a value that the server would accept in its place, and keep as it is.

use crate::at::At;
use crate::default::default_value;
use crate::embedded;
use crate::node::Node;
use crate::prune::is_pruned;
use crate::ratchet::relocate;
use crate::rules::{RULE_COST_PER_OBJECT_MAX, check_value};
use crate::validate::validate_value;
use insula_api::{FieldError, FieldErrorKind, FieldPath, Json};
use insula_cel::Budget;

/// Where the walk is, as far as defaults are concerned.
#[derive(Clone, Copy, PartialEq)]
enum Place<'a> {
    Root,
    /// In apiVersion, kind or metadata of the whole object.
    TopLevel(&'a str),
    /// In metadata of an embedded object.
    Metadata,
    /// apiVersion or kind of an embedded object.
    TypeOf(&'a str),
    Elsewhere,
}

pub(super) fn check(root: &Node, path: &FieldPath, errors: &mut Vec<FieldError>) {
    walk(root, Place::Root, path, errors);
}

fn walk(node: &Node, place: Place<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if !node.below.defaults {
        return;
    }
    if let Some(value) = &node.default {
        check_default(value, node, place, &path.child("default"), errors);
    }
    for (name, field) in node.properties() {
        let below = match place {
            Place::Root if is_meta(name) => Place::TopLevel(name),
            Place::Root | Place::Elsewhere if node.embedded && name == "metadata" => Place::Metadata,
            Place::Root | Place::Elsewhere if node.embedded && is_meta(name) => Place::TypeOf(name),
            Place::Root => Place::Elsewhere,
            other => other,
        };
        walk(field, below, &path.child("properties").key(name), errors);
    }
    if let Some(items) = node.items() {
        walk(
            items,
            if place == Place::Root { Place::Elsewhere } else { place },
            &path.child("items"),
            errors,
        );
    }
    if let Some(values) = node.additional() {
        let path = path.child("additionalProperties");
        if place == Place::Metadata && values.default.is_some() {
            let why = "must not be set inside additionalProperties applying to object metadata";
            errors.push(FieldError::forbidden(&path.child("default"), why));
        } else {
            walk(
                values,
                if place == Place::Root { Place::Elsewhere } else { place },
                &path,
                errors,
            );
        }
    }
}

fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

fn check_default(value: &Json, node: &Node, place: Place<'_>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match place {
        Place::TopLevel(name) => {
            errors.push(FieldError::forbidden(
                path,
                format!("must not be set in top-level {name}"),
            ));
            return;
        }
        Place::TypeOf(name) => {
            let object = match name {
                "kind" => serde_json::json!({"apiVersion": "v1", "kind": value}),
                _ => serde_json::json!({"apiVersion": value, "kind": "Kind"}),
            };
            let mut found = Vec::new();
            embedded::resource(&object, &At::ROOT, &mut found);
            for why in found {
                errors.push(FieldError::invalid(
                    path,
                    value,
                    format!("must result in valid metadata: {why}"),
                ));
            }
        }
        Place::Root | Place::Metadata | Place::Elsewhere => {}
    }
    let is_root = place == Place::Root;
    if !is_pruned(value, node, is_root) {
        errors.push(FieldError::invalid(path, value, "must not have unknown fields"));
        return;
    }
    // A default is completed by the defaults below it before anyone sees it.
    let mut completed = value.clone();
    default_value(&mut completed, node);
    let mut found = Vec::new();
    validate_value(&completed, None, node, &mut found);
    if node.int_or_string {
        // Kubernetes does not look at the type of such a default.
        found.retain(|error| error.kind != FieldErrorKind::TypeInvalid);
    }
    if is_root && value.is_object() {
        embedded::resource(&completed, &At::ROOT, &mut found);
    }
    embedded::validate(&completed, node, &mut found);
    if found.is_empty() {
        found = check_value(&completed, None, node, &mut Budget::new(RULE_COST_PER_OBJECT_MAX)).errors;
    }
    errors.extend(relocate(found, path));
}
