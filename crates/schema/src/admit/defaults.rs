//! Validation of defaults: each must be valid in its place and survive pruning unchanged.

use crate::default::default_value;
use crate::embedded;
use crate::node::Node;
use crate::prune::is_pruned;
use crate::ratchet::relocate;
use crate::rules::{RULE_COST_PER_OBJECT_MAX, check_value};
use crate::validate::validate_value;
use crate::value_path::ValuePath;
use insula_api::{FieldError, FieldErrorKind, FieldPath, Json};
use insula_cel::Budget;
use insula_goformat::regexp::Work;
use insula_meter::Meter;

/// Context of a node during the walk.
#[derive(Clone, Copy, PartialEq)]
enum DefaultContext<'a> {
    Root,
    /// In `apiVersion`, `kind` or `metadata` of the whole object.
    TopLevel(&'a str),
    /// In `metadata` of an embedded object.
    Metadata,
    /// In `apiVersion` or `kind` of an embedded object.
    TypeOf(&'a str),
    Elsewhere,
}

pub(super) fn check(root: &Node, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let found = &mut Found {
        errors: std::mem::take(errors),
        work: Work::for_object(&Meter::unbounded()),
    };
    walk(root, DefaultContext::Root, path, found);
    errors.append(&mut found.errors);
}

/// Results of a walk. All defaults of a schema share the work of one object.
struct Found {
    errors: Vec<FieldError>,
    work: Work,
}

fn walk(node: &Node, context: DefaultContext<'_>, path: &FieldPath, out: &mut Found) {
    if !node.below.defaults {
        return;
    }
    if let Some(value) = &node.default {
        check_default(value, node, context, &path.child("default"), out);
    }
    for (name, field) in node.properties() {
        let below = match context {
            DefaultContext::Root if is_meta(name) => DefaultContext::TopLevel(name),
            DefaultContext::Root | DefaultContext::Elsewhere if node.embedded && name == "metadata" => {
                DefaultContext::Metadata
            }
            DefaultContext::Root | DefaultContext::Elsewhere if node.embedded && is_meta(name) => {
                DefaultContext::TypeOf(name)
            }
            DefaultContext::Root => DefaultContext::Elsewhere,
            other => other,
        };
        walk(field, below, &path.child("properties").key(name), out);
    }
    if let Some(items) = node.items() {
        walk(
            items,
            if context == DefaultContext::Root {
                DefaultContext::Elsewhere
            } else {
                context
            },
            &path.child("items"),
            out,
        );
    }
    if let Some(values) = node.additional() {
        let path = path.child("additionalProperties");
        if context == DefaultContext::Metadata && values.default.is_some() {
            let why = "must not be set inside additionalProperties applying to object metadata";
            out.errors.push(FieldError::forbidden(&path.child("default"), why));
        } else {
            walk(
                values,
                if context == DefaultContext::Root {
                    DefaultContext::Elsewhere
                } else {
                    context
                },
                &path,
                out,
            );
        }
    }
}

fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

fn check_default(value: &Json, node: &Node, context: DefaultContext<'_>, path: &FieldPath, out: &mut Found) {
    match context {
        DefaultContext::TopLevel(name) => {
            out.errors.push(FieldError::forbidden(
                path,
                format!("must not be set in top-level {name}"),
            ));
            return;
        }
        DefaultContext::TypeOf(name) => {
            let object = match name {
                "kind" => serde_json::json!({"apiVersion": "v1", "kind": value}),
                _ => serde_json::json!({"apiVersion": value, "kind": "Kind"}),
            };
            let mut found = Vec::new();
            embedded::resource(&object, &ValuePath::ROOT, &mut found);
            for why in found {
                out.errors.push(FieldError::invalid(
                    path,
                    value,
                    format!("must result in valid metadata: {why}"),
                ));
            }
        }
        DefaultContext::Root | DefaultContext::Metadata | DefaultContext::Elsewhere => {}
    }
    let is_root = context == DefaultContext::Root;
    if !is_pruned(value, node, is_root) {
        out.errors
            .push(FieldError::invalid(path, value, "must not have unknown fields"));
        return;
    }
    // The defaults below complete a default before it is used.
    let mut completed = value.clone();
    default_value(&mut completed, node);
    let mut found = Vec::new();
    validate_value(&completed, None, node, &mut out.work, &mut found);
    if node.int_or_string {
        // Kubernetes does not check the type of such a default.
        found.retain(|error| error.kind != FieldErrorKind::TypeInvalid);
    }
    if is_root && value.is_object() {
        embedded::resource(&completed, &ValuePath::ROOT, &mut found);
    }
    embedded::validate(&completed, node, &mut found);
    if found.is_empty() {
        found = check_value(
            &completed,
            None,
            node,
            &mut Budget::new(RULE_COST_PER_OBJECT_MAX, &Meter::unbounded()),
        )
        .errors;
    }
    out.errors.extend(relocate(found, path));
}
