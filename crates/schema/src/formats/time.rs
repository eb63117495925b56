//! Dates, times and durations.

use super::digits;

/// Returns the value of a text of ASCII digits.
fn number(text: &str) -> Option<u32> {
    if digits(text) { text.parse().ok() } else { None }
}

/// Returns true for `2006-01-02`.
pub(super) fn is_date(text: &str) -> bool {
    let mut parts = text.split('-');
    let (Some(year), Some(month), Some(day), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    if (year.len(), month.len(), day.len()) != (4, 2, 2) {
        return false;
    }
    let (Some(year), Some(month), Some(day)) = (number(year), number(month), number(day)) else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 0,
    };
    (1..=days).contains(&day)
}

/// Returns true for a date, `T`, a time and a zone. As upstream, ignores what follows another `T`,
/// accepts any character before the fraction, and any digits in the zone.
pub(super) fn is_date_time(text: &str) -> bool {
    let mut parts = text.split(['T', 't']);
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date) && is_time(time)
}

fn is_time(text: &str) -> bool {
    let Some((clock, rest)) = text.split_at_checked("00:00:00".len()) else {
        return false;
    };
    let mut parts = clock.split(':');
    let in_range = |part: Option<&str>, max| part.is_some_and(|p| p.len() == 2 && number(p).is_some_and(|n| n <= max));
    let is_clock = in_range(parts.next(), 23)
        && in_range(parts.next(), 59)
        && in_range(parts.next(), 59)
        && parts.next().is_none();
    let whole = is_zone(rest);
    let mut after = rest.chars();
    let fraction = after.next().is_some_and(|point| point != '\n') && {
        let rest = after.as_str();
        let zone = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        zone.len() < rest.len() && is_zone(zone)
    };
    is_clock && (whole || fraction)
}

/// Returns true for `Z` or `+00:00`.
fn is_zone(text: &str) -> bool {
    let offset = text.strip_prefix(['+', '-']).and_then(|offset| offset.split_once(':'));
    let two = |part: &str| part.len() == 2 && digits(part);
    matches!(text, "Z" | "z") || offset.is_some_and(|(hours, minutes)| two(hours) && two(minutes))
}

/// Returns true for Go's durations (`1h30m`, `-2.5s`), and for texts that contain a count with a
/// unit or word (`3 weeks`).
pub(super) fn is_duration(text: &str) -> bool {
    insula_goformat::duration::parse(text).is_ok() || has_counted_unit(text)
}

/// Returns true if a text contains a count with a unit, and no count above 2^63 - 1.
fn has_counted_unit(text: &str) -> bool {
    const UNITS: [&str; 11] = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    const WORDS: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    let mut any = false;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let counted = rest.get(start..).unwrap_or("");
        let after = counted.trim_start_matches(|c: char| c.is_ascii_digit());
        let count = counted.get(..counted.len() - after.len()).unwrap_or("");
        let named = after.trim_start_matches([' ', '\t', '\n', '\r', '\x0C']);
        rest = named.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == 'µ');
        let unit = named.get(..named.len() - rest.len()).unwrap_or("");
        if unit.is_empty() {
            continue;
        }
        if count.parse::<i64>().is_err() {
            return false;
        }
        let unit = unit.to_lowercase();
        any |= UNITS.contains(&&*unit) || WORDS.iter().any(|word| unit.starts_with(word));
    }
    any
}
