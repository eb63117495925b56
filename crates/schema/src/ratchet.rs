//! Validation of whole objects: on create, on update (where what was wrong and stays as it was is
//! let through), and of writes to the status subresource. The order is Kubernetes': schema,
//! embedded objects, lists, then rules.

use crate::at::join;
use crate::embedded;
use crate::list_type;
use crate::rules::{self, Findings, RULE_COST_PER_OBJECT_MAX};
use crate::structural::Structural;
use crate::validate::validate_value;
use insula_api::{FieldError, FieldErrorKind, FieldPath, Json};
use insula_cel::Budget;

/// What a validation found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The write is refused for these.
    pub errors: Vec<FieldError>,
    /// Told to the client: rules that fail for a value that did not change.
    pub warnings: Vec<String>,
}

/// Validates a new object: types, bounds, junctors, embedded objects, sets and keyed lists, rules.
pub fn validate(object: &Json, schema: &Structural) -> Vec<FieldError> {
    let mut errors = validate_schema(object, schema);
    let findings = check_rules(object, None, schema, &errors);
    errors.extend(findings.errors);
    errors
}

/// As [`validate`], without rules.
pub fn validate_schema(object: &Json, schema: &Structural) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_value(object, None, schema.root(), &mut errors);
    embedded::validate(object, schema.root(), &mut errors);
    list_type::validate(object, schema.root(), &mut errors);
    errors
}

/// Validates a changed object. What was wrong before and did not change is let through, except that
/// transition rules hold always.
pub fn validate_update(new: &Json, old: &Json, schema: &Structural) -> Outcome {
    let mut errors = Vec::new();
    validate_value(new, Some(old), schema.root(), &mut errors);
    embedded::validate(new, schema.root(), &mut errors);
    finish(errors, new, old, schema)
}

/// Validates a write to the status subresource: the schema below `status`, but lists and rules of
/// the whole object. Texts name fields from below status (`count in body …`), paths from the root,
/// as Kubernetes does it.
pub fn validate_status(new: &Json, old: &Json, schema: &Structural) -> Outcome {
    let mut errors = Vec::new();
    if let (Some(status), Some(node)) = (new.get("status"), schema.root().property("status")) {
        let mut found = Vec::new();
        validate_value(status, old.get("status"), node, &mut found);
        errors = relocate(found, &FieldPath::new("status"));
        embedded::validate(new, schema.root(), &mut errors);
    }
    finish(errors, new, old, schema)
}

fn finish(mut errors: Vec<FieldError>, new: &Json, old: &Json, schema: &Structural) -> Outcome {
    let before = errors.len();
    list_type::validate(new, schema.root(), &mut errors);
    if errors.len() > before {
        let mut earlier = Vec::new();
        list_type::validate(old, schema.root(), &mut earlier);
        if !earlier.is_empty() {
            errors.truncate(before);
        }
    }
    let findings = check_rules(new, Some(old), schema, &errors);
    errors.extend(findings.errors);
    Outcome {
        errors,
        warnings: findings.warnings,
    }
}

/// Runs the rules, unless the object is so wrong that they would fail for that alone.
fn check_rules(new: &Json, old: Option<&Json>, schema: &Structural, errors: &[FieldError]) -> Findings {
    if !schema.root().below.rules {
        return Findings::default();
    }
    if errors.iter().any(is_blocking) {
        let why = "some validation rules were not checked because the object was invalid; correct the existing \
                   errors to complete validation";
        let error = FieldError::invalid_text(&FieldPath::root(), "null", why);
        return Findings {
            errors: vec![error],
            warnings: Vec::new(),
        };
    }
    rules::check(new, old, schema, &mut Budget::new(RULE_COST_PER_OBJECT_MAX))
}

fn is_blocking(error: &FieldError) -> bool {
    use FieldErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(error.kind, Required | TypeInvalid | NotSupported | TooLong | TooMany)
}

/// Moves errors of a value to where the value stands. Their texts stay.
pub(crate) fn relocate(errors: Vec<FieldError>, base: &FieldPath) -> Vec<FieldError> {
    let moved = errors.into_iter().map(|error| FieldError {
        field: join(base, &error.field),
        ..error
    });
    moved.collect()
}
