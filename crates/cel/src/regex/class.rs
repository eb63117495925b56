//! Character classes: `\d`, `\p{Greek}`, `[^a-z[:digit:]]`.

use super::escape::{character, push_literal};
use super::{before, first, problem};

const RANGE: &str = "invalid character class range";

/// Returns Perl's ASCII classes, as the inside of brackets. The flag is true for a negated class.
fn perl(letter: char) -> Option<(bool, &'static str)> {
    let inside = match letter.to_ascii_lowercase() {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => "\\t\\n\\f\\r ",
        _ => return None,
    };
    Some((letter.is_ascii_uppercase(), inside))
}

/// Translates a class that begins with a backslash, inside or outside brackets. Returns the text
/// after it, or `None` for another escape.
pub(super) fn escaped<'t>(text: &'t str, out: &mut String) -> Result<Option<&'t str>, String> {
    let Some((letter, rest)) = text.strip_prefix('\\').and_then(first) else {
        return Ok(None);
    };
    if let Some((negated, inside)) = perl(letter) {
        out.push_str(if negated { "[^" } else { "[" });
        out.push_str(inside);
        out.push(']');
        return Ok(Some(rest));
    }
    if !matches!(letter, 'p' | 'P') {
        return Ok(None);
    }
    let (name, rest) = match rest.strip_prefix('{') {
        Some(inside) => inside.split_once('}').ok_or_else(|| problem(RANGE, text))?,
        None => match first(rest) {
            Some((_, after)) => (before(rest, after), after),
            None => return Err(problem(RANGE, text)),
        },
    };
    let (inverted, name) = name.strip_prefix('^').map_or((false, name), |n| (true, n));
    // Go knows names such as `Lu` and `Old_Italic`; the crate also accepts properties and other
    // spellings.
    let named = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !named {
        return Err(problem(RANGE, before(text, rest)));
    }
    let negated = (letter == 'P') != inverted;
    out.push_str(if negated { "\\P{" } else { "\\p{" });
    out.push_str(name);
    out.push('}');
    Ok(Some(rest))
}

/// Translates a class in brackets, at the start of `text`. Returns the text after it.
pub(super) fn bracketed<'t>(text: &'t str, out: &mut String) -> Result<&'t str, String> {
    let mut rest = &text[1..];
    out.push('[');
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
    }
    // A closing bracket in the first position is a literal.
    let mut is_first = true;
    while is_first || !rest.starts_with(']') {
        is_first = false;
        if let Some(end) = rest.strip_prefix("[:").and_then(|r| r.find(":]")) {
            let (name, after) = rest.split_at(end + 4);
            if !is_posix(&name[2..end + 2]) {
                return Err(problem(RANGE, name));
            }
            out.push_str(name);
            rest = after;
            continue;
        }
        if let Some(after) = escaped(rest, out)? {
            rest = after;
            continue;
        }
        let (low, after) = member(rest, text)?;
        push_literal(low, out);
        let mut after = after;
        if let Some(end) = after.strip_prefix('-').filter(|e| !e.starts_with(']')) {
            let (high, behind) = member(end, text)?;
            if high < low {
                return Err(problem(RANGE, before(rest, behind)));
            }
            out.push('-');
            push_literal(high, out);
            after = behind;
        }
        rest = after;
    }
    out.push(']');
    Ok(&rest[1..])
}

/// Parses one character of a class. Returns it with the text after it.
fn member<'t>(text: &'t str, class: &str) -> Result<(char, &'t str), String> {
    if text.starts_with('\\') {
        return character(text);
    }
    first(text).ok_or_else(|| problem("missing closing ]", class))
}

fn is_posix(name: &str) -> bool {
    const NAMES: [&str; 14] = [
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
        "word", "xdigit",
    ];
    NAMES.contains(&name.strip_prefix('^').unwrap_or(name))
}
