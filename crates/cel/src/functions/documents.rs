//! The functions `json.encode` and `json.decode`: values as JSON text, and back. Only conversion
//! rules have them.

use super::{Function, global};
use crate::compare::DEPTH_MAX;
use crate::cost::{self, Budget};
use crate::error::{EvalError, invalid, no_overload};
use crate::functions::{made, time};
use crate::json::base64;
use crate::value::{MapVal, Result, Val, key_text};
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

type Unit = std::result::Result<(), EvalError>;

pub(super) static FUNCTIONS: &[Function] = &[
    global("json.encode", &["json_encode: (A) -> string"], |cx, a| match a {
        [value] => {
            let mut text = String::new();
            write(value, &mut text, cx.budget, DEPTH_MAX)?;
            made(cx, text)
        }
        _ => Err(no_overload("json.encode")),
    }),
    global("json.decode", &["json_decode_string: (string) -> dyn"], |cx, a| {
        let [value] = a else {
            return Err(no_overload("json.decode"));
        };
        let text = value.as_str().ok_or_else(|| no_overload("json.decode"))?;
        cx.budget.traverse(text.len())?;
        decode(text, cx.budget)
    }),
];

/// Writes a value as compact JSON with sorted keys. Memory is charged before it is taken.
fn write(value: &Val<'_>, out: &mut String, budget: &mut Budget, depth: usize) -> Unit {
    let depth = depth.checked_sub(1).ok_or(EvalError::DepthExceeded)?;
    budget.charge(1)?;
    match value {
        Val::Null => push("null", out, budget),
        Val::Bool(b) => push(if *b { "true" } else { "false" }, out, budget),
        Val::Int(i) => push(&i.to_string(), out, budget),
        Val::Uint(u) => push(&u.to_string(), out, budget),
        Val::Double(d) => push(&double(*d)?, out, budget),
        Val::Str(text) => quoted(text, out, budget),
        Val::String(text) => quoted(text, out, budget),
        Val::Bytes(bytes) => {
            budget.allocation(bytes.len().div_ceil(3) * 4)?;
            quoted(&base64(bytes), out, budget)
        }
        Val::JsonList(items, _) => {
            let mut between = "[";
            for item in *items {
                push(between, out, budget)?;
                write(&Val::from_json(item), out, budget, depth)?;
                between = ",";
            }
            push(if items.is_empty() { "[]" } else { "]" }, out, budget)
        }
        Val::JsonMap(fields, _) => {
            let mut between = "{";
            for (key, value) in *fields {
                push(between, out, budget)?;
                quoted(key, out, budget)?;
                push(":", out, budget)?;
                write(&Val::from_json(value), out, budget, depth)?;
                between = ",";
            }
            push(if fields.is_empty() { "{}" } else { "}" }, out, budget)
        }
        Val::List(list) => {
            let mut between = "[";
            for item in &list.items {
                push(between, out, budget)?;
                write(item, out, budget, depth)?;
                between = ",";
            }
            push(if list.items.is_empty() { "[]" } else { "]" }, out, budget)
        }
        Val::Map(map) => entries(map, out, budget, depth),
        Val::Timestamp(time) => quoted(&time::timestamp_text(*time), out, budget),
        Val::Duration(nanos) => quoted(&time::duration_text(*nanos), out, budget),
        Val::Opaque(opaque) => match opaque.text() {
            Some(text) => quoted(&text, out, budget),
            None => Err(formless(value)),
        },
        Val::Optional(Some(inner)) => write(inner, out, budget, depth),
        Val::Invalid(message) => Err(invalid((**message).to_owned())),
        Val::Optional(None) | Val::Type(_) => Err(formless(value)),
    }
}

fn entries(map: &MapVal<'_>, out: &mut String, budget: &mut Budget, depth: usize) -> Unit {
    let mut between = "{";
    for (key, value) in &map.entries {
        push(between, out, budget)?;
        let key = key_text(key).ok_or_else(|| invalid("unsupported key type"))?;
        quoted(&key, out, budget)?;
        push(":", out, budget)?;
        write(value, out, budget, depth)?;
        between = ",";
    }
    push(if map.entries.is_empty() { "{}" } else { "}" }, out, budget)
}

fn push(text: &str, out: &mut String, budget: &mut Budget) -> Unit {
    budget.traverse(text.len())?;
    // A growing text takes up to twice its length.
    budget.memory(text.len())?;
    out.push_str(text);
    Ok(())
}

