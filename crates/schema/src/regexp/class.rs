//! Bracketed classes. All their characters are written as code points, so that none becomes an
//! operator.

use super::Translation;

impl Translation<'_> {
    pub(super) fn class(&mut self) -> Result<(), String> {
        let start = self.at;
        let missing = |source: &str| Err(format!("missing closing ]: `{}`", source.get(start..).unwrap_or("")));
        self.out.push('[');
        self.at += 1;
        if self.peek() == Some('^') {
            self.take('^');
        }
        let mut first = true;
        // The last single character, which may begin a range, and its position.
        loop {
            let Some(c) = self.peek() else {
                return missing(self.source);
            };
            if c == ']' && !first {
                self.take(c);
                self.atom();
                return Ok(());
            }
            if c == '-' && !first && !self.rest().starts_with("-]") {
                let shown = self.rest().get(..2).unwrap_or("-");
                let end = self.rest().char_indices().nth(2).map_or(self.rest().len(), |(i, _)| i);
                let shown = self.rest().get(..end).unwrap_or(shown);
                return Err(format!("invalid character class range: `{shown}`"));
            }
            first = false;
            if let Some(length) = self.named_class()? {
                self.at += length;
                continue;
            }
            let from_at = self.at;
            let Some(low) = self.class_item()? else { continue };
            if !self.rest().starts_with('-') || self.rest().starts_with("-]") || self.rest().len() < 2 {
                self.out.push_str(&low.1);
                continue;
            }
            self.at += 1;
            let Some(high) = self.class_item()? else {
                let shown = self.source.get(from_at..self.at).unwrap_or("");
                return Err(format!("invalid character class range: `{shown}`"));
            };
            if high.0 < low.0 {
                let shown = self.source.get(from_at..self.at).unwrap_or("");
                return Err(format!("invalid character class range: `{shown}`"));
            }
            self.out.push_str(&low.1);
            self.out.push('-');
            self.out.push_str(&high.1);
        }
    }

    /// Translates `[:alpha:]` inside brackets, which is the same in both syntaxes.
    fn named_class(&mut self) -> Result<Option<usize>, String> {
        let rest = self.rest();
        let Some(inner) = rest.strip_prefix("[:") else {
            return Ok(None);
        };
        let Some((name, _)) = inner.split_once(":]") else {
            return Ok(None);
        };
        let class = rest.get(..name.len() + 4).unwrap_or(rest);
        if regex::Regex::new(&format!("[{class}]")).is_err() {
            return Err(format!("invalid character class range: `{class}`"));
        }
        self.out.push_str(class);
        Ok(Some(class.len()))
    }

    /// Parses one character of a class. Returns it with its source text; `None` for a nested class,
    /// which is written directly.
    fn class_item(&mut self) -> Result<Option<(char, String)>, String> {
        let rest = self.rest();
        let Some(c) = rest.chars().next() else {
            return Err(format!("missing closing ]: `{}`", self.source));
        };
        if c != '\\' {
            self.at += c.len_utf8();
            return Ok(Some((c, hex(c))));
        }
        let Some(escaped) = rest.chars().nth(1) else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        let class = match escaped {
            'd' => "0-9",
            'D' => "[^0-9]",
            'w' => "0-9A-Za-z_",
            'W' => "[^0-9A-Za-z_]",
            's' => "\\t\\n\\f\\r ",
            'S' => "[^\\t\\n\\f\\r ]",
            _ => "",
        };
        if !class.is_empty() {
            self.out.push_str(class);
            self.at += 2;
            return Ok(None);
        }
        let (text, length) = self.literal_or_class(rest, escaped)?;
        self.at += length;
        if matches!(escaped, 'p' | 'P') {
            self.out.push_str(&text);
            return Ok(None);
        }
        let single = match escaped {
            'a' => '\u{7}',
            'f' => '\u{c}',
            't' => '\t',
            'n' => '\n',
            'r' => '\r',
            'v' => '\u{b}',
            'x' | '0'..='7' => {
                let digits = text.trim_start_matches("\\x{").trim_end_matches('}');
                u32::from_str_radix(digits, 16)
                    .ok()
                    .and_then(char::from_u32)
                    .unwrap_or('\0')
            }
            other => other,
        };
        Ok(Some((single, hex(single))))
    }
}

/// Writes a character as a literal inside brackets.
fn hex(c: char) -> String {
    if c.is_ascii_alphanumeric() {
        c.to_string()
    } else {
        format!("\\x{{{:x}}}", u32::from(c))
    }
}
