//! Errors about one field, with the texts of Kubernetes' `field.Error`.

use crate::{FieldPath, go_value::go_shown, text::distinct};
use std::fmt;

/// Bytes of a value that a message repeats: enough to recognize it, and no echo of a large body.
const VALUE_BYTES_MAX: usize = 800;
/// Bytes of an explanation: it may quote what it explains.
const DETAIL_BYTES_MAX: usize = 4096;

/// Kind of an error about a field. The reason that clients see is [`FieldErrorKind::reason`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldErrorKind {
    /// A value is missing.
    Required,
    /// A value may not repeat.
    Duplicate,
    /// A value is malformed.
    Invalid,
    /// A value is of the wrong type; prints as an invalid value.
    TypeInvalid,
    /// A value is not one of a closed set.
    NotSupported,
    /// A value is not allowed here.
    Forbidden,
    /// A string is too long (`detail` says the limit).
    TooLong,
    /// A list or map has too many entries.
    TooMany,
    /// Something that the value names does not exist.
    NotFound,
    /// The server failed.
    Internal,
}

impl FieldErrorKind {
    /// Returns the `reason` of the status cause, e.g. `FieldValueInvalid`.
    pub fn reason(self) -> &'static str {
        match self {
            FieldErrorKind::Required => "FieldValueRequired",
            FieldErrorKind::Duplicate => "FieldValueDuplicate",
            FieldErrorKind::Invalid => "FieldValueInvalid",
            FieldErrorKind::TypeInvalid => "FieldValueTypeInvalid",
            FieldErrorKind::NotSupported => "FieldValueNotSupported",
            FieldErrorKind::Forbidden => "FieldValueForbidden",
            FieldErrorKind::TooLong => "FieldValueTooLong",
            FieldErrorKind::TooMany => "FieldValueTooMany",
            FieldErrorKind::NotFound => "FieldValueNotFound",
            FieldErrorKind::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Duplicate => "Duplicate value",
            FieldErrorKind::Invalid | FieldErrorKind::TypeInvalid => "Invalid value",
            FieldErrorKind::NotSupported => "Unsupported value",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::TooLong => "Too long",
            FieldErrorKind::TooMany => "Too many",
            FieldErrorKind::NotFound => "Not found",
            FieldErrorKind::Internal => "Internal error",
        }
    }
}

/// Source of an error: how it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Finding {
    /// The text itself is wrong.
    #[default]
    Mistake,
    /// An object shows that rules do not convert it, or lose values of it.
    Counterexample,
    /// An object shows a value that one version accepts and another refuses.
    Misfit,
}

/// Error about one field. Prints as `spec.size: Invalid value: 0: must be positive`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Kind of the error.
    pub kind: FieldErrorKind,
    /// Path of the field.
    pub field: FieldPath,
    /// The offending value as it is printed (`"x"`, `3`), or empty where none is shown.
    pub value: String,
    /// The cause, and the fix.
    pub detail: String,
    /// How it was found.
    pub finding: Finding,
}

impl FieldError {
    fn new(kind: FieldErrorKind, field: &FieldPath, value: String, detail: String) -> Self {
        FieldError {
            kind,
            field: field.clone(),
            value,
            detail,
            finding: Finding::default(),
        }
    }

    /// Returns the error as one that was found in some way.
    #[must_use]
    pub fn found_as(self, finding: Finding) -> Self {
        FieldError { finding, ..self }
    }

