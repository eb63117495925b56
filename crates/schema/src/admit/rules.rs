//! Attributes of rules (`x-kubernetes-validations`) besides the expressions: messages, reasons and
//! paths.

use super::children;
use crate::keyword::text;
use crate::rule::Segment;
use crate::rules::{parse_field_path, reason};
use insula_api::{FieldError, FieldPath, Json};

const RULES: &str = "x-kubernetes-validations";
const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// Checks the attributes of each rule.
pub(super) fn check(schema: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let at = path.child(RULES);
    for (i, rule) in schema
        .get(RULES)
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        attributes(rule, schema, &at.index(i), errors);
    }
    children(schema, path, |child, at| check(child, at, errors));
}

fn attributes(rule: &Json, schema: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let has_breaks = |text: &str| text.contains(['\n', '\r']);
    let expression = text(rule, "rule").trim();
    if expression.is_empty() {
        errors.push(FieldError::required(&path.child("rule"), "rule is not specified"));
    }
    let message = text(rule, "message");
    let at = path.child("message");
    if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(
            &at,
            &Json::from(message),
            "must be non-empty if specified",
        ));
    } else if has_breaks(message.trim()) {
        errors.push(FieldError::invalid(
            &at,
            &Json::from(message),
            "must not contain line breaks",
        ));
    } else if message.is_empty() && has_breaks(expression) {
        errors.push(FieldError::required(
            &at,
            "message must be specified if rule contains line breaks",
        ));
    }
    let message_expression = text(rule, "messageExpression");
    if !message_expression.is_empty() && message_expression.trim().is_empty() {
        let why = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(&path.child("messageExpression"), why));
    }
    if let Some(Json::String(given)) = rule.get("reason")
        && (given.is_empty() || reason(given).is_none())
    {
        errors.push(FieldError::not_supported(
            &path.child("reason"),
            &Json::from(given.as_str()),
            &REASONS,
        ));
    }
    let field_path = text(rule, "fieldPath");
    let at = path.child("fieldPath");
    if field_path.is_empty() {
        return;
    }
    let shown = Json::from(field_path);
    if field_path.trim().is_empty() {
        errors.push(FieldError::invalid(&at, &shown, "must be non-empty if specified"));
    }
    if has_breaks(field_path) {
        errors.push(FieldError::invalid(&at, &shown, "must not contain line breaks"));
    }
    if !leads_somewhere(field_path, schema) {
        errors.push(FieldError::invalid(&at, &shown, "must be a valid path"));
    }
}

fn leads_somewhere(field_path: &str, schema: &Json) -> bool {
    let Some(segments) = parse_field_path(field_path) else {
        return false;
    };
    let found = segments.iter().try_fold(schema, |schema, segment| {
        let (Segment::Field(name) | Segment::Key(name)) = segment;
        let declared = schema.get("properties").and_then(|p| p.get(name));
        declared.or_else(|| schema.get("additionalProperties").filter(|a| a.is_object()))
    });
    found.is_some()
}
