//! Validation of applied configurations: they must fit the schema so far that their fields can be
//! identified. The registry validates values later.

use super::items::identity;
use super::shape::{Kind, Scalar, Shape};
use crate::fields::Element;
use insula_api::Json;
use std::collections::BTreeSet;

/// Returns all errors as one text, in Kubernetes' words.
pub(crate) fn validate(shape: Shape<'_>, value: &Json) -> Result<(), String> {
    let mut problems = Vec::new();
    check(shape, value, "", &mut problems);
    match problems.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

fn check(shape: Shape<'_>, value: &Json, at: &str, problems: &mut Vec<String>) {
    let mut problem = |text: String| match at {
        "" => problems.push(text),
        at => problems.push(format!("{at}: {text}")),
    };
    if value.is_null() {
        return;
    }
    match (shape.kind(value), value) {
        (Kind::Scalar(scalar), value) => {
            if let Some(wanted) = mismatch(scalar, value) {
                problem(format!("expected {wanted}, got {value}"));
            }
        }
        (Kind::Map | Kind::AtomicMap, Json::Object(fields)) => {
            for (name, value) in fields {
                let at = format!("{at}{}", Element::field(name));
                match shape.child(name) {
                    Some(child) => check(child.shape, value, &at, problems),
                    None => problems.push(format!("{at}: field not declared in schema")),
                }
            }
        }
        (Kind::AtomicList, Json::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                check(shape.items(), item, &format!("{at}[{i}]"), problems);
            }
        }
        (kind @ (Kind::Set | Kind::Keyed(_)), Json::Array(items)) => {
            let mut seen = BTreeSet::new();
            for (i, item) in items.iter().enumerate() {
                let element = match identity(shape, kind, item) {
                    Ok(element) => element,
                    Err(why) => return problems.push(format!("{at}: element {i}: {why}")),
                };
                check(shape.items(), item, &format!("{at}{element}"), problems);
                if seen.contains(&element) {
                    problems.push(format!("{at}: duplicate entries for key {element}"));
                }
                seen.insert(element);
            }
        }
        (Kind::Map | Kind::AtomicMap, other) => problem(format!("expected map, got {other}")),
        (Kind::AtomicList | Kind::Set | Kind::Keyed(_), other) => problem(format!("expected list, got {other}")),
    }
}

fn mismatch(scalar: Scalar, value: &Json) -> Option<&'static str> {
    let (fits, wanted) = match scalar {
        Scalar::Number => (value.is_number(), "numeric (int or float)"),
        Scalar::Text => (value.is_string(), "string"),
        Scalar::Boolean => (value.is_boolean(), "boolean"),
        Scalar::Any => (!value.is_object() && !value.is_array(), "any scalar"),
    };
    (!fits).then_some(wanted)
}
