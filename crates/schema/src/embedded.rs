//! Embedded objects (`x-kubernetes-embedded-resource`), and the fields of object metadata.

use crate::names;
use crate::node::Node;
use crate::structural::Structural;
use crate::value_path::{Keys, ValuePath};
use insula_api::{FieldError, Json};

/// Type of a field of object metadata.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Text,
    Number,
    TextMap,
    TextList,
    Records(&'static [&'static str]),
}

const OWNER: &[&str] = &["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
const MANAGED: &[&str] = &[
    "manager",
    "operation",
    "apiVersion",
    "time",
    "fieldsType",
    "fieldsV1",
    "subresource",
];

const METADATA: [(&str, Shape); 15] = [
    ("annotations", Shape::TextMap),
    ("creationTimestamp", Shape::Text),
    ("deletionGracePeriodSeconds", Shape::Number),
    ("deletionTimestamp", Shape::Text),
    ("finalizers", Shape::TextList),
    ("generateName", Shape::Text),
    ("generation", Shape::Number),
    ("labels", Shape::TextMap),
    ("managedFields", Shape::Records(MANAGED)),
    ("name", Shape::Text),
    ("namespace", Shape::Text),
    ("ownerReferences", Shape::Records(OWNER)),
    ("resourceVersion", Shape::Text),
    ("selfLink", Shape::Text),
    ("uid", Shape::Text),
];

fn shape(name: &str) -> Option<Shape> {
    METADATA.iter().find(|(n, _)| *n == name).map(|(_, shape)| *shape)
}

/// Bytes of all annotations of one object.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// Drops unknown fields of object metadata.
pub(crate) fn prune_metadata(metadata: &mut Json) {
    let Json::Object(map) = metadata else { return };
    map.retain(|name, value| match (shape(name), value) {
        (None, _) => false,
        (Some(Shape::Records(known)), Json::Array(records)) => {
            for record in records.iter_mut().filter_map(Json::as_object_mut) {
                record.retain(|field, _| known.contains(&field.as_str()));
            }
            true
        }
        _ => true,
    });
}

/// Does the same as [`prune_metadata`], and drops empty values: Kubernetes' own type omits them
/// from embedded metadata.
pub(crate) fn tidy_metadata(metadata: &mut Json) {
    prune_metadata(metadata);
    let Json::Object(map) = metadata else { return };
    map.retain(|_, value| match value {
        Json::Null => false,
        Json::String(text) => !text.is_empty(),
        Json::Array(list) => !list.is_empty(),
        Json::Object(entries) => !entries.is_empty(),
        Json::Number(number) => number.as_f64() != Some(0.0),
        Json::Bool(_) => true,
    });
}

/// Removes the defaults of fields that object metadata does not have. Defaults come after pruning,
/// so that these fields would stay; Kubernetes prunes embedded metadata after its defaults, too.
pub(crate) fn drop_unknown_defaults(metadata: &mut Node) {
    for (name, node) in &mut metadata.properties {
        if shape(name).is_none() {
            node.default = None;
        }
    }
}

/// Returns the paths below metadata of its unknown fields.
pub(crate) fn unknown_metadata(metadata: &Json) -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    for (name, value) in metadata.as_object().into_iter().flatten() {
        match (shape(name), value) {
            (None, _) => found.push(name.clone()),
            (Some(Shape::Records(known)), Json::Array(records)) => {
                for (i, record) in records.iter().enumerate() {
                    let fields = record.as_object().into_iter().flatten().map(|(field, _)| field);
                    let unknown = fields.filter(|field| !known.contains(&field.as_str()));
                    found.extend(unknown.map(|field| format!("{name}[{i}].{field}")));
                }
            }
            _ => {}
        }
    }
    found.into_iter()
}

/// Returns the error of Kubernetes' decoder for a value that cannot be read as object metadata;
/// `None` if it can.
pub fn metadata_type_error(metadata: &Json) -> Option<String> {
    let map = match metadata {
        Json::Null => return None,
        Json::Object(map) => map,
        other => {
            return Some(format!(
                "json: cannot unmarshal {} into Go value of type v1.ObjectMeta",
                go_kind(other)
            ));
        }
    };
    map.iter().find_map(|(name, value)| {
        let (bad, want) = match shape(name)? {
            _ if value.is_null() => return None,
            Shape::Text => (Some(value).filter(|v| !v.is_string()), "string"),
            Shape::Number => (Some(value).filter(|v| v.as_i64().is_none()), "int64"),
            Shape::TextMap => match value {
                Json::Object(entries) => (entries.values().find(|v| !v.is_string() && !v.is_null()), "string"),
                other => (Some(other), "map[string]string"),
            },
            Shape::TextList => match value {
                Json::Array(items) => (items.iter().find(|v| !v.is_string() && !v.is_null()), "string"),
                other => (Some(other), "[]string"),
            },
            Shape::Records(known) => {
                let want = if known == OWNER {
                    "[]v1.OwnerReference"
                } else {
                    "[]v1.ManagedFieldsEntry"
                };
                match value {
                    Json::Array(items) => (
                        items.iter().find(|v| !v.is_object() && !v.is_null()),
                        want.trim_start_matches("[]"),
                    ),
                    other => (Some(other), want),
                }
            }
        };
        let kind = go_kind(bad?);
        Some(format!(
            "json: cannot unmarshal {kind} into Go struct field ObjectMeta.{name} of type {want}"
        ))
    })
}

