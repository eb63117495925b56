//! Paths in the notation of rules: `.spec.names[0]`, `spec.colors[i].name`,
//! `metadata.annotations['a.b/c']`.
//!
//! Paths are parsed once, when rules are read; later code works on segments.

use std::fmt;

/// Maximum number of bytes of one path. The longest that a real schema needs is far below.
pub const PATH_BYTES_MAX: usize = 1_024;
/// Maximum number of segments of one path: no schema is deeper.
pub const PATH_SEGMENTS_MAX: usize = 64;

/// One step of a [`Path`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// A field, or a named entry of a map.
    Field(String),
    /// One element of a list, by its index from 0.
    Index(usize),
    /// Every element of a list or entry of a map, as `[i]`. The name is the variable that holds its
    /// index or key; it is empty for `[]`.
    Each(String),
    /// The entry of a map under the key that this CEL expression returns, as `[self.name]`, or
    /// `[self]` for items that are texts.
    Key(String),
}

/// A parsed path, relative to an object or to an item.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Path(Vec<Segment>);

impl Path {
    /// Parses `.spec.a`, `spec.a`, `spec['a.b']`, `spec.list[0]`, `spec.list[i]`, `spec.list[]`,
    /// `spec.map[self.name]`.
    ///
    /// # Errors
    /// Returns a message for the author about the first error.
    pub fn parse(text: &str) -> Result<Path, String> {
        if text.len() > PATH_BYTES_MAX {
            return Err(format!("a path may be at most {PATH_BYTES_MAX} bytes long"));
        }
        let mut rest = text.strip_prefix('.').unwrap_or(text);
        if rest.is_empty() {
            return Err("a path names at least one field, such as .spec.name".to_owned());
        }
        let mut segments = Vec::new();
        let mut at_start = true;
        while !rest.is_empty() {
            let (segment, after) = if let Some(inner) = rest.strip_prefix('[') {
                bracket(inner)?
            } else {
                let name = match (rest.strip_prefix('.'), at_start) {
                    (Some(name), false) => name,
                    (None, true) => rest,
                    (Some(_), true) => return Err("a field name is missing between two dots".to_owned()),
                    (None, false) => return Err("expected '.' or '[' after ']'".to_owned()),
                };
                field(name)?
            };
            segments.push(segment);
            if segments.len() > PATH_SEGMENTS_MAX {
                return Err(format!("a path may have at most {PATH_SEGMENTS_MAX} segments"));
            }
            rest = after;
            at_start = false;
        }
        Ok(Path(segments))
    }

    /// Makes a path of these segments.
    pub fn from_segments(segments: Vec<Segment>) -> Path {
        Path(segments)
    }

    /// Returns the segments, outermost first.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Returns true if every segment is a field or an index, so that the path names at most one
    /// value.
    pub fn is_single(&self) -> bool {
        self.0
            .iter()
            .all(|s| matches!(s, Segment::Field(_) | Segment::Index(_)))
    }

    /// Returns true if two paths can name the same value, or one a value inside the other's.
    pub fn overlaps(&self, other: &Path) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| match (a, b) {
            (Segment::Field(a), Segment::Field(b)) => a == b,
            (Segment::Index(a), Segment::Index(b)) => a == b,
            _ => true,
        })
    }
}

/// Returns true if the pattern matches the path or a path above it. Each `[…]` of the pattern that
/// is not a number means all items and entries.
pub(crate) fn covers(pattern: &[Segment], path: &[Segment]) -> bool {
    pattern.len() <= path.len()
        && pattern.iter().zip(path).all(|(a, b)| match (a, b) {
            (Segment::Field(a), Segment::Field(b)) => a == b,
            (Segment::Index(a), Segment::Index(b)) => a == b,
            (Segment::Each(_) | Segment::Key(_), _) => true,
            _ => false,
        })
}

