//! The `durations.*` functions: Go's spelling of durations, and spans in seconds. Only conversion
//! rules have them.
//!
//! `string(d)` is Kubernetes', in seconds (`5400s`); Go programs write `1h30m0s` into objects.

use super::{Context, Function, global, made};
use crate::cost;
use crate::error::{EvalError, Overflowing, no_overload};
use crate::value::Val;
use std::fmt::Write;

const SECOND: u64 = 1_000_000_000;

pub(super) static FUNCTIONS: &[Function] = &[
    global(
        "durations.format",
        &["durations_format: (duration) -> string"],
        |cx: &mut Context<'_>, a| match a {
            [Val::Duration(nanos)] => {
                cx.budget.charge(cost::SYNTAX)?;
                made(cx, go_text(*nanos))
            }
            _ => Err(no_overload("durations.format")),
        },
    ),
    global(
        "durations.fromSeconds",
        &[
            "durations_from_seconds_int: (int) -> duration",
            "durations_from_seconds_double: (double) -> duration",
        ],
        |_, a| match a {
            [Val::Int(seconds)] => seconds
                .checked_mul(SECOND as i64)
                .map(Val::Duration)
                .ok_or(EvalError::Overflow(Overflowing::Int)),
            [Val::Double(seconds)] => {
                let nanos = (seconds * SECOND as f64).round();
                // Both bounds are exclusive: at ±2^63 a double cannot represent its neighbors. NaN
                // is within no bounds.
                match nanos.abs() < 9_223_372_036_854_775_808.0 {
                    true => Ok(Val::Duration(nanos as i64)),
                    false => Err(EvalError::Overflow(Overflowing::Int)),
                }
            }
            _ => Err(no_overload("durations.fromSeconds")),
        },
    ),
];

/// Formats nanoseconds as Go's `Duration.String`: hours, minutes and seconds from the largest that
/// is not zero (`1h30m0s`, `1.5s`), or one smaller unit (`250ms`, `1.5µs`).
pub(crate) fn go_text(nanos: i64) -> String {
    let total = nanos.unsigned_abs();
    let mut text = String::new();
    if nanos < 0 {
        text.push('-');
    }
    let small = match total {
        0 => Some((1, 0, "s")),
        1..1_000 => Some((1, 0, "ns")),
        1_000..1_000_000 => Some((1_000, 3, "µs")),
        1_000_000..SECOND => Some((1_000_000, 6, "ms")),
        _ => None,
    };
    if let Some((unit, digits, name)) = small {
        decimal(&mut text, total / unit, total % unit, digits);
        return text + name;
    }
    let (hours, minutes) = (total / (3600 * SECOND), total / (60 * SECOND) % 60);
    // Writing to a text cannot fail.
    if hours > 0 {
        let _ = write!(text, "{hours}h{minutes}m");
    } else if minutes > 0 {
        let _ = write!(text, "{minutes}m");
    }
    decimal(&mut text, total / SECOND % 60, total % SECOND, 9);
    text + "s"
}

/// Writes a number with a fraction of `digits` digits, without zeros at its end.
fn decimal(text: &mut String, whole: u64, fraction: u64, digits: usize) {
    let _ = write!(text, "{whole}");
    if fraction > 0 {
        let fraction = format!("{fraction:0digits$}");
        text.push('.');
        text.push_str(fraction.trim_end_matches('0'));
    }
}
