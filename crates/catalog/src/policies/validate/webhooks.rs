//! Validation of webhook configurations.

use crate::{
    names::{NameRule, check_selector, name_problems},
    policies::{
        compile::CompiledPolicy,
        spec::Hooks,
        validate::{
            FAILURE_POLICIES, REINVOCATION_POLICIES, check_conditions, one_of,
            resources::{MATCH_POLICIES, check_rule},
        },
    },
};
use insula_api::{FieldError, FieldPath, Json};
use serde_json::json;

const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const TIMEOUT_SECONDS_MAX: i64 = 30;
const NAME_SEGMENTS_MIN: usize = 3;

/// Validates a webhook configuration. `mutating` is true for a MutatingWebhookConfiguration, which
/// has a `reinvocationPolicy`.
pub fn webhook_configuration(configuration: &Json, mutating: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let raw = configuration["webhooks"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    for (index, (hook, raw)) in Hooks::read(configuration).webhooks.iter().zip(raw).enumerate() {
        let at = FieldPath::new("webhooks").index(index);
        check_name(&hook.name, &at.child("name"), &mut errors);
        for (index, rule) in hook.rules.iter().enumerate() {
            check_rule(rule, &at.child("rules").index(index), &mut errors);
        }
        one_of(
            &hook.failure_policy,
            &FAILURE_POLICIES,
            &at.child("failurePolicy"),
            &mut errors,
        );
        one_of(
            &hook.match_policy,
            &MATCH_POLICIES,
            &at.child("matchPolicy"),
            &mut errors,
        );
        check_reviews(
            &hook.admission_review_versions,
            &at.child("admissionReviewVersions"),
            &mut errors,
        );
        let side_effects_at = at.child("sideEffects");
        match hook.side_effects.as_str() {
            "" if raw["sideEffects"].is_null() => {
                let why = "must specify one of None, NoneOnDryRun";
                errors.push(FieldError::required(&side_effects_at, why));
            }
            known if SIDE_EFFECTS.contains(&known) => {}
            other => errors.push(FieldError::not_supported(
                &side_effects_at,
                &json!(other),
                &SIDE_EFFECTS,
            )),
        }
        if !(1..=TIMEOUT_SECONDS_MAX).contains(&hook.timeout_seconds) {
            let why = "the timeout value must be between 1 and 30 seconds";
            let at = at.child("timeoutSeconds");
            errors.push(FieldError::invalid(&at, &json!(hook.timeout_seconds), why));
        }
        for (field, selector) in [
            ("namespaceSelector", &hook.namespace_selector),
            ("objectSelector", &hook.object_selector),
        ] {
            if let Some(selector) = selector {
                check_selector(selector, &at.child(field), &mut errors);
            }
        }
        insula_schema::validate_client_config(&raw["clientConfig"], &at.child("clientConfig"), &mut errors);
        let compiled = CompiledPolicy::compile(hook.as_policy());
        check_conditions(&compiled, &at.child("matchConditions"), &mut errors);
        if mutating {
            let at = at.child("reinvocationPolicy");
            one_of(&hook.reinvocation_policy, &REINVOCATION_POLICIES, &at, &mut errors);
        }
    }
    errors
}

fn check_name(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        return errors.push(FieldError::required(at, ""));
    }
    let problems = name_problems(name, NameRule::Subdomain);
    if !problems.is_empty() {
        errors.extend(
            problems
                .into_iter()
                .map(|why| FieldError::invalid(at, &json!(name), why)),
        );
    } else if name.split('.').count() < NAME_SEGMENTS_MIN {
        let why = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(at, &json!(name), why));
    }
}

fn check_reviews(versions: &[String], at: &FieldPath, errors: &mut Vec<FieldError>) {
    if versions.is_empty() {
        return errors.push(FieldError::required(at, "must specify one of v1, v1beta1"));
    }
    for (index, version) in versions.iter().enumerate() {
        let problems = insula_schema::label_1035(version).into_iter();
        errors.extend(problems.map(|why| FieldError::invalid(&at.index(index), &json!(version), why)));
        if versions.iter().take(index).any(|earlier| earlier == version) {
            errors.push(FieldError::invalid(
                &at.index(index),
                &json!(version),
                "duplicate version",
            ));
        }
    }
    if !versions
        .iter()
        .any(|version| REVIEW_VERSIONS.contains(&version.as_str()))
    {
        let why = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(at, &json!(versions), why));
    }
}
