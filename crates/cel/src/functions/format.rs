//! Kubernetes' named formats: `format.dns1123Label().validate(name)` returns the messages of
//! Kubernetes' own validation.

use super::opaque::{opaque, text_argument};
use super::{Context, Function, global, member, url};
use crate::error::no_overload;
use crate::opaque::{Format, Opaque};
use crate::value::{Result, Val};
use jiff::civil::Date;

pub(super) static FUNCTIONS: &[Function] = &[
    global(
        "format.named",
        &["format-named: (string) -> optional_type(kubernetes.NamedFormat)"],
        |cx, a| match Format::named(text_argument(cx, a, "format.named")?) {
            Some(format) => Ok(Val::some(opaque(cx, Opaque::Format(format))?)),
            None => Ok(Val::Optional(None)),
        },
    ),
    member(
        "validate",
        &["format-validate: kubernetes.NamedFormat.(string) -> optional_type(list(string))"],
        validate,
    ),
    global(
        "format.dns1123Label",
        &["format.dns1123Label: () -> kubernetes.NamedFormat"],
        |cx, _| opaque(cx, Opaque::Format(Format::Dns1123Label)),
    ),
    global(
        "format.dns1123Subdomain",
        &["format.dns1123Subdomain: () -> kubernetes.NamedFormat"],
        |cx, _| opaque(cx, Opaque::Format(Format::Dns1123Subdomain)),
    ),
    global(
        "format.dns1035Label",
        &["format.dns1035Label: () -> kubernetes.NamedFormat"],
        |cx, _| opaque(cx, Opaque::Format(Format::Dns1035Label)),
    ),
    global(
        "format.qualifiedName",
        &["format.qualifiedName: () -> kubernetes.NamedFormat"],
        |cx, _| opaque(cx, Opaque::Format(Format::QualifiedName)),
    ),
    global(
        "format.dns1123LabelPrefix",
        &["format.dns1123LabelPrefix: () -> kubernetes.NamedFormat"],
        |cx, _| opaque(cx, Opaque::Format(Format::Dns1123LabelPrefix)),
    ),
    global(
        "format.dns1123SubdomainPrefix",
        &["format.dns1123SubdomainPrefix: () -> kubernetes.NamedFormat"],
        |cx, _| opaque(cx, Opaque::Format(Format::Dns1123SubdomainPrefix)),
    ),
    global(
        "format.dns1035LabelPrefix",
        &["format.dns1035LabelPrefix: () -> kubernetes.NamedFormat"],
        |cx, _| opaque(cx, Opaque::Format(Format::Dns1035LabelPrefix)),
    ),
    global(
        "format.labelValue",
        &["format.labelValue: () -> kubernetes.NamedFormat"],
        |cx, _| opaque(cx, Opaque::Format(Format::LabelValue)),
    ),
    global("format.uri", &["format.uri: () -> kubernetes.NamedFormat"], |cx, _| {
        opaque(cx, Opaque::Format(Format::Uri))
    }),
    global(
        "format.uuid",
        &["format.uuid: () -> kubernetes.NamedFormat"],
        |cx, _| opaque(cx, Opaque::Format(Format::Uuid)),
    ),
    global(
        "format.byte",
        &["format.byte: () -> kubernetes.NamedFormat"],
        |cx, _| opaque(cx, Opaque::Format(Format::Byte)),
    ),
    global(
        "format.date",
        &["format.date: () -> kubernetes.NamedFormat"],
        |cx, _| opaque(cx, Opaque::Format(Format::Date)),
    ),
    global(
        "format.datetime",
        &["format.datetime: () -> kubernetes.NamedFormat"],
        |cx, _| opaque(cx, Opaque::Format(Format::DateTime)),
    ),
];

const LABEL_BYTES_MAX: usize = 63;
const SUBDOMAIN_BYTES_MAX: usize = 253;

const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
    must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
    or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const OLD_LABEL_RULE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with \
    an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

impl Format {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "dns1123Label" => Self::Dns1123Label,
            "dns1123Subdomain" => Self::Dns1123Subdomain,
            "dns1035Label" => Self::Dns1035Label,
            "qualifiedName" => Self::QualifiedName,
            "dns1123LabelPrefix" => Self::Dns1123LabelPrefix,
            "dns1123SubdomainPrefix" => Self::Dns1123SubdomainPrefix,
            "dns1035LabelPrefix" => Self::Dns1035LabelPrefix,
            "labelValue" => Self::LabelValue,
            "uri" => Self::Uri,
            "uuid" => Self::Uuid,
            "byte" => Self::Byte,
            "date" => Self::Date,
            "datetime" => Self::DateTime,
            _ => return None,
        })
    }

    /// Returns all errors of a text.
    fn errors(self, text: &str) -> Vec<String> {
        let single = |valid: bool, message: &str| if valid { Vec::new() } else { vec![message.to_owned()] };
        match self {
            Self::Dns1123Label => label_errors(text),
            Self::Dns1123Subdomain => subdomain_errors(text),
            Self::Dns1035Label => old_label_errors(text),
            Self::Dns1123LabelPrefix => label_errors(&masked(text)),
            Self::Dns1123SubdomainPrefix => subdomain_errors(&masked(text)),
            Self::Dns1035LabelPrefix => old_label_errors(&masked(text)),
            Self::QualifiedName => qualified_name_errors(text),
            Self::LabelValue => {
                let mut errors = too_long(text, LABEL_BYTES_MAX, "bytes");
                errors.extend(single(text.is_empty() || is_name(text), VALUE_RULE));
                errors
            }
            Self::Uri => match url::check(text) {
                Ok(()) => Vec::new(),
                Err(error) => vec![error],
            },
            Self::Uuid => single(is_uuid(text), "does not match the UUID format"),
            Self::Byte => single(is_base64(text), "invalid base64"),
            Self::Date => single(is_date(text), "invalid date"),
            Self::DateTime => single(is_date_time(text), "invalid datetime"),
        }
    }
}

