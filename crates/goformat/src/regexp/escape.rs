//! Escapes that stand for one character.

use super::Error;

/// Parses an escape, at its backslash. Returns the code point and the text after it.
pub(super) fn character(text: &str) -> Result<(u32, &str), Error> {
    let mut characters = text.chars();
    characters.next();
    let Some(letter) = characters.next() else {
        return Err(Error::new("trailing backslash at end of expression", ""));
    };
    let rest = characters.as_str();
    let code = match letter {
        // A single digit would be a backreference.
        '1'..='7' if !rest.starts_with(is_octal) => return Err(invalid(text, rest)),
        '0'..='7' => return Ok(octal(text)),
        'x' => return hexadecimal(text, rest),
        'a' => '\u{7}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        other if other.is_ascii() && !other.is_ascii_alphanumeric() => other,
        _ => return Err(invalid(text, rest)),
    };
    Ok((code.into(), rest))
}

/// Refuses the escape at the start of `text`, of which `rest` was not read.
pub(super) fn invalid(text: &str, rest: &str) -> Error {
    Error::new("invalid escape sequence", super::parse::before(text, rest))
}

fn is_octal(c: char) -> bool {
    c.is_digit(8)
}

/// Parses up to three octal digits, of which the first is known.
fn octal(text: &str) -> (u32, &str) {
    let digits = text.bytes().skip(1).take(3).take_while(|b| is_octal(char::from(*b)));
    let code = digits.clone().fold(0, |code, digit| code * 8 + u32::from(digit - b'0'));
    (code, text.get(1 + digits.count()..).unwrap_or(""))
}

/// Parses `\x41` or `\x{1F600}`; `rest` starts after the `x`.
fn hexadecimal<'t>(text: &'t str, rest: &'t str) -> Result<(u32, &'t str), Error> {
    let mut characters = rest.chars();
    let first = characters.next();
    if first != Some('{') {
        let second = characters.next();
        let rest = characters.as_str();
        let value = |c: Option<char>| c.and_then(|c| c.to_digit(16));
        return match (value(first), value(second)) {
            (Some(high), Some(low)) => Ok((high * 16 + low, rest)),
            _ => Err(invalid(text, rest)),
        };
    }
    let mut code = None;
    loop {
        let next = characters.next();
        let rest = characters.as_str();
        match (next, next.and_then(|c| c.to_digit(16))) {
            (Some('}'), _) => return code.map(|code| (code, rest)).ok_or_else(|| invalid(text, rest)),
            (_, Some(digit)) => {
                let longer = code.unwrap_or(0) * 16 + digit;
                if longer > char::MAX.into() {
                    return Err(invalid(text, rest));
                }
                code = Some(longer);
            }
            (_, None) => return Err(invalid(text, rest)),
        }
    }
}
