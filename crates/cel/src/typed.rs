//! Reading of JSON by its declaration, as in Kubernetes (`UnstructuredToVal`): a text of format
//! `date-time` is a timestamp, a number without a fraction is a double where the schema says
//! `number`, and a null field of an object with declared fields is absent.

use crate::decl::{Decl, Shape};
use crate::functions::time;
use crate::types::Type;
use crate::value::{Declared, Val};
use jiff::civil::DateTime;
use serde_json::{Map, Value};

/// Returns a declaration unless it is `dyn`.
pub(crate) fn known(decl: &Decl) -> Declared<'_> {
    match decl.shape() {
        Shape::Scalar(Type::Dyn) => None,
        _ => Some(decl),
    }
}

/// Returns the declaration of a list's items.
pub(crate) fn items_of(list: Declared<'_>) -> Declared<'_> {
    match list?.shape() {
        Shape::List { items, .. } => known(items),
        _ => None,
    }
}

impl<'v> Val<'v> {
    /// Returns a value read by its declaration.
    #[inline]
    pub(crate) fn read(json: &'v Value, declared: Declared<'v>) -> Self {
        match declared {
            None => Self::from_json(json),
            Some(decl) => read(json, decl),
        }
    }

    /// Returns the value under a text key; `None` also if this is no map, see `is_map`.
    pub(crate) fn field(&self, name: &str) -> Option<Val<'v>> {
        match self {
            Self::JsonMap(fields, None) => fields.get(name).map(Val::from_json),
            Self::JsonMap(fields, Some(decl)) => field(fields, name, decl),
            Self::Map(map) => map.get_str(name).cloned(),
            _ => None,
        }
    }

    /// Returns the value of the entry that [`Val::entries`] has under a text key.
    pub(crate) fn entry(&self, key: &str) -> Option<Val<'v>> {
        match self {
            Self::JsonMap(fields, Some(decl)) if !is_map(decl) => field(fields, &decl.written(key)?.name, decl),
            _ => self.field(key),
        }
    }

    /// Returns the fields of an object that are none of its entries: those that its schema does not
    /// declare, and those whose names no expression can write.
    pub(crate) fn unknown_fields(&self) -> Option<impl Iterator<Item = (&'v String, &'v Value)> + use<'v>> {
        match self {
            Self::JsonMap(fields, Some(decl)) if !is_map(decl) => {
                let (fields, decl) = (*fields, *decl);
                Some(fields.iter().filter(move |(name, _)| decl.field(name).is_none()))
            }
            _ => None,
        }
    }

    /// Returns the entries of a map, in key order.
    pub(crate) fn entries(&self) -> Option<Vec<(Val<'v>, Val<'v>)>> {
        match self {
            Self::JsonMap(fields, None) => Some(fields.iter().map(|(k, v)| (Val::Str(k), Val::from_json(v))).collect()),
            Self::JsonMap(fields, Some(decl)) => Some(entries(fields, decl)),
            Self::Map(map) => Some(map.entries.clone()),
            _ => None,
        }
    }
}

/// Reads a value by its declaration; `Val::Invalid` if it does not fit.
pub(crate) fn read<'v>(json: &'v Value, decl: &'v Decl) -> Val<'v> {
    match (decl.shape(), json) {
        // In a valid object only nullable values are null.
        (_, Value::Null) => Val::Null,
        (Shape::Object { .. } | Shape::Map { .. }, Value::Object(fields)) => Val::JsonMap(fields, Some(decl)),
        (Shape::Object { .. } | Shape::Map { .. }, _) => {
            wrong("invalid data, expected a map for the provided schema with type=object")
        }
        (Shape::List { .. }, Value::Array(items)) => Val::JsonList(items, Some(decl)),
        (Shape::List { .. }, _) => wrong("invalid data, expected an array for the provided schema with type=array"),
        (Shape::Scalar(ty), _) => scalar(json, ty),
    }
}

fn scalar<'v>(json: &'v Value, ty: &Type) -> Val<'v> {
    match (ty, json) {
        (Type::String, Value::String(text)) => Val::Str(text),
        (Type::Bool, Value::Bool(b)) => Val::Bool(*b),
        (Type::Int, Value::Number(n)) => match (n.as_i64(), n.as_f64()) {
            (Some(i), _) => Val::Int(i),
            // `1.0` is valid where the schema says `integer`.
            (None, Some(d)) if d.fract() == 0.0 && d.abs() < 9.3e18 => Val::Int(d as i64),
            _ => unexpected("int", json),
        },
        (Type::Double, Value::Number(n)) => Val::Double(n.as_f64().unwrap_or(f64::NAN)),
        (Type::Timestamp, Value::String(text)) => match read_timestamp(text) {
            Some(time) => Val::Timestamp(time),
            None => Val::Invalid(format!("Invalid date-time formatted string {text}").into()),
        },
        (Type::Duration, Value::String(text)) => match read_duration(text) {
            Some(nanos) => Val::Duration(nanos),
            None => Val::Invalid(format!("Invalid duration {text}: unable to parse {text} as duration").into()),
        },
        (Type::Bytes, Value::String(text)) => match decode_base64(text) {
            Some(bytes) => Val::Bytes(bytes.into()),
            None => Val::Invalid(format!("Invalid byte formatted string {text}").into()),
        },
        (Type::String | Type::Timestamp | Type::Duration | Type::Bytes, _) => unexpected("string", json),
        (Type::Bool, _) => unexpected("bool", json),
        (Type::Int, _) => unexpected("int", json),
        (Type::Double, _) => unexpected("float", json),
        _ => Val::from_json(json),
    }
}

