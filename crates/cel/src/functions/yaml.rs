//! The functions `yaml.encode` and `yaml.decode`: values as YAML text, and back. Only conversion
//! rules have them.

use super::documents::Reader;
use super::{Function, global};
use crate::cost::Budget;
use crate::error::{EvalError, invalid, no_overload};
use crate::functions::made;
use crate::json;
use crate::program::AbsenceMode;
use crate::value::{Outcome, Result, Val};
use serde::de::DeserializeSeed;
use serde_json::Value;

/// Maximum depth of a document. The JSON decoder has the same one.
const DEPTH_MAX: usize = 127;
/// Maximum number of values that aliases repeat. Budgets count each of them, too.
const REPEATED_MAX: usize = 10_000;

pub(super) static FUNCTIONS: &[Function] = &[
    global("yaml.encode", &["yaml_encode: (A) -> string"], |cx, a| match a {
        [value] => {
            let text = encode(value, cx.budget)?;
            made(cx, text)
        }
        _ => Err(no_overload("yaml.encode")),
    }),
    global("yaml.decode", &["yaml_decode_string: (string) -> dyn"], |cx, a| {
        let [value] = a else {
            return Err(no_overload("yaml.decode"));
        };
        let text = value.as_str().ok_or_else(|| no_overload("yaml.decode"))?;
        cx.budget.traverse(text.len())?;
        decode(text, cx.budget)
    }),
];

/// Writes a value as one YAML document in block style with sorted keys. Memory is charged before it
/// is taken.
fn encode(value: &Val<'_>, budget: &mut Budget) -> std::result::Result<String, EvalError> {
    let value = match json::outcome(value, AbsenceMode::Absent, budget)? {
        Outcome::Value(value) => value,
        Outcome::Absent => return Err(invalid("yaml.encode: an optional without a value has no YAML form")),
    };
    budget.memory(bytes_max(&value, 0))?;
    let text = serde_saphyr::to_string(&value).map_err(|_| invalid("yaml.encode: the value has no YAML form"))?;
    budget.traverse(text.len())?;
    Ok(text)
}

/// Returns an upper bound of a value's text: every line is indented, every character may be
/// escaped.
fn bytes_max(value: &Value, depth: usize) -> usize {
    /// Bytes of the longest escape of a byte: `\x00`.
    const ESCAPED: usize = 4;
    /// Bytes of a number, a colon, quotes and the line's end.
    const PLAIN: usize = 32;
    let line = PLAIN + 4 * depth;
    let text = |text: &str| ESCAPED * text.len() + line * (1 + text.lines().count());
    match value {
        Value::String(value) => text(value),
        Value::Array(items) => items.iter().map(|item| bytes_max(item, depth + 1)).sum::<usize>() + line,
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| text(key) + bytes_max(value, depth + 1);
            map.iter().map(entry).sum::<usize>() + line
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => line,
    }
}

/// Reads a YAML document. The error names line and column, and nothing of the text.
fn decode<'v>(text: &str, budget: &mut Budget) -> Result<'v> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            max_documents: 1,
            max_total_scalar_bytes: text.len().saturating_mul(2),
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: REPEATED_MAX,
        },
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        with_snippet: false,
    };
    let mut reader = Reader::new(budget);
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        reader.deserialize(deserializer)
    });
    match (reader.failure, read) {
        (Some(failure), _) => Err(failure),
        (None, Ok(value)) => Ok(value),
        (None, Err(serde_saphyr::Error::Budget { .. })) => Err(invalid(format!(
            "yaml.decode: a text is one document, nested at most {DEPTH_MAX} deep, with at most {REPEATED_MAX} values \
             by aliases"
        ))),
        (None, Err(error)) => {
            let place = error.location().map_or(String::new(), |at| {
                format!(" at line {} column {}", at.line(), at.column())
            });
            Err(invalid(format!("yaml.decode: not a YAML document{place}")))
        }
    }
}