fn validate<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let (format, text) = match args {
        [Val::Opaque(value), text] => match &**value {
            Opaque::Format(format) => (*format, text.as_str().ok_or_else(|| no_overload("validate"))?),
            _ => return Err(no_overload("validate")),
        },
        _ => return Err(no_overload("validate")),
    };
    cx.budget.traverse(text.len())?;
    let errors = format.errors(text);
    if errors.is_empty() {
        return Ok(Val::Optional(None));
    }
    cx.budget.memory(errors.iter().map(String::len).sum())?;
    Ok(Val::some(Val::list(errors.into_iter().map(Val::string).collect())))
}

/// Replaces a trailing dash of a name prefix: generated letters follow it, so that it is valid.
fn masked(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut characters = rest.chars();
            characters.next_back();
            format!("{}a", characters.as_str())
        }
        _ => text.to_owned(),
    }
}

fn too_long(text: &str, max: usize, unit: &str) -> Vec<String> {
    if text.len() > max {
        vec![format!("must be no more than {max} {unit}")]
    } else {
        Vec::new()
    }
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Returns true for letters, digits and inner dashes, of any length.
fn is_label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    ends.is_some_and(|(a, b)| is_lower_alphanumeric(*a) && is_lower_alphanumeric(*b))
        && bytes.iter().all(|b| is_lower_alphanumeric(*b) || *b == b'-')
}

fn is_subdomain_text(text: &str) -> bool {
    text.split('.').all(is_label_text)
}

/// Returns true for `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`.
fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    ends.is_some_and(|(a, b)| a.is_ascii_alphanumeric() && b.is_ascii_alphanumeric())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

pub(super) fn is_dns_label(text: &str) -> bool {
    label_errors(text).is_empty()
}

pub(super) fn is_dns_subdomain(text: &str) -> bool {
    subdomain_errors(text).is_empty()
}

fn label_errors(text: &str) -> Vec<String> {
    let mut errors = too_long(text, LABEL_BYTES_MAX, "characters");
    if !is_label_text(text) {
        let rule = if is_subdomain_text(text) {
            "must not contain dots"
        } else {
            LABEL_RULE
        };
        errors.push(rule.to_owned());
    }
    errors
}

fn subdomain_errors(text: &str) -> Vec<String> {
    let mut errors = too_long(text, SUBDOMAIN_BYTES_MAX, "characters");
    if !is_subdomain_text(text) {
        errors.push(SUBDOMAIN_RULE.to_owned());
    }
    errors
}

fn old_label_errors(text: &str) -> Vec<String> {
    let mut errors = too_long(text, LABEL_BYTES_MAX, "characters");
    if !is_label_text(text) || text.starts_with(|c: char| c.is_ascii_digit()) {
        errors.push(OLD_LABEL_RULE.to_owned());
    }
    errors
}

fn qualified_name_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            let suffix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {NAME_RULE} {suffix}")];
        }
        Some(("", name)) => {
            errors.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            errors.extend(subdomain_errors(prefix).into_iter().map(|e| format!("prefix part {e}")));
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    }
    errors.extend(
        too_long(name, LABEL_BYTES_MAX, "bytes")
            .into_iter()
            .map(|e| format!("name part {e}")),
    );
    if !is_name(name) {
        errors.push(format!("name part {NAME_RULE}"));
    }
    errors
}

/// Returns true for groups of 8, 4, 4, 4 and 12 hexadecimal digits. Each dash is optional.
fn is_uuid(text: &str) -> bool {
    let mut rest = text.as_bytes();
    for (i, group) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        match rest.split_at_checked(group) {
            Some((digits, after)) if digits.iter().all(u8::is_ascii_hexdigit) => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}

fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - digits.len() <= 2
        && digits
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
}

fn is_date(text: &str) -> bool {
    let shape = text.len() == 10
        && text.bytes().enumerate().all(|(i, b)| match i {
            4 | 7 => b == b'-',
            _ => b.is_ascii_digit(),
        });
    shape && text.parse::<Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date) && is_time(time).is_some_and(|valid| valid)
}

/// Parses `15:04:05` with an optional fraction, and `z` or an offset.
fn is_time(text: &str) -> Option<bool> {
    let (clock, rest) = text.split_at_checked(8)?;
    let two = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    let mut parts = clock.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let in_range = two(hours) && two(minutes) && two(seconds) && hours <= "23" && minutes <= "59" && seconds <= "59";
    let zone = |zone: &str| {
        zone == "z"
            || zone
                .strip_prefix(['+', '-'])
                .and_then(|z| z.split_once(':'))
                .is_some_and(|(h, m)| two(h) && two(m))
    };
    // Any character is accepted for the decimal point.
    let mut after_point = rest.chars();
    after_point.next();
    let fraction = after_point.as_str();
    let end = fraction.bytes().take_while(u8::is_ascii_digit).count();
    Some(in_range && (zone(rest) || (end > 0 && zone(&fraction[end..]))))
}
