//! Regular expressions in expressions: Go's syntax, paid for when they are compiled and when they
//! run.

use crate::cost::Budget;
use crate::error::EvalError;
use insula_goformat::regexp::{self, Exhausted, Finder, Limits, Regexp, Syntax, Work};
use std::sync::Arc;

/// Limits of a pattern: those of a schema's `pattern`, so that both accept the same.
const LIMITS: Limits = Limits::USUAL;
/// Bytes of a compiled pattern for one cost unit: a pattern of the largest size takes half of a
/// call's limit.
const COMPILED_BYTES_A_UNIT: usize = 2;
/// Cost units for parsing one byte of a pattern.
const UNITS_A_PATTERN_BYTE: u64 = 8;
/// Ranges of character classes for one cost unit of parsing.
const RANGES_A_UNIT: usize = 2;

/// A regular expression with its text. Shared, because a copy would begin with an empty cache.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) text: Box<str>,
    pub(crate) compiled: Arc<Finder>,
}

/// Compiles a constant pattern of `matches`. The error is Go's message.
pub(crate) fn compile(pattern: &str) -> Result<Regexp, regexp::Error> {
    Syntax::parse(pattern, &LIMITS)?.compile()
}

/// Compiles a constant pattern of `find` and `findAll`. The error is Go's message.
pub(crate) fn compile_finder(pattern: &str) -> Result<Finder, regexp::Error> {
    Finder::compile_within(&Syntax::parse(pattern, &LIMITS)?, LIMITS.compiled_bytes)
}

/// Compiles a pattern that an evaluation meets. The inner error is Go's message.
pub(crate) fn compile_paid(pattern: &str, budget: &mut Budget) -> Result<Result<Finder, regexp::Error>, EvalError> {
    budget.charge(pattern.len() as u64 * UNITS_A_PATTERN_BYTE)?;
    let syntax = match Syntax::parse(pattern, &LIMITS) {
        Ok(syntax) => syntax,
        Err(error) => return Ok(Err(error)),
    };
    budget.charge((syntax.ranges() / RANGES_A_UNIT) as u64)?;
    let pay = |bytes: usize| budget.charge((bytes / COMPILED_BYTES_A_UNIT) as u64);
    regexp::compile_paid(LIMITS.compiled_bytes, pay, |bytes| {
        Finder::compile_within(&syntax, bytes)
    })
}

/// Returns true if a pattern compiles. Calls `pay` with the bytes that it may take.
pub(crate) fn compiles<E>(pattern: &str, pay: impl FnMut(usize) -> Result<(), E>) -> Result<bool, E> {
    let Ok(syntax) = Syntax::parse(pattern, &LIMITS) else {
        return Ok(false);
    };
    let compiled = regexp::compile_paid(LIMITS.compiled_bytes, pay, |bytes| syntax.compile_within(bytes))?;
    Ok(compiled.is_ok())
}

/// Runs a search. Charges cel-go's product of traversals, which is the same for the same inputs,
/// and takes the work of the search from the bound of the whole object.
pub(crate) fn paid<T>(
    budget: &mut Budget,
    (text, pattern_bytes): (&str, usize),
    search: impl FnOnce(&mut Work) -> Result<T, Exhausted>,
) -> Result<T, EvalError> {
    let text_cost = (text.len() as u64 + 1).div_ceil(10);
    let pattern_cost = (pattern_bytes as u64).div_ceil(4).max(1);
    budget.charge(text_cost.saturating_mul(pattern_cost))?;
    search(budget.matching()).map_err(|Exhausted| EvalError::CostExceeded)
}
