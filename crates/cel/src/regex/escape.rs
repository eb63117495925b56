//! Escapes that stand for one character.

use super::{before, first, problem};

/// Parses an escape, its backslash included. Returns the character and the text after it.
pub(super) fn character(text: &str) -> Result<(char, &str), String> {
    let Some((c, rest)) = text.strip_prefix('\\').and_then(first) else {
        return Err(problem("trailing backslash at end of expression", ""));
    };
    let wrong = |rest: &str| Err(problem("invalid escape sequence", before(text, rest)));
    match c {
        // A single digit would be a backreference.
        '1'..='7' if !rest.starts_with(|c: char| c.is_digit(8)) => wrong(rest),
        '0'..='7' => {
            let length = 1 + rest.bytes().take(2).take_while(|b| (b'0'..b'8').contains(b)).count();
            let (digits, rest) = text[1..].split_at(length);
            match u32::from_str_radix(digits, 8).ok().and_then(char::from_u32) {
                Some(c) => Ok((c, rest)),
                None => wrong(rest),
            }
        }
        'x' => hexadecimal(text, rest),
        'a' => Ok(('\u{7}', rest)),
        'f' => Ok(('\u{c}', rest)),
        'n' => Ok(('\n', rest)),
        'r' => Ok(('\r', rest)),
        't' => Ok(('\t', rest)),
        'v' => Ok(('\u{b}', rest)),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => Ok((c, rest)),
        _ => wrong(rest),
    }
}

/// Parses `\x41` or `\x{1F600}`; `rest` starts after the `x`.
fn hexadecimal<'t>(text: &'t str, rest: &'t str) -> Result<(char, &'t str), String> {
    let (digits, after) = match rest.strip_prefix('{') {
        Some(inside) => match inside.split_once('}') {
            Some((digits, after)) => (digits, after),
            None => (inside, ""),
        },
        None => rest.split_at_checked(2).unwrap_or((rest, "")),
    };
    let closed = !rest.starts_with('{') || rest.contains('}');
    let digits = Some(digits).filter(|d| closed && d.bytes().all(|b| b.is_ascii_hexdigit()));
    let short = rest.starts_with('{') || digits.is_some_and(|d| d.len() == 2);
    match digits
        .filter(|_| short)
        .and_then(|d| u32::from_str_radix(d, 16).ok())
        .and_then(char::from_u32)
    {
        Some(c) => Ok((c, after)),
        None => Err(problem("invalid escape sequence", before(text, after))),
    }
}

/// Writes a character as a literal that is valid anywhere in a pattern.
pub(super) fn push_literal(c: char, out: &mut String) {
    if c.is_ascii_alphanumeric() || !c.is_ascii() {
        out.push(c);
    } else {
        out.push_str(&format!("\\x{:02x}", u32::from(c)));
    }
}
