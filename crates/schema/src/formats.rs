//! String formats of Kubernetes' validator (`k8s.io/kube-openapi`, `strfmt`). Hyphens in names are
//! ignored: `date-time` is `datetime`.
//!
//! The checks accept exactly the texts that upstream accepts, lax or not: a stricter server would
//! refuse objects that exist, and a laxer one would store objects that cannot be moved.

mod mail;
mod network;
mod time;
pub(crate) mod uri;

use crate::names;

type Check = fn(&str) -> bool;

/// Every known format, without hyphens.
const FORMATS: [(&str, Check); 27] = [
    ("bsonobjectid", |s| s.len() == 24 && hex(s)),
    ("byte", is_base64),
    ("cidr", network::is_cidr),
    ("creditcard", is_credit_card),
    ("date", time::is_date),
    ("datetime", time::is_date_time),
    ("duration", time::is_duration),
    ("email", mail::is_email),
    (
        "hexcolor",
        |s| matches!(s.strip_prefix('#').unwrap_or(s), h if matches!(h.len(), 3 | 6) && hex(h)),
    ),
    ("hostname", network::is_hostname),
    ("ipv4", network::is_ipv4),
    ("ipv6", network::is_ipv6),
    ("isbn", |s| is_isbn10(s) || is_isbn13(s)),
    ("isbn10", is_isbn10),
    ("isbn13", is_isbn13),
    ("k8sshortname", |s| {
        s.len() <= names::LABEL_LENGTH_MAX && names::is_label_1123(s)
    }),
    ("k8slongname", |s| {
        s.len() <= names::SUBDOMAIN_LENGTH_MAX && names::is_subdomain(s)
    }),
    ("mac", network::is_mac),
    ("password", |_| true),
    ("rgbcolor", is_rgb),
    ("ssn", is_ssn),
    ("uri", uri::is_uri),
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

fn is_ssn(text: &str) -> bool {
    let widths: Vec<usize> = text.split(['-', ' ']).map(str::len).collect();
    widths == [3, 2, 4] && text.split(['-', ' ']).all(digits)
}

/// Returns true for standard base64 with padding. The bits that a last digit leaves over may be
/// set.
fn is_base64(text: &str) -> bool {
    let bare = text
        .strip_suffix("==")
        .or_else(|| text.strip_suffix('='))
        .unwrap_or(text);
    let is_digit = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    !text.is_empty() && text.len().is_multiple_of(4) && bare.bytes().all(is_digit)
}

/// Returns true for characters that Go's `\s` matches.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}')
}

fn is_rgb(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|t| t.strip_suffix(')')) else {
        return false;
    };
    let is_byte = |part: &str| {
        let part = part.trim_matches(is_space);
        let is_short = digits(part) && (part == "0" || !part.starts_with('0'));
        is_short && part.parse::<u8>().is_ok()
    };
    inner.split(',').count() == 3 && inner.split(',').all(is_byte)
}

/// Returns true for a UUID. Each hyphen may be left out. Versions 4 and 5 also fix the variant.
fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let mut bare = String::with_capacity(32);
    let mut rest = text;
    for (i, width) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(width) else {
            return false;
        };
        bare.push_str(group);
        rest = after;
    }
    if !rest.is_empty() || !hex(&bare) {
        return false;
    }
    let bytes = bare.as_bytes();
    let Some(version) = version else { return true };
    let variant = version == b'3' || matches!(bytes[16].to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b');
    bytes[12] == version && variant
}

/// Returns a book number without spaces and hyphens.
fn without_separators(text: &str) -> String {
    text.chars().filter(|c| *c != '-' && !is_space(*c)).collect()
}

fn is_isbn10(text: &str) -> bool {
    let bare = without_separators(text);
    let (body, last) = bare.split_at(bare.len().saturating_sub(usize::from(bare.is_ascii())));
    if body.len() != 9 || !digits(body) || !(digits(last) || last == "X") {
        return false;
    }
    let values = body
        .bytes()
        .map(|b| u32::from(b - b'0'))
        .chain([last.parse().unwrap_or(10)]);
    let sum: u32 = values.zip((1..=10).rev()).map(|(value, weight)| value * weight).sum();
    sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let bare = without_separators(text);
    if bare.len() != 13 || !digits(&bare) {
        return false;
    }
    let values = bare.bytes().map(|b| u32::from(b - b'0'));
    let sum: u32 = values
        .zip([1, 3].into_iter().cycle())
        .map(|(value, weight)| value * weight)
        .sum();
    sum.is_multiple_of(10)
}

/// Returns true for a number of a known card network whose check digit fits. Everything besides
/// digits is ignored.
fn is_credit_card(text: &str) -> bool {
    /// Lengths, and the first and last number that a card of the network begins with.
    const NETWORKS: [(&[usize], &str, &str); 12] = [
        (&[13, 16], "4", "4"),
        (&[16], "51", "55"),
        (&[16], "6011", "6011"),
        (&[16], "65", "65"),
        (&[15], "34", "34"),
        (&[15], "37", "37"),
        (&[14], "300", "305"),
        (&[14], "36", "36"),
        (&[14], "38", "38"),
        (&[15], "1800", "1800"),
        (&[15], "2131", "2131"),
        (&[16], "35", "35"),
    ];
    let bare: String = text.chars().filter(char::is_ascii_digit).collect();
    let known = NETWORKS.iter().any(|(lengths, first, last)| {
        let begin = bare.get(..first.len()).unwrap_or_default();
        lengths.contains(&bare.len()) && (*first..=*last).contains(&begin)
    });
    let sum: u32 = bare
        .bytes()
        .rev()
        .enumerate()
        .map(|(i, b)| match (u32::from(b - b'0'), i % 2) {
            (digit, 0) => digit,
            (digit, _) => (digit * 2) / 10 + (digit * 2) % 10,
        })
        .sum();
    known && sum.is_multiple_of(10)
}
