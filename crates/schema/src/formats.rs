//! String formats of Kubernetes' validator. Hyphens in names are ignored: `date-time` is
//! `datetime`.
//!
//! Upstream's regular expressions are lax in places, and so are these checks: a stricter server
//! would refuse existing objects.

use crate::names;
use base64::Engine;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

type Check = fn(&str) -> bool;

/// Every known format, without hyphens.
const FORMATS: [(&str, Check); 27] = [
    ("bsonobjectid", |s| s.len() == 24 && hex(s)),
    ("byte", is_base64),
    ("cidr", is_cidr),
    ("creditcard", is_credit_card),
    ("date", is_date),
    ("datetime", is_date_time),
    ("duration", is_duration),
    ("email", is_email),
    (
        "hexcolor",
        |s| matches!(s.strip_prefix('#').unwrap_or(s), h if matches!(h.len(), 3 | 6) && hex(h)),
    ),
    ("hostname", is_hostname),
    ("ipv4", |s| Ipv4Addr::from_str(s).is_ok()),
    ("ipv6", |s| s.contains(':') && Ipv6Addr::from_str(s).is_ok()),
    ("isbn", |s| is_isbn10(s) || is_isbn13(s)),
    ("isbn10", is_isbn10),
    ("isbn13", is_isbn13),
    ("k8sshortname", |s| {
        s.len() <= names::LABEL_LENGTH_MAX && names::is_label_1123(s)
    }),
    ("k8slongname", |s| {
        s.len() <= names::SUBDOMAIN_LENGTH_MAX && names::is_subdomain(s)
    }),
    ("mac", is_mac),
    ("password", |_| true),
    ("rgbcolor", is_rgb),
    ("ssn", is_ssn),
    ("uri", is_uri),
    ("uuid", |s| is_uuid(s, None)),
    ("uuid3", |s| is_uuid(s, Some(b'3'))),
    ("uuid4", |s| is_uuid(s, Some(b'4'))),
    ("uuid5", |s| is_uuid(s, Some(b'5'))),
    ("", |_| true),
];

/// Returns the check of a format; `None` for an unknown format.
pub(crate) fn lookup(format: &str) -> Option<Check> {
    if format.is_empty() {
        return None;
    }
    let name = format.replace('-', "");
    FORMATS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, check)| *check)
}

/// Returns true for a known format. Unknown formats are accepted, with a warning.
pub(crate) fn is_known(format: &str) -> bool {
    format.is_empty() || lookup(format).is_some()
}

fn hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_base64(text: &str) -> bool {
    base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let Ok(address) = IpAddr::from_str(address) else {
        return false;
    };
    let max = if address.is_ipv4() { 32 } else { 128 };
    let canonical = digits(length) && (length == "0" || !length.starts_with('0'));
    canonical && length.parse::<u32>().is_ok_and(|l| l <= max)
}

fn number(text: &str) -> Option<u32> {
    if digits(text) { text.parse().ok() } else { None }
}

fn is_date(text: &str) -> bool {
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

fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else {
        return false;
    };
    if !is_date(date) {
        return false;
    }
    let Some(zone) = time.find(['Z', 'z', '+', '-']) else {
        return false;
    };
    let (clock, zone) = time.split_at(zone);
    is_clock(clock) && is_zone(zone)
}

fn is_clock(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(w, f)| (w, Some(f)));
    let parts: Vec<&str> = whole.split(':').collect();
    let [hour, minute, second] = parts[..] else {
        return false;
    };
    let in_range = |part: &str, max: u32| part.len() == 2 && number(part).is_some_and(|n| n <= max);
    in_range(hour, 23) && in_range(minute, 59) && in_range(second, 59) && fraction.is_none_or(digits)
}

fn is_zone(text: &str) -> bool {
    if matches!(text, "Z" | "z") {
        return true;
    }
    let Some((hour, minute)) = text.get(1..).and_then(|t| t.split_once(':')) else {
        return false;
    };
    let in_range = |part: &str, max: u32| part.len() == 2 && number(part).is_some_and(|n| n <= max);
    in_range(hour, 23) && in_range(minute, 59)
}

/// Returns true for Go's durations (`1h30m`, `-2.5s`), and for a count with a word (`3 weeks`).
fn is_duration(text: &str) -> bool {
    is_go_duration(text) || is_duration_in_words(text)
}

fn is_go_duration(text: &str) -> bool {
    const UNITS: [&str; 8] = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut any = false;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (count, unit) = rest.split_at(end);
        if !count.bytes().any(|b| b.is_ascii_digit()) || count.matches('.').count() > 1 {
            return false;
        }
        let end = unit
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(unit.len());
        let (unit, after) = unit.split_at(end);
        if !UNITS.contains(&unit) {
            return false;
        }
        any = true;
        rest = after;
    }
    any
}

