//! Cost accounting of an evaluation: units as Kubernetes counts them, and bytes of memory.
//!
//! One unit is about one field access. Strings cost a tenth of a unit a byte, a list literal 10
//! units, a map literal 30. The limits are Kubernetes': 1,000,000 units a call, 10,000,000 an
//! object (the caller keeps one `Budget` per object).

use crate::error::EvalError;
use insula_goformat::regexp::Work;
use insula_meter::Meter;

/// Cost units of one evaluation, as in Kubernetes (`PerCallLimit`).
pub const CALL_COST_MAX: u64 = 1_000_000;
/// Cost units of all evaluations for one object, as in Kubernetes (`RuntimeCELCostBudget`).
pub const OBJECT_COST_MAX: u64 = 10_000_000;
/// Cost units by which both limits grow for each byte of a converted object.
pub const COST_PER_BYTE: u64 = 100;
/// Bytes that the values of one evaluation may take, copies of inputs in the result included.
/// Growing lists take up to twice their length, so this keeps an evaluation within 16 MiB.
pub const MAX_VALUE_BYTES: usize = 10 * 1024 * 1024;

/// Bytes of an allocation besides its contents.
const ALLOCATION_BYTES: usize = 32;

/// Units of effort between two payments to the request's meter: some 20 µs.
const PAYMENT: u64 = 1_000;

pub(crate) const SELECT: u64 = 1;
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;
pub(crate) const OBJECT: u64 = 40;
pub(crate) const CALL: u64 = 1;

/// Effort of reading and comparing two items of lists or maps, in units.
pub(crate) const ITEM: u64 = 2;
/// Effort of an error that does not end the evaluation, in units. Most such errors hold a text.
pub(crate) const ERROR: u64 = 8;
/// Effort of reading or writing a value with its own syntax (a time, an address, a decimal number),
/// in units.
pub(crate) const SYNTAX: u64 = 20;

/// Price of an authorization check in units, as in Kubernetes: an expression can afford two.
pub(crate) const AUTHORIZATION: u64 = 350_000;
/// Characters of the longest pattern behind a named format, as Kubernetes estimates `validate`.
pub(crate) const NAMED_PATTERN_CHARACTERS_MAX: u64 = 128;

/// Remaining cost units, effort and bytes. One budget serves all rules of an object, so that their
/// sum is bounded too.
///
/// Two things are counted. The price is Kubernetes', unit by unit, and visible to callers. The
/// effort is measured by the functions themselves, in the same units and with the same limits:
/// Kubernetes prices `==` of two lists by their lengths, whatever their items are, so the price
/// alone would not bound the time.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    /// Limit of one evaluation.
    call: u64,
    /// True if the limits grow with the object.
    grows: bool,
    price: UnitCounter,
    effort: UnitCounter,
    /// Work of patterns, which depends on the states that they have from earlier texts. So it is
    /// not charged as effort, but bounds all evaluations together.
    matching: Work,
    bytes: usize,
    /// Effort that the meter was paid for.
    paid: u64,
    meter: Meter,
}

/// Units used, and the ceiling at which the current evaluation ends.
#[derive(Debug, Clone, Default)]
struct UnitCounter {
    used: u64,
    /// The smaller of the limit of all evaluations and the start of this one plus that of a call.
    ceiling: u64,
    /// Units used above which a look beside the sum is due: at the ceiling, and before it where a
    /// meter is to be paid.
    next: u64,
}

impl UnitCounter {
    fn begin(&mut self, limit: u64, call: u64) {
        self.ceiling = limit.min(self.used.saturating_add(call));
        self.next = self.ceiling;
    }

    /// Adds units. Returns false when a look is due.
    #[inline]
    fn add(&mut self, units: u64) -> bool {
        self.used = self.used.saturating_add(units);
        self.used <= self.next
    }

    /// Checks the ceiling.
    fn check(&mut self) -> Result<(), EvalError> {
        if self.used <= self.ceiling {
            return Ok(());
        }
        self.used = self.ceiling;
        Err(EvalError::CostExceeded)
    }
}

impl Budget {
    /// Returns a budget of `limit` units, for which a meter pays. A single evaluation is bounded by
    /// `CALL_COST_MAX` as well. Evaluations end with [`EvalError::Interrupted`] soon after the
    /// meter's request has ended.
    pub fn new(limit: u64, meter: &Meter) -> Self {
        let mut budget = Self {
            limit,
            call: CALL_COST_MAX,
            grows: false,
            paid: 0,
            meter: meter.clone(),
            price: UnitCounter::default(),
            effort: UnitCounter::default(),
            matching: Work::for_object(meter),
            bytes: 0,
        };
        budget.begin();
        budget
    }

