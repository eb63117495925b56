//! Printer columns of `kubectl get`.

use crate::jsonpath::{JsonPath, PathError};
use insula_api::{FieldError, FieldPath, Json};

const TYPES: &str = "boolean,date,integer,number,string";
const FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";

/// Checks `additionalPrinterColumns`. As in Kubernetes, errors name the path's field by its old
/// name, `JSONPath`, and a path that does not parse is accepted: the column stays empty. A path
/// that nests too deep is refused.
pub(crate) fn validate(columns: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (i, column) in columns.as_array().into_iter().flatten().enumerate() {
        let at = path.index(i);
        let text = |name: &str| column.get(name).and_then(Json::as_str).unwrap_or("");
        if text("name").is_empty() {
            errors.push(FieldError::required(&at.child("name"), ""));
        }
        let one_of = |list: &str| format!("must be one of {list}");
        match text("type") {
            "" => errors.push(FieldError::required(&at.child("type"), one_of(TYPES))),
            kind if !TYPES.split(',').any(|t| t == kind) => {
                errors.push(FieldError::invalid(&at.child("type"), &Json::from(kind), one_of(TYPES)));
            }
            _ => {}
        }
        let format = text("format");
        if !format.is_empty() && !FORMATS.split(',').any(|f| f == format) {
            errors.push(FieldError::invalid(
                &at.child("format"),
                &Json::from(format),
                one_of(FORMATS),
            ));
        }
        let (given, at) = (text("jsonPath"), at.child("JSONPath"));
        if simple_path(given, &at, errors)
            && let Err(deep @ PathError::Depth { .. }) = JsonPath::parse(given)
        {
            errors.push(FieldError::invalid(&at, &Json::from(given), deep.to_string()));
        }
    }
}

/// Checks that a path is present and starts with a dot, and returns true if so. Kubernetes checks
/// no more.
pub(crate) fn simple_path(text: &str, path: &FieldPath, errors: &mut Vec<FieldError>) -> bool {
    if text.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !text.starts_with('.') {
        errors.push(FieldError::invalid(
            path,
            &Json::from(text),
            "must be a simple json path starting with .",
        ));
    } else {
        return true;
    }
    false
}