fn is_duration_in_words(text: &str) -> bool {
    const UNITS: [&str; 25] = [
        "ns",
        "nano",
        "us",
        "µs",
        "micro",
        "ms",
        "milli",
        "s",
        "sec",
        "m",
        "min",
        "h",
        "hr",
        "hour",
        "d",
        "day",
        "w",
        "wk",
        "week",
        "second",
        "minute",
        "millisecond",
        "microsecond",
        "nanosecond",
        "msec",
    ];
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(end);
    let unit = unit.trim().to_lowercase();
    let singular = unit.strip_suffix('s').unwrap_or(&unit);
    digits(count) && (UNITS.contains(&unit.as_str()) || UNITS.contains(&singular))
}

/// Returns true for `name@host`, also with a display name: `Some One <one@example.com>`.
fn is_email(text: &str) -> bool {
    let address = match text.strip_suffix('>').and_then(|t| t.rsplit_once('<')) {
        Some((_, address)) => address,
        None => text.trim(),
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let atext = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c);
    let local_fits = if local.len() > 1 && local.starts_with('"') && local.ends_with('"') {
        true
    } else {
        !local.is_empty() && local.chars().all(atext) && local.split('.').all(|part| !part.is_empty())
    };
    let domain_fits = domain.starts_with('[') && domain.ends_with(']')
        || !domain.is_empty() && domain.chars().all(atext) && domain.split('.').all(|part| !part.is_empty());
    local_fits && domain_fits
}

fn is_hostname(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        let ends = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let inside = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        label.len() <= 63 && ends(label.chars().next()) && ends(label.chars().last()) && label.chars().all(inside)
    };
    text.len() <= 255 && text.split('.').all(label)
}

fn is_mac(text: &str) -> bool {
    let groups = |separator: char, width: usize| {
        let groups: Vec<&str> = text.split(separator).collect();
        let count = if width == 2 { [6, 8, 20] } else { [3, 4, 10] };
        count.contains(&groups.len()) && groups.iter().all(|g| g.len() == width && hex(g))
    };
    groups(':', 2) || groups('-', 2) || groups('.', 4)
}

fn is_rgb(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|t| t.strip_suffix(')')) else {
        return false;
    };
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    parts.len() == 3 && parts.iter().all(|p| number(p).is_some_and(|n| n <= 255))
}

fn is_ssn(text: &str) -> bool {
    let widths: Vec<usize> = text.split(['-', ' ']).map(str::len).collect();
    widths == [3, 2, 4] && text.split(['-', ' ']).all(digits)
}

/// Returns true for an absolute URI or an absolute path, the forms allowed in a request line.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b <= b' ' || b == 0x7f) || !escapes_are_whole(text) {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    named && (rest.starts_with('/') || !rest.is_empty())
}

fn escapes_are_whole(text: &str) -> bool {
    let path = text.split(['?', '#']).next().unwrap_or(text);
    let mut parts = path.split('%');
    parts.next();
    parts.all(|part| part.get(..2).is_some_and(hex))
}

/// Returns true for a UUID, with or without hyphens. Versions 4 and 5 also fix the variant.
fn is_uuid(text: &str, version: Option<u8>) -> bool {
    const WIDTHS: [usize; 5] = [8, 4, 4, 4, 12];
    let bare: String = if text.contains('-') {
        let groups: Vec<&str> = text.split('-').collect();
        if groups.iter().map(|g| g.len()).ne(WIDTHS) {
            return false;
        }
        groups.concat()
    } else {
        text.to_owned()
    };
    if bare.len() != 32 || !hex(&bare) {
        return false;
    }
    let bytes = bare.as_bytes();
    let Some(version) = version else { return true };
    let variant = version == b'3' || matches!(bytes[16].to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b');
    bytes[12] == version && variant
}

fn without_separators(text: &str) -> String {
    text.chars().filter(|c| *c != '-' && *c != ' ').collect()
}

fn is_isbn10(text: &str) -> bool {
    let bare = without_separators(text);
    if bare.len() != 10 || !bare.is_ascii() {
        return false;
    }
    let mut sum = 0;
    for (i, b) in bare.bytes().enumerate() {
        let value = match b {
            b'0'..=b'9' => u32::from(b - b'0'),
            b'X' if i == 9 => 10,
            _ => return false,
        };
        sum += value * (10 - u32::try_from(i).unwrap_or(0));
    }
    sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let bare = without_separators(text);
    if bare.len() != 13 || !digits(&bare) {
        return false;
    }
    let sum: u32 = bare
        .bytes()
        .enumerate()
        .map(|(i, b)| u32::from(b - b'0') * if i % 2 == 0 { 1 } else { 3 })
        .sum();
    sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let bare = without_separators(text);
    if !(13..=16).contains(&bare.len()) || !digits(&bare) {
        return false;
    }
    let sum: u32 = bare
        .bytes()
        .rev()
        .enumerate()
        .map(|(i, b)| match (u32::from(b - b'0'), i % 2) {
            (digit, 0) => digit,
            (digit, _) => (digit * 2) / 10 + (digit * 2) % 10,
        })
        .sum();
    sum.is_multiple_of(10)
}
