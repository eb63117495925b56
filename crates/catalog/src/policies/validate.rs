//! Validation of policies and bindings, with the messages and field paths of Kubernetes
//! (`pkg/apis/admissionregistration/validation`).

mod resources;
mod webhooks;

use crate::{
    names::{NameRule, check_selector, name_problems, qualified_name_problems},
    policies::{
        compile::{CompiledMutation, CompiledPolicy, Expression},
        spec::{AuditAnnotation, BindingSpec, Mutation, ParamKind, ParamRef, PolicySpec, Validation},
    },
};
use insula_api::{FieldError, FieldPath, Json};
use resources::check_match_resources;

use serde_json::json;
use std::collections::BTreeSet;

pub use webhooks::webhook_configuration;

const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
const PATCH_TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];
const CONDITIONS_MAX: usize = 64;
const AUDIT_ANNOTATIONS_MAX: usize = 20;
const AUDIT_EXPRESSION_BYTES_MAX: usize = 5 * 1024;

/// Validates a ValidatingAdmissionPolicy.
pub fn validating_policy(policy: &Json) -> Vec<FieldError> {
    let compiled = CompiledPolicy::compile(PolicySpec::read(policy));
    let (spec, at) = (&compiled.spec, FieldPath::new("spec"));
    let mut errors = Vec::new();
    check_common(&compiled, &at, &mut errors);
    if spec.validations.is_empty() && spec.audit_annotations.is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        for field in ["validations", "auditAnnotations"] {
            errors.push(FieldError::required(&at.child(field), why));
        }
        return errors;
    }
    for (index, (said, compiled)) in spec.validations.iter().zip(&compiled.validations).enumerate() {
        let at = at.child("validations").index(index);
        check_validation(
            said,
            &compiled.expression,
            compiled.message_expression.as_ref(),
            &at,
            &mut errors,
        );
    }
    let at = at.child("auditAnnotations");
    if spec.audit_annotations.len() > AUDIT_ANNOTATIONS_MAX {
        let why = format!("must not have more than {AUDIT_ANNOTATIONS_MAX} auditAnnotations");
        errors.push(FieldError::invalid(&at, &policy["spec"]["auditAnnotations"], why));
    }
    let name = policy["metadata"]["name"].as_str().unwrap_or_default();
    let mut keys = BTreeSet::new();
    for (index, (said, compiled)) in spec
        .audit_annotations
        .iter()
        .zip(&compiled.audit_annotations)
        .enumerate()
    {
        check_audit_annotation(name, said, &compiled.expression, &at.index(index), &mut errors);
        if !keys.insert(&said.key) {
            errors.push(FieldError::duplicate(&at.index(index).child("key"), &json!(said.key)));
        }
    }
    errors
}

/// Validates a MutatingAdmissionPolicy.
pub fn mutating_policy(policy: &Json) -> Vec<FieldError> {
    let compiled = CompiledPolicy::compile(PolicySpec::read(policy));
    let (spec, at) = (&compiled.spec, FieldPath::new("spec"));
    let mut errors = Vec::new();
    check_common(&compiled, &at, &mut errors);
    one_of(
        &spec.reinvocation_policy,
        &REINVOCATION_POLICIES,
        &at.child("reinvocationPolicy"),
        &mut errors,
    );
    if spec.mutations.is_empty() {
        let why = "mutations must contain at least one item";
        errors.push(FieldError::required(&at.child("mutations"), why));
    }
    let mut programs = compiled.mutations.iter();
    for (index, mutation) in spec.mutations.iter().enumerate() {
        check_mutation(
            mutation,
            &mut programs,
            &at.child("mutations").index(index),
            &mut errors,
        );
    }
    errors
}

/// Validates a binding. `actions` is true for bindings of validating policies, which must have
/// `validationActions`.
pub fn binding(binding: &Json, actions: bool) -> Vec<FieldError> {
    let (spec, at) = (BindingSpec::read(binding), FieldPath::new("spec"));
    let mut errors = Vec::new();
    let policy_at = at.child("policyName");
    if spec.policy_name.is_empty() {
        errors.push(FieldError::required(&policy_at, ""));
    } else {
        let problems = name_problems(&spec.policy_name, NameRule::Subdomain);
        errors.extend(
            problems
                .into_iter()
                .map(|why| FieldError::invalid(&policy_at, &json!(spec.policy_name), why)),
        );
    }
    if let Some(param_ref) = &spec.param_ref {
        check_param_ref(param_ref, &at.child("paramRef"), &mut errors);
    }
    if let Some(resources) = &spec.match_resources {
        // Kubernetes misspells this field in its messages; clients expect the misspelling.
        check_match_resources(resources, &at.child("matchResouces"), &mut errors);
    }
    if actions {
        check_actions(&spec.validation_actions, &at.child("validationActions"), &mut errors);
    }
    errors
}

