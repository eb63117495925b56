//! A coarse tokenizer, sufficient to count tokens and to find nesting. Not a lexer for parsing; the
//! one requirement is that it never takes code for text or comment.

/// Kind of a token with respect to nesting and chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name, number, text or `true`: a token that an operator may follow.
    Operand,
    Open(Bracket),
    Close(Bracket),
    Dot,
    Comma,
    Colon,
    Question,
    Minus,
    Not,
    /// A binary operator other than `-`, including `in`.
    Operator,
    /// A character that begins no token. The parser refuses the source.
    Strange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bracket {
    Round,
    Square,
    Curly,
}

/// One token and its byte offset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
}

/// Returns the tokens of `source`, without white space and comments.
pub(crate) fn tokens(source: &str) -> Tokens<'_> {
    Tokens {
        bytes: source.as_bytes(),
        at: 0,
    }
}

#[derive(Debug)]
pub(crate) struct Tokens<'s> {
    bytes: &'s [u8],
    at: usize,
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        self.skip_blank();
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let first = *rest.first()?;
        let (kind, length) = token(first, rest);
        let start = self.at;
        self.at += length;
        Some(Token { kind, start })
    }
}

impl Tokens<'_> {
    fn skip_blank(&mut self) {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            match rest {
                [b' ' | b'\t' | b'\r' | b'\n' | b'\x0c', ..] => self.at += 1,
                [b'/', b'/', ..] => self.at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
                _ => return,
            }
        }
    }
}

fn token(first: u8, rest: &[u8]) -> (Kind, usize) {
    let kind = match first {
        b'(' => Kind::Open(Bracket::Round),
        b')' => Kind::Close(Bracket::Round),
        b'[' => Kind::Open(Bracket::Square),
        b']' => Kind::Close(Bracket::Square),
        b'{' => Kind::Open(Bracket::Curly),
        b'}' => Kind::Close(Bracket::Curly),
        b'.' if rest.get(1).is_some_and(u8::is_ascii_digit) => return (Kind::Operand, 1 + number(&rest[1..])),
        b'.' => Kind::Dot,
        b',' => Kind::Comma,
        b':' => Kind::Colon,
        b'?' => Kind::Question,
        b'-' => Kind::Minus,
        b'!' if rest.get(1) == Some(&b'=') => return (Kind::Operator, 2),
        b'!' => Kind::Not,
        b'+' | b'*' | b'/' | b'%' => Kind::Operator,
        b'<' | b'>' => return (Kind::Operator, 1 + usize::from(rest.get(1) == Some(&b'='))),
        b'=' | b'&' | b'|' if rest.get(1) == Some(&first) => return (Kind::Operator, 2),
        b'0'..=b'9' => return (Kind::Operand, number(rest)),
        b'`' => return quoted_name(rest),
        b'\'' | b'"' => return or_strange(text(rest, false)),
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => return word_or_text(rest),
        _ => Kind::Strange,
    };
    (kind, 1)
}

fn or_strange(length: Option<usize>) -> (Kind, usize) {
    length.map_or((Kind::Strange, 1), |length| (Kind::Operand, length))
}

/// Returns the kind and length of a name, or of a text with a prefix: `r''`, `b''`, `br''`.
fn word_or_text(rest: &[u8]) -> (Kind, usize) {
    let (prefix, raw) = match rest {
        [b'b' | b'B', b'r' | b'R', b'\'' | b'"', ..] => (2, true),
        [b'r' | b'R', b'\'' | b'"', ..] => (1, true),
        [b'b' | b'B', b'\'' | b'"', ..] => (1, false),
        _ => (0, false),
    };
    if prefix > 0
        && let Some(length) = text(&rest[prefix..], raw)
    {
        return (Kind::Operand, prefix + length);
    }
    let length = count(rest, |b| b.is_ascii_alphanumeric() || b == b'_');
    let kind = if &rest[..length] == b"in" {
        Kind::Operator
    } else {
        Kind::Operand
    };
    (kind, length)
}

fn count(bytes: &[u8], wanted: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|b| wanted(**b)).count()
}

fn quoted_name(rest: &[u8]) -> (Kind, usize) {
    let inside = count(&rest[1..], |b| {
        b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/' | b' ')
    });
    match rest.get(1 + inside) {
        Some(b'`') if inside > 0 => (Kind::Operand, inside + 2),
        _ => (Kind::Strange, 1),
    }
}

