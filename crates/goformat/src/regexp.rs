//! Regular expressions of Go's `regexp` package (RE2), in time that the caller pays for.
//!
//! A pattern is parsed by Go's rules and refused with Go's messages ([`Syntax`]), then compiled to
//! an automaton ([`Regexp`], [`Finder`]). A search reads a text once and builds the automaton's
//! states as it meets them. Reading a byte is cheap; building a transition reads the compiled
//! pattern, so that a pattern of many counted repetitions can make every byte of a text
//! expensive. Both are taken from a [`Work`] of the caller, and a search ends when it is used up.
//!
//! Unlike Go, patterns are also limited in their text and in their compiled size ([`Limits`]).

mod automaton;
mod class;
mod escape;
mod group;
mod node;
mod parse;
mod search;
mod unicode;

pub use search::{Exhausted, Finder, Regexp, Work};

use regex_syntax::hir::Hir;
use std::fmt;

/// Limits of a pattern, beside those of Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the text.
    pub pattern_bytes: usize,
    /// Bytes of the compiled pattern.
    pub compiled_bytes: usize,
    /// Levels of repetitions, lists and alternatives, beside Go's 1000, which count groups too.
    /// Compiling recurses once a level, with 7 kB of stack in a debug build.
    pub nesting: u32,
}

impl Limits {
    /// Limits that no pattern of a known API reaches: the longest has about 4,000 bytes.
    pub const USUAL: Limits = Limits {
        pattern_bytes: 64 << 10,
        compiled_bytes: 1 << 20,
        nesting: 120,
    };
}

/// Refusal of a pattern, in Go's words: ``error parsing regexp: missing closing ): `(a` ``.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    problem: String,
    /// The faulty part of the pattern; `None` for limits that Go does not have.
    part: Option<String>,
}

impl Error {
    fn new(problem: &str, part: &str) -> Self {
        Self {
            problem: problem.to_owned(),
            part: Some(part.to_owned()),
        }
    }

    fn beyond(limit: String) -> Self {
        Self {
            problem: limit,
            part: None,
        }
    }

    /// Refuses a pattern that does not compile into `bytes`.
    fn too_large(bytes: usize) -> Self {
        Self::beyond(format!(
            "expression too large: it takes more than {bytes} bytes when it is compiled"
        ))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { problem, part } = self;
        match part {
            Some(part) => write!(f, "error parsing regexp: {problem}: `{part}`"),
            None => write!(f, "error parsing regexp: {problem}"),
        }
    }
}

impl std::error::Error for Error {}

/// A pattern that Go accepts, parsed.
#[derive(Debug, Clone)]
pub struct Syntax {
    hir: Hir,
    ranges: usize,
    compiled_bytes: usize,
}

impl Syntax {
    /// Parses a pattern with Go's Perl flags, as `regexp.Compile` does.
    ///
    /// # Errors
    ///
    /// Fails where Go fails, and beyond `limits`.
    pub fn parse(pattern: &str, limits: &Limits) -> Result<Self, Error> {
        if pattern.len() > limits.pattern_bytes {
            let most = limits.pattern_bytes;
            return Err(Error::beyond(format!(
                "expression too large: it has more than {most} bytes"
            )));
        }
        parse::parse(pattern, limits)
    }

    /// Returns the pattern as a tree over Unicode characters, without capturing groups.
    pub fn hir(&self) -> &Hir {
        &self.hir
    }

    /// Returns the number of ranges of characters that were added up to classes: the larger part of
    /// the effort of parsing, where there are many. A class such as `\pL` has six hundred.
    pub fn ranges(&self) -> usize {
        self.ranges
    }

    /// Compiles the pattern.
    ///
    /// # Errors
    ///
    /// Fails for a pattern whose compiled size exceeds the limit.
    pub fn compile(&self) -> Result<Regexp, Error> {
        self.compile_within(self.compiled_bytes)
    }

    /// Compiles the pattern as [`Syntax::compile`] does, into at most `bytes`.
    ///
    /// # Errors
    ///
    /// As [`Syntax::compile`].
    pub fn compile_within(&self, bytes: usize) -> Result<Regexp, Error> {
        Regexp::new(&self.hir, bytes.min(self.compiled_bytes))
    }
}

/// Bytes of the first attempt at compiling: few patterns are larger.
const FIRST_ATTEMPT_BYTES: usize = 8 << 10;

/// Compiles with `build` into a size that grows up to `most` bytes. Calls `pay` before each attempt
/// with the bytes that it may take more than the one before: a large pattern takes a thousand times
/// as long as a small one. The outer error is that of `pay`.
///
/// # Errors
///
/// Returns the error of `pay`, and inside that of the last attempt.
pub fn compile_paid<T, E>(
    most: usize,
    mut pay: impl FnMut(usize) -> Result<(), E>,
    build: impl Fn(usize) -> Result<T, Error>,
) -> Result<Result<T, Error>, E> {
    let (mut bytes, mut paid) = (FIRST_ATTEMPT_BYTES.min(most), 0);
    loop {
        pay(bytes - paid)?;
        paid = bytes;
        match build(bytes) {
            Err(_) if bytes < most => bytes = (4 * bytes).min(most),
            built => return Ok(built),
        }
    }
}

#[cfg(test)]
mod tests;
