//! `format`, the printf of CEL's strings extension, and the text of values as Go writes it.
//!
//! Kubernetes has version 2 of the extension, whose `%f` and `%e` write numbers in the en-US locale
//! (`1,234.500000`, `1.234500×10⁰³`), and whose `%e` always has six fractional digits.

use super::quote::quoted;
use super::{Context, Function, made, member, time};
use crate::cost::{self, Budget};
use crate::error::{EvalError, invalid, no_overload};
use crate::value::{Result, Val};

pub(super) static FUNCTIONS: &[Function] = &[member(
    "format",
    &["string_format: string.(list(dyn)) -> string"],
    format,
)];

type Unit = std::result::Result<(), EvalError>;

/// Digits of precision that a format may ask for.
const PRECISION_MAX: usize = 1_000;
/// Fractional digits without a precision.
const PRECISION: usize = 6;
/// Depth of lists and maps that `%s` shows.
const SHOWN_DEPTH_MAX: usize = 64;

fn format<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [template, list] = args else {
        return Err(no_overload("format"));
    };
    let (template, values) = template
        .as_str()
        .zip(list.items())
        .ok_or_else(|| no_overload("format"))?;
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
        let value = values
            .get(used)
            .ok_or_else(|| invalid(format!("index {used} out of range")))?;
        if after.is_empty() {
            return Err(invalid("unexpected end of string"));
        }
        let unclear = |e: String| invalid(format!("could not parse formatting clause: {e}"));
        let (precision, after) = precision(after).map_err(unclear)?;
        let verb = after.chars().next().unwrap_or(' ');
        if !"sdfebxXo".contains(verb) {
            return Err(unclear(format!("unrecognized formatting clause \"{verb}\"")));
        }
        rest = &after[verb.len_utf8()..];
        used += 1;
        let start = out.len();
        cx.budget.charge(cost::SYNTAX)?;
        clause(verb, precision, &value, &mut out, cx.budget)?;
        cx.budget.traverse(out.len() - start)?;
        // A growing text is copied into a buffer of up to twice its size.
        cx.budget.memory(3 * (out.len() - start))?;
    }
    out.push_str(rest);
    made(cx, out)
}

fn precision(after: &str) -> std::result::Result<(Option<usize>, &str), String> {
    let Some(digits) = after.strip_prefix('.') else {
        return Ok((None, after));
    };
    let end = digits.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = digits.split_at(end);
    let context = "error while parsing precision";
    if rest.is_empty() {
        return Err(format!("{context}: could not find end of precision specifier"));
    }
    match number.parse() {
        Ok(precision) if precision <= PRECISION_MAX => Ok((Some(precision), rest)),
        _ => {
            let problem = if number.is_empty() {
                "invalid syntax"
            } else {
                "value out of range"
            };
            let shown = quoted(number);
            Err(format!(
                "{context}: error while converting precision to integer: strconv.Atoi: parsing {shown}: {problem}"
            ))
        }
    }
}

/// Returns the error for an argument of a type that a clause does not accept.
fn refused(what: &str, value: &Val<'_>) -> EvalError {
    invalid(format!(
        "error during formatting: {what}, was given {}",
        value.type_name()
    ))
}

