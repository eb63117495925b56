//! Conversion of objects to and from `google.protobuf.Struct` without loss: a number that a double
//! cannot hold is refused, never rounded.
//!
//! A Struct has only doubles. JSON has integers, and a schema distinguishes `3` from `3.5`; so a
//! double without a fraction becomes an integer again, and `{"replicas": 3}` survives the round
//! trip.

use std::fmt;

pub use prost_types::Struct;
use prost_types::{ListValue, Value, value::Kind};
use serde_json::{Map, Number, Value as Json};

/// Largest absolute value up to which a double holds every integer: 2^53.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// A value without an equal in the other form. The caller can send another value, or use the HTTP
/// API for this object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrepresentable {
    /// Path of the value from the root of the object: `spec.sizes[2]`.
    pub field: String,
    /// Description of the value: `not a finite number`.
    pub problem: &'static str,
}

impl fmt::Display for Unrepresentable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for Unrepresentable {}

/// Converts the JSON of an object to a Struct.
///
/// # Errors
/// [`Unrepresentable`] for an integer that no double holds.
pub fn from_json(object: &Map<String, Json>) -> Result<Struct, Unrepresentable> {
    let field = |(key, value): (&String, &Json)| match kind_of(value) {
        Ok(kind) => Ok((key.clone(), Value { kind: Some(kind) })),
        Err(error) => Err(error.inside(key)),
    };
    Ok(Struct {
        fields: object.iter().map(field).collect::<Result<_, _>>()?,
    })
}

/// Converts a Struct to the JSON of an object. The codec bounds the nesting: it refuses more levels
/// than JSON may have.
///
/// # Errors
/// [`Unrepresentable`] for a number that JSON cannot hold, or a value without a kind.
pub fn to_json(object: Struct) -> Result<Map<String, Json>, Unrepresentable> {
    let field = |(key, value): (String, Value)| match json_of(value) {
        Ok(value) => Ok((key, value)),
        Err(error) => Err(error.inside(&key)),
    };
    object.fields.into_iter().map(field).collect()
}

fn kind_of(value: &Json) -> Result<Kind, Unrepresentable> {
    Ok(match value {
        Json::Null => Kind::NullValue(0),
        Json::Bool(value) => Kind::BoolValue(*value),
        Json::Number(number) => Kind::NumberValue(double_of(number)?),
        Json::String(value) => Kind::StringValue(value.clone()),
        Json::Array(items) => {
            let item = |(index, item)| match kind_of(item) {
                Ok(kind) => Ok(Value { kind: Some(kind) }),
                Err(error) => Err(error.inside(&format!("[{index}]"))),
            };
            Kind::ListValue(ListValue {
                values: items.iter().enumerate().map(item).collect::<Result<_, _>>()?,
            })
        }
        Json::Object(fields) => Kind::StructValue(from_json(fields)?),
    })
}

fn json_of(value: Value) -> Result<Json, Unrepresentable> {
    Ok(match value.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::BoolValue(value)) => Json::Bool(value),
        Some(Kind::NumberValue(value)) => Json::Number(number_of(value)?),
        Some(Kind::StringValue(value)) => Json::String(value),
        Some(Kind::ListValue(list)) => {
            let item = |(index, item)| json_of(item).map_err(|error| error.inside(&format!("[{index}]")));
            Json::Array(
                list.values
                    .into_iter()
                    .enumerate()
                    .map(item)
                    .collect::<Result<_, _>>()?,
            )
        }
        Some(Kind::StructValue(object)) => Json::Object(to_json(object)?),
    })
}

fn double_of(number: &Number) -> Result<f64, Unrepresentable> {
    let double = number.as_f64().ok_or_else(|| Unrepresentable::here("not a double"))?;
    if !number.is_f64() && double.abs() > EXACT_INTEGER_MAX - 1.0 {
        return Err(Unrepresentable::here(
            "an integer beyond 2^53, which a Struct cannot hold exactly",
        ));
    }
    Ok(double)
}

fn number_of(double: f64) -> Result<Number, Unrepresentable> {
    if double.fract() == 0.0 {
        if double.abs() > EXACT_INTEGER_MAX - 1.0 {
            return Err(Unrepresentable::here(
                "an integer beyond 2^53, which a Struct cannot hold exactly",
            ));
        }
        // No fraction and below 2^53: the cast changes nothing.
        return Ok(Number::from(double as i64));
    }
    Number::from_f64(double).ok_or_else(|| Unrepresentable::here("not a finite number"))
}

impl Unrepresentable {
    fn here(problem: &'static str) -> Self {
        Self {
            field: String::new(),
            problem,
        }
    }

    fn inside(self, parent: &str) -> Self {
        let dot = if self.field.is_empty() || self.field.starts_with('[') {
            ""
        } else {
            "."
        };
        Self {
            field: format!("{parent}{dot}{}", self.field),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Json) -> Map<String, Json> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn objects_survive_the_way_there_and_back() {
        let widget = object(json!({
            "apiVersion": "example.io/v1", "metadata": {"generation": 3, "labels": {"a.b/c": ""}},
            "spec": {"sizes": [1, 2.5, -4, 0], "on": true, "none": null, "empty": {}, "list": [[], {}],
                     "big": 9_007_199_254_740_991_i64, "small": -9_007_199_254_740_991_i64},
        }));
        assert_eq!(to_json(from_json(&widget).unwrap()).unwrap(), widget);
    }

    #[test]
    fn what_a_double_cannot_hold_is_refused_by_path() {
        let refused = |value| from_json(&object(value)).unwrap_err().to_string();
        let problem = "an integer beyond 2^53, which a Struct cannot hold exactly";
        assert_eq!(
            refused(json!({"spec": {"sizes": [1, 9_007_199_254_740_993_i64]}})),
            format!("spec.sizes[1]: {problem}")
        );
        assert_eq!(refused(json!({"a": [{"b": u64::MAX}]})), format!("a[0].b: {problem}"));
    }

    #[test]
    fn what_json_cannot_say_is_refused_by_path() {
        for (number, problem) in [
            (f64::NAN, "not a finite number"),
            (f64::INFINITY, "not a finite number"),
            (1e300, "an integer beyond 2^53, which a Struct cannot hold exactly"),
        ] {
            let value = Value {
                kind: Some(Kind::NumberValue(number)),
            };
            let got = to_json(Struct {
                fields: [("n".to_owned(), value)].into(),
            })
            .unwrap_err();
            assert_eq!(got.to_string(), format!("n: {problem}"));
        }
    }
}