    /// Reports a missing value.
    pub fn required(field: &FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, String::new(), detail.into())
    }

    /// Reports a malformed value, printed as JSON.
    pub fn invalid(field: &FieldPath, value: &crate::Json, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, go_shown(value), detail.into())
    }

    /// Reports a malformed value, printed as given (`"object"`, `0`, or nothing).
    pub fn invalid_text(field: &FieldPath, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, value.into(), detail.into())
    }

    /// Reports a value of the wrong type; `value` is printed as given.
    pub fn type_invalid(field: &FieldPath, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, field, value.into(), detail.into())
    }

    /// Reports a value outside a closed set.
    pub fn not_supported(field: &FieldPath, value: &crate::Json, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let detail = if list.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", list.join(", "))
        };
        Self::new(FieldErrorKind::NotSupported, field, go_shown(value), detail)
    }

    /// Reports a value that is not allowed.
    pub fn forbidden(field: &FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, String::new(), detail.into())
    }

    /// Reports a repeated value.
    pub fn duplicate(field: &FieldPath, value: &crate::Json) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, go_shown(value), String::new())
    }

    /// Reports a string of more than `max` bytes.
    pub fn too_long(field: &FieldPath, max: usize) -> Self {
        Self::new(
            FieldErrorKind::TooLong,
            field,
            String::new(),
            format!("may not be more than {max} bytes"),
        )
    }

    /// Reports more entries than `max`.
    pub fn too_many(field: &FieldPath, actual: usize, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        Self::new(
            FieldErrorKind::TooMany,
            field,
            actual.to_string(),
            format!("must have at most {max} {items}"),
        )
    }

    /// Reports a reference to an object that does not exist.
    pub fn not_found(field: &FieldPath, value: &crate::Json) -> Self {
        Self::new(FieldErrorKind::NotFound, field, go_shown(value), String::new())
    }

    /// Returns the message without the field, as a Status cause has it.
    pub fn body(&self) -> String {
        let mut out = self.kind.text().to_owned();
        for (part, max) in [(&self.value, VALUE_BYTES_MAX), (&self.detail, DETAIL_BYTES_MAX)] {
            if part.is_empty() {
                continue;
            }
            out.push_str(": ");
            out.push_str(beginning(part, max));
            if part.len() > max {
                out.push_str(&format!("… ({} bytes)", part.len()));
            }
        }
        out
    }
}

/// Returns the first bytes of a text, in whole characters.
fn beginning(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// Joins errors as Kubernetes' `utilerrors.Aggregate` prints them: one alone, more as `[a, b]`,
/// repeats once.
pub fn aggregate(errors: &[impl fmt::Display]) -> String {
    let mut texts = distinct(errors.iter().map(ToString::to_string));
    if texts.len() == 1 {
        texts.remove(0)
    } else {
        format!("[{}]", texts.join(", "))
    }
}

/// Returns true for the characters that Go's `unicode.IsPrint` accepts: letters, marks, numbers,
/// punctuation, symbols and the ASCII space.
pub fn is_printable(c: char) -> bool {
    // The second character of a text is escaped only if it is not printable.
    matches!(c, '"' | '\'' | '\\') || ['a', c].iter().collect::<String>().escape_debug().count() == 2
}

/// Quotes a text as Go's `%q` does.
pub fn go_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\t' => quoted.push_str("\\t"),
            '\n' => quoted.push_str("\\n"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            '\r' => quoted.push_str("\\r"),
            ' '..='~' => quoted.push(c),
            c if c.is_ascii() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if is_printable(c) => quoted.push(c),
            c if u32::from(c) < 0x10000 => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_quoted_as_go_quotes_them() {
        for (text, want) in [
            ("aé😀 \"\\", r#""aé😀 \"\\""#),
            ("\u{1}\u{7f}\t\u{b}", r#""\x01\x7f\t\v""#),
            ("a\u{200b}\u{a0}\u{85}e\u{301}", "\"a\\u200b\\u00a0\\u0085e\u{301}\""),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(go_quoted(text), want, "{text:?}");
            let shown = FieldError::invalid(&FieldPath::new("a"), &json!(text), "bad").to_string();
            assert_eq!(shown, format!("a: Invalid value: {want}: bad"));
        }
    }

    #[test]
    fn long_values_are_cut() {
        let text = FieldError::invalid(&FieldPath::new("a"), &json!("ü".repeat(100_000)), "bad").to_string();
        assert!(text.len() < 1000, "{}", text.len());
        assert!(text.ends_with("ü… (200002 bytes): bad"), "{text}");
    }

    #[test]
    fn errors_print_as_kubernetes_prints_them() {
        let at = FieldPath::new("spec").child("size");
        let rows = [
            (
                FieldError::invalid(&at, &json!("x"), "bad"),
                "spec.size: Invalid value: \"x\": bad",
            ),
            (FieldError::required(&at, ""), "spec.size: Required value"),
            (
                FieldError::too_many(&at, 2, 1),
                "spec.size: Too many: 2: must have at most 1 item",
            ),
            (FieldError::forbidden(&FieldPath::root(), "no"), "<nil>: Forbidden: no"),
            (
                FieldError::not_supported(&at, &json!("x"), &["a", "b"]),
                "spec.size: Unsupported value: \"x\": supported values: \"a\", \"b\"",
            ),
        ];
        for (error, want) in &rows {
            assert_eq!(error.to_string(), *want);
        }
        assert_eq!(
            aggregate(&[rows[1].0.clone(), rows[1].0.clone()]),
            "spec.size: Required value"
        );
        assert!(aggregate(&[rows[0].0.clone(), rows[1].0.clone()]).starts_with('['));
    }
}