fn clause(verb: char, precision: Option<usize>, value: &Val<'_>, out: &mut String, budget: &mut Budget) -> Unit {
    let text = match (verb, value) {
        ('s', _) => return show(value, out, budget),
        ('d' | 'b' | 'o' | 'x' | 'X', Val::Int(i)) => {
            let sign = if *i < 0 { "-" } else { "" };
            format!("{sign}{}", digits(verb, i.unsigned_abs()))
        }
        ('d' | 'b' | 'o' | 'x' | 'X', Val::Uint(u)) => digits(verb, *u),
        ('d', _) => return Err(refused("decimal clause can only be used on integers", value)),
        ('f', _) => {
            let what = "fixed-point clause can only be used on doubles";
            grouped(
                number(value).ok_or_else(|| refused(what, value))?,
                precision.unwrap_or(PRECISION),
            )
        }
        ('e', _) => {
            let what = "scientific clause can only be used on doubles";
            scientific(number(value).ok_or_else(|| refused(what, value))?)
        }
        ('b', Val::Bool(b)) => i32::from(*b).to_string(),
        ('b', _) => return Err(refused("only integers and bools can be formatted as binary", value)),
        ('o', _) => return Err(refused("octal clause can only be used on integers", value)),
        (_, Val::Bytes(bytes)) => hex(verb, bytes, budget)?,
        _ => {
            let what = "only integers, byte buffers, and strings can be formatted as hex";
            hex(
                verb,
                value.as_str().ok_or_else(|| refused(what, value))?.as_bytes(),
                budget,
            )?
        }
    };
    budget.memory(text.len())?;
    out.push_str(&text);
    Ok(())
}

fn digits(verb: char, number: u64) -> String {
    match verb {
        'b' => format!("{number:b}"),
        'o' => format!("{number:o}"),
        'x' => format!("{number:x}"),
        'X' => format!("{number:X}"),
        _ => number.to_string(),
    }
}

fn hex(verb: char, bytes: &[u8], budget: &mut Budget) -> std::result::Result<String, EvalError> {
    budget.memory(bytes.len() * 2)?;
    let digit = |nibble: u8| match nibble {
        0..10 => char::from(b'0' + nibble),
        _ if verb == 'x' => char::from(b'a' - 10 + nibble),
        _ => char::from(b'A' - 10 + nibble),
    };
    let mut text = String::with_capacity(bytes.len() * 2);
    text.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]));
    Ok(text)
}

