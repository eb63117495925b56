//! Patterns of a schema (`pattern`): Go's regular expressions, each compiled once, within a size
//! for all of them.

use insula_goformat::regexp::{Error, Exhausted, Limits, Regexp, Syntax, Work};
use std::collections::HashMap;
use std::sync::Arc;

/// Limits of a pattern.
const LIMITS: Limits = Limits::USUAL;
/// Bytes of all compiled patterns of a schema, which take about a second to make.
const COMPILED_BYTES_MAX: usize = 32 << 20;
/// Bytes of compiled patterns that take as long as parsing one byte.
const COMPILED_BYTES_A_PATTERN_BYTE: usize = 32;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    source: Box<str>,
    regexp: Regexp,
}

impl Pattern {
    /// Returns true if a part of the text matches.
    pub(crate) fn matches(&self, text: &str, work: &mut Work) -> Result<bool, Exhausted> {
        self.regexp.is_match(text, work)
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }
}

/// Parses a pattern without compiling it.
pub(crate) fn parse(source: &str) -> Result<Syntax, Error> {
    Syntax::parse(source, &LIMITS)
}

/// The patterns of a schema.
pub(crate) struct Patterns {
    known: HashMap<Box<str>, Arc<Pattern>>,
    /// Bytes that the others may take.
    left: usize,
}

impl Patterns {
    pub(crate) fn new() -> Self {
        Self {
            known: HashMap::new(),
            left: COMPILED_BYTES_MAX,
        }
    }

    /// Compiles a pattern. The error is Go's message, or names the limit of all patterns.
    pub(crate) fn compile(&mut self, source: &str) -> Result<Arc<Pattern>, String> {
        if let Some(known) = self.known.get(source) {
            return Ok(known.clone());
        }
        let syntax = parse(source).map_err(|why| why.to_string())?;
        let most = LIMITS.compiled_bytes.min(self.left);
        let regexp = match syntax.compile_within(most) {
            Ok(regexp) => regexp,
            // Compiling went as far as the limit.
            Err(why) if most == LIMITS.compiled_bytes => {
                self.left -= most;
                return Err(why.to_string());
            }
            Err(_) => {
                self.left = 0;
                return Err(format!(
                    "the patterns of this schema take more than {COMPILED_BYTES_MAX} bytes when they are compiled"
                ));
            }
        };
        let parsed = source.len() * COMPILED_BYTES_A_PATTERN_BYTE;
        self.left = self.left.saturating_sub(regexp.compiled_bytes() + parsed);
        let pattern = Arc::new(Pattern {
            source: source.into(),
            regexp,
        });
        self.known.insert(source.into(), pattern.clone());
        Ok(pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_a_schema_share_a_size() {
        let mut patterns = Patterns::new();
        patterns.left = 100_000;
        let of = |i: usize| format!("^[a-z]{{500}}{i}$");
        let count = (0..100).take_while(|i| patterns.compile(&of(*i)).is_ok()).count();
        assert!((1..20).contains(&count), "{count}");
        let why = patterns.compile("^other$").unwrap_err();
        assert!(why.contains("the patterns of this schema take more than"), "{why}");
        assert!(patterns.compile(&of(0)).is_ok(), "equal ones are compiled once");
    }

    #[test]
    fn a_pattern_that_is_too_large_takes_its_limit_from_the_others() {
        let mut patterns = Patterns::new();
        let why = patterns.compile(r"^\pL{100}$").unwrap_err();
        assert!(why.contains("it takes more than 1048576 bytes"), "{why}");
        assert_eq!(patterns.left, COMPILED_BYTES_MAX - LIMITS.compiled_bytes);
    }
}
