//! Searches, and the work that they may do.

use super::Error;
use super::automaton::{Automaton, Direction};
use insula_meter::{Empty, Fuel, Meter};
use regex_automata::{Anchored, Input};
use regex_syntax::hir::{Class, Hir, Look, Repetition};
use std::ops::Range;

/// Units of work for all patterns over one object: some 0.1 s. Enough to read thirty megabytes, or
/// to build 850 transitions of a pattern of 7,000 states; common patterns have a hundred states,
/// and are read with fewer than a hundred transitions.
const OBJECT_WORK_MAX: u64 = 30_000_000;

/// Nanoseconds of a unit of work.
const UNIT_NANOSECONDS: u64 = 3;

/// Work that searches may still do. A unit is the reading of a byte by a transition that is known,
/// about 3 ns.
#[derive(Debug)]
pub struct Work(Fuel);

impl Work {
    /// Returns work of `limit` units, which a meter pays for.
    pub fn new(limit: u64, meter: &Meter) -> Self {
        Work(Fuel::new(limit, UNIT_NANOSECONDS, meter))
    }

    /// Returns the work that all patterns may do over one object.
    pub fn for_object(meter: &Meter) -> Self {
        Self::new(OBJECT_WORK_MAX, meter)
    }

    /// Returns the units at the beginning.
    pub fn limit(&self) -> u64 {
        self.0.limit()
    }

    /// Returns the units done so far.
    pub fn done(&self) -> u64 {
        self.0.used()
    }

    #[inline]
    pub(super) fn spend(&mut self, units: u64) -> Result<(), Exhausted> {
        self.0.spend(units).map_err(|Empty| Exhausted)
    }
}

/// The end of a search whose [`Work`] was used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the text takes too much work to match")]
pub struct Exhausted;

/// A compiled pattern, which tells whether a text matches.
#[derive(Debug)]
pub struct Regexp {
    forward: Automaton,
}

/// A compiled pattern, which finds the matching part of a text.
#[derive(Debug)]
pub struct Finder {
    regexp: Regexp,
    /// Reads from the end of a match to its start.
    backward: Automaton,
}

impl Regexp {
    pub(super) fn new(hir: &Hir, bytes: usize) -> Result<Self, Error> {
        let begins_text = hir.properties().look_set_prefix().contains(Look::Start);
        let hir = if begins_text {
            hir.clone()
        } else {
            anywhere(hir.clone())
        };
        let forward = Automaton::new(&hir, Direction::Forward, bytes)?;
        Ok(Self { forward })
    }

    /// Returns true if a part of the text matches.
    ///
    /// # Errors
    ///
    /// Fails when the work is used up. The same text may then be searched again.
    pub fn is_match(&self, text: &str, work: &mut Work) -> Result<bool, Exhausted> {
        let input = Input::new(text).anchored(Anchored::Yes).earliest(true);
        Ok(self.forward.search(&input, work)?.is_some())
    }

    /// Returns the bytes of the compiled pattern.
    pub fn compiled_bytes(&self) -> usize {
        self.forward.compiled_bytes()
    }
}

impl Finder {
    /// Compiles a pattern into at most `bytes` for each of two directions.
    ///
    /// # Errors
    ///
    /// Fails for a pattern whose compiled size exceeds the limit.
    pub fn compile_within(syntax: &super::Syntax, bytes: usize) -> Result<Self, Error> {
        Ok(Self {
            regexp: syntax.compile_within(bytes)?,
            backward: Automaton::new(&syntax.hir, Direction::Backward, bytes)?,
        })
    }

    /// Returns the pattern for questions about whole texts.
    pub fn regexp(&self) -> &Regexp {
        &self.regexp
    }

    /// Returns the first match from byte `at`, the leftmost and of those the one that Go prefers.
    ///
    /// # Errors
    ///
    /// Fails when the work is used up.
    pub fn find_at(&self, text: &str, at: usize, work: &mut Work) -> Result<Option<Range<usize>>, Exhausted> {
        let input = Input::new(text).anchored(Anchored::Yes);
        let forward = input.clone().span(at..text.len());
        let Some(end) = self.regexp.forward.search(&forward, work)? else {
            return Ok(None);
        };
        let start = self.backward.search(&input.span(at..end), work)?;
        Ok(Some(start.unwrap_or(end)..end))
    }
}

/// Lets a pattern begin at any character.
fn anywhere(hir: Hir) -> Hir {
    let skipped = Hir::repetition(Repetition {
        min: 0,
        max: None,
        greedy: false,
        sub: Box::new(Hir::class(Class::Unicode(super::unicode::any(true)))),
    });
    Hir::concat(vec![skipped, hir])
}
