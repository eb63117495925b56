//! Numbers as in Kubernetes: 64-bit integers or floating point. Integers compare exactly.

use crate::node::Type;
use insula_api::{Json, go_float};

/// The largest integer that floating-point JSON numbers represent exactly.
const EXACT_MAX: f64 = 9_007_199_254_740_991.0;

/// A number as Kubernetes' decoder holds it.
#[derive(Clone, Copy)]
pub(crate) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    pub(crate) fn from_json(number: &serde_json::Number) -> Number {
        match number.as_i64() {
            Some(int) => Number::Int(int),
            None => Number::Float(number.as_f64().unwrap_or(f64::NAN)),
        }
    }

    pub(crate) fn is_whole(self) -> bool {
        match self {
            Number::Int(_) => true,
            Number::Float(f) => f.fract() == 0.0 && f.abs() <= EXACT_MAX,
        }
    }
}

/// Compares two values; `1` and `1.0` are equal.
pub(crate) fn same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) if a != b => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a == b,
            _ => a.as_f64() == b.as_f64(),
        },
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && same(a, b))
        }
        _ => a == b,
    }
}

pub(crate) fn in_range(number: Number, kind: Type, format: &str) -> bool {
    match (kind, number) {
        (Type::Integer, Number::Float(f)) if !number.is_whole() || f.abs() > EXACT_MAX => false,
        (Type::Integer, Number::Float(f)) => in_range(Number::Int(f as i64), kind, format),
        (Type::Integer, Number::Int(n)) => match format {
            "int32" => i32::try_from(n).is_ok(),
            "uint32" => u32::try_from(n).is_ok(),
            "uint64" => n >= 0,
            _ => true,
        },
        (Type::Number, Number::Float(f)) if matches!(format, "float" | "float32") => {
            !(f.is_finite() && (f as f32).is_infinite())
        }
        _ => true,
    }
}

/// Compares a number with a bound; exact for integers, also against fractional bounds.
pub(crate) fn compare(number: Number, bound: f64) -> std::cmp::Ordering {
    use std::cmp::Ordering::Equal;
    match number {
        Number::Float(f) => f.partial_cmp(&bound).unwrap_or(Equal),
        Number::Int(n) => {
            let near = (n as f64).partial_cmp(&bound).unwrap_or(Equal);
            // Rounding can make unequal numbers equal, but never reverse their order.
            if near.is_eq() {
                i128::from(n).cmp(&(bound as i128))
            } else {
                near
            }
        }
    }
}

pub(crate) fn is_multiple(number: Number, step: f64) -> bool {
    match number {
        Number::Int(n) if step.fract() == 0.0 && step <= EXACT_MAX => n % (step as i64) == 0,
        Number::Int(n) => (n as f64 / step).fract() == 0.0,
        Number::Float(f) => (f / step).fract() == 0.0,
    }
}

/// Formats a bound as Go does: exactly beside an integer, as `%v` of a float beside a float.
pub(crate) fn shown(bound: f64, beside: Number) -> String {
    if bound.fract() == 0.0 && bound.abs() <= EXACT_MAX && matches!(beside, Number::Int(_)) {
        return format!("{}", bound as i64);
    }
    go_float(bound)
}
