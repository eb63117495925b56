//! Reading of typed values from JSON objects, with an error for each that is malformed.

use super::Object;
use crate::path::Path;
use crate::rules::{RULES_MAX, Validation};
use insula_api::{FieldError, FieldPath, Json};

pub(super) fn paths(holder: &Object, key: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> Vec<Path> {
    let at_list = at.child(key);
    let mut out = Vec::new();
    let entries = list(holder, key, at, errors);
    if entries.len() > RULES_MAX {
        errors.push(FieldError::too_many(&at_list, entries.len(), RULES_MAX));
        return out;
    }
    for (i, entry) in entries.iter().enumerate() {
        match entry.as_str() {
            Some(text) => out.extend(parse_path(text, &at_list.index(i), errors)),
            None => errors.push(FieldError::type_invalid(
                &at_list.index(i),
                "",
                "must be a path, such as .spec.name",
            )),
        }
    }
    out
}

pub(super) fn parse_path(text: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> Option<Path> {
    Path::parse(text)
        .map_err(|why| errors.push(FieldError::invalid(at, &Json::from(text), why)))
        .ok()
}

pub(super) fn known(holder: &Object, fields: &[&str], at: &FieldPath, errors: &mut Vec<FieldError>) {
    for key in holder.keys().filter(|k| !fields.contains(&k.as_str())) {
        errors.push(FieldError::forbidden(
            &at.child(key),
            format!("unknown field; known are {}", fields.join(", ")),
        ));
    }
}

pub(super) fn string(holder: &Object, key: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> Option<String> {
    match holder.get(key)? {
        Json::String(text) if !text.is_empty() => Some(text.clone()),
        other => {
            errors.push(FieldError::invalid(
                &at.child(key),
                other,
                "must be a string that is not empty",
            ));
            None
        }
    }
}

/// Reads `validation`: `Show` or `Refuse`; `Show` if it is absent.
pub(super) fn validation(spec: &Object, at: &FieldPath, errors: &mut Vec<FieldError>) -> Validation {
    match spec.get("validation").map(|value| (value, value.as_str())) {
        None | Some((_, Some("Show"))) => Validation::Show,
        Some((_, Some("Refuse"))) => Validation::Refuse,
        Some((other, _)) => {
            errors.push(FieldError::not_supported(
                &at.child("validation"),
                other,
                &["Show", "Refuse"],
            ));
            Validation::Show
        }
    }
}

pub(super) fn flag(holder: &Object, key: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> bool {
    match holder.get(key) {
        None => false,
        Some(Json::Bool(flag)) => *flag,
        Some(other) => {
            errors.push(FieldError::invalid(&at.child(key), other, "must be true or false"));
            false
        }
    }
}

pub(super) fn list<'a>(holder: &'a Object, key: &str, at: &FieldPath, errors: &mut Vec<FieldError>) -> &'a [Json] {
    match holder.get(key) {
        None | Some(Json::Null) => &[],
        Some(Json::Array(items)) => items,
        Some(_) => {
            errors.push(FieldError::type_invalid(&at.child(key), "", "must be a list"));
            &[]
        }
    }
}