fn check_common(compiled: &CompiledPolicy, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let spec = &compiled.spec;
    one_of(
        &spec.failure_policy,
        &FAILURE_POLICIES,
        &at.child("failurePolicy"),
        errors,
    );
    if let Some(kind) = &spec.param_kind {
        check_param_kind(kind, &at.child("paramKind"), errors);
    }
    let constraints_at = at.child("matchConstraints");
    match &spec.match_constraints {
        None => errors.push(FieldError::required(&constraints_at, "")),
        Some(constraints) => {
            check_match_resources(constraints, &constraints_at, errors);
            if constraints.resource_rules.is_empty() {
                errors.push(FieldError::required(&constraints_at.child("resourceRules"), ""));
            }
        }
    }
    check_conditions(compiled, &at.child("matchConditions"), errors);
    for (index, variable) in spec.variables.iter().enumerate() {
        let at = at.child("variables").index(index);
        if variable.name.trim().is_empty() {
            errors.push(FieldError::required(&at.child("name"), "name is not specified"));
        } else if !is_identifier(&variable.name) {
            let why = "name is not a valid CEL identifier";
            errors.push(FieldError::invalid(&at.child("name"), &json!(variable.name), why));
        }
        let program = compiled.variables.iter().find(|known| known.name == variable.name);
        if variable.expression.trim().is_empty() {
            errors.push(FieldError::required(
                &at.child("expression"),
                "expression is not specified",
            ));
        } else if let Some(program) = program {
            check_program(&program.expression, &at.child("expression"), errors);
        }
    }
}

fn check_conditions(compiled: &CompiledPolicy, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if compiled.conditions.len() > CONDITIONS_MAX {
        errors.push(FieldError::too_many(at, compiled.conditions.len(), CONDITIONS_MAX));
    }
    let mut names = BTreeSet::new();
    for (index, condition) in compiled.conditions.iter().enumerate() {
        let at = at.index(index);
        if condition.expression.source.trim().is_empty() {
            errors.push(FieldError::required(&at.child("expression"), ""));
        } else {
            check_program(&condition.expression, &at.child("expression"), errors);
        }
        let (name, at) = (&condition.name, at.child("name"));
        if name.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        check_qualified_name(name, &at, errors);
        if !names.insert(name) {
            errors.push(FieldError::duplicate(&at, &json!(name)));
        }
    }
}

fn check_validation(
    said: &Validation,
    expression: &Expression,
    message_expression: Option<&Expression>,
    at: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if said.expression.trim().is_empty() {
        errors.push(FieldError::required(
            &at.child("expression"),
            "expression is not specified",
        ));
    } else {
        check_program(expression, &at.child("expression"), errors);
    }
    let message_expression_at = at.child("messageExpression");
    match message_expression {
        Some(program) => check_program(program, &message_expression_at, errors),
        None if !said.message_expression.is_empty() => {
            let why = "must be non-empty if specified";
            errors.push(FieldError::invalid(
                &message_expression_at,
                &json!(said.message_expression),
                why,
            ));
        }
        None => {}
    }
    let message = said.message.trim();
    if message.is_empty() && !said.message.is_empty() {
        let why = "message must be non-empty if specified";
        errors.push(FieldError::invalid(&at.child("message"), &json!(said.message), why));
    } else if message.contains(['\n', '\r']) {
        let why = "must not contain line breaks";
        errors.push(FieldError::invalid(&at.child("message"), &json!(said.message), why));
    }
    if let Some(reason) = said.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
        errors.push(FieldError::not_supported(&at.child("reason"), &json!(reason), &REASONS));
    }
}

fn check_audit_annotation(
    policy: &str,
    said: &AuditAnnotation,
    expression: &Expression,
    at: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if policy.is_empty() {
        let why = "requires metadata.name be non-empty";
        errors.push(FieldError::invalid(&at.child("key"), &json!(said.key), why));
    } else {
        check_qualified_name(&format!("{policy}/{}", said.key), &at.child("key"), errors);
    }
    let at = at.child("valueExpression");
    if expression.source.is_empty() {
        errors.push(FieldError::required(&at, "valueExpression is not specified"));
    } else if expression.source.len() > AUDIT_EXPRESSION_BYTES_MAX {
        let why = format!("must not exceed {AUDIT_EXPRESSION_BYTES_MAX} bytes in length");
        errors.push(FieldError::required(&at, why));
    } else {
        check_program(expression, &at, errors);
    }
}

