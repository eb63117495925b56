//! Beginnings of groups that are written with a question mark: `(?P<name>`, `(?i)`, `(?s-i:`.

use super::Error;
use super::parse::{Flags, before};

/// A beginning of a group, or a change of flags.
pub(super) enum Opening {
    /// A capturing group with a name.
    Named,
    /// A group with flags of its own.
    Plain(Flags),
    /// Other flags for the rest of the group that it stands in.
    Flags(Flags),
}

/// Parses the text from `(?`. Returns the opening and the text after it.
pub(super) fn opening(text: &str, flags: Flags) -> Result<(Opening, &str), Error> {
    for beginning in ["(?P<", "(?<"] {
        if let Some(name) = text.strip_prefix(beginning).filter(|name| !name.is_empty()) {
            return named(text, name).map(|rest| (Opening::Named, rest));
        }
    }
    flagged(text, flags)
}

fn named<'t>(text: &'t str, named: &'t str) -> Result<&'t str, Error> {
    let wrong = |part| Error::new("invalid named capture", part);
    let (name, rest) = named.split_once('>').ok_or_else(|| wrong(text))?;
    // Names do not affect matching, and Go lets them repeat.
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(wrong(before(text, rest)));
    }
    Ok(rest)
}

fn flagged(text: &str, mut flags: Flags) -> Result<(Opening, &str), Error> {
    let mut rest = text.get("(?".len()..).unwrap_or("").chars();
    // Flags are set before a minus and cleared after it, where there must be one.
    let (mut set, mut any) = (true, false);
    while let Some(c) = rest.next() {
        let flag = match c {
            'i' => &mut flags.fold,
            'm' => &mut flags.lines,
            's' => &mut flags.dot_all,
            'U' => &mut flags.lazy,
            '-' if set => {
                (set, any) = (false, false);
                continue;
            }
            ':' if set || any => return Ok((Opening::Plain(flags), rest.as_str())),
            ')' if set || any => return Ok((Opening::Flags(flags), rest.as_str())),
            _ => break,
        };
        *flag = set;
        any = true;
    }
    let part = before(text, rest.as_str());
    Err(Error::new("invalid or unsupported Perl syntax", part))
}
