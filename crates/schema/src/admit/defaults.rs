//! Validation of defaults: each must be valid in its place and survive pruning unchanged.

use crate::default::default_value;
use crate::embedded;
use crate::node::Node;
use crate::prune::is_pruned;
use crate::ratchet::relocate;
use crate::rules::{RULE_COST_PER_OBJECT_MAX, check_value};
use crate::validate::validate_value;
use crate::value_path::ValuePath;
use insula_api::{FieldError, FieldErrorKind, FieldPath, Json, aggregate};
use insula_cel::Budget;
use insula_goformat::regexp::Work;
use insula_meter::Meter;
use serde_json::json;

/// Context of a node during the walk.
#[derive(Clone, Copy, PartialEq)]
enum DefaultContext<'a> {
    Root,
    /// In `apiVersion`, `kind` or `metadata` of the whole object.
    TopLevel(&'a str),
    /// In `apiVersion`, `kind` or `metadata` of an embedded object.
    Metadata(&'a Surrounding<'a>),
    Elsewhere,
}

/// Place of a value below the embedded object that surrounds it.
#[derive(Clone, Copy, PartialEq)]
struct Surrounding<'a> {
    above: Option<&'a Surrounding<'a>>,
    /// A field; `None` for an item of a list.
    field: Option<&'a str>,
}

impl Surrounding<'_> {
    /// Returns the object with a value in this place and nothing else.
    fn object_with(&self, value: Json) -> Json {
        let value = match self.field {
            Some(field) => Json::Object([(field.to_owned(), value)].into_iter().collect()),
            None => Json::Array(vec![value]),
        };
        match self.above {
            Some(above) => above.object_with(value),
            None => {
                let mut object = json!({"apiVersion": "validation/v1", "kind": "Validation"});
                if let (Some(object), Json::Object(fields)) = (object.as_object_mut(), value) {
                    object.extend(fields);
                }
                object
            }
        }
    }
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
        let (above, path) = (around(context), path.child("properties").key(name));
        let surrounding = Surrounding {
            above,
            field: Some(name),
        };
        let below = match context {
            DefaultContext::Root if is_meta(name) => DefaultContext::TopLevel(name),
            DefaultContext::Root | DefaultContext::Elsewhere if node.embedded && is_meta(name) => {
                DefaultContext::Metadata(&surrounding)
            }
            DefaultContext::Root => DefaultContext::Elsewhere,
            DefaultContext::Metadata(_) => DefaultContext::Metadata(&surrounding),
            other => other,
        };
        walk(field, below, &path, out);
    }
    // The fields of an embedded object's lists and maps are no metadata of its own.
    let surrounding = Surrounding {
        above: around(context),
        field: None,
    };
    let below = match context {
        DefaultContext::Root => DefaultContext::Elsewhere,
        DefaultContext::Metadata(_) => DefaultContext::Metadata(&surrounding),
        other => other,
    };
    if let Some(items) = node.items() {
        walk(items, below, &path.child("items"), out);
    }
    if let Some(values) = node.additional() {
        let path = path.child("additionalProperties");
        if matches!(context, DefaultContext::Metadata(_)) && values.default.is_some() {
            let why = "must not be set inside additionalProperties applying to object metadata";
            out.errors.push(FieldError::forbidden(&path.child("default"), why));
        } else {
            walk(values, below, &path, out);
        }
    }
}

fn around<'a>(context: DefaultContext<'a>) -> Option<&'a Surrounding<'a>> {
    match context {
        DefaultContext::Metadata(surrounding) => Some(surrounding),
        DefaultContext::Root | DefaultContext::TopLevel(_) | DefaultContext::Elsewhere => None,
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
        DefaultContext::Metadata(surrounding) => {
            if let Some(why) = bad_metadata(&surrounding.object_with(value.clone())) {
                let why = format!("must result in valid metadata: {why}");
                out.errors.push(FieldError::invalid(path, value, why));
                return;
            }
        }
        DefaultContext::Root | DefaultContext::Elsewhere => {
            if !is_pruned(value, node, context == DefaultContext::Root) {
                let why = "must not have unknown fields";
                out.errors.push(FieldError::invalid(path, value, why));
                return;
            }
        }
    }
    let is_root = context == DefaultContext::Root;
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

/// Returns the error of an embedded object's metadata. Unknown fields are none: they are dropped
/// where the default is used.
fn bad_metadata(object: &Json) -> Option<String> {
    if let Some(why) = embedded::metadata_type_error(&object["metadata"]) {
        let metadata = FieldPath::new("metadata");
        return Some(FieldError::invalid(&metadata, &object["metadata"], why).to_string());
    }
    let mut found = Vec::new();
    embedded::resource(object, &ValuePath::ROOT, &mut found);
    (!found.is_empty()).then(|| aggregate(&found))
}