pub(crate) fn go_kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

/// Returns an error for the first embedded object whose apiVersion, kind or metadata has the wrong
/// type. Such a request cannot be decoded; the server answers 400 with `<Kind> in version "<v>"
/// cannot be handled as a <Kind>: <this error>`.
pub fn check_embedded(object: &Json, schema: &Structural) -> Option<FieldError> {
    let mut first = None;
    each(object, schema.root(), &ValuePath::ROOT, &mut |value, at| {
        if first.is_some() {
            return;
        }
        for name in ["apiVersion", "kind"] {
            if let Some(wrong) = value.get(name).filter(|v| !v.is_string() && !v.is_null()) {
                let path = at.field(name).path(Keys::Bracketed);
                first = Some(FieldError::invalid(&path, wrong, "must be a string"));
                return;
            }
        }
        if let Some(metadata) = value.get("metadata")
            && let Some(why) = metadata_type_error(metadata)
        {
            first = Some(FieldError::invalid(
                &at.field("metadata").path(Keys::Bracketed),
                metadata,
                why,
            ));
        }
    });
    first
}

/// Validates apiVersion, kind and metadata of embedded objects.
pub(crate) fn validate(object: &Json, node: &Node, errors: &mut Vec<FieldError>) {
    each(object, node, &ValuePath::ROOT, &mut |value, at| {
        resource(value, at, errors)
    });
}

/// Calls `visit` for each embedded object.
fn each<'a>(value: &'a Json, node: &'a Node, at: &ValuePath<'_>, visit: &mut dyn FnMut(&'a Json, &ValuePath<'_>)) {
    if !node.below.embedded {
        return;
    }
    if node.embedded && value.is_object() {
        visit(value, at);
    }
    match value {
        Json::Object(map) => {
            for (name, child) in map {
                if let Some(field) = node.property(name) {
                    each(child, field, &at.field(name), visit);
                } else if let Some(values) = node.additional() {
                    each(child, values, &at.key(name), visit);
                }
            }
        }
        Json::Array(list) => {
            let Some(items) = node.items() else { return };
            for (index, item) in list.iter().enumerate() {
                each(item, items, &at.index(index), visit);
            }
        }
        _ => {}
    }
}

pub(crate) fn resource(value: &Json, at: &ValuePath<'_>, errors: &mut Vec<FieldError>) {
    let field = |name: &'static str| at.field(name).path(Keys::Bracketed);
    match value.get("apiVersion").and_then(Json::as_str).unwrap_or("") {
        "" => errors.push(FieldError::required(&field("apiVersion"), "")),
        version if version.matches('/').count() > 1 => {
            let why = format!("unexpected GroupVersion string: {version}");
            errors.push(FieldError::invalid(&field("apiVersion"), &Json::from(version), why));
        }
        _ => {}
    }
    match value.get("kind").and_then(Json::as_str).unwrap_or("") {
        "" => errors.push(FieldError::required(&field("kind"), "")),
        kind => {
            for why in names::kind(kind) {
                errors.push(FieldError::invalid(&field("kind"), &Json::from(kind), why));
            }
        }
    }
    if let Some(metadata) = value.get("metadata") {
        check_metadata(metadata, &at.field("metadata"), errors);
    }
}

fn check_metadata(metadata: &Json, at: &ValuePath<'_>, errors: &mut Vec<FieldError>) {
    let field = |name: &'static str| at.field(name).path(Keys::Bracketed);
    let mut push = |name: &'static str, value: &str, words: Vec<String>| {
        for why in words {
            errors.push(FieldError::invalid(&field(name), &Json::from(value), why));
        }
    };
    let texts = |name: &str| metadata.get(name).and_then(Json::as_object).into_iter().flatten();
    let mut bytes = 0;
    for (key, value) in texts("annotations") {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        push("annotations", key, names::qualified_name(&key.to_lowercase()));
    }
    for (key, value) in texts("labels") {
        push("labels", key, names::qualified_name(key));
        let value = value.as_str().unwrap_or("");
        push("labels", value, names::label_value(value));
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long(&field("annotations"), ANNOTATIONS_BYTES_MAX));
    }
    if let Some(name) = metadata.get("name").and_then(Json::as_str) {
        let mut words = Vec::new();
        if name == "." || name == ".." {
            words.push(format!("may not be '{name}'"));
        }
        words.extend(
            ["/", "%"]
                .iter()
                .filter(|c| name.contains(**c))
                .map(|c| format!("may not contain '{c}'")),
        );
        for why in words {
            errors.push(FieldError::invalid(&field("name"), &Json::from(name), why));
        }
    }
}
