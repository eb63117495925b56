//! Timestamps and durations: UTC unless a zone is given, durations in nanoseconds like Go's.

use super::{Context, Function, global, member};
use crate::error::{EvalError, invalid, no_overload};
use crate::eval::Result;
use crate::ir::Operator;
use crate::value::Val;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

pub(super) static FUNCTIONS: &[Function] = &[
    global("timestamp", 1, 1, timestamp),
    global("duration", 1, 1, duration),
    member("getFullYear", 1, 2, |_, a| {
        civil(a, "getFullYear", |t| i64::from(t.year()))
    }),
    member("getMonth", 1, 2, |_, a| {
        civil(a, "getMonth", |t| i64::from(t.month()) - 1)
    }),
    member("getDate", 1, 2, |_, a| civil(a, "getDate", |t| i64::from(t.day()))),
    member("getDayOfMonth", 1, 2, |_, a| {
        civil(a, "getDayOfMonth", |t| i64::from(t.day()) - 1)
    }),
    member("getDayOfWeek", 1, 2, |_, a| {
        civil(a, "getDayOfWeek", |t| i64::from(t.weekday().to_sunday_zero_offset()))
    }),
    member("getDayOfYear", 1, 2, |_, a| {
        civil(a, "getDayOfYear", |t| i64::from(t.day_of_year()) - 1)
    }),
    member("getHours", 1, 2, |_, a| match a {
        [Val::Duration(nanos)] => Ok(Val::Int(nanos / HOUR)),
        _ => civil(a, "getHours", |t| i64::from(t.hour())),
    }),
    member("getMinutes", 1, 2, |_, a| match a {
        [Val::Duration(nanos)] => Ok(Val::Int(nanos / MINUTE)),
        _ => civil(a, "getMinutes", |t| i64::from(t.minute())),
    }),
    member("getSeconds", 1, 2, |_, a| match a {
        [Val::Duration(nanos)] => Ok(Val::Int(nanos / SECOND)),
        _ => civil(a, "getSeconds", |t| i64::from(t.second())),
    }),
    member("getMilliseconds", 1, 2, |_, a| match a {
        [Val::Duration(nanos)] => Ok(Val::Int(nanos % SECOND / 1_000_000)),
        _ => civil(a, "getMilliseconds", |t| i64::from(t.millisecond())),
    }),
];

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
/// Years 1 to 9999, as in protobuf.
const SECONDS_MIN: i64 = -62_135_596_800;
const SECONDS_MAX: i64 = 253_402_300_799;

const OVERFLOW: EvalError = EvalError::Overflow("timestamp");
const DURATION_OVERFLOW: EvalError = EvalError::Overflow("duration");

fn checked<'v>(time: Timestamp) -> Result<'v> {
    if (SECONDS_MIN..=SECONDS_MAX).contains(&time.as_second()) {
        Ok(Val::Timestamp(time))
    } else {
        Err(OVERFLOW)
    }
}

fn timestamp<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    match args {
        [Val::Timestamp(t)] => Ok(Val::Timestamp(*t)),
        [Val::Int(seconds)] => checked(Timestamp::from_second(*seconds).map_err(|_| OVERFLOW)?),
        [value] => {
            let text = value.as_str().ok_or(no_overload("timestamp"))?;
            cx.budget.traverse(text.len())?;
            let wrong = || invalid("type conversion error from 'string' to 'google.protobuf.Timestamp'");
            // RFC 3339 as Go reads it; jiff alone would take more spellings.
            let bytes = text.as_bytes();
            let shape =
                bytes.len() >= 20 && bytes.len() <= 64 && bytes[4] == b'-' && bytes[10] == b'T' && bytes[16] == b':';
            let zone = bytes.last() == Some(&b'Z') || bytes.len().checked_sub(3).is_some_and(|i| bytes[i] == b':');
            if !shape || !zone || text.contains('[') {
                return Err(wrong());
            }
            checked(text.parse().map_err(|_| wrong())?)
        }
        _ => Err(no_overload("timestamp")),
    }
}

fn duration<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    match args {
        [Val::Duration(nanos)] => Ok(Val::Duration(*nanos)),
        [value] => {
            let text = value.as_str().ok_or(no_overload("duration"))?;
            cx.budget.traverse(text.len())?;
            parse_duration(text)
                .map(Val::Duration)
                .ok_or_else(|| invalid("type conversion error from 'string' to 'google.protobuf.Duration'"))
        }
        _ => Err(no_overload("duration")),
    }
}

