//! Errors of the schemas and rules of a request, each at its field of the request.

use crate::status::Fault;
use insula_api::{FieldError, Finding, Json};
use insula_catalog::parts;
use insula_proto::admin::v1::{ErrorReason, FieldViolation, FindingKind};
use tonic::{Code, Status};

/// Fields of rules in an APIConversion. All others are fields of the schema.
const OF_RULES: [&str; 3] = ["spec", "spec.hub", "spec.validation"];

/// Position of a schema and its rules in a request.
#[derive(Debug, Clone)]
pub(super) struct Positions {
    schema: String,
    /// Names of the objects with rules, and their fields. Empty for rules inside the schema.
    rules: Vec<(String, String)>,
    /// Path of the rules inside the schema.
    inside: &'static str,
    is_definition: bool,
}

impl Positions {
    /// Returns the position of a schema, without rules outside of it.
    pub(super) fn new(field: &str, schema: &Json) -> Self {
        let conversion = &schema["spec"]["conversion"];
        let is_grouped = !conversion["conversions"].is_null() || !conversion["hub"].is_null();
        Positions {
            schema: field.to_owned(),
            rules: Vec::new(),
            inside: if is_grouped { "spec.conversion" } else { "spec" },
            is_definition: schema["kind"] == "CustomResourceDefinition",
        }
    }

    /// Returns the position of rules alone.
    pub(super) fn of_rules(field: &str, rules: &Json) -> Self {
        let mut positions = Self::new(field, rules);
        positions.add_rules(rules["metadata"]["name"].as_str().unwrap_or_default(), field);
        positions
    }

    /// Adds an object with rules.
    pub(super) fn add_rules(&mut self, name: &str, field: &str) {
        self.rules.push((name.to_owned(), field.to_owned()));
    }

    /// Returns the field of the request that an error is about.
    fn field(&self, error: &FieldError) -> String {
        let path = error.field.as_str();
        if let Some((name, rest)) = parts::split(path) {
            let rules = self.rules.iter().find(|(known, _)| known == name);
            return rules.map_or_else(|| self.schema.clone(), |(_, field)| format!("{field}.{rest}"));
        }
        let is_rule = path.starts_with("spec.conversions") || OF_RULES.contains(&path);
        match self.rules.first() {
            Some((_, field)) if is_rule => format!("{field}.{path}"),
            None if is_rule => format!("{}.{}{}", self.schema, self.inside, &path["spec".len()..]),
            // Schemas are compiled in the form of definitions.
            _ if !self.is_definition => format!("{}.{}", self.schema, path.replace(".openAPIV3Schema", "")),
            _ => format!("{}.{path}", self.schema),
        }
    }

    /// Returns errors as an answer, with the fields of the request.
    pub(super) fn violations(&self, errors: &[FieldError]) -> Vec<FieldViolation> {
        errors.iter().map(|error| violation(error, self.field(error))).collect()
    }
}

/// Returns an error as an answer, at the field of the object that it is about.
pub(super) fn violation_of_object(error: &FieldError) -> FieldViolation {
    violation(error, error.field.to_string())
}

fn violation(error: &FieldError, field: String) -> FieldViolation {
    let kind = match error.finding {
        Finding::Mistake => FindingKind::Mistake,
        Finding::Counterexample => FindingKind::Counterexample,
        Finding::Misfit => FindingKind::Misfit,
    };
    FieldViolation {
        field,
        reason: error.kind.reason().to_owned(),
        message: error.body(),
        kind: kind.into(),
    }
}

/// Returns the refusal of a request with wrong schemas or rules: INVALID_ARGUMENT with their
/// fields.
pub(super) fn refused(violations: &[FieldViolation]) -> Status {
    with_fields(Code::InvalidArgument, ErrorReason::InvalidField, "", violations)
}

/// Returns the refusal of stored rules that are wrong: FAILED_PRECONDITION with the fields of the
/// stored object.
pub(super) fn unusable(name: &str, errors: &[FieldError]) -> Status {
    let violations: Vec<FieldViolation> = errors.iter().map(violation_of_object).collect();
    let text = format!("the rules of {name:?} are not valid: ");
    with_fields(Code::FailedPrecondition, ErrorReason::WrongState, &text, &violations)
}

fn with_fields(code: Code, reason: ErrorReason, text: &str, violations: &[FieldViolation]) -> Status {
    let lines: Vec<String> = violations
        .iter()
        .map(|violation| format!("{}: {}", violation.field, violation.message))
        .collect();
    let mut fault = Fault::new(code, reason, format!("{text}{}", insula_api::aggregate(&lines)));
    for violation in violations {
        fault = fault.field(&violation.field, &violation.message, &violation.reason);
    }
    fault.status()
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_api::FieldPath;
    use serde_json::json;

    #[test]
    fn errors_are_at_the_fields_of_the_request() {
        let schema = json!({"kind": "APIResourceSchema", "spec": {"conversion": {"hub": "v1"}}});
        let inside = Positions::new("inline.schema", &schema);
        let mut one = Positions::new("schema", &json!({"kind": "APIResourceSchema"}));
        one.add_rules("a", "rules");
        let mut parts = Positions::new("manifests[0]", &json!({"kind": "CustomResourceDefinition"}));
        parts.add_rules("a", "manifests[2]");
        parts.add_rules("b", "manifests[1]");
        for (positions, path, field) in [
            (
                &one,
                "spec.conversions[0].rules[2].field",
                "rules.spec.conversions[0].rules[2].field",
            ),
            (
                &one,
                "spec.versions[0].schema.openAPIV3Schema.type",
                "schema.spec.versions[0].schema.type",
            ),
            (
                &inside,
                "spec.conversions[0]",
                "inline.schema.spec.conversion.conversions[0]",
            ),
            (&parts, "b:spec.conversions[0]", "manifests[1].spec.conversions[0]"),
            (
                &parts,
                "spec.versions[0].schema.openAPIV3Schema.type",
                "manifests[0].spec.versions[0].schema.openAPIV3Schema.type",
            ),
            (&parts, "c:spec.conversions[0]", "manifests[0]"),
        ] {
            let error = FieldError::required(&FieldPath::new(path), "x");
            assert_eq!(positions.field(&error), field);
        }
    }
}
