//! Grammars of names, with Kubernetes' messages. Hand-written, because they run on every write.

const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Characters of a label.
pub(crate) const LABEL_LENGTH_MAX: usize = 63;
/// Characters of a subdomain.
pub(crate) const SUBDOMAIN_LENGTH_MAX: usize = 253;

fn lower_or_digit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

pub(crate) fn is_label_1123(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = |b: Option<&u8>| b.is_some_and(|b| lower_or_digit(*b));
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(|b| lower_or_digit(*b) || *b == b'-')
}

pub(crate) fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label_1123)
}

fn is_label_1035(text: &str) -> bool {
    is_label_1123(text) && text.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
}

fn is_qualified_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let inside = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(inside)
}

/// Counts bytes, whatever Kubernetes calls them: its older checks say "characters", those of labels
/// (`apimachinery/pkg/api/validate/content`) say "bytes".
fn too_long(max: usize, unit: &str) -> String {
    format!("must be no more than {max} {unit}")
}

/// Returns the errors of a DNS-1035 label.
pub fn label_1035(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if text.len() > LABEL_LENGTH_MAX {
        found.push(too_long(LABEL_LENGTH_MAX, "characters"));
    }
    if !is_label_1035(text) {
        found.push(LABEL_1035.to_owned());
    }
    found
}

/// Returns the errors of a kind: a DNS-1035 label in any case.
pub(crate) fn kind(text: &str) -> Vec<String> {
    let words = label_1035(&text.to_lowercase());
    words
        .into_iter()
        .map(|w| format!("may have mixed case, but should otherwise match: {w}"))
        .collect()
}

/// Returns the errors of a DNS subdomain.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if text.len() > SUBDOMAIN_LENGTH_MAX {
        found.push(too_long(SUBDOMAIN_LENGTH_MAX, "characters"));
    }
    if !is_subdomain(text) {
        found.push(SUBDOMAIN.to_owned());
    }
    found
}

/// Returns the errors of a qualified name `[prefix/]name`, as in keys of labels and annotations.
pub(crate) fn qualified_name(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!(
                "a valid label key {QUALIFIED} with an optional DNS subdomain prefix and '/' \
                 (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                found.push("prefix part must be non-empty".to_owned());
            } else {
                let problems = subdomain(prefix).into_iter();
                found.extend(problems.map(|why| format!("prefix part {}", why.replace("253 characters", "253 bytes"))));
            }
            name
        }
    };
    if name.is_empty() {
        found.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LENGTH_MAX {
        found.push(format!("name part {}", too_long(LABEL_LENGTH_MAX, "bytes")));
    }
    if !is_qualified_part(name) {
        found.push(format!("name part {QUALIFIED}"));
    }
    found
}

/// Returns the errors of a label's value.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if text.len() > LABEL_LENGTH_MAX {
        found.push(too_long(LABEL_LENGTH_MAX, "bytes"));
    }
    if !text.is_empty() && !is_qualified_part(text) {
        found.push(LABEL_VALUE.to_owned());
    }
    found
}