/// Go's syntax: a sign, then numbers with units: `-1h30m`, `1.5s`, `0`.
fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let units = [
            ("ns", 1),
            ("us", 1_000),
            ("µs", 1_000),
            ("μs", 1_000),
            ("ms", 1_000_000),
            ("s", SECOND),
            ("m", MINUTE),
            ("h", HOUR),
        ];
        let (unit, nanos) = units.into_iter().find(|(u, _)| after.starts_with(u))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.len() > 40 {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(i128::from(nanos))?)?;
        let fraction = fraction.get(..fraction.len().min(18))?;
        if !fraction.is_empty() {
            let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
            total = total.checked_add(fraction.parse::<i128>().ok()? * i128::from(nanos) / scale)?;
        }
        rest = &after[unit.len()..];
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// RFC 3339 in UTC.
pub(crate) fn timestamp_text(time: Timestamp) -> String {
    time.to_string()
}

/// Seconds with a fraction: `5400s`, `1.5s`.
pub(crate) fn duration_text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let magnitude = nanos.unsigned_abs();
    let (seconds, fraction) = (magnitude / 1_000_000_000, magnitude % 1_000_000_000);
    if fraction == 0 {
        return format!("{sign}{seconds}s");
    }
    let fraction = format!("{fraction:09}");
    format!("{sign}{seconds}.{}s", fraction.trim_end_matches('0'))
}

/// A part of the civil time, in UTC or in the zone given.
fn civil<'v>(args: &[Val<'v>], name: &'static str, part: impl Fn(DateTime) -> i64) -> Result<'v> {
    let (time, offset) = match args {
        [Val::Timestamp(time)] => (time, Offset::UTC),
        [Val::Timestamp(time), zone] => (time, parse_zone(zone.as_str().ok_or(no_overload(name))?)?),
        _ => return Err(no_overload(name)),
    };
    Ok(Val::Int(part(offset.to_datetime(*time))))
}

/// `UTC` or a fixed offset. Names of regions need the zone database, which a pure crate does not read.
fn parse_zone(zone: &str) -> std::result::Result<Offset, EvalError> {
    let wrong = || invalid("unknown time zone: use UTC or an offset such as +02:00");
    if matches!(zone, "UTC" | "" | "Z") {
        return Ok(Offset::UTC);
    }
    let (sign, digits) = match zone.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, zone.strip_prefix('+').unwrap_or(zone)),
    };
    let (hours, minutes) = digits.split_once(':').ok_or_else(wrong)?;
    let hours: i32 = hours.parse().map_err(|_| wrong())?;
    let minutes: i32 = minutes.parse().map_err(|_| wrong())?;
    if !(0..=14).contains(&hours) || !(0..=59).contains(&minutes) {
        return Err(wrong());
    }
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).map_err(|_| wrong())
}

/// Timestamp + duration, either way round; duration + duration.
pub(crate) fn add<'v>(left: &Val<'v>, right: &Val<'v>) -> Result<'v> {
    match (left, right) {
        (Val::Timestamp(t), Val::Duration(d)) | (Val::Duration(d), Val::Timestamp(t)) => {
            checked(t.checked_add(SignedDuration::from_nanos(*d)).map_err(|_| OVERFLOW)?)
        }
        (Val::Duration(a), Val::Duration(b)) => a.checked_add(*b).map(Val::Duration).ok_or(DURATION_OVERFLOW),
        _ => Err(no_overload(Operator::Add.name())),
    }
}

/// Timestamp - duration, timestamp - timestamp, duration - duration.
pub(crate) fn subtract<'v>(left: &Val<'v>, right: &Val<'v>) -> Result<'v> {
    match (left, right) {
        (Val::Timestamp(t), Val::Duration(d)) => {
            checked(t.checked_sub(SignedDuration::from_nanos(*d)).map_err(|_| OVERFLOW)?)
        }
        (Val::Timestamp(a), Val::Timestamp(b)) => {
            let nanos = a
                .as_nanosecond()
                .checked_sub(b.as_nanosecond())
                .and_then(|n| i64::try_from(n).ok());
            nanos.map(Val::Duration).ok_or(DURATION_OVERFLOW)
        }
        (Val::Duration(a), Val::Duration(b)) => a.checked_sub(*b).map(Val::Duration).ok_or(DURATION_OVERFLOW),
        _ => Err(no_overload(Operator::Subtract.name())),
    }
}
