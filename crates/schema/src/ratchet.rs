//! Validation of whole objects: on create, on update (with ratcheting: an unchanged invalid value
//! passes), and of writes to the status subresource. The order is Kubernetes': schema, embedded
//! objects, lists, rules.

use crate::embedded;
use crate::list_type;
use crate::rules::{self, Findings, RULE_COST_PER_OBJECT_MAX};
use crate::structural::Structural;
use crate::validate::validate_value;
use crate::value_path::join;
use insula_api::{FieldError, FieldErrorKind, FieldPath, Json};
use insula_cel::Budget;
use insula_goformat::regexp::Work;
use insula_meter::Meter;

/// Result of a validation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Errors for which the write is refused.
    pub errors: Vec<FieldError>,
    /// Warnings for the client: rules that fail for an unchanged value.
    pub warnings: Vec<String>,
}

/// Validates a new object: types, bounds, junctors, embedded objects, sets and keyed lists, rules.
pub fn validate(object: &Json, schema: &Structural, meter: &Meter) -> Vec<FieldError> {
    let mut errors = validate_schema(object, schema, meter);
    let findings = check_rules((object, None), schema, &errors, meter);
    errors.extend(findings.errors);
    errors
}

/// Returns all that a schema says of an object, for readers of the whole list: other than at a
/// create, its rules run whatever else is refused, because an update forgives each value that it
/// leaves as it is, of a wrong type or not, and runs the rules then ([`validate_update`]).
pub fn judge(object: &Json, schema: &Structural, meter: &Meter) -> Vec<FieldError> {
    let mut errors = validate_schema(object, schema, meter);
    errors.extend(check_rules((object, None), schema, &[], meter).errors);
    errors
}

/// Returns the path of the value that an error is about: errors of junctors and of formats of
/// numbers are about the whole object, as in Kubernetes, and name the value in their message.
pub fn place(error: &FieldError) -> &str {
    let (field, detail) = (error.field.as_str(), &*error.detail);
    if !field.is_empty() {
        return field;
    }
    let quoted = detail.strip_prefix('"').and_then(|rest| rest.split_once("\" must "));
    let range = || {
        let rest = detail.strip_prefix("Checked value must be of type ")?;
        rest.rsplit_once(" in ").map(|(_, name)| name)
    };
    quoted.map(|(name, _)| name).or_else(range).unwrap_or_default()
}

/// Validates a new object like [`validate`], without rules.
pub fn validate_schema(object: &Json, schema: &Structural, meter: &Meter) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_value(object, None, schema.root(), &mut Work::for_object(meter), &mut errors);
    embedded::validate(object, schema.root(), &mut errors);
    list_type::validate(object, schema.root(), &mut errors);
    errors
}

/// Validates an updated object. Errors of unchanged values are dropped, but transition rules always
/// count.
pub fn validate_update(new: &Json, old: &Json, schema: &Structural, meter: &Meter) -> Outcome {
    let mut errors = Vec::new();
    validate_value(new, Some(old), schema.root(), &mut Work::for_object(meter), &mut errors);
    embedded::validate(new, schema.root(), &mut errors);
    finish(errors, (new, old), schema, meter)
}

/// Validates a write to the status subresource: the schema below `status`, but lists and rules of
/// the whole object. As in Kubernetes, messages name fields relative to status (`count in body …`),
/// paths start at the root.
pub fn validate_status(new: &Json, old: &Json, schema: &Structural, meter: &Meter) -> Outcome {
    let mut errors = Vec::new();
    if let (Some(status), Some(node)) = (new.get("status"), schema.root().property("status")) {
        let mut found = Vec::new();
        validate_value(
            status,
            old.get("status"),
            node,
            &mut Work::for_object(meter),
            &mut found,
        );
        errors = relocate(found, &FieldPath::new("status"));
        embedded::validate(new, schema.root(), &mut errors);
    }
    finish(errors, (new, old), schema, meter)
}

/// Validates an update like [`validate_update`], without transition rules, which may refuse values
/// that do not change: for searches of values that cannot be written back.
pub fn validate_write_back(new: &Json, old: &Json, schema: &Structural, meter: &Meter) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_value(new, Some(old), schema.root(), &mut Work::for_object(meter), &mut errors);
    embedded::validate(new, schema.root(), &mut errors);
    keep_new_list_errors(&mut errors, new, old, schema);
    if schema.root().below.rules && !errors.iter().any(is_blocking) {
        errors.extend(rules::check_without_transitions(new, old, schema, meter).errors);
    }
    errors
}

/// The part of an object that an update changes while its other fields stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Metadata, or nothing.
    Metadata,
    /// The status, or both.
    Status,
}

/// Returns the part of a whole object that an update changes, if it is only metadata, which
/// everybody writes, or the status, which a controller writes.
pub(crate) fn changed_beside(new: &Json, old: &Json) -> Option<Beside> {
    let (new, old) = (new.as_object()?, old.as_object()?);
    let same = |name: &str| new.get(name) == old.get(name);
    let mut others = new.keys().chain(old.keys()).map(String::as_str);
    let is_beside = others.all(|name| matches!(name, "metadata" | "status") || same(name));
    let beside = if same("status") {
        Beside::Metadata
    } else {
        Beside::Status
    };
    is_beside.then_some(beside)
}

fn finish(mut errors: Vec<FieldError>, (new, old): (&Json, &Json), schema: &Structural, meter: &Meter) -> Outcome {
    keep_new_list_errors(&mut errors, new, old, schema);
    let findings = check_rules((new, Some(old)), schema, &errors, meter);
    errors.extend(findings.errors);
    Outcome {
        errors,
        warnings: findings.warnings,
    }
}

/// Adds the errors of sets and keyed lists, unless the old object has some as well.
fn keep_new_list_errors(errors: &mut Vec<FieldError>, new: &Json, old: &Json, schema: &Structural) {
    let before = errors.len();
    list_type::validate(new, schema.root(), errors);
    if errors.len() > before {
        let mut earlier = Vec::new();
        list_type::validate(old, schema.root(), &mut earlier);
        if !earlier.is_empty() {
            errors.truncate(before);
        }
    }
}

/// Kubernetes' error beside errors that keep rules from running.
const RULES_UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the \
                               existing errors to complete validation";

/// Returns true for an error that only follows from others: it goes when they go.
pub fn is_consequence(error: &FieldError) -> bool {
    error.detail == RULES_UNCHECKED
}

/// Runs the rules, unless earlier errors would make them fail.
fn check_rules(
    (new, old): (&Json, Option<&Json>),
    schema: &Structural,
    errors: &[FieldError],
    meter: &Meter,
) -> Findings {
    if !schema.root().below.rules {
        return Findings::default();
    }
    if errors.iter().any(is_blocking) {
        let error = FieldError::invalid_text(&FieldPath::root(), "null", RULES_UNCHECKED);
        return Findings {
            errors: vec![error],
            warnings: Vec::new(),
        };
    }
    rules::check(new, old, schema, &mut Budget::new(RULE_COST_PER_OBJECT_MAX, meter))
}

fn is_blocking(error: &FieldError) -> bool {
    use FieldErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(error.kind, Required | TypeInvalid | NotSupported | TooLong | TooMany)
}

/// Prefixes the paths of a value's errors with the path of the value. Messages stay.
pub(crate) fn relocate(errors: Vec<FieldError>, base: &FieldPath) -> Vec<FieldError> {
    let moved = errors.into_iter().map(|error| FieldError {
        field: join(base, &error.field),
        ..error
    });
    moved.collect()
}
