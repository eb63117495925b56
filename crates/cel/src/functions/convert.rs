//! Conversions between types. Errors name the types, not the value.

use super::{Context, Function, global, made, text, time};
use crate::cost;
use crate::error::{EvalError, Overflowing, Readable, invalid, no_overload};
use crate::value::{Result, Val};
use std::rc::Rc;

pub(super) static FUNCTIONS: &[Function] = &[
    global(
        "int",
        &[
            "int64_to_int64: (int) -> int",
            "double_to_int64: (double) -> int",
            "duration_to_int64: (duration) -> int",
            "string_to_int64: (string) -> int",
            "timestamp_to_int64: (timestamp) -> int",
            "uint64_to_int64: (uint) -> int",
        ],
        int,
    ),
    global(
        "uint",
        &[
            "uint64_to_uint64: (uint) -> uint",
            "double_to_uint64: (double) -> uint",
            "int64_to_uint64: (int) -> uint",
            "string_to_uint64: (string) -> uint",
        ],
        uint,
    ),
    global(
        "double",
        &[
            "double_to_double: (double) -> double",
            "int64_to_double: (int) -> double",
            "string_to_double: (string) -> double",
            "uint64_to_double: (uint) -> double",
        ],
        double,
    ),
    global(
        "string",
        &[
            "string_to_string: (string) -> string",
            "bool_to_string: (bool) -> string",
            "bytes_to_string: (bytes) -> string",
            "double_to_string: (double) -> string",
            "duration_to_string: (duration) -> string",
            "int64_to_string: (int) -> string",
            "timestamp_to_string: (timestamp) -> string",
            "uint64_to_string: (uint) -> string",
            "ip_to_string: (net.IP) -> string",
            "cidr_to_string: (net.CIDR) -> string",
        ],
        string,
    ),
    global(
        "bool",
        &["bool_to_bool: (bool) -> bool", "string_to_bool: (string) -> bool"],
        bool,
    ),
    global(
        "bytes",
        &["bytes_to_bytes: (bytes) -> bytes", "string_to_bytes: (string) -> bytes"],
        bytes,
    ),
];

fn one<'s, 'v>(args: &'s [Val<'v>], name: &'static str) -> std::result::Result<&'s Val<'v>, EvalError> {
    match args {
        [value] => Ok(value),
        _ => Err(no_overload(name)),
    }
}

fn int<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let value = one(args, "int")?;
    if let Some(text) = value.as_str() {
        cx.budget.traverse(text.len())?;
        return text
            .parse()
            .map(Val::Int)
            .map_err(|_| EvalError::Unreadable(Readable::Int));
    }
    match value {
        Val::Int(i) => Ok(Val::Int(*i)),
        Val::Uint(u) => i64::try_from(*u)
            .map(Val::Int)
            .map_err(|_| EvalError::Overflow(Overflowing::Int)),
        // Both bounds are exclusive, as in cel-go: at ±2^63 a double cannot represent its
        // neighbors.
        Val::Double(d) if *d > -9_223_372_036_854_775_808.0 && *d < 9_223_372_036_854_775_808.0 => {
            Ok(Val::Int(*d as i64))
        }
        Val::Double(_) => Err(EvalError::Overflow(Overflowing::Int)),
        Val::Timestamp(t) => Ok(Val::Int(time::epoch_seconds(*t))),
        Val::Duration(nanos) => Ok(Val::Int(*nanos)),
        _ => Err(no_overload("int")),
    }
}

fn uint<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let value = one(args, "uint")?;
    if let Some(text) = value.as_str() {
        cx.budget.traverse(text.len())?;
        // Go accepts no plus sign.
        let number = text.parse().ok().filter(|_| !text.starts_with('+'));
        return number.map(Val::Uint).ok_or(EvalError::Unreadable(Readable::Uint));
    }
    match value {
        Val::Uint(u) => Ok(Val::Uint(*u)),
        Val::Int(i) => u64::try_from(*i)
            .map(Val::Uint)
            .map_err(|_| EvalError::Overflow(Overflowing::Uint)),
        Val::Double(d) if *d >= 0.0 && *d < 18_446_744_073_709_551_616.0 => Ok(Val::Uint(*d as u64)),
        Val::Double(_) => Err(EvalError::Overflow(Overflowing::Uint)),
        _ => Err(no_overload("uint")),
    }
}