fn field(text: &str) -> Result<(Segment, &str), String> {
    let end = text.find(['.', '[']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() {
        return Err("a field name is missing between two dots".to_owned());
    }
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$');
    if let Some(odd) = name.chars().find(|c| !plain(*c)) {
        return Err(format!(
            "{odd:?} is not part of a field name; names with other characters are quoted: ['a.b/c']"
        ));
    }
    Ok((Segment::Field(name.to_owned()), rest))
}

/// Parses the inside of `[…]`; `text` begins after the opening bracket. Returns the rest of the
/// text.
fn bracket(text: &str) -> Result<(Segment, &str), String> {
    // Spaces inside the brackets have no meaning.
    let text = text.trim_start();
    if let Some(quote) = text.chars().next().filter(|c| matches!(c, '\'' | '"')) {
        let (name, rest) = quoted(&text[1..], quote)?;
        let rest = rest.trim_start().strip_prefix(']');
        let rest = rest.ok_or("expected ']' after the quoted name")?;
        return Ok((Segment::Field(name), rest));
    }
    let mut depth = 1usize;
    let mut open_quote: Option<char> = None;
    for (at, c) in text.char_indices() {
        match (open_quote, c) {
            (Some(q), c) if q == c => open_quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => open_quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
        if depth == 0 {
            return Ok((inside(text[..at].trim())?, &text[at + 1..]));
        }
    }
    Err("a '[' is never closed".to_owned())
}

fn inside(text: &str) -> Result<Segment, String> {
    if text.is_empty() || text == "*" {
        return Ok(Segment::Each(String::new()));
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        let index = text.parse().map_err(|_| "an index is too large".to_owned())?;
        return Ok(Segment::Index(index));
    }
    // `self` is no variable's name: it is the item, as the key of a map by texts.
    if is_identifier(text) && text != "self" {
        Ok(Segment::Each(text.to_owned()))
    } else {
        Ok(Segment::Key(text.to_owned()))
    }
}

fn quoted(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, escaped @ ('\\' | '\'' | '"'))) => name.push(escaped),
                _ => return Err("a backslash in a quoted name escapes only quotes and itself".to_owned()),
            },
            c if c == quote && name.is_empty() => return Err("a quoted name is empty".to_owned()),
            c if c == quote => return Ok((name, &text[at + c.len_utf8()..])),
            c => name.push(c),
        }
    }
    Err("a quoted name is never closed".to_owned())
}

/// Returns true if `text` can be the name of a variable.
pub(crate) fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl fmt::Display for Path {
    /// Writes the canonical form: `.spec.colors[i].name`; the empty path is `.`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(".");
        }
        for segment in &self.0 {
            match segment {
                Segment::Field(name)
                    if name
                        .chars()
                        .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$')) =>
                {
                    write!(f, ".{name}")?;
                }
                Segment::Field(name) => write!(f, "['{}']", name.replace('\\', "\\\\").replace('\'', "\\'"))?,
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Each(text) | Segment::Key(text) => write!(f, "[{text}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_as_they_parse() {
        let rows = [
            (".spec.firstName", ".spec.firstName"),
            ("spec.names[0]", ".spec.names[0]"),
            ("spec.colors[i].name", ".spec.colors[i].name"),
            ("spec.colors[]", ".spec.colors[]"),
            ("spec.colors[*].x", ".spec.colors[].x"),
            ("spec.colors[self.name]", ".spec.colors[self.name]"),
            ("spec.colors[self.names[0]]", ".spec.colors[self.names[0]]"),
            ("metadata.annotations['a.b/c']", ".metadata.annotations['a.b/c']"),
            (r#"spec["a"].b"#, ".spec.a.b"),
            ("spec[ 'a.b' ].c", ".spec['a.b'].c"),
            ("spec.l[ 0 ]", ".spec.l[0]"),
            (r"spec['it\'s']", r".spec['it\'s']"),
        ];
        for (text, want) in rows {
            let path = Path::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(path.to_string(), want);
            assert_eq!(Path::parse(&path.to_string()), Ok(path), "{text}");
        }
    }

    #[test]
    fn malformed_paths_are_refused_with_a_reason() {
        for text in [
            "",
            ".",
            "spec..x",
            "spec.",
            "spec[",
            "spec['x",
            "spec['']",
            "spec[ \"\"]",
            "spec[0]x",
            "a b",
            "spec.x[99999999999999999999]",
        ] {
            assert!(Path::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn overlap_is_sharing_a_prefix() {
        let path = |text: &str| Path::parse(text).expect("a path");
        for (a, b, want) in [
            ("spec.a", "spec.a", true),
            ("spec", "spec.a", true),
            ("spec.a", "spec.b", false),
            ("spec.l[0]", "spec.l[1]", false),
            ("spec.l[0]", "spec.l[]", true),
            ("spec.l", "spec.l[0].x", true),
        ] {
            assert_eq!(path(a).overlaps(&path(b)), want, "{a} {b}");
            assert_eq!(path(b).overlaps(&path(a)), want, "{b} {a}");
        }
    }
}