    /// Lets the limits grow with the size of the object: see [`Budget::extend_for`].
    #[must_use]
    pub fn growing(mut self) -> Self {
        self.grows = true;
        self
    }

    /// Returns true if the limits grow with the object.
    pub fn grows(&self) -> bool {
        self.grows
    }

    /// Raises the limits of a growing budget by [`COST_PER_BYTE`] units for each of `bytes` bytes
    /// above those of Kubernetes. Limits never shrink and do not add up over several calls.
    pub fn extend_for(&mut self, bytes: u64) {
        if self.grows {
            let more = bytes.saturating_mul(COST_PER_BYTE);
            self.call = self.call.max(CALL_COST_MAX.saturating_add(more));
            self.limit = self.limit.max(OBJECT_COST_MAX.saturating_add(more));
        }
    }

    /// Returns the units used so far, by all evaluations with this budget.
    pub fn used(&self) -> u64 {
        self.price.used
    }

    /// Returns the units that all evaluations with this budget may use.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the units left.
    pub fn remaining(&self) -> u64 {
        self.limit.saturating_sub(self.price.used.max(self.effort.used))
    }

    /// Returns true if the limit as a whole, rather than that of one call, has been reached.
    pub fn exhausted(&self) -> bool {
        self.remaining() == 0
    }

    /// Begins an evaluation: sets its ceilings, and resets the memory since the last evaluation's
    /// values are gone.
    pub(crate) fn begin(&mut self) {
        self.price.begin(self.limit, self.call);
        self.effort.begin(self.limit, self.call);
        self.effort.next = self.effort.ceiling.min(self.paid.saturating_add(PAYMENT));
        self.bytes = 0;
    }

    /// Begins a nested evaluation with a price limit of its own. Returns the state for
    /// [`Budget::close`].
    pub(crate) fn open(&mut self) -> (u64, u64) {
        let outer = (self.price.ceiling, self.price.used);
        self.price.begin(self.limit, self.call);
        outer
    }

    /// Ends a nested evaluation: restores the outer limit, raised by the units used since.
    pub(crate) fn close(&mut self, (ceiling, used): (u64, u64)) {
        let spent = self.price.used.saturating_sub(used);
        self.price.ceiling = self.limit.min(ceiling.saturating_add(spent));
        self.price.next = self.price.ceiling;
    }

    /// Counts a round of a loop.
    #[inline]
    pub(crate) fn round(&mut self) -> Result<(), EvalError> {
        self.charge(1)
    }

    /// Charges the price of an operation.
    #[inline]
    pub(crate) fn price(&mut self, units: u64) -> Result<(), EvalError> {
        match self.price.add(units) {
            true => Ok(()),
            false => self.price.check(),
        }
    }

    /// Refunds the price of a name or path that is free where it stands.
    #[inline]
    pub(crate) fn refund(&mut self, units: u64) {
        self.price.used = self.price.used.saturating_sub(units);
    }

    /// Charges the effort of a function.
    #[inline]
    pub(crate) fn charge(&mut self, units: u64) -> Result<(), EvalError> {
        match self.effort.add(units) {
            true => Ok(()),
            false => self.pay(),
        }
    }

    /// Checks the ceiling of the effort, and pays the meter for what was done since.
    #[cold]
    fn pay(&mut self) -> Result<(), EvalError> {
        self.effort.check()?;
        let units = self.effort.used - self.paid;
        self.paid = self.effort.used;
        self.effort.next = self.effort.ceiling.min(self.paid.saturating_add(PAYMENT));
        self.meter.spend(units).map_err(|_| EvalError::Interrupted)
    }

    /// Returns the work that matching of patterns may still do.
    pub(crate) fn matching(&mut self) -> &mut Work {
        &mut self.matching
    }

    /// Charges the effort of reading `bytes` bytes of text once.
    pub(crate) fn traverse(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.charge(tenth(bytes))
    }

    /// Charges the memory of a separately allocated value, with its reference counts and the
    /// allocator's overhead.
    pub(crate) fn allocation(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.memory(bytes.saturating_add(ALLOCATION_BYTES))
    }

    /// Charges memory. Called before the allocation.
    #[inline]
    pub(crate) fn memory(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_VALUE_BYTES {
            Err(EvalError::MemoryExceeded)
        } else {
            Ok(())
        }
    }

    /// Returns the bytes that are charged.
    pub(crate) fn charged_bytes(&self) -> usize {
        self.bytes
    }

    /// Takes back the charge for memory that is free again.
    pub(crate) fn release(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        // The request's next step meets its end.
        let _ = self.meter.spend(self.effort.used.saturating_sub(self.paid));
    }
}

/// Returns the traversal cost of a string of `bytes` bytes: a tenth, rounded up.
pub(crate) fn tenth(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(10)
}
