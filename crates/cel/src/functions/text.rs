//! `format`: the printf of CEL's strings extension, and the text of numbers as Go writes it.

use super::{Context, Function, made, member, time};
use crate::cost::Budget;
use crate::error::{EvalError, invalid, no_overload};
use crate::eval::Result;
use crate::value::Val;
use std::fmt::Write;

pub(super) static FUNCTIONS: &[Function] = &[member(
    "format",
    &["string_format: string.(list(dyn)) -> string"],
    format,
)];

type Unit = std::result::Result<(), EvalError>;

/// Digits that a `%.nf` may ask for.
const PRECISION_MAX: usize = 100;
/// Depth of lists and maps shown by `%s`.
const SHOWN_DEPTH_MAX: usize = 64;

fn format<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [template, list] = args else {
        return Err(no_overload("format"));
    };
    let (template, values) = template.as_str().zip(list.items()).ok_or(no_overload("format"))?;
    cx.budget.traverse(template.len())?;
    let mut out = String::new();
    let mut used = 0;
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let (precision, after) = precision(after)?;
        let Some(verb) = after.chars().next() else {
            return Err(invalid("unexpected end of format string"));
        };
        rest = &after[verb.len_utf8()..];
        let value = values
            .get(used)
            .ok_or_else(|| invalid(format!("index {used} out of range")))?;
        used += 1;
        let start = out.len();
        clause(verb, precision, &value, &mut out, cx.budget)?;
        cx.budget.traverse(out.len() - start)?;
    }
    out.push_str(rest);
    if used < values.len() {
        return Err(invalid("too many arguments supplied to string.format"));
    }
    made(cx, out)
}

fn precision(after: &str) -> std::result::Result<(Option<usize>, &str), EvalError> {
    let Some(digits) = after.strip_prefix('.') else {
        return Ok((None, after));
    };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let precision = digits[..end].parse::<usize>().ok().filter(|p| *p <= PRECISION_MAX);
    let precision = precision.ok_or_else(|| invalid("invalid precision in format string"))?;
    Ok((Some(precision), &digits[end..]))
}

fn clause(verb: char, precision: Option<usize>, value: &Val<'_>, out: &mut String, budget: &mut Budget) -> Unit {
    let wrong = || {
        invalid(format!(
            "no formatting function for %{verb} and type {}",
            value.type_name()
        ))
    };
    match (verb, value) {
        ('s', _) => return show(value, out, budget, SHOWN_DEPTH_MAX),
        ('d', Val::Int(i)) => write!(out, "{i}"),
        ('d', Val::Uint(u)) => write!(out, "{u}"),
        ('f', _) => write!(out, "{:.*}", precision.unwrap_or(6), number(value).ok_or_else(wrong)?),
        ('e', _) => {
            out.push_str(&exponent(number(value).ok_or_else(wrong)?, precision.unwrap_or(6)));
            Ok(())
        }
        ('b', Val::Bool(b)) => write!(out, "{}", i32::from(*b)),
        ('b', Val::Int(i)) => signed(out, *i, |u| format!("{u:b}")),
        ('b', Val::Uint(u)) => write!(out, "{u:b}"),
        ('o', Val::Int(i)) => signed(out, *i, |u| format!("{u:o}")),
        ('o', Val::Uint(u)) => write!(out, "{u:o}"),
        ('x', Val::Int(i)) => signed(out, *i, |u| format!("{u:x}")),
        ('X', Val::Int(i)) => signed(out, *i, |u| format!("{u:X}")),
        ('x', Val::Uint(u)) => write!(out, "{u:x}"),
        ('X', Val::Uint(u)) => write!(out, "{u:X}"),
        ('x' | 'X', _) => {
            let bytes = match value {
                Val::Bytes(bytes) => &bytes[..],
                _ => value.as_str().ok_or_else(wrong)?.as_bytes(),
            };
            budget.memory(bytes.len() * 2)?;
            bytes.iter().try_for_each(|b| {
                if verb == 'x' {
                    write!(out, "{b:02x}")
                } else {
                    write!(out, "{b:02X}")
                }
            })
        }
        ('d' | 'b' | 'o', _) => return Err(wrong()),
        _ => return Err(invalid(format!("unrecognized formatting clause \"{verb}\""))),
    }
    .map_err(|_| wrong())
}

fn number(value: &Val<'_>) -> Option<f64> {
    match value {
        Val::Double(d) => Some(*d),
        Val::Int(i) => Some(*i as f64),
        Val::Uint(u) => Some(*u as f64),
        _ => None,
    }
}

fn signed(out: &mut String, number: i64, digits: impl Fn(u64) -> String) -> std::fmt::Result {
    if number < 0 {
        out.push('-');
    }
    out.push_str(&digits(number.unsigned_abs()));
    Ok(())
}

/// `1.5e+06`: Go writes at least two digits of exponent, and its sign.
fn exponent(number: f64, precision: usize) -> String {
    go_exponent(&format!("{number:.precision$e}"))
}

fn go_exponent(text: &str) -> String {
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |d| ('-', d));
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text.to_owned(),
    }
}

/// A double as Go's `FormatFloat(f, 'g', -1, 64)`: shortest digits, exponents below -4 and from 6.
pub(super) fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let exponent: i32 = scientific
        .split_once('e')
        .and_then(|(_, e)| e.parse().ok())
        .unwrap_or(0);
    if number != 0.0 && !(-4..6).contains(&exponent) {
        go_exponent(&scientific)
    } else {
        format!("{number}")
    }
}

/// `%s`: text for a person; lists and maps in CEL's notation.
fn show(value: &Val<'_>, out: &mut String, budget: &mut Budget, depth: usize) -> Unit {
    let depth = depth.checked_sub(1).ok_or(EvalError::DepthExceeded)?;
    budget.charge(1)?;
    if let Some(text) = value.as_str() {
        budget.memory(text.len())?;
        out.push_str(text);
        return Ok(());
    }
    if let Some(items) = value.items() {
        out.push('[');
        for (i, item) in items.iter().enumerate() {
            out.push_str(if i == 0 { "" } else { ", " });
            show(&item, out, budget, depth)?;
        }
        out.push(']');
        return Ok(());
    }
    if let Some(entries) = value.entries() {
        budget.memory(entries.len() * 2 * size_of::<Val<'_>>())?;
        out.push('{');
        for (i, (key, value)) in entries.iter().enumerate() {
            out.push_str(if i == 0 { "" } else { ", " });
            show(key, out, budget, depth)?;
            out.push_str(": ");
            show(value, out, budget, depth)?;
        }
        out.push('}');
        return Ok(());
    }
    let text = match value {
        Val::Null => "null".to_owned(),
        Val::Bool(b) => b.to_string(),
        Val::Int(i) => i.to_string(),
        Val::Uint(u) => u.to_string(),
        Val::Double(d) => double_text(*d),
        Val::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Val::Timestamp(t) => time::timestamp_text(*t),
        Val::Duration(nanos) => time::duration_text(*nanos),
        Val::Type(name) => (*name).to_owned(),
        Val::Quantity(quantity) => quantity.text().to_owned(),
        _ => {
            return Err(invalid(format!(
                "could not convert argument of type {} to string",
                value.type_name()
            )));
        }
    };
    budget.memory(text.len())?;
    out.push_str(&text);
    Ok(())
}
