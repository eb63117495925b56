//! Regular expressions in Go's syntax (RE2), run by the `regex` crate.
//!
//! The two syntaxes mostly agree. The differences are translated: classes are ASCII, brackets have
//! no set operations, a brace that repeats nothing is a literal, group names are ignored. Patterns
//! that Go refuses are refused with Go's messages, because schema authors search for them.

mod class;

use std::fmt;

/// Bytes of a pattern. The largest in known definitions has about 4,000.
pub const PATTERN_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a compiled pattern; bounds patterns such as `(x{1000}){1000}`.
const COMPILED_BYTES_MAX: usize = 1024 * 1024;
/// Go's limit on `x{n}`.
const REPEAT_MAX: u32 = 1000;
/// Go's limit on nesting.
const NESTING_MAX: usize = 1000;

/// A compiled pattern.
#[derive(Clone)]
pub(crate) struct Pattern {
    source: Box<str>,
    regex: regex::bytes::Regex,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.source).finish()
    }
}

impl Pattern {
    /// Compiles a pattern. The error is Go's message.
    pub(crate) fn compile(source: &str) -> Result<Pattern, String> {
        if source.len() > PATTERN_BYTES_MAX {
            return Err(format!("patterns may have at most {PATTERN_BYTES_MAX} bytes"));
        }
        let translated = Translation::translate(source).map_err(|e| format!("error parsing regexp: {e}"))?;
        let regex = regex::bytes::RegexBuilder::new(&translated)
            .size_limit(COMPILED_BYTES_MAX)
            .nest_limit(250)
            .build()
            .map_err(|e| match e {
                regex::Error::CompiledTooBig(_) => "error parsing regexp: expression too large".to_owned(),
                _ => format!("error parsing regexp: unsupported syntax: `{source}`"),
            })?;
        Ok(Pattern {
            source: source.into(),
            regex,
        })
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text.as_bytes())
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }
}

struct Translation<'a> {
    source: &'a str,
    at: usize,
    out: String,
    depth: usize,
    /// Position of the last repetition operator, if no other may follow it.
    repeated: Option<usize>,
    /// True if there is an item to repeat.
    repeatable: bool,
}

