//! Regular expressions of Go's RE2: linear in time, bounded in size, with ASCII classes.
//!
//! The `regex` crate does the matching, but its syntax differs: `\d \w \s \b` mean Unicode, `[`,
//! `&&`, `--`, `~~` are operators inside a class, and it has escapes and flags that Go refuses. So
//! a pattern is parsed by Go's rules, refused with Go's messages, and rewritten for the crate.

mod class;
mod escape;
mod translate;

use crate::cost::Budget;
use crate::error::EvalError;
use std::sync::Arc;

/// Bytes of a pattern.
pub const PATTERN_BYTES_MAX: usize = 4_096;
/// Bytes of a compiled pattern, and of the cache of its matcher.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// Bytes of the first attempt at compiling.
const COMPILED_BYTES_FIRST: usize = 8 << 10;
/// Nesting of groups.
const NESTING_MAX: usize = 100;

/// A regular expression with its text. Shared, because a copy would begin with an empty cache.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) text: Box<str>,
    pub(crate) compiled: Arc<::regex::Regex>,
}

/// Compiles a pattern. The error is Go's message.
pub(crate) fn compile(pattern: &str) -> Result<::regex::Regex, String> {
    build(&translated(pattern)?, COMPILED_BYTES_MAX).map_err(refusal)
}

/// Compiles a pattern. Calls `pay` before each attempt with the bytes that the compiled pattern may
/// take: few patterns are large, and a large one takes a thousand times as long as a small one. The
/// outer error is that of `pay`.
pub(crate) fn compile_paid<E>(
    pattern: &str,
    mut pay: impl FnMut(usize) -> Result<(), E>,
) -> Result<Result<::regex::Regex, String>, E> {
    let translated = match translated(pattern) {
        Ok(translated) => translated,
        Err(error) => return Ok(Err(error)),
    };
    let (mut bytes, mut paid) = (COMPILED_BYTES_FIRST, 0);
    loop {
        pay(bytes - paid)?;
        paid = bytes;
        match build(&translated, bytes) {
            Err(::regex::Error::CompiledTooBig(_)) if bytes < COMPILED_BYTES_MAX => {
                bytes = (4 * bytes).min(COMPILED_BYTES_MAX);
            }
            built => return Ok(built.map_err(refusal)),
        }
    }
}

fn translated(pattern: &str) -> Result<String, String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!("regular expression exceeds {PATTERN_BYTES_MAX} bytes"));
    }
    translate::translate(pattern).map_err(|problem| format!("error parsing regexp: {problem}"))
}

fn build(translated: &str, bytes: usize) -> Result<::regex::Regex, ::regex::Error> {
    ::regex::RegexBuilder::new(translated)
        .size_limit(bytes)
        .dfa_size_limit(COMPILED_BYTES_MAX)
        // The crate counts a negated or case-folded class as one more level.
        .nest_limit(2 * NESTING_MAX as u32)
        .build()
}

fn refusal(error: ::regex::Error) -> String {
    let problem = match error {
        ::regex::Error::CompiledTooBig(_) => "expression too large",
        // Parsed by Go's rules already: only names of Unicode classes can still be wrong.
        _ => "invalid character class range",
    };
    format!("error parsing regexp: {problem}")
}

/// Charges for matching `text`: cel-go's product of traversals.
pub(crate) fn charge(budget: &mut Budget, text: &str, pattern_bytes: usize) -> Result<(), EvalError> {
    let text_cost = (text.len() as u64 + 1).div_ceil(10);
    let pattern_cost = (pattern_bytes as u64).div_ceil(4).max(1);
    budget.charge(text_cost.saturating_mul(pattern_cost))
}

/// Characters of a pattern in an error message.
const SHOWN_MAX: usize = 200;

/// Returns Go's message: the problem and the faulty part of the pattern. Unlike Go, cuts a long
/// part.
fn problem(what: &str, part: &str) -> String {
    match part.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{what}: `{}…`", &part[..end]),
        None => format!("{what}: `{part}`"),
    }
}

/// Returns the part of `text` before its suffix `rest`.
fn before<'t>(text: &'t str, rest: &str) -> &'t str {
    text.get(..text.len() - rest.len()).unwrap_or(text)
}

