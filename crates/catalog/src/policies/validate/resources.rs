//! Validation of the match criteria of policies, bindings and webhooks.

use crate::{
    names::{NameRule, check_selector, name_problems},
    policies::{
        spec::{MatchResources, Rule},
        validate::one_of,
    },
};
use insula_api::{FieldError, FieldPath};
use serde_json::json;
use std::collections::BTreeSet;

pub(crate) const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];

pub(crate) fn check_match_resources(resources: &MatchResources, at: &FieldPath, errors: &mut Vec<FieldError>) {
    one_of(
        &resources.match_policy,
        &MATCH_POLICIES,
        &at.child("matchPolicy"),
        errors,
    );
    for (field, selector) in [
        ("namespaceSelector", &resources.namespace_selector),
        ("objectSelector", &resources.object_selector),
    ] {
        match selector {
            None => errors.push(FieldError::required(&at.child(field), "")),
            Some(selector) => check_selector(selector, &at.child(field), errors),
        }
    }
    for (field, rules) in [
        ("resourceRules", &resources.resource_rules),
        ("excludeResourceRules", &resources.exclude_resource_rules),
    ] {
        for (index, rule) in rules.iter().enumerate() {
            check_rule(rule, &at.child(field).index(index), errors);
        }
    }
}

pub(crate) fn check_rule(rule: &Rule, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    for (index, name) in rule.resource_names.iter().enumerate() {
        let at = at.child("resourceNames").index(index);
        let problems = name_problems(name, NameRule::PathSegment);
        errors.extend(
            problems
                .into_iter()
                .map(|why| FieldError::invalid(&at, &json!(name), why)),
        );
        if !names.insert(name) {
            errors.push(FieldError::duplicate(&at, &json!(name)));
        }
    }
    check_list(&rule.operations, "operations", "operations", at, errors);
    for (index, operation) in rule.operations.iter().enumerate() {
        if !OPERATIONS.contains(&operation.as_str()) {
            let at = at.child("operations").index(index);
            errors.push(FieldError::not_supported(&at, &json!(operation), &OPERATIONS));
        }
    }
    check_list(&rule.api_groups, "apiGroups", "API groups", at, errors);
    check_list(&rule.api_versions, "apiVersions", "API versions", at, errors);
    let unnamed = rule
        .api_versions
        .iter()
        .enumerate()
        .filter(|(_, version)| version.is_empty());
    errors.extend(unnamed.map(|(index, _)| FieldError::required(&at.child("apiVersions").index(index), "")));
    check_resources(&rule.resources, &at.child("resources"), errors);
    if !SCOPES.contains(&rule.scope.as_str()) {
        errors.push(FieldError::not_supported(
            &at.child("scope"),
            &json!(rule.scope),
            &SCOPES,
        ));
    }
}

fn check_list(list: &[String], field: &str, words: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if list.is_empty() {
        errors.push(FieldError::required(&at.child(field), ""));
    } else if list.len() > 1 && list.iter().any(|item| item == "*") {
        let why = format!("if '*' is present, must not specify other {words}");
        errors.push(FieldError::invalid(&at.child(field), &json!(list), why));
    }
}

/// Checks that a wildcard does not cover another resource of the list.
fn check_resources(resources: &[String], at: &FieldPath, errors: &mut Vec<FieldError>) {
    if resources.is_empty() {
        return errors.push(FieldError::required(at, ""));
    }
    let all = resources.iter().any(|pattern| pattern == "*/*");
    let (mut whole, mut subs) = (BTreeSet::new(), BTreeSet::new());
    for (index, pattern) in resources.iter().enumerate() {
        let at = at.index(index);
        if pattern.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        let Some((resource, sub)) = pattern.split_once('/') else {
            continue;
        };
        if whole.contains(resource) {
            let why = format!("if '{resource}/*' is present, must not specify {pattern}");
            errors.push(FieldError::invalid(&at, &json!(pattern), why));
        }
        if subs.contains(sub) {
            let why = format!("if '*/{sub}' is present, must not specify {pattern}");
            errors.push(FieldError::invalid(&at, &json!(pattern), why));
        }
        if sub == "*" {
            whole.insert(resource);
        }
        if resource == "*" {
            subs.insert(sub);
        }
    }
    if all && resources.len() > 1 {
        let why = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(at, &json!(resources), why));
    } else if resources.iter().any(|pattern| pattern == "*")
        && resources.len() > 1
        && resources.iter().any(|pattern| pattern != "*" && !pattern.contains('/'))
    {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(at, &json!(resources), why));
    }
}
