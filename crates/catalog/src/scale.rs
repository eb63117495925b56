//! The values that a Scale shows, and their rules.
//!
//! A custom resource whose replicas a Scale cannot hold is refused as in Kubernetes. Definitions
//! made through v1beta1 have the stricter rules of the proposal for subresources: the replicas must
//! be there, the observed ones must be an integer, and the selector must parse.

use insula_api::{FieldError, FieldPath, Json, LabelSelector};

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
        let mut check = |path: &str, wrong: fn(&Scale, Option<&Json>) -> Option<String>| {
            let value = Scale::value(object, path);
            let is_unchanged = old.is_some_and(|old| Scale::value(old, path) == value);
            if !path.is_empty()
                && path.starts_with(prefix)
                && !is_unchanged
                && let Some(why) = wrong(self, value)
            {
                let value = value.unwrap_or(&Json::Null);
                errors.push(FieldError::invalid(&FieldPath::new(path), value, why));
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

    fn wrong_replicas(&self, replicas: Option<&Json>) -> Option<String> {
        let why = match replicas.and_then(Json::as_i64) {
            None if self.strict => "should be a non-negative integer",
            Some(..0) => "should be a non-negative integer",
            None | Some(0..=REPLICAS_MAX) => return None,
            Some(_) => "should be less than or equal to 2147483647",
        };
        Some(why.into())
    }

    fn wrong_status(&self, replicas: Option<&Json>) -> Option<String> {
        let wrong = self.strict && replicas.is_some_and(|replicas| !replicas.is_i64());
        wrong.then(|| "should be an integer".into())
    }

    fn wrong_selector(&self, selector: Option<&Json>) -> Option<String> {
        let selector = selector.filter(|_| self.strict)?;
        match selector.as_str() {
            None => Some("should be a label selector as a string".into()),
            Some(text) => LabelSelector::parse(text).err().map(|why| why.to_string()),
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
