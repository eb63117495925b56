//! Mail addresses, as Go's `net/mail` reads them (RFC 5322 with its obsolete forms).

use std::net::IpAddr;

/// Returns true for one address: `one@example.com`, `Some One <one@example.com>`, also in a group
/// of its own (`ones: one@example.com;`).
pub(super) fn is_email(text: &str) -> bool {
    let mut reader = Reader { rest: text };
    let count = reader.address(true);
    reader.comments().is_some() && reader.rest.is_empty() && count == Some(1)
}

/// The part of a text that is not read yet. `None` is a refusal.
#[derive(Clone, Copy)]
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn spaces(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn take(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Reads spaces and comments.
    fn comments(&mut self) -> Option<()> {
        self.spaces();
        while self.take('(') {
            self.comment()?;
            self.spaces();
        }
        Some(())
    }

    /// Reads a comment after its first parenthesis. Returns its text.
    fn comment(&mut self) -> Option<&'a str> {
        let text = self.rest;
        let mut depth = 1;
        let mut escaped = false;
        for (at, c) in text.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.rest = &text[at + 1..];
                return Some(&text[..at]);
            }
        }
        None
    }

    /// Reads an address or a group. Returns the number of addresses.
    fn address(&mut self, group: bool) -> Option<usize> {
        self.spaces();
        let before = *self;
        if self.spec().is_some() {
            self.spaces();
            if self.take('(') {
                let comment = self.comment()?;
                comment.split([' ', '\t']).all(is_in_known_charset).then_some(())?;
            }
            return Some(1);
        }
        *self = before;
        if !self.rest.starts_with('<') {
            self.phrase()?;
        }
        self.spaces();
        if group && self.take(':') {
            return self.group();
        }
        (self.take('<') && self.spec().is_some() && self.take('>')).then_some(1)
    }

    /// Reads the addresses of a group, after its colon.
    fn group(&mut self) -> Option<usize> {
        self.spaces();
        let mut count = 0;
        if !self.take(';') {
            loop {
                count += self.address(false)?;
                self.comments()?;
                if self.take(';') {
                    break;
                }
                self.take(',').then_some(())?;
            }
        }
        self.comments()?;
        Some(count)
    }

    /// Reads `local@domain`.
    fn spec(&mut self) -> Option<()> {
        self.spaces();
        match self.rest.starts_with('"') {
            true => (!self.quoted()?.is_empty()).then_some(())?,
            false => self.atom().filter(|atom| has_whole_labels(atom)).map(drop)?,
        }
        self.take('@').then_some(())?;
        self.spaces();
        match self.take('[') {
            true => {
                let (address, rest) = self.rest.split_once(']')?;
                self.rest = rest;
                address.parse::<IpAddr>().ok().map(drop)
            }
            false => self.atom().filter(|atom| has_whole_labels(atom)).map(drop),
        }
    }

    /// Reads the words before an address in angle brackets.
    fn phrase(&mut self) -> Option<()> {
        let mut any = false;
        loop {
            if any {
                self.comments()?;
            }
            self.spaces();
            let word = match self.rest.chars().next() {
                None => return Some(()),
                Some('"') => self.quoted().map(|_| ()),
                Some(_) => self.atom().filter(|word| is_in_known_charset(word)).map(drop),
            };
            match word {
                Some(()) => any = true,
                None => return any.then_some(()),
            }
        }
    }

    /// Reads a text in quotes. Returns it with its escapes.
    fn quoted(&mut self) -> Option<&'a str> {
        let text = self.rest.strip_prefix('"')?;
        let mut escaped = false;
        for (at, c) in text.char_indices() {
            match c {
                ' '..='~' | '\t' | '\u{80}'.. if escaped => escaped = false,
                '\\' if !escaped => escaped = true,
                '"' => {
                    self.rest = &text[at + 1..];
                    return Some(&text[..at]);
                }
                ' '..='~' | '\t' | '\u{80}'.. => {}
                _ => return None,
            }
        }
        None
    }

    /// Reads letters that need no quotes, with dots.
    fn atom(&mut self) -> Option<&'a str> {
        let is_letter = |c: char| matches!(c, '!'..='~' | '\u{80}'..) && !"()<>[]:;@\\,\"".contains(c);
        let end = self.rest.find(|c| !is_letter(c)).unwrap_or(self.rest.len());
        let (atom, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!atom.is_empty()).then_some(atom)
    }
}

fn has_whole_labels(atom: &str) -> bool {
    atom.split('.').all(|label| !label.is_empty())
}

/// Returns the character set of an encoded word: `=?utf-8?q?text?=`.
fn charset_of(word: &str) -> Option<&str> {
    let (charset, rest) = word.strip_prefix("=?")?.strip_suffix("?=")?.split_once('?')?;
    let (encoding, text) = rest.split_once('?')?;
    let known = !charset.is_empty() && ["b", "B", "q", "Q"].contains(&encoding);
    (known && text.bytes().all(|b| (b' '..=b'~').contains(&b))).then_some(charset)
}

/// Returns false for an encoded word (RFC 2047) in a character set that Go does not know.
fn is_in_known_charset(word: &str) -> bool {
    let charset = charset_of(word).map(str::to_ascii_lowercase);
    charset.is_none_or(|charset| ["utf-8", "iso-8859-1", "us-ascii"].contains(&&*charset))
}