/// Returns the first character and the text after it.
fn first(text: &str) -> Option<(char, &str)> {
    let mut characters = text.chars();
    characters.next().map(|c| (c, characters.as_str()))
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[test]
    fn patterns_are_refused_in_the_words_of_go() {
        for (pattern, want) in [
            ("(", "missing closing ): `(`"),
            ("a)", "unexpected ): `a)`"),
            ("[a", "missing closing ]: `[a`"),
            ("x[]", "missing closing ]: `[]`"),
            ("[b-a]", "invalid character class range: `b-a`"),
            ("[[:word:][:nope:]]", "invalid character class range: `[:nope:]`"),
            ("*", "missing argument to repetition operator: `*`"),
            ("(*)", "missing argument to repetition operator: `*`"),
            ("a|+", "missing argument to repetition operator: `+`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a*?*", "invalid nested repetition operator: `*?*`"),
            ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("(a{100}){11}", "invalid repeat count: `{11}`"),
            ("\\", "trailing backslash at end of expression: ``"),
            ("\\C", "invalid escape sequence: `\\C`"),
            ("\\Z", "invalid escape sequence: `\\Z`"),
            ("\\1", "invalid escape sequence: `\\1`"),
            ("\\x{110000}", "invalid escape sequence: `\\x{110000}`"),
            ("[\\b]", "invalid escape sequence: `\\b`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?<!a)", "invalid named capture: `(?<!a)`"),
            ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
            ("(?P<1 a>b)", "invalid named capture: `(?P<1 a>`"),
            ("(?P<n", "invalid named capture: `(?P<n`"),
            ("\\p{Nope}", "invalid character class range"),
            ("\\p{L", "invalid character class range: `\\p{L`"),
        ] {
            let error = compile(pattern)
                .map(|_| ())
                .map_err(|e| e.replace("error parsing regexp: ", ""));
            assert_eq!(error, Err(want.to_owned()), "{pattern}");
        }
    }

    #[test]
    fn patterns_mean_what_they_mean_to_go() {
        for (pattern, text, want) in [
            ("^\\d$", "٣", false),
            ("^\\w$", "é", false),
            ("^\\W$", "é", true),
            ("(?i)^\\w$", "ſ", false),
            ("(?i)^k$", "\u{212a}", true),
            ("(?i)^\\p{Lu}$", "a", true),
            ("^\\s$", "\u{b}", false),
            ("\\bé", "aé", true),
            ("\\Bb", "ab", true),
            ("\\Qa.b\\E+", "a.bbb", true),
            ("^\\Qa.b", "axb", false),
            ("^[[:alpha:]\\d-]+$", "a1-", true),
            ("^[^[:^alpha:]]$", "a", true),
            ("^[]a]+$", "]a", true),
            ("^[&&~~a-]+$", "&~-a", true),
            ("^[[]$", "[", true),
            ("^a{,2}$", "a{,2}", true),
            ("^a{2$", "a{2", true),
            ("^{a}$", "{a}", true),
            ("^a{01}$", "a{01}", true),
            ("^\\x41\\x{1F600}\\101\\a$", "A\u{1F600}A\u{7}", true),
            ("^\\pN\\p{Greek}\\P{Lu}\\p{^Lu}$", "1αaa", true),
            ("^[\\p{Lu}\\PL]$", "A", true),
            ("^a.b$", "a\nb", false),
            ("(?s)^a.b$", "a\nb", true),
            ("^a$", "a\n", false),
            ("(?m)^b$", "a\nb", true),
            ("(?i:A)b(?-i)", "ab", true),
            ("(?P<n>a)(?<n>b)", "ab", true),
            ("(?U)^a+$", "aa", true),
            ("\\Aa\\z", "a", true),
            ("^#| $", "#", true),
            ("a||b", "", true),
            ("()", "", true),
            ("^[^\\d\\s]$", "x", true),
            ("^[^\\D]$", "7", true),
            ("^[\\-\\]\\\\]+$", "-]\\", true),
        ] {
            let compiled = compile(pattern);
            assert_eq!(compiled.map(|r| r.is_match(text)), Ok(want), "{pattern} {text}");
        }
    }
}
