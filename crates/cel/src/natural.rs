//! Natural numbers of any size, with the operations that quantities need.

use std::cmp::Ordering;

/// Base of a limb: nine decimal digits, which makes powers of ten and decimal text cheap.
const BASE: u64 = 1_000_000_000;

/// A number as limbs, least significant first, without leading zero limbs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Natural(Vec<u32>);

impl Natural {
    /// Parses decimal digits. Other characters are not allowed.
    pub(crate) fn of_digits(digits: &str) -> Self {
        let limbs = digits.as_bytes().rchunks(9).map(|chunk| {
            chunk
                .iter()
                .fold(0, |limb: u32, digit| limb * 10 + u32::from(digit.wrapping_sub(b'0')))
        });
        Self(limbs.collect()).trimmed()
    }

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// Multiplies by a number below 2^32.
    pub(crate) fn times(mut self, factor: u32) -> Self {
        let mut carry = 0;
        for limb in &mut self.0 {
            let product = u64::from(*limb) * u64::from(factor) + carry;
            *limb = low(product);
            carry = product / BASE;
        }
        while carry > 0 {
            self.0.push(low(carry));
            carry /= BASE;
        }
        self.trimmed()
    }

    pub(crate) fn times_power(self, base: u32, exponent: u32) -> Self {
        (0..exponent).fold(self, |n, _| n.times(base))
    }

    pub(crate) fn times_ten(mut self, exponent: u32) -> Self {
        if !self.is_zero() {
            let limbs = exponent as usize / 9;
            self.0.splice(..0, std::iter::repeat_n(0, limbs));
        }
        self.times(10_u32.pow(exponent % 9))
    }

    /// Returns the number of decimal digits; 0 for zero.
    pub(crate) fn digits(&self) -> usize {
        match self.0.split_last() {
            Some((last, rest)) => 9 * rest.len() + 1 + last.checked_ilog10().unwrap_or(0) as usize,
            None => 0,
        }
    }

    /// Divides by a number from 1 below 2^32. Returns quotient and remainder.
    pub(crate) fn divided(mut self, divisor: u32) -> (Self, u32) {
        let mut rest = 0;
        for limb in self.0.iter_mut().rev() {
            let dividend = rest * BASE + u64::from(*limb);
            // Below `BASE`, because `rest` is below the divisor.
            *limb = low(dividend / u64::from(divisor));
            rest = dividend % u64::from(divisor);
        }
        (self.trimmed(), low(rest))
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        let mut carry = 0;
        let limbs = (0..self.0.len().max(other.0.len()) + 1).map(|i| {
            let sum = self.limb(i) + other.limb(i) + carry;
            carry = sum / BASE;
            low(sum)
        });
        Self(limbs.collect()).trimmed()
    }

    /// Returns the absolute difference.
    pub(crate) fn distance(&self, other: &Self) -> Self {
        let (large, small) = if self < other { (other, self) } else { (self, other) };
        let mut borrow = 0;
        let limbs = (0..large.0.len()).map(|i| {
            let difference = large.limb(i) + BASE - small.limb(i) - borrow;
            borrow = u64::from(difference < BASE);
            low(difference)
        });
        Self(limbs.collect()).trimmed()
    }

    fn limb(&self, index: usize) -> u64 {
        self.0.get(index).copied().map_or(0, u64::from)
    }

    pub(crate) fn to_f64(&self) -> f64 {
        // Through text, which rounds once.
        self.to_string().parse().unwrap_or(f64::INFINITY)
    }
}

/// Returns the number modulo `BASE`.
fn low(number: u64) -> u32 {
    (number % BASE) as u32
}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Self) -> Ordering {
        let longer = self.0.len().cmp(&other.0.len());
        longer.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

impl std::fmt::Display for Natural {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some((last, rest)) = self.0.split_last() else {
            return f.write_str("0");
        };
        write!(f, "{last}")?;
        rest.iter().rev().try_for_each(|limb| write!(f, "{limb:09}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Natural;

    fn natural(number: u128) -> Natural {
        Natural::of_digits(&number.to_string())
    }

    #[test]
    fn agrees_with_machine_numbers() {
        let numbers = [
            0,
            1,
            9,
            999_999_999,
            1_000_000_000,
            1 << 40,
            u128::from(u64::MAX),
            10_u128.pow(27) + 7,
        ];
        for a in numbers {
            assert_eq!(natural(a).to_string(), a.to_string());
            assert_eq!(natural(a).to_f64(), a as f64);
            for b in numbers {
                assert_eq!(natural(a).plus(&natural(b)), natural(a + b), "{a} + {b}");
                assert_eq!(natural(a).distance(&natural(b)), natural(a.abs_diff(b)), "{a} - {b}");
                assert_eq!(natural(a).cmp(&natural(b)), a.cmp(&b), "{a} {b}");
            }
            assert_eq!(natural(a).digits(), if a == 0 { 0 } else { a.to_string().len() }, "{a}");
            for tens in 0..10 {
                assert_eq!(
                    natural(a).times_ten(tens),
                    natural(a * 10_u128.pow(tens)),
                    "{a} * 10^{tens}"
                );
            }
            for small in [1, 2, 10, 1024, 999_999_999] {
                assert_eq!(natural(a).times(small), natural(a * u128::from(small)), "{a} * {small}");
                let (quotient, rest) = natural(a).divided(small);
                assert_eq!(quotient, natural(a / u128::from(small)), "{a} / {small}");
                assert_eq!(u128::from(rest), a % u128::from(small));
            }
        }
    }
}