fn double<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let value = one(args, "double")?;
    if let Some(text) = value.as_str() {
        cx.budget.traverse(text.len())?;
        // A number that overflows is an error; only a name stands for infinity.
        let finite = |d: &f64| !d.is_infinite() || !text.contains(|c: char| c.is_ascii_digit());
        let number = text.parse().ok().filter(finite);
        return number.map(Val::Double).ok_or(EvalError::Unreadable(Readable::Double));
    }
    match value {
        Val::Double(d) => Ok(Val::Double(*d)),
        Val::Int(i) => Ok(Val::Double(*i as f64)),
        Val::Uint(u) => Ok(Val::Double(*u as f64)),
        _ => Err(no_overload("double")),
    }
}

fn string<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let value = one(args, "string")?;
    let text = match value {
        Val::Str(_) | Val::String(_) => return Ok(value.clone()),
        Val::Bool(b) => return short(cx, if *b { "true" } else { "false" }),
        Val::Int(i) => return short(cx, Decimal::new(*i < 0, i.unsigned_abs()).text()),
        Val::Uint(u) => return short(cx, Decimal::new(false, *u).text()),
        Val::Double(d) => text::double_text(*d),
        Val::Bytes(bytes) => {
            cx.budget.traverse(bytes.len())?;
            std::str::from_utf8(bytes)
                .map_err(|_| invalid("invalid UTF-8 in bytes, cannot convert to string"))?
                .to_owned()
        }
        Val::Timestamp(t) => time::timestamp_text(*t),
        Val::Duration(nanos) => time::duration_text(*nanos),
        Val::Opaque(value) => value.text().ok_or_else(|| no_overload("string"))?,
        _ => return Err(no_overload("string")),
    };
    cx.budget.charge(cost::SYNTAX)?;
    made(cx, text)
}

/// Returns a text value from a buffer on the stack.
fn short<'v>(cx: &mut Context<'_>, text: &str) -> Result<'v> {
    cx.budget.allocation(text.len())?;
    Ok(Val::string(text))
}

/// Decimal text of a whole number, in a buffer on the stack.
struct Decimal {
    bytes: [u8; 20],
    start: usize,
}

impl Decimal {
    fn new(negative: bool, mut number: u64) -> Self {
        let mut decimal = Self {
            bytes: [0; 20],
            start: 20,
        };
        loop {
            decimal.put(b'0' + (number % 10) as u8);
            number /= 10;
            if number == 0 {
                break;
            }
        }
        if negative {
            decimal.put(b'-');
        }
        decimal
    }

    fn put(&mut self, byte: u8) {
        self.start = self.start.saturating_sub(1);
        self.bytes[self.start] = byte;
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[self.start..]).unwrap_or_default()
    }
}

fn bool<'v>(_: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let value = one(args, "bool")?;
    match (value, value.as_str()) {
        (Val::Bool(b), _) => Ok(Val::Bool(*b)),
        (_, Some("1" | "t" | "T" | "true" | "TRUE" | "True")) => Ok(Val::Bool(true)),
        (_, Some("0" | "f" | "F" | "false" | "FALSE" | "False")) => Ok(Val::Bool(false)),
        (_, Some(_)) => Err(EvalError::Unreadable(Readable::Bool)),
        _ => Err(no_overload("bool")),
    }
}

fn bytes<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let value = one(args, "bytes")?;
    if let Val::Bytes(bytes) = value {
        return Ok(Val::Bytes(Rc::clone(bytes)));
    }
    let text = value.as_str().ok_or_else(|| no_overload("bytes"))?;
    cx.budget.traverse(text.len())?;
    cx.budget.memory(text.len())?;
    Ok(Val::Bytes(text.as_bytes().into()))
}
