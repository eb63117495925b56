//! The values that a Scale shows, and their rules.
//!
//! A custom resource whose replicas a Scale cannot hold is refused as in Kubernetes. Definitions
//! made through v1beta1 have the stricter rules of the proposal for subresources: the replicas must
//! be there, the observed ones must be an integer, and the selector must parse.

use insula_api::{FieldError, FieldPath, Json, LabelSelector, go_float};

/// The maximum of a Scale's replicas, which are 32-bit integers.
const REPLICAS_MAX: i64 = i32::MAX as i64;

/// Paths of the scale subresource, as written (`.spec.replicas`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// Path of the desired replicas.
    pub spec_replicas: String,
    /// Path of the observed replicas, or empty.
    pub status_replicas: String,
    /// Path of the selector as a string, or empty.
    pub selector: String,
    /// True for definitions made through v1beta1: a selector must parse, and a written Scale must
    /// not have a value whose path is not set.
    pub strict: bool,
}

impl Scale {
    /// Returns the value at a path such as `.spec.replicas`; `None` for an empty path.
    pub fn value<'a>(object: &'a Json, path: &str) -> Option<&'a Json> {
        let found = Scale::segments(path).try_fold(object, |value, name| value.get(name))?;
        (!path.is_empty()).then_some(found)
    }

    /// Returns the whole number at a path; `None` if there is none.
    ///
    /// # Errors
    /// Returns the message of Go's accessor for a value of another type there, or on the way.
    pub fn number(object: &Json, path: &str) -> Result<Option<i64>, String> {
        let found = Scale::found(object, path)?;
        let number = |value: &Json| value.as_i64().ok_or_else(|| mistyped(path, value, "int64"));
        found.map(number).transpose()
    }

    /// Returns the text at a path; `None` if there is none.
    ///
    /// # Errors
    /// Returns the message of Go's accessor for a value of another type there, or on the way.
    pub fn text<'a>(object: &'a Json, path: &str) -> Result<Option<&'a str>, String> {
        let found = Scale::found(object, path)?;
        let text = |value: &'a Json| value.as_str().ok_or_else(|| mistyped(path, value, "string"));
        found.map(text).transpose()
    }

    fn found<'a>(object: &'a Json, path: &str) -> Result<Option<&'a Json>, String> {
        let mut value = object;
        let mut above = String::new();
        for name in Scale::segments(path).filter(|_| !path.is_empty()) {
            let Some(fields) = value.as_object() else {
                return Err(mistyped(&above, value, "map[string]interface {}"));
            };
            above = format!("{above}.{name}");
            match fields.get(name) {
                Some(below) => value = below,
                None => return Ok(None),
            }
        }
        Ok((!path.is_empty()).then_some(value))
    }

    /// Returns the fields of a path.
    pub fn segments(path: &str) -> impl Iterator<Item = &str> {
        path.trim_start_matches('.').split('.')
    }

    /// Returns the errors of an object's values. `prefix` selects the paths: `.status` for a write
    /// to the status, an empty one for all. A value that the old object has as well is no error.
    pub fn errors(&self, object: &Json, old: Option<&Json>, prefix: &str) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut check = |path: &str, wrong: fn(&Scale, &Json, &str) -> Option<Wrong>| {
            let is_unchanged = || old.is_some_and(|old| Scale::found(old, path) == Scale::found(object, path));
            if !path.is_empty()
                && path.starts_with(prefix)
                && let Some((value, why)) = wrong(self, object, path)
                && !is_unchanged()
            {
                errors.push(FieldError::invalid(&FieldPath::new(path), &value, why));
            }
        };
        check(&self.spec_replicas, Scale::wrong_replicas);
        check(&self.status_replicas, Scale::wrong_status);
        check(&self.selector, Scale::wrong_selector);
        errors
    }

    /// Returns the errors of values in a written Scale whose path is not set. Only strict
    /// definitions have such errors; others ignore the values.
    pub fn errors_of_scale(&self, scale: &Json) -> Vec<FieldError> {
        let is_set = |value: &Json| !value.is_null() && *value != 0 && value != "";
        let paths = [
            ("replicas", &self.status_replicas, "statusReplicasPath"),
            ("selector", &self.selector, "labelSelectorPath"),
        ];
        let unset = paths
            .into_iter()
            .filter(|(field, path, _)| self.strict && path.is_empty() && is_set(&scale["status"][*field]));
        unset
            .map(|(field, _, setting)| {
                let at = FieldPath::new("status").child(field);
                FieldError::forbidden(&at, format!("must not be specified: the definition sets no {setting}"))
            })
            .collect()
    }

    fn wrong_replicas(&self, object: &Json, path: &str) -> Option<Wrong> {
        if self.strict && Scale::value(object, path).and_then(Json::as_i64).is_none() {
            let value = Scale::value(object, path).cloned().unwrap_or_default();
            return Some((value, "should be a non-negative integer".into()));
        }
        wrong_number(object, path)
    }

    fn wrong_status(&self, object: &Json, path: &str) -> Option<Wrong> {
        let value = Scale::value(object, path).filter(|value| self.strict && !value.is_i64());
        match value {
            Some(value) => Some((value.clone(), "should be an integer".into())),
            None => wrong_number(object, path),
        }
    }

    fn wrong_selector(&self, object: &Json, path: &str) -> Option<Wrong> {
        let value = Scale::value(object, path).filter(|_| self.strict);
        let text = match (value, Scale::text(object, path)) {
            (Some(value), Err(_)) => return Some((value.clone(), "should be a label selector as a string".into())),
            (_, Err(why)) => return Some((Json::from(""), why)),
            (_, Ok(text)) => text.filter(|_| self.strict)?,
        };
        let why = LabelSelector::parse(text).err()?;
        Some((Json::from(text), why.to_string()))
    }
}

/// A value that a Scale refuses, as Kubernetes prints it, with the reason.
type Wrong = (Json, String);

/// Returns the reason why replicas do not fit a Scale. A value of another type prints as 0.
fn wrong_number(object: &Json, path: &str) -> Option<Wrong> {
    match Scale::number(object, path) {
        Err(why) => Some((Json::from(0), why)),
        Ok(None | Some(0..=REPLICAS_MAX)) => None,
        Ok(Some(replicas @ ..0)) => Some((Json::from(replicas), "should be a non-negative integer".into())),
        Ok(Some(replicas)) => {
            let why = format!("should be less than or equal to {REPLICAS_MAX}");
            Some((Json::from(replicas), why))
        }
    }
}

/// Returns the error of Go's accessors for unstructured objects.
fn mistyped(path: &str, value: &Json, wanted: &str) -> String {
    let path = path.trim_start_matches('.');
    let (shown, kind) = (printed(value), go_type(value));
    format!(".{path} accessor error: {shown} is of the type {kind}, expected {wanted}")
}

/// Returns a value as Go prints it (`%v`).
fn printed(value: &Json) -> String {
    match value {
        Json::Null => "<nil>".to_owned(),
        Json::String(text) => text.clone(),
        Json::Array(items) => format!("[{}]", items.iter().map(printed).collect::<Vec<_>>().join(" ")),
        Json::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}:{}", printed(value)));
            format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
        }
        Json::Number(number) if !number.is_i64() => go_float(number.as_f64().unwrap_or(f64::NAN)),
        other => other.to_string(),
    }
}

fn go_type(value: &Json) -> &'static str {
    match value {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_i64() => "int64",
        Json::Number(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}