fn check_mutation<'a>(
    said: &Mutation,
    programs: &mut impl Iterator<Item = &'a CompiledMutation>,
    at: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let (wanted, other) = match said.patch_type.as_str() {
        "" => {
            let why = "patchType is not specified";
            return errors.push(FieldError::required(&at.child("patchType"), why));
        }
        "JSONPatch" => (
            ("jsonPatch", &said.json_patch),
            ("applyConfiguration", &said.apply_configuration),
        ),
        "ApplyConfiguration" => (
            ("applyConfiguration", &said.apply_configuration),
            ("jsonPatch", &said.json_patch),
        ),
        unknown => {
            let error = FieldError::not_supported(&at.child("patchType"), &json!(unknown), &PATCH_TYPES);
            return errors.push(error);
        }
    };
    if other.1.is_some() {
        let why = format!("must not be set when patchType is {}", said.patch_type);
        errors.push(FieldError::forbidden(&at.child(other.0), why));
    }
    let at = at.child(wanted.0);
    match wanted.1 {
        None => errors.push(FieldError::required(
            &at,
            format!("must be set when patchType is {}", said.patch_type),
        )),
        Some(source) => {
            let program = programs.next();
            if source.expression.trim().is_empty() {
                errors.push(FieldError::required(
                    &at.child("expression"),
                    "expression is not specified",
                ));
            } else if let Some(CompiledMutation::JsonPatch(program) | CompiledMutation::ApplyConfiguration(program)) =
                program
            {
                check_program(program, &at.child("expression"), errors);
            }
        }
    }
}

fn check_program(expression: &Expression, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Err(why) = &expression.program {
        errors.push(FieldError::invalid(at, &json!(expression.source), why.clone()));
    }
}

fn check_qualified_name(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let problems = qualified_name_problems(name);
    errors.extend(
        problems
            .into_iter()
            .map(|why| FieldError::invalid(at, &json!(name), why)),
    );
}

/// Checks a value that has a default, so that an empty one was sent.
fn one_of(value: &str, supported: &[&str], at: &FieldPath, errors: &mut Vec<FieldError>) {
    if !supported.contains(&value) {
        errors.push(FieldError::not_supported(at, &json!(value), supported));
    }
}

/// Returns true for an identifier (`[_a-zA-Z][_a-zA-Z0-9]*`) that is not a keyword of the grammar.
fn is_identifier(name: &str) -> bool {
    let letter = |c: char| c == '_' || c.is_ascii_alphabetic();
    name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit()) && !insula_cel::is_keyword(name)
}

fn check_param_kind(kind: &ParamKind, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let version_at = at.child("apiVersion");
    if kind.api_version.is_empty() {
        errors.push(FieldError::required(&version_at, ""));
    } else if kind.api_version.matches('/').count() > 1 {
        let why = format!("unexpected GroupVersion string: {}", kind.api_version);
        errors.push(FieldError::invalid(&version_at, &json!(kind.api_version), why));
    } else {
        let (group, version) = kind.group_version();
        let problems = name_problems(group, NameRule::Subdomain);
        if !group.is_empty() && !problems.is_empty() {
            errors.push(FieldError::invalid(&version_at, &json!(group), problems.join(",")));
        }
        if version.is_empty() {
            let why = "version must be specified";
            errors.push(FieldError::invalid(&version_at, &json!(kind.api_version), why));
        } else {
            let problems = insula_schema::label_1035(version);
            if !problems.is_empty() {
                errors.push(FieldError::invalid(&version_at, &json!(version), problems.join(",")));
            }
        }
    }
    if kind.kind.is_empty() {
        errors.push(FieldError::required(&at.child("kind"), ""));
        return;
    }
    let problems = insula_schema::label_1035(&kind.kind.to_lowercase());
    if !problems.is_empty() {
        let why = format!(
            "may have mixed case, but should otherwise match: {}",
            problems.join(",")
        );
        errors.push(FieldError::invalid(&at.child("kind"), &json!(kind.kind), why));
    }
}

fn check_param_ref(param_ref: &ParamRef, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let exclusive = "name and selector are mutually exclusive";
    let named = !param_ref.name.is_empty();
    if named {
        let problems = name_problems(&param_ref.name, NameRule::PathSegment);
        let name_at = at.child("name");
        errors.extend(
            problems
                .into_iter()
                .map(|why| FieldError::invalid(&name_at, &json!(param_ref.name), why)),
        );
        if param_ref.selector.is_some() {
            errors.push(FieldError::forbidden(&name_at, exclusive));
        }
    }
    match &param_ref.selector {
        Some(selector) => {
            check_selector(selector, &at.child("selector"), errors);
            if named {
                errors.push(FieldError::forbidden(&at.child("selector"), exclusive));
            }
        }
        None if !named => errors.push(FieldError::required(at, "one of name or selector must be specified")),
        None => {}
    }
    let action = &param_ref.parameter_not_found_action;
    let at = at.child("parameterNotFoundAction");
    match action.is_empty() {
        true => errors.push(FieldError::required(&at, "")),
        false => one_of(action, &["Deny", "Allow"], &at, errors),
    }
}

fn check_actions(actions: &[String], at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, action) in actions.iter().enumerate() {
        if !ACTIONS.contains(&action.as_str()) {
            errors.push(FieldError::not_supported(&at.index(index), &json!(action), &ACTIONS));
        }
        if !seen.insert(action.as_str()) {
            errors.push(FieldError::duplicate(&at.index(index), &json!(action)));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.push(FieldError::invalid(at, &json!(actions), why));
    }
    if seen.is_empty() {
        errors.push(FieldError::required(at, "at least one validation action is required"));
    }
}
