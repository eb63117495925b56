//! Conversion of values to JSON, charged: a small expression can repeat a large input many times.

use crate::compare::DEPTH_MAX;
use crate::cost::Budget;
use crate::error::{EvalError, invalid};
use crate::functions::time;
use crate::program::AbsenceMode;
use crate::value::Outcome;
use crate::value::{Val, key_text};
use serde_json::{Map, Number, Value};

/// Bytes of an item of an array besides its text.
const NODE_BYTES: usize = 32;
/// Bytes of a leaf of a map, which has slots for eleven entries and is half full at worst.
const LEAF_BYTES: usize = 640;
const LEAF_ENTRIES: usize = 6;

/// Returns the result of an evaluation; an empty optional is an absent value.
pub(crate) fn outcome(value: &Val<'_>, mode: AbsenceMode, budget: &mut Budget) -> Result<Outcome, EvalError> {
    match value {
        // The most frequent results are written in place, not moved out of another result.
        Val::Str(text) => {
            budget.allocation(text.len())?;
            Ok(Outcome::Value(Value::String((*text).to_owned())))
        }
        Val::Bool(b) => Ok(Outcome::Value(Value::Bool(*b))),
        Val::Optional(None) => Ok(Outcome::Absent),
        Val::Optional(Some(inner)) => outcome_of_some(inner, mode, budget),
        _ => Ok(Outcome::Value(to_json(value, mode, budget, DEPTH_MAX)?)),
    }
}

fn outcome_of_some(inner: &Val<'_>, mode: AbsenceMode, budget: &mut Budget) -> Result<Outcome, EvalError> {
    match inner {
        Val::Optional(_) => Err(invalid("an optional of an optional has no JSON form")),
        _ => Ok(Outcome::Value(to_json(inner, mode, budget, DEPTH_MAX)?)),
    }
}

fn to_json(value: &Val<'_>, mode: AbsenceMode, budget: &mut Budget, depth: usize) -> Result<Value, EvalError> {
    let depth = depth.checked_sub(1).ok_or(EvalError::DepthExceeded)?;
    Ok(match value {
        Val::Null => Value::Null,
        Val::Bool(b) => Value::Bool(*b),
        Val::Int(i) => Value::from(*i),
        Val::Uint(u) => Value::from(*u),
        Val::Double(d) => Number::from_f64(*d)
            .map(Value::Number)
            .ok_or_else(|| invalid("NaN and infinity have no JSON form"))?,
        Val::Str(s) => text(s, budget)?,
        Val::String(s) => text(s, budget)?,
        Val::Bytes(bytes) => {
            budget.allocation(bytes.len().div_ceil(3) * 4)?;
            Value::String(base64(bytes))
        }
        Val::JsonList(items, _) => {
            let mut made = array(items.len(), budget)?;
            for item in *items {
                made.push(to_json(&Val::from_json(item), mode, budget, depth)?);
            }
            Value::Array(made)
        }
        Val::List(list) => {
            let mut made = array(list.items.len(), budget)?;
            for item in list.items.iter().filter_map(|item| present(item, mode)) {
                made.push(to_json(item, mode, budget, depth)?);
            }
            Value::Array(made)
        }
        Val::JsonMap(fields, _) => {
            let mut made = object(fields.len(), budget)?;
            for (key, value) in *fields {
                budget.allocation(key.len())?;
                made.insert(key.clone(), to_json(&Val::from_json(value), mode, budget, depth)?);
            }
            Value::Object(made)
        }
        Val::Map(map) => {
            let mut made = object(map.entries.len(), budget)?;
            let entries = map.entries.iter();
            for (key, value) in entries.filter_map(|(key, value)| Some((key, present(value, mode)?))) {
                let key = key_text(key).ok_or_else(|| invalid("unsupported key type"))?;
                budget.allocation(key.len())?;
                made.insert(key, to_json(value, mode, budget, depth)?);
            }
            Value::Object(made)
        }
        Val::Timestamp(t) => Value::String(time::timestamp_text(*t)),
        Val::Duration(nanos) => Value::String(time::duration_text(*nanos)),
        Val::Opaque(opaque) => text(&opaque.text().ok_or_else(|| formless(value))?, budget)?,
        Val::Invalid(message) => return Err(invalid((**message).to_owned())),
        Val::Optional(_) | Val::Type(_) => return Err(formless(value)),
    })
}

/// Returns an entry or item as it is in the result. Where absence is a result, an optional stands
/// for its value, and one without is left out.
fn present<'m, 'v>(value: &'m Val<'v>, mode: AbsenceMode) -> Option<&'m Val<'v>> {
    match (value, mode) {
        (Val::Optional(inner), AbsenceMode::Absent) => inner.as_deref(),
        _ => Some(value),
    }
}

fn array(length: usize, budget: &mut Budget) -> Result<Vec<Value>, EvalError> {
    budget.allocation(length * NODE_BYTES)?;
    Ok(Vec::with_capacity(length))
}

fn object(length: usize, budget: &mut Budget) -> Result<Map<String, Value>, EvalError> {
    budget.memory(length.div_ceil(LEAF_ENTRIES) * LEAF_BYTES)?;
    Ok(Map::new())
}

fn formless(value: &Val<'_>) -> EvalError {
    invalid(format!("a value of type '{}' has no JSON form", value.type_name()))
}

fn text(text: &str, budget: &mut Budget) -> Result<Value, EvalError> {
    budget.allocation(text.len())?;
    Ok(Value::String(text.to_owned()))
}

/// Encodes bytes as standard base64 with padding, their JSON form.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |w, b| (w << 8) | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            if i <= chunk.len() {
                text.push(char::from(ALPHABET[(word >> (18 - 6 * i)) as usize & 63]));
            } else {
                text.push('=');
            }
        }
    }
    text
}