fn quoted(text: &str, out: &mut String, budget: &mut Budget) -> Unit {
    budget.allocation(text.len())?;
    push(&Value::from(text).to_string(), out, budget)
}

/// Returns a number in JSON. A whole one has no fraction, as in Go.
fn double(number: f64) -> std::result::Result<String, EvalError> {
    if !number.is_finite() {
        return Err(invalid("json.encode: NaN and infinity have no JSON form"));
    }
    Ok(match number.fract() == 0.0 && number.abs() < 1e21 {
        true => format!("{number:.0}"),
        false => Value::from(number).to_string(),
    })
}

fn formless(value: &Val<'_>) -> EvalError {
    invalid(format!(
        "json.encode: a value of type '{}' has no JSON form",
        value.type_name()
    ))
}

/// Reads a JSON text. The error names line and column.
fn decode<'v>(text: &str, budget: &mut Budget) -> Result<'v> {
    let mut reader = Reader::new(budget);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = reader.deserialize(&mut deserializer);
    let read = read.and_then(|value| deserializer.end().map(|()| value));
    match (reader.failure, read) {
        (Some(failure), _) => Err(failure),
        (None, Ok(value)) => Ok(value),
        // Only tokens of the syntax are quoted, never a part of the text.
        (None, Err(error)) => Err(invalid(format!("json.decode: {error}").replace('`', ""))),
    }
}

/// Reader of documents into values, which charges for each before it is made.
pub(super) struct Reader<'b> {
    budget: &'b mut Budget,
    /// The budget's error, which must not become a message.
    pub(super) failure: Option<EvalError>,
}

impl<'b> Reader<'b> {
    pub(super) fn new(budget: &'b mut Budget) -> Reader<'b> {
        Reader { budget, failure: None }
    }

    fn pay<E: Error>(&mut self, bytes: usize) -> std::result::Result<(), E> {
        let paid = self.budget.charge(cost::ITEM).and_then(|()| self.budget.memory(bytes));
        paid.map_err(|failure| {
            self.failure = Some(failure);
            E::custom("the budget is used up")
        })
    }

    fn text<'v, E: Error>(&mut self, text: &str) -> std::result::Result<Val<'v>, E> {
        self.pay(text.len() + VALUE_BYTES)?;
        Ok(Val::string(text))
    }
}

/// Bytes of a value in a list, whose room may double when it grows.
const VALUE_BYTES: usize = 2 * size_of::<Val<'_>>();
/// Bytes of an entry of a map while it is read and sorted, without the key's text.
const ENTRY_BYTES: usize = 8 * size_of::<Val<'_>>();

/// Reads one value, at any depth. The decoder bounds the depth.
impl<'de> DeserializeSeed<'de> for &mut Reader<'_> {
    type Value = Val<'static>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Reader<'_> {
    type Value = Val<'static>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> std::result::Result<Self::Value, E> {
        Ok(Val::Null)
    }

    fn visit_bool<E>(self, b: bool) -> std::result::Result<Self::Value, E> {
        Ok(Val::Bool(b))
    }

    fn visit_i64<E>(self, i: i64) -> std::result::Result<Self::Value, E> {
        Ok(Val::Int(i))
    }

    fn visit_u64<E>(self, u: u64) -> std::result::Result<Self::Value, E> {
        Ok(i64::try_from(u).map_or(Val::Uint(u), Val::Int))
    }

    fn visit_f64<E>(self, d: f64) -> std::result::Result<Self::Value, E> {
        Ok(Val::Double(d))
    }

    fn visit_str<E: Error>(self, text: &str) -> std::result::Result<Self::Value, E> {
        self.text(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        self.pay(VALUE_BYTES)?;
        while let Some(item) = items.next_element_seed(&mut *self)? {
            self.pay(VALUE_BYTES)?;
            list.push(item);
        }
        Ok(Val::list(list))
    }

    /// Reads an object. Of equal keys the last counts, as in Go.
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> std::result::Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        self.pay(VALUE_BYTES)?;
        while let Some(key) = fields.next_key::<String>()? {
            self.pay(key.len() + ENTRY_BYTES)?;
            let value = fields.next_value_seed(&mut *self)?;
            map.insert(key, value);
        }
        let entries = map.into_iter().map(|(key, value)| (Val::string(key), value)).collect();
        Ok(Val::Map(Rc::new(MapVal { entries })))
    }
}