/// Returns a double, also from the text of infinity or NaN.
fn number(value: &Val<'_>) -> Option<f64> {
    match (value, value.as_str()) {
        (Val::Double(d), _) => Some(*d),
        (_, Some("NaN")) => Some(f64::NAN),
        (_, Some("Infinity")) => Some(f64::INFINITY),
        (_, Some("-Infinity")) => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

fn infinite(number: f64) -> Option<&'static str> {
    match number {
        _ if number.is_nan() => Some("NaN"),
        f64::INFINITY => Some("∞"),
        f64::NEG_INFINITY => Some("-∞"),
        _ => None,
    }
}

/// Formats a number with thousands separators: `1,234.50`.
fn grouped(number: f64, precision: usize) -> String {
    if let Some(name) = infinite(number) {
        return name.to_owned();
    }
    // Adding zero removes the sign of a negative zero.
    let text = format!("{:.precision$}", number + 0.0);
    let (sign, text) = text.strip_prefix('-').map_or(("", text.as_str()), |t| ("-", t));
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::with_capacity(text.len() * 4 / 3 + 1);
    grouped.push_str(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// Formats a number in scientific notation: `1.234500×10⁰³`.
fn scientific(number: f64) -> String {
    if let Some(name) = infinite(number) {
        return format!("{name:>PRECISION$}");
    }
    let mut text = format!("{:.PRECISION$e}", number + 0.0);
    let (end, sign, exponent) = exponent(&text);
    let raised = exponent.map(|digit| match digit {
        1 => '¹',
        2 => '²',
        3 => '³',
        // The other superscript digits are contiguous from U+2070.
        digit => char::from_u32(0x2070 + digit).unwrap_or('⁰'),
    });
    text.truncate(end);
    text.push_str("×10");
    if sign == '-' {
        text.push('⁻');
    }
    text.extend(raised);
    text
}

/// Splits a number in Rust's exponent notation: the end of the mantissa, the exponent's sign and
/// its digits, at least two as in Go.
fn exponent(text: &str) -> (usize, char, impl Iterator<Item = u32> + use<>) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let number: i32 = exponent.parse().unwrap_or(0);
    let sign = if number < 0 { '-' } else { '+' };
    let number = number.unsigned_abs();
    let digits = [number / 100, number / 10 % 10, number % 10];
    (mantissa.len(), sign, digits.into_iter().skip(usize::from(number < 100)))
}

/// Formats a double as Go's `FormatFloat(f, 'g', -1, 64)` does: shortest digits, with an exponent
/// below -4 and from 6.
pub(super) fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    if number == 0.0 || (1e-4..1e6).contains(&number.abs()) {
        return number.to_string();
    }
    let mut text = format!("{number:e}");
    let (end, sign, exponent) = exponent(&text);
    text.truncate(end);
    text.extend(['e', sign]);
    text.extend(exponent.filter_map(|digit| char::from_digit(digit, 10)));
    text
}

/// Writes a value for `%s`.
fn show(value: &Val<'_>, out: &mut String, budget: &mut Budget) -> Unit {
    if let Some(text) = value.as_str() {
        budget.memory(text.len())?;
        out.push_str(text);
        return Ok(());
    }
    if value.items().is_some() || value.is_map() {
        return show_within(value, out, budget, SHOWN_DEPTH_MAX);
    }
    let what = "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
                durations, and timestamps";
    let text = scalar(value).ok_or_else(|| refused(what, value))?;
    budget.memory(text.len())?;
    out.push_str(&text);
    Ok(())
}

fn scalar(value: &Val<'_>) -> Option<String> {
    Some(match value {
        Val::Null => "null".to_owned(),
        Val::Bool(b) => b.to_string(),
        Val::Int(i) => i.to_string(),
        Val::Uint(u) => u.to_string(),
        Val::Double(d) => double_text(*d),
        Val::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Val::Timestamp(t) => time::timestamp_text(*t),
        Val::Duration(nanos) => time::duration_text(*nanos),
        Val::Type(name) => (*name).to_owned(),
        _ => value.as_str()?.to_owned(),
    })
}

/// Writes a value inside a list or map as CEL source: texts in quotes, doubles with six digits.
fn show_within(value: &Val<'_>, out: &mut String, budget: &mut Budget, depth: usize) -> Unit {
    let depth = depth.checked_sub(1).ok_or(EvalError::DepthExceeded)?;
    budget.charge(1)?;
    if let Some(items) = value.items() {
        out.push('[');
        for (i, item) in items.iter().enumerate() {
            out.push_str(if i == 0 { "" } else { ", " });
            show_within(&item, out, budget, depth)?;
        }
        out.push(']');
        return Ok(());
    }
    if let Some(entries) = value.entries() {
        budget.memory(entries.len() * 2 * size_of::<Val<'_>>())?;
        let mut shown = Vec::with_capacity(entries.len());
        for (key, value) in &entries {
            let mut entry = String::new();
            show_within(key, &mut entry, budget, depth)?;
            entry.push(':');
            show_within(value, &mut entry, budget, depth)?;
            shown.push(entry);
        }
        // Sorted by text, which is not the order of numbers.
        shown.sort_unstable();
        out.push('{');
        out.push_str(&shown.join(", "));
        out.push('}');
        return Ok(());
    }
    let text = match (value, value.as_str()) {
        (_, Some(text)) => quoted(text),
        (Val::Bytes(bytes), _) => format!("b{}", quoted(&String::from_utf8_lossy(bytes))),
        (Val::Timestamp(t), _) => format!("timestamp({})", quoted(&time::timestamp_text(*t))),
        (Val::Duration(nanos), _) => format!("duration({})", quoted(&time::duration_text(*nanos))),
        (Val::Double(d), _) if !d.is_finite() => quoted(&double_text(*d)),
        (Val::Double(d), _) => format!("{d:.PRECISION$}"),
        _ => scalar(value).ok_or_else(|| {
            invalid(format!(
                "error during formatting: no formatting function for {}",
                value.type_name()
            ))
        })?,
    };
    budget.memory(text.len())?;
    out.push_str(&text);
    Ok(())
}
