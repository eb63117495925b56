//! Admission of schemas: the errors for which Kubernetes refuses a definition, each with its path
//! and message.
//!
//! In order: structure; keywords and their combinations; defaults, which must fit the schema and
//! its rules, for schemas without errors so far; and compilation of rules (`crate::rules`).

mod defaults;
mod keywords;
mod rules;
mod shape;

use crate::node::Node;
use insula_api::{FieldError, FieldPath, Json};

/// Returns the errors of the document itself: structure and keywords.
pub(crate) fn check(schema: &Json, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = check_structure(schema, path);
    errors.extend(check_keywords(schema, path));
    errors
}

/// Returns the reasons for which a schema is not structural.
pub(crate) fn check_structure(schema: &Json, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    shape::check(schema, path, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

/// Returns the errors of keywords and their combinations.
pub(crate) fn check_keywords(schema: &Json, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    keywords::check(schema, path, true, &mut errors);
    errors
}

/// Returns the errors of the attributes of rules: messages, reasons and paths. A rule with such an
/// error is not compiled.
pub(crate) fn check_rules(schema: &Json, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    rules::check(schema, path, &mut errors);
    errors
}

/// Returns the errors of defaults that do not fit the compiled schema and its rules.
pub(crate) fn check_defaults(root: &Node, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    defaults::check(root, path, &mut errors);
    errors
}

/// Calls `visit` with each child schema that declares structure, and its path.
pub(crate) fn children<'a>(schema: &'a Json, path: &FieldPath, mut visit: impl FnMut(&'a Json, &FieldPath)) {
    if let Some(Json::Object(properties)) = schema.get("properties") {
        let at = path.child("properties");
        for (name, child) in properties {
            visit(child, &at.key(name));
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(child @ Json::Object(_)) = schema.get(name) {
            visit(child, &path.child(name));
        }
    }
}

/// Calls `visit` with each alternative of the schema's junctors, and its path.
pub(crate) fn alternatives<'a>(schema: &'a Json, path: &FieldPath, mut visit: impl FnMut(&'a Json, &FieldPath)) {
    for name in ["allOf", "anyOf", "oneOf"] {
        for (i, branch) in schema
            .get(name)
            .and_then(Json::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            visit(branch, &path.child(name).index(i));
        }
    }
    if let Some(not @ Json::Object(_)) = schema.get("not") {
        visit(not, &path.child("not"));
    }
}
