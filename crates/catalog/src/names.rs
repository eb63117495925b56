//! Rules for names, labels and annotations, with Kubernetes' messages (apimachinery
//! `util/validation`).

use insula_api::{FieldError, FieldPath, Json};
use serde_json::json;

/// Limit on the total size of an object's annotations, in bytes.
pub const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The rule for an object's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// DNS-1123 subdomain, 253 characters: most objects.
    Subdomain,
    /// DNS-1123 label, 63 characters: namespaces, workspaces.
    Label,
    /// Any segment of a URL path.
    PathSegment,
}

fn is_label(text: &str) -> bool {
    let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| alnum(*b))
        && bytes.last().is_some_and(|b| alnum(*b))
        && bytes.iter().all(|b| alnum(*b) || *b == b'-')
}

/// Returns the violations of a name rule; empty for a valid name.
pub fn name_problems(name: &str, rule: NameRule) -> Vec<String> {
    let mut problems = Vec::new();
    match rule {
        NameRule::Subdomain => {
            if name.len() > 253 {
                problems.push("must be no more than 253 characters".to_owned());
            }
            if !name.split('.').all(is_label) {
                problems.push(SUBDOMAIN.to_owned());
            }
        }
        NameRule::Label => {
            if name.len() > 63 {
                problems.push("must be no more than 63 characters".to_owned());
            }
            if !is_label(name) {
                let dotted = name.split('.').all(is_label);
                problems.push(if dotted { "must not contain dots" } else { LABEL }.to_owned());
            }
        }
        NameRule::PathSegment => {
            if name == "." || name == ".." {
                problems.push(format!("may not be '{name}'"));
            }
            for part in ["/", "%"] {
                if name.contains(part) {
                    problems.push(format!("may not contain '{part}'"));
                }
            }
            // Kubernetes takes it; here no path has one.
            if name.contains('\0') {
                problems.push("may not contain NUL".to_owned());
            }
        }
    }
    problems
}

fn is_qualified_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

/// Returns the violations of a label or annotation key; empty for a valid key.
pub fn qualified_name_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(
                    name_problems(prefix, NameRule::Subdomain)
                        .into_iter()
                        .map(|p| format!("prefix part {}", p.replace("253 characters", "253 bytes"))),
                );
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_qualified_part(name) {
        problems.push(format!("name part {QUALIFIED}"));
    }
    problems
}

/// Checks the value of a label.
fn check_label_value(value: &Json, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let value = value.as_str().unwrap_or_default();
    let invalid = |problem: &str| FieldError::invalid(at, &json!(value), problem);
    if value.len() > 63 {
        errors.push(invalid("must be no more than 63 bytes"));
    }
    if !value.is_empty() && !is_qualified_part(value) {
        errors.push(invalid(LABEL_VALUE));
    }
}

/// Checks a selector's labels and requirements (`apimachinery/pkg/apis/meta/v1/validation`).
pub fn check_selector(selector: &Json, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let labels = at.child("matchLabels");
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        check_label_key(key, &labels, errors);
        check_label_value(value, &labels, errors);
    }
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    for (i, expression) in expressions.enumerate() {
        let at = at.child("matchExpressions").index(i);
        check_values(expression, &at, errors);
        if !is_operator(expression) {
            let why = "not a valid selector operator";
            let operator = expression["operator"].as_str().unwrap_or_default();
            errors.push(FieldError::invalid(&at.child("operator"), &json!(operator), why));
        }
        check_key_and_values(expression, &at, errors);
    }
}

/// Returns true for a requirement with an operator that label selectors have.
pub fn is_operator(requirement: &Json) -> bool {
    let operator = requirement["operator"].as_str().unwrap_or_default();
    ["In", "NotIn", "Exists", "DoesNotExist"].contains(&operator)
}

/// Checks that a requirement has values if its operator needs them, and else none.
pub fn check_values(requirement: &Json, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let values = at.child("values");
    let filled = requirement["values"]
        .as_array()
        .is_some_and(|values| !values.is_empty());
    match (requirement["operator"].as_str().unwrap_or_default(), filled) {
        ("In" | "NotIn", false) => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(&values, why));
        }
        ("Exists" | "DoesNotExist", true) => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(&values, why));
        }
        _ => {}
    }
}

/// Checks the label key and the values of a requirement.
pub fn check_key_and_values(requirement: &Json, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let key = requirement["key"].as_str().unwrap_or_default();
    check_label_key(key, &at.child("key"), errors);
    for (i, value) in requirement["values"].as_array().into_iter().flatten().enumerate() {
        check_label_value(value, &at.child("values").index(i), errors);
    }
}

fn check_label_key(key: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let problems = qualified_name_problems(key).into_iter();
    errors.extend(problems.map(|problem| FieldError::invalid(at, &json!(key), problem)));
}

/// Checks that a finalizer is one of Kubernetes' own or has a domain.
pub fn check_finalizer_is_qualified(finalizer: &Json, at: &FieldPath, errors: &mut Vec<FieldError>) {
    const OWN: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    let name = finalizer.as_str().unwrap_or_default();
    if !name.contains('/') && !OWN.contains(&name) {
        let why = "name is neither a standard finalizer name nor is it fully qualified";
        errors.push(FieldError::invalid(at, finalizer, why));
    }
}

/// Checks labels and annotations of an object.
pub fn check_labels_and_annotations(metadata: &Json, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let labels = at.child("labels");
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        check_label_key(key, &labels, errors);
        check_label_value(value, &labels, errors);
    }
    let annotations = at.child("annotations");
    let mut total = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        // Upstream lower-cases the key first: annotation keys may have capitals in the prefix.
        let problems = qualified_name_problems(&key.to_lowercase());
        errors.extend(
            problems
                .into_iter()
                .map(|p| FieldError::invalid(&annotations, &json!(key), p)),
        );
        total += key.len() + value.as_str().map_or(0, str::len);
    }
    if total > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long(&annotations, ANNOTATIONS_BYTES_MAX));
    }
}

/// Checks a name, or a `generateName` before the server completes it.
pub fn check_name(name: &str, rule: NameRule, at: &FieldPath, errors: &mut Vec<FieldError>) {
    errors.extend(
        name_problems(name, rule)
            .into_iter()
            .map(|p| FieldError::invalid(at, &json!(name), p)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, rule, fine) in [
            ("a", NameRule::Subdomain, true),
            ("a.b-c", NameRule::Subdomain, true),
            ("A", NameRule::Subdomain, false),
            ("a..b", NameRule::Subdomain, false),
            ("a.b", NameRule::Label, false),
            ("system:x", NameRule::PathSegment, true),
            ("a/b", NameRule::PathSegment, false),
            ("..", NameRule::PathSegment, false),
            ("..;a\\b", NameRule::PathSegment, true),
            ("a\0", NameRule::PathSegment, false),
        ] {
            assert_eq!(name_problems(name, rule).is_empty(), fine, "{name} {rule:?}");
        }
    }

    #[test]
    fn qualified_names() {
        for (key, fine) in [
            ("a", true),
            ("a.b/c_D", true),
            ("/c", false),
            ("a/", false),
            ("a/b/c", false),
            ("-a", false),
        ] {
            assert_eq!(qualified_name_problems(key).is_empty(), fine, "{key}");
        }
    }
}
