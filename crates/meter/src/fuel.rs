//! A limit of work in the units of one evaluator, which a meter pays for.

use crate::{Meter, UNIT_NANOSECONDS, UNITS_BETWEEN_CHECKS};

/// Work that an evaluator may still do for one object, in units of its own. What is spent is paid
/// from the request's [`Meter`] every tenth of a millisecond, and at the end; in between spending
/// is a subtraction and a comparison.
#[derive(Debug)]
pub struct Fuel {
    limit: u64,
    left: u64,
    /// Units left when the meter was paid last.
    paid: u64,
    /// Units left below which the meter is paid again.
    pay_at: u64,
    /// Nanoseconds of a unit.
    nanoseconds: u64,
    meter: Meter,
}

/// The end of an evaluation that has no fuel left, or whose request has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Empty;

impl Fuel {
    /// Returns `limit` units of `nanoseconds` each, about.
    pub fn new(limit: u64, nanoseconds: u64, meter: &Meter) -> Self {
        let mut fuel = Fuel {
            limit,
            left: limit,
            paid: limit,
            pay_at: 0,
            nanoseconds,
            meter: meter.clone(),
        };
        fuel.plan();
        fuel
    }

    /// Returns the units at the beginning.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the units spent so far.
    pub fn used(&self) -> u64 {
        self.limit - self.left
    }

    /// Spends units.
    ///
    /// # Errors
    /// Too few are left: none is left from here on. Or the request may compute no further.
    #[inline]
    pub fn spend(&mut self, units: u64) -> Result<(), Empty> {
        match self.left.checked_sub(units) {
            Some(left) if left >= self.pay_at => {
                self.left = left;
                Ok(())
            }
            left => self.spend_and_pay(left),
        }
    }

    #[cold]
    fn spend_and_pay(&mut self, left: Option<u64>) -> Result<(), Empty> {
        self.left = left.unwrap_or(0);
        let paid = self.pay();
        self.plan();
        match (left, paid) {
            (Some(_), true) => Ok(()),
            _ => {
                self.left = 0;
                Err(Empty)
            }
        }
    }

    /// Pays the meter for what was spent since. Returns false if the request has ended.
    fn pay(&mut self) -> bool {
        let nanoseconds = (self.paid - self.left).saturating_mul(self.nanoseconds);
        self.paid = self.left;
        self.meter.spend(nanoseconds / UNIT_NANOSECONDS).is_ok()
    }

    fn plan(&mut self) {
        let units = UNITS_BETWEEN_CHECKS * UNIT_NANOSECONDS / self.nanoseconds.max(1);
        self.pay_at = self.left.saturating_sub(units);
    }
}

impl Drop for Fuel {
    fn drop(&mut self) {
        // The request's next step meets its end.
        self.pay();
    }
}
