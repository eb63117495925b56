//! Ranges of sizes and costs with inclusive ends. Sums and products saturate at `u64::MAX`, which
//! means unbounded.

/// 2⁶⁴ as a double: larger products are unbounded.
const UNBOUNDED: f64 = 18_446_744_073_709_551_616.0;

/// A range of sizes or costs, both ends inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Range {
    pub(crate) const ZERO: Range = Range::exactly(0);
    pub(crate) const ONE: Range = Range::exactly(1);
    /// An unknown size.
    pub(crate) const ANY: Range = Range { min: 0, max: u64::MAX };
    /// The neutral element of the union: no range so far.
    pub(crate) const NONE: Range = Range { min: u64::MAX, max: 0 };

    pub(crate) const fn exactly(n: u64) -> Range {
        Range { min: n, max: n }
    }

    pub(crate) const fn up_to(max: u64) -> Range {
        Range { min: 0, max }
    }

    pub(crate) const fn plus(self, other: Range) -> Range {
        Range {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(crate) const fn times(self, other: Range) -> Range {
        Range {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    /// Returns the product with a factor, rounded up.
    pub(crate) fn scaled(self, factor: f64) -> Range {
        Range {
            min: scaled(self.min, factor),
            max: scaled(self.max, factor),
        }
    }

    /// Returns the smallest range that holds both.
    pub(crate) fn or(self, other: Range) -> Range {
        Range {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// Returns `n * factor`, rounded up. Computed with doubles, whose rounding is part of Kubernetes'
/// estimates.
pub(crate) fn scaled(n: u64, factor: f64) -> u64 {
    let n = n as f64;
    if n > 0.0 && factor > 0.0 && n > UNBOUNDED / factor {
        return u64::MAX;
    }
    let product = (n * factor).ceil();
    if product >= UNBOUNDED { u64::MAX } else { product as u64 }
}
