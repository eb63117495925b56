//! The price of an evaluation: cost units as Kubernetes counts them, and bytes of memory.
//!
//! One unit is about one field access. Strings cost a tenth of a unit a byte, a list literal 10, a map literal 30.
//! The limits are Kubernetes': 1,000,000 a call, 10,000,000 an object (the caller keeps one `Budget` per object).

use crate::error::EvalError;

/// Cost of one evaluation, as in Kubernetes (`PerCallLimit`).
pub const CALL_COST_MAX: u64 = 1_000_000;
/// Cost of all evaluations for one object, as in Kubernetes (`RuntimeCELCostBudget`).
pub const OBJECT_COST_MAX: u64 = 10_000_000;
/// Bytes that the values of one evaluation may take, copies of inputs in the result included.
pub const MAX_VALUE_BYTES: usize = 16 * 1024 * 1024;

pub(crate) const SELECT: u64 = 1;
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;
pub(crate) const CALL: u64 = 1;

/// What may still be spent. Reused over the rules of one object, so that their sum is bounded too.
#[derive(Debug, Clone)]
pub struct Budget {
    limit: u64,
    used: u64,
    /// `used` may not pass this during the current call: the smaller of `limit` and start + `CALL_COST_MAX`.
    ceiling: u64,
    bytes: usize,
}

impl Budget {
    /// A budget of `limit` units. A single evaluation is bounded by `CALL_COST_MAX` as well.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            used: 0,
            ceiling: limit.min(CALL_COST_MAX),
            bytes: 0,
        }
    }

    /// Units spent so far, over all evaluations with this budget.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Units left.
    pub fn remaining(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// Whether the limit as a whole (rather than that of one call) has been reached.
    pub fn exhausted(&self) -> bool {
        self.used >= self.limit
    }

    /// A new evaluation begins: its own ceiling, and memory from zero since the last one's values are gone.
    pub(crate) fn begin(&mut self) {
        self.ceiling = self.limit.min(self.used.saturating_add(CALL_COST_MAX));
        self.bytes = 0;
    }

    pub(crate) fn charge(&mut self, units: u64) -> Result<(), EvalError> {
        self.used = self.used.saturating_add(units);
        if self.used > self.ceiling {
            self.used = self.used.min(self.ceiling);
            return Err(EvalError::CostExceeded);
        }
        Ok(())
    }

    /// Reading `bytes` bytes of text once.
    pub(crate) fn traverse(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.charge(tenth(bytes))
    }

    /// Called before the allocation it stands for.
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
