//! Group, scope and names of a definition.

use crate::names;
use insula_api::{FieldError, FieldPath, Json};

const CORE: &str = ".core";
/// Groups of Kubernetes without a dot in their name. Definitions may be in them, as in kcp: a
/// workspace has no workloads of its own.
const SHORT_GROUPS: [&str; 5] = ["apps", "autoscaling", "batch", "extensions", "policy"];

/// Checks the name of a definition, its group and its scope.
pub(super) fn validate_place(definition: &Json, spec: &Json, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("spec");
    let text = |value: &Json, name: &str| value.get(name).and_then(Json::as_str).unwrap_or("").to_owned();
    let given = spec.get("names").unwrap_or(&Json::Null);
    let (group, plural) = (text(spec, "group"), text(given, "plural"));

    let name = definition
        .pointer("/metadata/name")
        .and_then(Json::as_str)
        .unwrap_or("");
    // The core group has the empty name. Names of definitions in it end with `.core`, a group name
    // that nothing else uses.
    let in_core = group.is_empty() && name.ends_with(CORE);
    let called = if in_core {
        format!("{plural}{CORE}")
    } else {
        format!("{plural}.{group}")
    };
    if !name.is_empty() && name != called {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid(
            &FieldPath::new("metadata").child("name"),
            &Json::from(name),
            why,
        ));
    }

    let at = path.child("group");
    let wrong = names::subdomain(&group);
    if group.is_empty() && !in_core {
        errors.push(FieldError::required(&at, ""));
    } else if !group.is_empty() && !wrong.is_empty() {
        errors.push(FieldError::invalid(&at, &Json::from(group.as_str()), wrong.join(",")));
    } else if !group.is_empty() && !group.contains('.') && !SHORT_GROUPS.contains(&&*group) {
        let why = "should be a domain with at least one dot";
        errors.push(FieldError::invalid(&at, &Json::from(group.as_str()), why));
    }

    let at = path.child("scope");
    match text(spec, "scope").as_str() {
        "" => errors.push(FieldError::required(&at, "")),
        "Cluster" | "Namespaced" => {}
        other => errors.push(FieldError::not_supported(
            &at,
            &Json::from(other),
            &["Cluster", "Namespaced"],
        )),
    }
}

/// Checks the names of a definition's resource.
pub(super) fn validate(spec: &Json, errors: &mut Vec<FieldError>) {
    let given = spec.get("names").unwrap_or(&Json::Null);
    let text = |name: &str| given.get(name).and_then(Json::as_str).unwrap_or("");
    let path = FieldPath::new("spec").child("names");
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(name).is_empty() {
            errors.push(FieldError::required(&path.child(name), ""));
        }
    }
    accepted(given, &path, errors);
}

/// Checks the names that are present.
pub(super) fn accepted(given: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let text = |name: &str| given.get(name).and_then(Json::as_str).unwrap_or("");
    let mut push = |at: &FieldPath, value: &str, words: Vec<String>| {
        errors.extend(
            words
                .into_iter()
                .map(|why| FieldError::invalid(at, &Json::from(value), why)),
        );
    };
    for name in ["plural", "singular"] {
        if !text(name).is_empty() {
            push(&path.child(name), text(name), names::label_1035(text(name)));
        }
    }
    for name in ["kind", "listKind"] {
        if !text(name).is_empty() {
            push(&path.child(name), text(name), names::kind(text(name)));
        }
    }
    for name in ["shortNames", "categories"] {
        for (i, value) in given
            .get(name)
            .and_then(Json::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let value = value.as_str().unwrap_or("");
            push(&path.child(name).index(i), value, names::label_1035(value));
        }
    }
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        push(
            &path.child("listKind"),
            text("kind"),
            vec!["kind and listKind may not be the same".to_owned()],
        );
    }
}