/// Returns the length of a number. A fraction or an exponent belongs to it only with its digits.
fn number(rest: &[u8]) -> usize {
    let digits = |from: usize| count(rest.get(from..).unwrap_or_default(), |b| b.is_ascii_digit());
    let mut length = if let [b'0', b'x', ..] = rest {
        let hex = count(&rest[2..], |b| b.is_ascii_hexdigit());
        if hex == 0 {
            return 1;
        }
        2 + hex
    } else {
        let whole = digits(0);
        let fraction = match rest.get(whole) {
            Some(b'.') => digits(whole + 1),
            _ => 0,
        };
        let mantissa = if fraction == 0 { whole } else { whole + 1 + fraction };
        let sign = match rest.get(mantissa..) {
            Some([b'e' | b'E', b'+' | b'-', ..]) => 2,
            Some([b'e' | b'E', ..]) => 1,
            _ => 0,
        };
        match digits(mantissa + sign) {
            exponent @ 1.. if sign > 0 => return mantissa + sign + exponent,
            _ if fraction > 0 => return mantissa,
            _ => whole,
        }
    };
    if matches!(rest.get(length), Some(b'u' | b'U')) {
        length += 1;
    }
    length
}

/// Returns the length of a text from its quote; `None` if it does not end or has an invalid escape.
fn text(rest: &[u8], raw: bool) -> Option<usize> {
    let quote = *rest.first()?;
    if let [_, second, third, ..] = rest
        && (*second, *third) == (quote, quote)
        && let Some(length) = ended(rest, 3, raw, quote)
    {
        return Some(length);
    }
    ended(rest, 1, raw, quote)
}

/// Returns the length of a text between `quotes` quotes on each side. Only triple-quoted texts may
/// span lines.
fn ended(rest: &[u8], quotes: usize, raw: bool, quote: u8) -> Option<usize> {
    let mut at = quotes;
    loop {
        let here = rest.get(at..)?;
        match *here.first()? {
            b'\\' if !raw => at += escape(here)?,
            b'\n' | b'\r' if quotes == 1 => return None,
            b if b == quote && here.len() >= quotes && here[..quotes].iter().all(|q| *q == quote) => {
                return Some(at + quotes);
            }
            _ => at += 1,
        }
    }
}

/// Returns the length of an escape sequence.
fn escape(here: &[u8]) -> Option<usize> {
    let all = |from: usize, length: usize, wanted: fn(&u8) -> bool| {
        here.get(from..from + length)
            .filter(|part| part.iter().all(wanted))
            .map(|_| from + length)
    };
    match here.get(1)? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => Some(2),
        b'x' | b'X' => all(2, 2, u8::is_ascii_hexdigit),
        b'u' => all(2, 4, u8::is_ascii_hexdigit),
        b'U' => all(2, 8, u8::is_ascii_hexdigit),
        b'0'..=b'3' => all(2, 2, |b| matches!(b, b'0'..=b'7')),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, tokens};

    /// Renders each token as one letter.
    fn shown(source: &str) -> String {
        tokens(source)
            .map(|t| match t.kind {
                Kind::Operand => 'x',
                Kind::Open(_) => '(',
                Kind::Close(_) => ')',
                Kind::Dot => '.',
                Kind::Comma => ',',
                Kind::Colon => ':',
                Kind::Question => '?',
                Kind::Minus => '-',
                Kind::Not => '!',
                Kind::Operator => '+',
                Kind::Strange => '#',
            })
            .collect()
    }

    #[test]
    fn tokens_are_told_apart() {
        for (source, want) in [
            ("a.b + 1", "x.x+x"),
            ("1.5e-3 0x1Fu .5", "xxx"),
            ("1.e", "x.x"),
            ("1e 0x", "xxxx"),
            ("a in in_", "x+x"),
            ("'a' \"b\" r'\\' b'c' br'd' rb'e'", "xxxxxxx"),
            ("'''a'b\n'''", "x"),
            ("'\\'(' '\\\\'", "xx"),
            ("'\\z('", "##x(#"),
            ("'a\n(", "#x("),
            ("''' (", "x#("),
            ("// ((\n)", ")"),
            ("a // b", "x"),
            ("`a-b.c/d`(``", "x(##"),
            ("!a != b == c = d", "!x+x+x#x"),
            ("-1 - 1 && x || y & z", "-x-x+x+x#x"),
            ("é", "##"),
            ("[?a] {b: c, ?d: e}", "(?x)(x:x,?x:x)"),
        ] {
            assert_eq!(shown(source), want, "{source}");
        }
    }
}