impl<'a> Translation<'a> {
    fn translate(source: &'a str) -> Result<String, String> {
        let out = String::with_capacity(source.len() + 16);
        let mut t = Translation {
            source,
            at: 0,
            out,
            depth: 0,
            repeated: None,
            repeatable: false,
        };
        while let Some(c) = t.peek() {
            t.step(c)?;
        }
        if t.depth > 0 {
            Err(format!("missing closing ): `{source}`"))
        } else {
            Ok(t.out)
        }
    }

    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, c: char) {
        self.at += c.len_utf8();
        self.out.push(c);
    }

    fn atom(&mut self) {
        self.repeatable = true;
        self.repeated = None;
    }

    fn step(&mut self, c: char) -> Result<(), String> {
        match c {
            '(' => self.open(),
            ')' => {
                if self.depth == 0 {
                    return Err(format!("unexpected ): `{}`", self.source));
                }
                self.depth -= 1;
                self.take(c);
                self.atom();
                Ok(())
            }
            '|' => {
                self.take(c);
                self.repeatable = false;
                self.repeated = None;
                Ok(())
            }
            '*' | '+' | '?' => self.repeat(1),
            '{' => match counted(self.rest()) {
                Some((length, low, high)) => {
                    if low > REPEAT_MAX || high.is_some_and(|h| h > REPEAT_MAX || h < low) {
                        let operator = self.rest().get(..length).unwrap_or("");
                        return Err(format!("invalid repeat count: `{operator}`"));
                    }
                    self.repeat(length)
                }
                None => {
                    self.at += 1;
                    self.out.push_str("\\{");
                    self.atom();
                    Ok(())
                }
            },
            '[' => self.class(),
            '\\' => self.escape(),
            _ => {
                self.take(c);
                self.atom();
                Ok(())
            }
        }
    }

    fn repeat(&mut self, length: usize) -> Result<(), String> {
        let start = self.at;
        let mut end = start + length;
        if self.source.get(end..).is_some_and(|s| s.starts_with('?')) {
            end += 1;
        }
        let operator = self.source.get(start..end).unwrap_or("");
        if let Some(before) = self.repeated {
            let both = self.source.get(before..end).unwrap_or("");
            return Err(format!("invalid nested repetition operator: `{both}`"));
        }
        if !self.repeatable {
            let alone = self.source.get(start..start + length).unwrap_or("");
            return Err(format!("missing argument to repetition operator: `{alone}`"));
        }
        self.out.push_str(operator);
        self.at = end;
        self.repeated = Some(start);
        Ok(())
    }

    fn open(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            return Err(format!("expression nests too deeply: `{}`", self.source));
        }
        self.repeatable = false;
        self.repeated = None;
        let rest = self.rest();
        for opening in ["(?P<", "(?<"] {
            let Some(named) = rest.strip_prefix(opening) else {
                continue;
            };
            if named.starts_with(['=', '!']) {
                break;
            }
            let Some((name, _)) = named.split_once('>') else {
                return Err(format!("invalid named capture: `{rest}`"));
            };
            let whole = opening.len() + name.len() + 1;
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(format!(
                    "invalid named capture: `{}`",
                    rest.get(..whole).unwrap_or(rest)
                ));
            }
            // Names do not affect matching, and Go's rules about repeated names differ.
            self.out.push('(');
            self.at += whole;
            return Ok(());
        }
        if let Some(flags) = rest.strip_prefix("(?") {
            return self.flags(rest, flags);
        }
        self.out.push('(');
        self.at += 1;
        Ok(())
    }

    fn flags(&mut self, rest: &str, flags: &str) -> Result<(), String> {
        let mut negated = false;
        let mut any = false;
        for (i, c) in flags.char_indices() {
            match c {
                'i' | 'm' | 's' | 'U' => any = true,
                '-' if !negated => {
                    negated = true;
                    any = false;
                }
                ':' | ')' if !negated || any => {
                    let whole = rest.get(..2 + i + 1).unwrap_or(rest);
                    self.out.push_str(whole);
                    self.at += whole.len();
                    if c == ')' {
                        self.depth -= 1;
                    }
                    return Ok(());
                }
                _ => {
                    let shown = rest.get(..2 + i + c.len_utf8()).unwrap_or(rest);
                    return Err(format!("invalid or unsupported Perl syntax: `{shown}`"));
                }
            }
        }
        Err(format!("missing closing ): `{}`", self.source))
    }

    fn escape(&mut self) -> Result<(), String> {
        let rest = self.rest();
        let Some(c) = rest.chars().nth(1) else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        self.atom();
        if c == 'Q' {
            let quoted = rest.get(2..).unwrap_or("");
            let (literal, skip) = match quoted.split_once("\\E") {
                Some((literal, _)) => (literal, literal.len() + 4),
                None => (quoted, rest.len()),
            };
            self.out.push_str(&regex::escape(literal));
            self.at += skip;
            return Ok(());
        }
        let known = match c {
            'd' => "[0-9]",
            'D' => "[^0-9]",
            'w' => "[0-9A-Za-z_]",
            'W' => "[^0-9A-Za-z_]",
            's' => "[\\t\\n\\f\\r ]",
            'S' => "[^\\t\\n\\f\\r ]",
            'b' => "(?-u:\\b)",
            'B' => "(?-u:\\B)",
            'A' => "\\A",
            'z' => "\\z",
            _ => "",
        };
        if known.is_empty() {
            let (literal, length) = self.literal_or_class(rest, c)?;
            self.out.push_str(&literal);
            self.at += length;
        } else {
            self.out.push_str(known);
            self.at += 2;
        }
        Ok(())
    }

    /// Translates escapes that mean the same inside and outside of brackets. Returns the text and
    /// its length in the source.
    fn literal_or_class(&self, rest: &str, c: char) -> Result<(String, usize), String> {
        let invalid = |length: usize| {
            let shown = rest.get(..length.min(rest.len())).unwrap_or(rest);
            Err(format!("invalid escape sequence: `{shown}`"))
        };
        match c {
            'a' | 'f' | 't' | 'n' | 'r' | 'v' => Ok((format!("\\{c}"), 2)),
            'p' | 'P' => {
                let length = match rest.get(2..).and_then(|r| r.chars().next()) {
                    Some('{') => rest.find('}').map(|end| end + 1),
                    Some(letter) => Some(2 + letter.len_utf8()),
                    None => None,
                };
                let Some(class) = length.and_then(|l| rest.get(..l)) else {
                    return Err(format!("invalid character class range: `{rest}`"));
                };
                // The crate has the same Unicode classes; probing it avoids a list here.
                if regex::Regex::new(class).is_err() {
                    return Err(format!("invalid character class range: `{class}`"));
                }
                Ok((class.to_owned(), class.len()))
            }
            'x' => {
                let digits = rest.get(2..).unwrap_or("");
                let (hex, length) = match digits.strip_prefix('{') {
                    Some(inner) => match inner.split_once('}') {
                        Some((hex, _)) => (hex, hex.len() + 4),
                        None => return invalid(rest.len()),
                    },
                    None => (digits.get(..2).unwrap_or(digits), 4),
                };
                match u32::from_str_radix(hex, 16).ok().and_then(char::from_u32) {
                    Some(c) => Ok((format!("\\x{{{:x}}}", u32::from(c)), length)),
                    None => invalid(length),
                }
            }
            '0'..='7' => {
                let octal: String = rest
                    .chars()
                    .skip(1)
                    .take(3)
                    .take_while(|c| matches!(c, '0'..='7'))
                    .collect();
                if c != '0' && octal.len() < 2 {
                    return invalid(2);
                }
                let code = u32::from_str_radix(&octal, 8).unwrap_or(0);
                Ok((format!("\\x{{{code:x}}}"), 1 + octal.len()))
            }
            '<' | '>' => Ok((c.to_string(), 2)),
            c if c.is_ascii_punctuation() => Ok((format!("\\{c}"), 2)),
            c => invalid(1 + c.len_utf8()),
        }
    }
}

/// Parses `{2}`, `{2,}` or `{2,3}`. Returns its length and bounds.
fn counted(rest: &str) -> Option<(usize, u32, Option<u32>)> {
    let (inner, _) = rest.strip_prefix('{')?.split_once('}')?;
    let number = |text: &str| -> Option<u32> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse().unwrap_or(u32::MAX))
    };
    let length = inner.len() + 2;
    match inner.split_once(',') {
        None => number(inner).map(|n| (length, n, Some(n))),
        Some((low, "")) => number(low).map(|n| (length, n, None)),
        Some((low, high)) => Some((length, number(low)?, Some(number(high)?))),
    }
}

#[cfg(test)]
mod tests;