fn wrong<'v>(message: &str) -> Val<'v> {
    Val::Invalid(message.into())
}

/// Returns the error for an unexpected type, with the type names of Kubernetes' own JSON reader.
fn unexpected<'v>(wanted: &str, json: &Value) -> Val<'v> {
    let found = match json {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    Val::Invalid(format!("invalid data, expected {wanted}, got {found}").into())
}

/// Returns a field of a map, or a declared field of an object.
pub(crate) fn field<'v>(fields: &'v Map<String, Value>, name: &str, decl: &'v Decl) -> Option<Val<'v>> {
    let value = fields.get(name)?;
    match decl.shape() {
        Shape::Map { values } => Some(Val::read(value, known(values))),
        Shape::Object { .. } => match value {
            Value::Null => None,
            value => Some(Val::read(value, known(&decl.field(name)?.decl))),
        },
        _ => Some(Val::from_json(value)),
    }
}

/// Returns true if the keys are data rather than declared fields.
pub(crate) fn is_map(decl: &Decl) -> bool {
    matches!(decl.shape(), Shape::Map { .. })
}

/// Returns the entries in key order. Fields of an object have their names in expressions.
pub(crate) fn entries<'v>(fields: &'v Map<String, Value>, decl: &'v Decl) -> Vec<(Val<'v>, Val<'v>)> {
    let entry = |(key, value): (&'v String, &'v Value)| {
        let key = match decl.shape() {
            Shape::Object { .. } => &*decl.field(key)?.written,
            _ => key,
        };
        Some((Val::Str(key), value))
    };
    let mut found: Vec<_> = fields
        .iter()
        .filter_map(entry)
        .filter_map(|(key, value)| {
            let value = match decl.shape() {
                Shape::Map { values } => Val::read(value, known(values)),
                Shape::Object { .. } => field(fields, &decl.written(key.as_str()?)?.name, decl)?,
                _ => Val::from_json(value),
            };
            Some((key, value))
        })
        .collect();
    // Escapes may change the order.
    found.sort_unstable_by(|(a, _), (b, _)| a.as_str().cmp(&b.as_str()));
    found
}

/// Parses the formats `date-time` and `date`, case-insensitively.
fn read_timestamp(text: &str) -> Option<DateTime> {
    let upper = text.to_ascii_uppercase();
    time::parse_timestamp(&upper).or_else(|| {
        let date = upper.len() == "dddd-dd-dd".len();
        date.then(|| time::parse_timestamp(&(upper + "T00:00:00Z"))).flatten()
    })
}

/// Parses the format `duration` into nanoseconds: Go's syntax, or numbers with units in words (`2
/// days 3 hours`).
fn read_duration(text: &str) -> Option<i64> {
    insula_goformat::duration::parse(text).ok().or_else(|| {
        let (mut total, mut rest, mut any) = (0_i64, text, false);
        while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
            let number = rest.get(start..)?;
            let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
            let (digits, after) = number.split_at(end);
            let after = after.trim_start();
            let end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
            let (unit, after) = after.split_at(end);
            rest = after;
            if let Some(nanos) = unit_nanos(&unit.to_lowercase()) {
                total = total.checked_add(digits.parse::<i64>().ok()?.checked_mul(nanos)?)?;
                any = true;
            }
        }
        any.then_some(total)
    })
}

fn unit_nanos(unit: &str) -> Option<i64> {
    // Spellings of each unit; the last one may have any suffix (`minutes`, `days`).
    const UNITS: [(&[&str], i64); 8] = [
        (&["ns", "nano"], 1),
        (&["us", "µs", "micro"], 1_000),
        (&["ms", "milli"], 1_000_000),
        (&["s", "sec"], 1_000_000_000),
        (&["m", "min"], 60 * 1_000_000_000),
        (&["h", "hr", "hour"], 3_600 * 1_000_000_000),
        (&["d", "day"], 86_400 * 1_000_000_000),
        (&["w", "wk", "week"], 604_800 * 1_000_000_000),
    ];
    let found = UNITS
        .iter()
        .find(|(names, _)| names.contains(&unit) || names.last().is_some_and(|n| unit.starts_with(n)))?;
    Some(found.1)
}

/// Decodes base64 with padding, in the standard or the URL alphabet.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    if !bytes.len().is_multiple_of(4) {
        return None;
    }
    let padding = bytes.iter().rev().take_while(|b| **b == b'=').count();
    if padding > 2 {
        return None;
    }
    let mut decoded = Vec::with_capacity(bytes.len() / 4 * 3);
    for chunk in bytes.get(..bytes.len() - padding)?.chunks(4) {
        let mut word = 0_u32;
        for byte in chunk {
            let sextet = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                _ => return None,
            };
            word = (word << 6) | u32::from(sextet);
        }
        word <<= 6 * (4 - chunk.len());
        let taken = chunk.len() * 6 / 8;
        decoded.extend(word.to_be_bytes().get(1..=taken).unwrap_or_default());
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read() {
        for (text, want) in [
            ("", Some("")),
            ("YQ==", Some("a")),
            ("YWI=", Some("ab")),
            ("YWJj", Some("abc")),
            ("YWJ", None),
            ("YW=j", None),
            ("====", None),
        ] {
            assert_eq!(decode_base64(text).as_deref(), want.map(str::as_bytes), "{text}");
        }
    }
}
