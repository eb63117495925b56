//! Printer columns of `kubectl get`.

use crate::jsonpath::JsonPath;
use insula_api::{FieldError, FieldPath, Json};

const TYPES: &str = "boolean,date,integer,number,string";
const FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";

/// A parsed printer column.
#[derive(Debug, Clone)]
pub struct Column {
    /// Heading of the column.
    pub name: String,
    /// Type of the cells: `boolean`, `date`, `integer`, `number` or `string`.
    pub kind: String,
    /// Format, a hint for clients; may be empty.
    pub format: String,
    /// The author's description, or a text with the path.
    pub description: String,
    /// Priority. Columns above 0 are shown in wide output only.
    pub priority: i64,
    /// `None` if the path does not parse: Kubernetes accepts such columns, and their cells stay
    /// empty.
    path: Option<JsonPath>,
}

impl Column {
    /// Parses `additionalPrinterColumns` of a validated definition.
    pub fn parse_all(columns: &Json) -> Vec<Column> {
        let list = columns.as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().map(Column::parse).collect()
    }

    /// Returns the column of tables for objects without columns of their own: the age.
    pub fn age() -> Column {
        Column {
            name: "Age".to_owned(),
            kind: "date".to_owned(),
            format: String::new(),
            description: "CreationTimestamp is a timestamp representing the server time when this object was created. \
                          It is not guaranteed to be set in happens-before order across separate operations. Clients \
                          may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by \
                          the system. Read-only. Null for lists. More info: \
                          https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
                .to_owned(),
            priority: 0,
            path: JsonPath::parse(".metadata.creationTimestamp").ok(),
        }
    }

    fn parse(column: &Json) -> Column {
        let text = |name: &str| column.get(name).and_then(Json::as_str).unwrap_or("").to_owned();
        let path = text("jsonPath");
        let description = match text("description") {
            empty if empty.is_empty() => format!("Custom resource definition column (in JSONPath format): {path}"),
            given => given,
        };
        Column {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description,
            priority: column.get("priority").and_then(Json::as_i64).unwrap_or(0),
            path: JsonPath::parse(&path).ok(),
        }
    }

    /// Returns the cell of an object; null if the value is missing or of another type. `age` turns
    /// a timestamp into the time since then, by the caller's clock.
    pub fn cell(&self, object: &Json, age: impl Fn(&str) -> String) -> Json {
        let Some(value) = self.path.as_ref().and_then(|path| path.first(object)) else {
            return Json::Null;
        };
        match (self.kind.as_str(), value) {
            ("string", Json::String(text)) => Json::from(text.as_str()),
            ("string", Json::Null) => Json::from("<no value>"),
            ("string", other) => Json::from(other.to_string()),
            ("integer", Json::Number(n)) => match (n.as_i64(), n.as_f64()) {
                (Some(n), _) => Json::from(n),
                (None, Some(n)) => Json::from(n as i64),
                (None, None) => Json::Null,
            },
            ("number", Json::Number(_)) | ("boolean", Json::Bool(_)) => value.clone(),
            ("date", Json::String(text)) => Json::from(age(text)),
            _ => Json::Null,
        }
    }
}

/// Checks `additionalPrinterColumns`. As in Kubernetes, errors name the path's field by its old
/// name, `JSONPath`.
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
        simple_path(text("jsonPath"), &at.child("JSONPath"), errors);
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
