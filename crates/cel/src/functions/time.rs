//! Timestamps and durations. Times are in UTC unless a zone is given; durations are in nanoseconds,
//! as in Go.

use super::quote::quoted;
use super::{Context, Function, global, member};
use crate::cost;
use crate::error::{EvalError, Overflowing, Readable, invalid, no_overload};
use crate::operator::Operator;
use crate::value::{Result, Val};
use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

pub(super) static FUNCTIONS: &[Function] = &[
    global(
        "timestamp",
        &[
            "timestamp_to_timestamp: (timestamp) -> timestamp",
            "int64_to_timestamp: (int) -> timestamp",
            "string_to_timestamp: (string) -> timestamp",
        ],
        timestamp,
    ),
    global(
        "duration",
        &[
            "duration_to_duration: (duration) -> duration",
            "int64_to_duration: (int) -> duration",
            "string_to_duration: (string) -> duration",
        ],
        duration,
    ),
    member(
        "getFullYear",
        &[
            "timestamp_to_year: timestamp.() -> int",
            "timestamp_to_year_with_tz: timestamp.(string) -> int",
        ],
        |cx, a| civil(cx, a, "getFullYear", |t| i64::from(t.year())),
    ),
    member(
        "getMonth",
        &[
            "timestamp_to_month: timestamp.() -> int",
            "timestamp_to_month_with_tz: timestamp.(string) -> int",
        ],
        |cx, a| civil(cx, a, "getMonth", |t| i64::from(t.month()) - 1),
    ),
    member(
        "getDate",
        &[
            "timestamp_to_day_of_month_1_based: timestamp.() -> int",
            "timestamp_to_day_of_month_1_based_with_tz: timestamp.(string) -> int",
        ],
        |cx, a| civil(cx, a, "getDate", |t| i64::from(t.day())),
    ),
    member(
        "getDayOfMonth",
        &[
            "timestamp_to_day_of_month: timestamp.() -> int",
            "timestamp_to_day_of_month_with_tz: timestamp.(string) -> int",
        ],
        |cx, a| civil(cx, a, "getDayOfMonth", |t| i64::from(t.day()) - 1),
    ),
    member(
        "getDayOfWeek",
        &[
            "timestamp_to_day_of_week: timestamp.() -> int",
            "timestamp_to_day_of_week_with_tz: timestamp.(string) -> int",
        ],
        |cx, a| {
            civil(cx, a, "getDayOfWeek", |t| {
                i64::from(t.weekday().to_sunday_zero_offset())
            })
        },
    ),
    member(
        "getDayOfYear",
        &[
            "timestamp_to_day_of_year: timestamp.() -> int",
            "timestamp_to_day_of_year_with_tz: timestamp.(string) -> int",
        ],
        |cx, a| civil(cx, a, "getDayOfYear", |t| i64::from(t.day_of_year()) - 1),
    ),
    member(
        "getHours",
        &[
            "timestamp_to_hours: timestamp.() -> int",
            "timestamp_to_hours_with_tz: timestamp.(string) -> int",
            "duration_to_hours: duration.() -> int",
        ],
        |cx, a| match a {
            [Val::Duration(nanos)] => Ok(Val::Int(nanos / HOUR)),
            _ => civil(cx, a, "getHours", |t| i64::from(t.hour())),
        },
    ),
    member(
        "getMinutes",
        &[
            "timestamp_to_minutes: timestamp.() -> int",
            "timestamp_to_minutes_with_tz: timestamp.(string) -> int",
            "duration_to_minutes: duration.() -> int",
        ],
        |cx, a| match a {
            [Val::Duration(nanos)] => Ok(Val::Int(nanos / MINUTE)),
            _ => civil(cx, a, "getMinutes", |t| i64::from(t.minute())),
        },
    ),
    member(
        "getSeconds",
        &[
            "timestamp_to_seconds: timestamp.() -> int",
            "timestamp_to_seconds_tz: timestamp.(string) -> int",
            "duration_to_seconds: duration.() -> int",
        ],
        |cx, a| match a {
            [Val::Duration(nanos)] => Ok(Val::Int(nanos / SECOND)),
            _ => civil(cx, a, "getSeconds", |t| i64::from(t.second())),
        },
    ),
    member(
        "getMilliseconds",
        &[
            "timestamp_to_milliseconds: timestamp.() -> int",
            "timestamp_to_milliseconds_with_tz: timestamp.(string) -> int",
            "duration_to_milliseconds: duration.() -> int",
        ],
        |cx, a| match a {
            [Val::Duration(nanos)] => Ok(Val::Int(nanos / 1_000_000)),
            _ => civil(cx, a, "getMilliseconds", |t| i64::from(t.millisecond())),
        },
    ),
];

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

