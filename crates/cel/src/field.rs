//! Field names in expressions and in objects.

use crate::ir::Field;

impl Field {
    /// Returns a field with the given stored name.
    pub(crate) fn stored(name: &str) -> Self {
        Self {
            name: name.into(),
            written: None,
        }
    }

    /// Decodes Kubernetes' escapes for property names that are keywords or no identifiers.
    pub(crate) fn parse(written: &str) -> Self {
        let name = unescape(written);
        if *name == *written {
            Self::stored(written)
        } else {
            Self {
                name: name.into(),
                written: Some(written.into()),
            }
        }
    }
}

const KEYWORDS: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Returns true for a word of CEL's grammar. No variable has such a name, and a field only in its
/// escaped form.
pub fn is_keyword(word: &str) -> bool {
    KEYWORDS.contains(&word)
}

fn unescape(written: &str) -> String {
    if !written.contains("__") {
        return written.to_owned();
    }
    if let Some(word) = written.strip_prefix("__").and_then(|w| w.strip_suffix("__"))
        && is_keyword(word)
    {
        return word.to_owned();
    }
    const ESCAPES: [(&str, &str); 4] = [
        ("__underscores__", "__"),
        ("__dot__", "."),
        ("__dash__", "-"),
        ("__slash__", "/"),
    ];
    let mut name = String::with_capacity(written.len());
    let mut rest = written;
    while let Some(c) = rest.chars().next() {
        if let Some((escape, plain)) = ESCAPES.iter().find(|(e, _)| rest.starts_with(e)) {
            name.push_str(plain);
            rest = &rest[escape.len()..];
        } else {
            name.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    name
}
