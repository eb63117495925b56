//! Durations as `time.ParseDuration` reads them: `1h30m`, `-2.5s`, `0`.

use std::fmt::Write;

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    // The micro sign, and the Greek letter.
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Largest number of nanoseconds, which only a negative duration may have.
const MAX: u64 = 1 << 63;

/// The reason that a text is no duration, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// A text of another syntax, or a duration that no 64 bits hold.
    #[error("time: invalid duration {}", quoted(.0))]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {}", quoted(.0))]
    MissingUnit(String),
    /// A number with another unit.
    #[error("time: unknown unit {} in duration {}", quoted(.unit), quoted(.text))]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// Returns the nanoseconds of a duration.
///
/// # Errors
/// The text is none, as Go says it.
pub fn parse(text: &str) -> Result<i64, DurationError> {
    let negative = text.starts_with('-');
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    let invalid = || DurationError::Invalid(text.to_owned());
    let nanos = sum(text, rest)?.ok_or_else(invalid)?;
    match negative {
        true => Ok(0_i64.wrapping_sub_unsigned(nanos)),
        false => i64::try_from(nanos).map_err(|_| invalid()),
    }
}

/// Returns the sum of counts with units, up to [`MAX`]; `None` if it is larger or one is no count.
fn sum(text: &str, mut rest: &str) -> Result<Option<u64>, DurationError> {
    let mut total = None;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return Ok(None);
        }
        let Some(whole) = leading_int(whole) else {
            return Ok(None);
        };
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit());
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        if unit.is_empty() {
            return Err(DurationError::MissingUnit(text.to_owned()));
        }
        let Some((_, nanos)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(DurationError::UnknownUnit {
                unit: unit.to_owned(),
                text: text.to_owned(),
            });
        };
        let count = whole
            .checked_mul(*nanos)
            .and_then(|count| count.checked_add(part_of(*nanos, fraction)))
            .filter(|count| *count <= MAX);
        let sum = count.and_then(|count| count.checked_add(total.unwrap_or(0)));
        let Some(sum) = sum.filter(|sum| *sum <= MAX) else {
            return Ok(None);
        };
        total = Some(sum);
        rest = after;
    }
    Ok(total)
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

/// Returns the value of digits up to [`MAX`]; 0 for none.
fn leading_int(digits: &str) -> Option<u64> {
    if digits.is_empty() {
        return Some(0);
    }
    digits.parse().ok().filter(|value| *value <= MAX)
}

/// Returns a decimal fraction of a unit in nanoseconds, rounded down. Digits that 63 bits do not
/// hold are left out, as in Go.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the product is at most an hour"
)]
fn part_of(unit: u64, fraction: &str) -> u64 {
    let (mut value, mut scale) = (0_u64, 1.0_f64);
    for digit in fraction.bytes().map(|digit| u64::from(digit - b'0')) {
        if value > (MAX - 1) / 10 || value * 10 + digit > MAX {
            break;
        }
        value = value * 10 + digit;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

/// Returns a text in quotes, as the package `time` writes it: what is not printable ASCII as bytes.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            quoted.push('\\');
        }
        if character.is_ascii() && character >= ' ' {
            quoted.push(character);
            continue;
        }
        for byte in character.encode_utf8(&mut [0; 4]).bytes() {
            // Writing to a text does not fail.
            let _ = write!(quoted, "\\x{byte:02x}");
        }
    }
    quoted.push('"');
    quoted
}