const OVERFLOW: EvalError = EvalError::Overflow(Overflowing::Timestamp);
/// Durations overflow as integers, as in Go.
const DURATION_OVERFLOW: EvalError = EvalError::Overflow(Overflowing::Int);

/// Checks the range of years, 1 to 9999, as in protobuf.
fn checked<'v>(time: Option<DateTime>) -> Result<'v> {
    time.filter(|t| t.year() >= 1).map(Val::Timestamp).ok_or(OVERFLOW)
}

/// Returns the seconds since 1970, rounded down.
pub(crate) fn epoch_seconds(time: DateTime) -> i64 {
    let since = time.duration_since(EPOCH);
    since.as_secs() - i64::from(since.subsec_nanos() < 0)
}

fn timestamp<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    match args {
        [Val::Timestamp(t)] => Ok(Val::Timestamp(*t)),
        [Val::Int(seconds)] => checked(EPOCH.checked_add(SignedDuration::from_secs(*seconds)).ok()),
        [value] => {
            let text = value.as_str().ok_or_else(|| no_overload("timestamp"))?;
            cx.budget.charge(cost::SYNTAX)?;
            cx.budget.traverse(text.len())?;
            let wrong = EvalError::Unreadable(Readable::Timestamp);
            checked(Some(parse_timestamp(text).ok_or(wrong)?))
        }
        _ => Err(no_overload("timestamp")),
    }
}

/// Parses RFC 3339 as Go does, into UTC; jiff alone would accept more spellings.
pub(crate) fn parse_timestamp(text: &str) -> Option<DateTime> {
    let (local, zone) = match text.strip_suffix('Z') {
        Some(local) => (local, 0),
        None => {
            let (local, zone) = text.split_at_checked(text.len().checked_sub(6)?)?;
            (
                local,
                if zone.starts_with(['+', '-']) {
                    offset_seconds(zone)?
                } else {
                    return None;
                },
            )
        }
    };
    let shape = "dddd-dd-ddTdd:dd:dd";
    let (whole, fraction) = local.split_at_checked(shape.len())?;
    let fits = whole
        .bytes()
        .zip(shape.bytes())
        .all(|(c, s)| if s == b'd' { c.is_ascii_digit() } else { c == s });
    let fraction_fits = match fraction.strip_prefix('.') {
        Some(digits) => (1..=9).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit()),
        None => fraction.is_empty(),
    };
    if !fits || !fraction_fits {
        return None;
    }
    let time: DateTime = local.parse().ok()?;
    time.checked_sub(SignedDuration::from_secs(zone)).ok()
}

fn duration<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    match args {
        [Val::Duration(nanos)] => Ok(Val::Duration(*nanos)),
        // Declared, but without an implementation in Kubernetes.
        [Val::Int(_)] => Err(invalid(
            "type conversion error from 'int' to 'google.protobuf.Duration'",
        )),
        [value] => {
            let text = value.as_str().ok_or_else(|| no_overload("duration"))?;
            cx.budget.charge(cost::SYNTAX)?;
            cx.budget.traverse(text.len())?;
            insula_goformat::duration::parse(text)
                .map(Val::Duration)
                .map_err(|_| EvalError::Unreadable(Readable::Duration))
        }
        _ => Err(no_overload("duration")),
    }
}

/// Formats a time as RFC 3339 in UTC.
pub(crate) fn timestamp_text(time: DateTime) -> String {
    format!("{time}Z")
}

/// Formats nanoseconds as seconds with a fraction: `5400s`, `1.5s`. Through a double, as Go's
/// `Duration.Seconds`.
pub(crate) fn duration_text(nanos: i64) -> String {
    let seconds = (nanos / SECOND) as f64 + (nanos % SECOND) as f64 / 1e9;
    format!("{seconds}s")
}

