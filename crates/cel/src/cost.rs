//! The price of an evaluation: cost units as Kubernetes counts them, and bytes of memory.
//!
//! One unit is about one field access. Strings cost a tenth of a unit a byte, a list literal 10, a
//! map literal 30. The limits are Kubernetes': 1,000,000 a call, 10,000,000 an object (the caller
//! keeps one `Budget` per object).

use crate::error::EvalError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Cost of one evaluation, as in Kubernetes (`PerCallLimit`).
pub const CALL_COST_MAX: u64 = 1_000_000;
/// Cost of all evaluations for one object, as in Kubernetes (`RuntimeCELCostBudget`).
pub const OBJECT_COST_MAX: u64 = 10_000_000;
/// Bytes that the values of one evaluation may take, copies of inputs in the result included. Lists
/// that grow take up to twice their length, so this is what an evaluation within 16 MiB may count.
pub const MAX_VALUE_BYTES: usize = 10 * 1024 * 1024;

/// What an allocation takes besides its contents.
const ALLOCATION_BYTES: usize = 32;

/// Rounds of loops between two looks at whether to go on, as in Kubernetes (`CheckFrequency`).
const INTERRUPT_ROUNDS: u32 = 100;

pub(crate) const SELECT: u64 = 1;
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;
pub(crate) const OBJECT: u64 = 40;
pub(crate) const CALL: u64 = 1;

/// Effort of comparing two items of lists or maps, which are read first.
pub(crate) const ITEM: u64 = 2;
/// Effort of an error that is not the end, most of them made with a text.
pub(crate) const ERROR: u64 = 8;
/// Effort of reading or writing a value with a syntax of its own: a time, an address, a number with
/// a fraction.
pub(crate) const SYNTAX: u64 = 20;

/// An authorisation check, as in Kubernetes: an expression can afford two.
pub(crate) const AUTHORIZATION: u64 = 350_000;
/// Characters of the longest pattern behind a named format, as the estimate of `validate` has it.
pub(crate) const NAMED_PATTERN_CHARACTERS_MAX: u64 = 128;

/// What may still be spent. Reused over the rules of one object, so that their sum is bounded too.
///
/// Two things are counted. The price is Kubernetes', unit by unit, and what callers see. The effort
/// is what the functions themselves say they do, in the same units and with the same limits:
/// Kubernetes prices `==` of two lists by their lengths, whatever is in them, so its price alone
/// would not bound the time.
#[derive(Debug, Clone)]
pub struct Budget {
    limit: u64,
    price: Meter,
    effort: Meter,
    bytes: usize,
    rounds: u32,
    interrupt: Option<Arc<AtomicBool>>,
}

/// Units used, and how many may be used before the current evaluation has to end.
#[derive(Debug, Clone, Default)]
struct Meter {
    used: u64,
    /// The smaller of the limit of all evaluations, and where this one began plus `CALL_COST_MAX`.
    ceiling: u64,
}

impl Meter {
    fn begin(&mut self, limit: u64) {
        self.ceiling = limit.min(self.used.saturating_add(CALL_COST_MAX));
    }

    #[inline]
    fn charge(&mut self, units: u64) -> Result<(), EvalError> {
        self.used = self.used.saturating_add(units);
        if self.used > self.ceiling {
            self.used = self.ceiling;
            return Err(EvalError::CostExceeded);
        }
        Ok(())
    }
}

impl Budget {
    /// A budget of `limit` units. A single evaluation is bounded by `CALL_COST_MAX` as well.
    pub fn new(limit: u64) -> Self {
        let mut budget = Self {
            limit,
            rounds: 0,
            interrupt: None,
            price: Meter::default(),
            effort: Meter::default(),
            bytes: 0,
        };
        budget.begin();
        budget
    }

    /// Evaluations end with [`EvalError::Interrupted`] soon after `stop` is set, by whoever no
    /// longer waits for them.
    #[must_use]
    pub fn with_interrupt(mut self, stop: Arc<AtomicBool>) -> Self {
        self.interrupt = Some(stop);
        self
    }

    /// Units spent so far, over all evaluations with this budget.
    pub fn used(&self) -> u64 {
        self.price.used
    }

    /// Units left.
    pub fn remaining(&self) -> u64 {
        self.limit.saturating_sub(self.price.used.max(self.effort.used))
    }

    /// Whether the limit as a whole (rather than that of one call) has been reached.
    pub fn exhausted(&self) -> bool {
        self.remaining() == 0
    }

    /// A new evaluation begins: its own ceilings, and memory from zero since the last one's values
    /// are gone.
    pub(crate) fn begin(&mut self) {
        self.price.begin(self.limit);
        self.effort.begin(self.limit);
        self.bytes = 0;
    }

    /// An evaluation within an evaluation: a price limit of its own. Gives what [`Budget::close`]
    /// needs.
    pub(crate) fn open(&mut self) -> (u64, u64) {
        let outer = (self.price.ceiling, self.price.used);
        self.price.begin(self.limit);
        outer
    }

    /// The limit from before, above what was spent since.
    pub(crate) fn close(&mut self, (ceiling, used): (u64, u64)) {
        let spent = self.price.used.saturating_sub(used);
        self.price.ceiling = self.limit.min(ceiling.saturating_add(spent));
    }

    /// One more round of a loop; every hundredth asks whether to go on.
    #[inline]
    pub(crate) fn round(&mut self) -> Result<(), EvalError> {
        self.charge(1)?;
        self.rounds = self.rounds.wrapping_add(1);
        match &self.interrupt {
            Some(stop) if self.rounds.is_multiple_of(INTERRUPT_ROUNDS) && stop.load(Ordering::Relaxed) => {
                Err(EvalError::Interrupted)
            }
            _ => Ok(()),
        }
    }

    /// The price of an operation.
    #[inline]
    pub(crate) fn price(&mut self, units: u64) -> Result<(), EvalError> {
        self.price.charge(units)
    }

    /// Takes back what was charged for a name or path which, where it stands, is read for nothing.
    #[inline]
    pub(crate) fn refund(&mut self, units: u64) {
        self.price.used = self.price.used.saturating_sub(units);
    }

    /// The effort of a function.
    #[inline]
    pub(crate) fn charge(&mut self, units: u64) -> Result<(), EvalError> {
        self.effort.charge(units)
    }

    /// The effort of reading `bytes` bytes of text once.
    pub(crate) fn traverse(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.charge(tenth(bytes))
    }

    /// The memory of a value that is allocated by itself, with its reference counts and what the
    /// allocator keeps.
    pub(crate) fn allocation(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.memory(bytes.saturating_add(ALLOCATION_BYTES))
    }

    /// Called before the allocation it stands for.
    #[inline]
    pub(crate) fn memory(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_VALUE_BYTES {
            Err(EvalError::MemoryExceeded)
        } else {
            Ok(())
        }
    }
}

/// A tenth, rounded up: the traversal cost of a string of that many bytes.
pub(crate) fn tenth(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(10)
}
