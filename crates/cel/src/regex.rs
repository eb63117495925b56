//! Regular expressions as Go's RE2 has them: linear in time, bounded in size, with ASCII classes.
//!
//! `\d \w \s \b` mean ASCII in RE2 but Unicode in the `regex` crate, which also reads `[`, `&&`, `--`, `~~` inside a
//! class as operators. So a pattern is rewritten to say what RE2 means by it.

use crate::cost::Budget;
use crate::error::EvalError;

/// Bytes of a pattern.
pub const PATTERN_BYTES_MAX: usize = 4_096;
/// Bytes of a compiled pattern, and of what matching may cache.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// RE2's limit for the counts in `x{n,m}`.
const REPEAT_MAX: u32 = 1_000;

/// Compiles a pattern; the error is in words of its own and holds none of the pattern.
pub(crate) fn compile(pattern: &str) -> Result<::regex::Regex, String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!("regular expression exceeds {PATTERN_BYTES_MAX} bytes"));
    }
    ::regex::RegexBuilder::new(&translate(pattern)?)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(COMPILED_BYTES_MAX)
        .nest_limit(100)
        .build()
        .map_err(|error| match error {
            ::regex::Error::CompiledTooBig(_) => "error parsing regexp: expression too large".to_owned(),
            _ => "error parsing regexp: invalid syntax".to_owned(),
        })
}

/// Cost of matching `text`: cel-go's product of traversals.
pub(crate) fn charge(budget: &mut Budget, text: &str, pattern_bytes: usize) -> Result<(), EvalError> {
    let text_cost = (text.len() as u64 + 1).div_ceil(10);
    let pattern_cost = (pattern_bytes as u64).div_ceil(4).max(1);
    budget.charge(text_cost.saturating_mul(pattern_cost))
}

fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\\' => escape(after, &mut out)?,
            '[' => class(after, &mut out)?,
            // RE2 takes a brace that starts no count for itself.
            '{' => match repeat(after)? {
                Some(count) => {
                    out.push('{');
                    out.push_str(&after[..count]);
                    &after[count..]
                }
                None => {
                    out.push_str("\\{");
                    after
                }
            },
            '}' => {
                out.push_str("\\}");
                after
            }
            c => {
                out.push(c);
                after
            }
        };
    }
    Ok(out)
}

/// Outside a class. Returns what follows.
fn escape<'p>(after: &'p str, out: &mut String) -> Result<&'p str, String> {
    let Some(c) = after.chars().next() else {
        return Err("error parsing regexp: trailing backslash at end of expression".to_owned());
    };
    let rest = &after[c.len_utf8()..];
    match c {
        'd' => out.push_str("[0-9]"),
        'D' => out.push_str("[^0-9]"),
        'w' => out.push_str("[0-9A-Za-z_]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        's' => out.push_str("[\\t\\n\\f\\r ]"),
        'S' => out.push_str("[^\\t\\n\\f\\r ]"),
        'b' => out.push_str("(?-u:\\b)"),
        'Q' => {
            let (literal, rest) = rest.split_once("\\E").unwrap_or((rest, ""));
            out.push_str(&::regex::escape(literal));
            return Ok(rest);
        }
        'E' => {}
        'p' | 'P' => {
            out.push('\\');
            out.push(c);
            // The name in braces is no repeat count.
            if let Some(end) = rest.strip_prefix('{').and_then(|r| r.find('}')) {
                out.push_str(&rest[..end + 2]);
                return Ok(&rest[end + 2..]);
            }
        }
        'x' if rest.starts_with('{') => {
            let end = rest.find('}').ok_or("error parsing regexp: invalid escape sequence")?;
            out.push_str("\\x");
            out.push_str(&rest[..=end]);
            return Ok(&rest[end + 1..]);
        }
        c => {
            out.push('\\');
            out.push(c);
        }
    }
    Ok(rest)
}

/// Inside a class, after its `[`. Returns what follows its `]`.
fn class<'p>(after: &'p str, out: &mut String) -> Result<&'p str, String> {
    out.push('[');
    let mut rest = after;
    if let Some(r) = rest.strip_prefix('^') {
        out.push('^');
        rest = r;
    }
    // A bracket in first place is itself.
    if let Some(r) = rest.strip_prefix(']') {
        out.push_str("\\]");
        rest = r;
    }
    while let Some(c) = rest.chars().next() {
        let next = &rest[c.len_utf8()..];
        rest = match c {
            ']' => {
                out.push(']');
                return Ok(next);
            }
            '[' if next.starts_with(':') && next.contains(":]") => {
                let end = next.find(":]").map_or(0, |e| e + 2);
                out.push('[');
                out.push_str(&next[..end]);
                &next[end..]
            }
            '[' | '&' | '~' => {
                out.push('\\');
                out.push(c);
                next
            }
            '\\' => class_escape(next, out)?,
            c => {
                out.push(c);
                next
            }
        };
    }
    Err("error parsing regexp: missing closing ]".to_owned())
}

fn class_escape<'p>(after: &'p str, out: &mut String) -> Result<&'p str, String> {
    let Some(c) = after.chars().next() else {
        return Err("error parsing regexp: trailing backslash at end of expression".to_owned());
    };
    let rest = &after[c.len_utf8()..];
    match c {
        'd' => out.push_str("0-9"),
        'w' => out.push_str("0-9A-Za-z_"),
        's' => out.push_str("\\t\\n\\f\\r "),
        'D' | 'W' | 'S' | 'p' | 'P' | 'x' => return escape(after, out),
        c => {
            out.push('\\');
            out.push(c);
        }
    }
    Ok(rest)
}

fn is_count(text: &str) -> bool {
    let (low, high) = text.split_once(',').unwrap_or((text, ""));
    !low.is_empty() && low.bytes().all(|b| b.is_ascii_digit()) && high.bytes().all(|b| b.is_ascii_digit())
}

/// The length of `n,m}` at the start, if the brace before it opens a count.
fn repeat(after: &str) -> Result<Option<usize>, String> {
    let Some(end) = after.find('}').filter(|end| is_count(&after[..*end])) else {
        return Ok(None);
    };
    let mut counts = after[..end].split(',').filter(|n| !n.is_empty());
    if counts.all(|n| n.parse().is_ok_and(|n: u32| n <= REPEAT_MAX)) {
        Ok(Some(end + 1))
    } else {
        Err("error parsing regexp: invalid repeat count".to_owned())
    }
}