/// Returns a part of the civil time, in UTC or in the given zone.
fn civil<'v>(cx: &mut Context<'_>, args: &[Val<'v>], name: &'static str, part: impl Fn(DateTime) -> i64) -> Result<'v> {
    let local = match args {
        [Val::Timestamp(time)] => *time,
        [Val::Timestamp(time), zone] => in_zone(cx, *time, zone.as_str().ok_or_else(|| no_overload(name))?)?,
        _ => return Err(no_overload(name)),
    };
    Ok(Val::Int(part(local)))
}

/// Returns the civil time in a zone: `Europe/Berlin`, or an offset such as `+02:00`.
fn in_zone(cx: &mut Context<'_>, time: DateTime, zone: &str) -> std::result::Result<DateTime, EvalError> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        let (hours, minutes) = (offset_part(hours)?, offset_part(minutes)?);
        let minutes = if zone.starts_with('-') { -minutes } else { minutes };
        let offset = SignedDuration::from_secs(hours * 3600 + minutes * 60);
        return time.checked_add(offset).map_err(|_| OVERFLOW);
    }
    if matches!(zone, "" | "UTC" | "Local") {
        return Ok(time);
    }
    cx.budget.charge(cost::SYNTAX)?;
    let unknown = || {
        invalid(format!(
            "unknown time zone {}",
            zone.chars().take(64).collect::<String>()
        ))
    };
    // Rules of a zone are read once and shared by all evaluations; the database is part of the
    // program.
    cx.budget.charge(1)?;
    let rules = TimeZone::get(zone).map_err(|_| unknown())?;
    // Zone names are case-sensitive in Go: `europe/berlin` is unknown.
    if rules.iana_name() != Some(zone) {
        return Err(unknown());
    }
    let instant = Offset::UTC.to_timestamp(time).map_err(|_| OVERFLOW)?;
    Ok(rules.to_offset(instant).to_datetime(instant))
}

/// Parses hours or minutes of an offset, as lenient as Go's `Atoi`.
fn offset_part(text: &str) -> std::result::Result<i64, EvalError> {
    match text.parse::<i64>() {
        Ok(number) if number.abs() < 1_000_000 => Ok(number),
        Ok(_) => Err(OVERFLOW),
        Err(_) => Err(invalid(format!(
            "strconv.Atoi: parsing {}: invalid syntax",
            quoted(text)
        ))),
    }
}

/// Parses `+02:00` into seconds; the sign is optional.
fn offset_seconds(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (hours, minutes) = digits.split_once(':')?;
    let number = |part: &str| if part.len() == 2 { part.parse::<u8>().ok() } else { None };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 23 && minutes <= 59).then(|| sign * (i64::from(hours) * 3600 + i64::from(minutes) * 60))
}

/// Evaluates timestamp + duration, in either order, and duration + duration.
pub(crate) fn add<'v>(left: &Val<'v>, right: &Val<'v>) -> Result<'v> {
    match (left, right) {
        (Val::Timestamp(t), Val::Duration(d)) | (Val::Duration(d), Val::Timestamp(t)) => {
            checked(t.checked_add(SignedDuration::from_nanos(*d)).ok())
        }
        (Val::Duration(a), Val::Duration(b)) => a.checked_add(*b).map(Val::Duration).ok_or(DURATION_OVERFLOW),
        _ => Err(no_overload(Operator::Add.name())),
    }
}

/// Evaluates timestamp - duration, timestamp - timestamp and duration - duration.
pub(crate) fn subtract<'v>(left: &Val<'v>, right: &Val<'v>) -> Result<'v> {
    match (left, right) {
        (Val::Timestamp(t), Val::Duration(d)) => checked(t.checked_sub(SignedDuration::from_nanos(*d)).ok()),
        (Val::Timestamp(a), Val::Timestamp(b)) => {
            let nanos = i64::try_from(a.duration_since(*b).as_nanos()).ok();
            nanos.map(Val::Duration).ok_or(DURATION_OVERFLOW)
        }
        (Val::Duration(a), Val::Duration(b)) => a.checked_sub(*b).map(Val::Duration).ok_or(DURATION_OVERFLOW),
        _ => Err(no_overload(Operator::Subtract.name())),
    }
}
