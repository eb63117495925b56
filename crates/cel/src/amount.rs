//! Kubernetes quantities: `quantity('1.5Gi')`, compared and added exactly.
//!
//! A quantity is a decimal number with a suffix (`m`, `k`, `Mi`, `e3` …), rounded away from zero to
//! whole nano-units. It is stored as a natural number of nano-units, a power of ten and a sign; the
//! power is not multiplied out, so that `1e1000` takes no more memory than `1`. Kubernetes also
//! keeps numbers that fit as an integer with a decimal scale, and calls only those integers:
//! `1.5Gi` and `1000m` are none. `Small` is that form.

use crate::natural::Natural;
use std::{cmp::Ordering, fmt};

/// Digits of a computed number: far beyond real amounts, few enough to compare for one cost unit.
pub(crate) const DIGITS_MAX: usize = 4_096;

const WRONG_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_NUMBER: &str = "unable to parse numeric part of quantity";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";

/// Notation of a quantity's suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

/// A Kubernetes quantity, exact.
#[derive(Debug, Clone)]
pub struct Quantity {
    /// The amount in nano-units, as a multiple of 10^`tens`.
    number: Natural,
    tens: u32,
    negative: bool,
    small: Option<Small>,
    format: Format,
}

/// `value` · 10^`scale`.
#[derive(Debug, Clone, Copy)]
struct Small {
    value: i64,
    scale: i32,
}

impl Small {
    /// Returns the value for a smaller scale.
    fn rescaled(self, scale: i32) -> Option<i64> {
        match self.value {
            0 => Some(0),
            value => {
                let power = u32::try_from(self.scale.checked_sub(scale)?).ok()?;
                value.checked_mul(10_i64.checked_pow(power)?)
            }
        }
    }

    fn plus(self, other: Self) -> Option<Self> {
        match (self.value, other.value) {
            (_, 0) => Some(self),
            (0, _) => Some(other),
            _ => {
                let scale = self.scale.min(other.scale);
                let value = self.rescaled(scale)?.checked_add(other.rescaled(scale)?)?;
                Some(Self { value, scale })
            }
        }
    }
}

/// The parts of a number's text.
struct Parts<'t> {
    negative: bool,
    whole: &'t str,
    fraction: &'t str,
    suffix: &'t str,
}

fn parts(text: &str) -> std::result::Result<Parts<'_>, &'static str> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = unsigned.split_at(digits(unsigned));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let exponent = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    if text.is_empty() || digits(exponent) != exponent.len() {
        return Err(WRONG_FORMAT);
    }
    Ok(Parts {
        negative,
        whole: whole.trim_start_matches('0'),
        fraction,
        suffix,
    })
}

/// Returns the notation, power of ten and power of two of a suffix.
fn scale(suffix: &str) -> Option<(Format, i32, u32)> {
    let decimal = |power| Some((Format::Decimal, power, 0));
    let binary = |power| Some((Format::Binary, 0, power));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let power = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            Some((Format::Exponent, power, 0))
        }
    }
}

impl Quantity {
    /// Parses a quantity: `1.5Gi`, `250m`, `3`.
    ///
    /// # Errors
    ///
    /// Returns the message of Kubernetes' parser.
    pub fn parse(text: &str) -> std::result::Result<Self, &'static str> {
        let parts = parts(text)?;
        let (format, tens, twos) = scale(parts.suffix).ok_or(WRONG_SUFFIX)?;
        if parts.whole.len() + parts.fraction.len() > DIGITS_MAX {
            return Err(WRONG_NUMBER);
        }
        let small = parts.small(format, tens, twos);
        let number = Natural::of_digits(&[parts.whole, parts.fraction].concat()).times_power(2, twos);
        let power = i64::from(tens) + 9 - parts.fraction.len() as i64;
        let (mut number, tens) = match u32::try_from(power) {
            Ok(tens) => (number, tens),
            Err(_) => (rounded_away(&number, power.unsigned_abs()), 0),
        };
        let largest = Natural::of_digits("9223372036854775807");
        if small.is_none() && format == Format::Binary && number.clone().times_ten(tens) > largest.clone().times_ten(9)
        {
            number = largest.times_ten(9 - tens.min(9));
        }
        Ok(Self::new(number, tens, parts.negative, small, format))
    }

    fn new(number: Natural, tens: u32, negative: bool, small: Option<Small>, format: Format) -> Self {
        Self {
            negative: negative && !number.is_zero(),
            tens: if number.is_zero() { 0 } else { tens },
            number,
            small,
            format,
        }
    }

    /// Returns the quantity of a whole number.
    pub fn of_integer(value: i64) -> Self {
        let number = Natural::of_digits(&value.unsigned_abs().to_string());
        Self::new(number, 9, value < 0, Some(Small { value, scale: 0 }), Format::Exponent)
    }

    /// Returns the number of decimal digits that are stored.
    pub(crate) fn digits(&self) -> usize {
        self.number.digits()
    }

    /// Compares the quantity with zero.
    pub fn sign(&self) -> Ordering {
        match (self.number.is_zero(), self.negative) {
            (true, _) => Ordering::Equal,
            (false, true) => Ordering::Less,
            (false, false) => Ordering::Greater,
        }
    }

    /// Compares two quantities by value.
    pub fn compare(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.distance_from_zero(other),
            (true, true) => other.distance_from_zero(self),
            _ => other.negative.cmp(&self.negative),
        }
    }

    fn distance_from_zero(&self, other: &Self) -> Ordering {
        if self.number.is_zero() || other.number.is_zero() {
            return other.number.is_zero().cmp(&self.number.is_zero());
        }
        let digits = |q: &Self| u64::from(q.tens) + q.number.digits() as u64;
        // Numbers with equally many digits have powers that differ by at most the stored digits.
        digits(self)
            .cmp(&digits(other))
            .then_with(|| match self.tens.cmp(&other.tens) {
                Ordering::Equal => self.number.cmp(&other.number),
                _ => {
                    let tens = self.tens.min(other.tens);
                    self.expanded(tens).cmp(&other.expanded(tens))
                }
            })
    }

    /// Returns the number for a smaller power of ten.
    fn expanded(&self, tens: u32) -> Natural {
        self.number.clone().times_ten(self.tens - tens)
    }

    /// Returns true if the quantity has no fraction, in any notation.
    pub fn is_whole(&self) -> bool {
        self.tens >= 9 || self.expanded(0).divided(1_000_000_000).1 == 0
    }

    /// Returns the quantity as an integer, if it is whole and fits.
    pub fn whole(&self) -> Option<i64> {
        let (whole, rest) = match self.tens {
            0..32 => self.expanded(0).divided(1_000_000_000),
            _ => return None,
        };
        let text = format!("{}{whole}", if self.negative { "-" } else { "" });
        (rest == 0).then(|| text.parse().ok())?
    }

    pub(crate) fn integer(&self) -> Option<i64> {
        self.small.filter(|s| s.scale >= 0)?.rescaled(0)
    }

    pub(crate) fn to_f64(&self) -> f64 {
        let (number, scale) = match self.small {
            Some(small) => (small.value as f64, i64::from(small.scale)),
            None if self.negative => (-self.number.to_f64(), i64::from(self.tens) - 9),
            None => (self.number.to_f64(), i64::from(self.tens) - 9),
        };
        // Parsing a power of ten from text rounds once.
        number * format!("1e{scale}").parse::<f64>().unwrap_or(f64::NAN)
    }

    pub(crate) fn negated(mut self) -> Self {
        self.negative = !self.negative && !self.number.is_zero();
        self.small = self.small.and_then(|s| {
            let value = s.value.checked_neg()?;
            Some(Small { value, ..s })
        });
        self
    }

    /// Returns the sum, or `None` if it has too many digits.
    pub(crate) fn plus(&self, other: &Self) -> Option<Self> {
        let small = self.small.zip(other.small).and_then(|(a, b)| a.plus(b));
        if self.number.is_zero() || other.number.is_zero() {
            let sum = if self.number.is_zero() { other } else { self };
            return Some(Self { small, ..sum.clone() });
        }
        let digits = |q: &Self| u64::from(q.tens) + q.number.digits() as u64;
        let tens = self.tens.min(other.tens);
        if digits(self).max(digits(other)) - u64::from(tens) > DIGITS_MAX as u64 {
            return None;
        }
        let (a, b) = (self.expanded(tens), other.expanded(tens));
        let (number, negative) = if self.negative == other.negative {
            (a.plus(&b), self.negative)
        } else {
            let larger = if a < b { other } else { self };
            (a.distance(&b), larger.negative)
        };
        Some(Self::new(number, tens, negative, small, self.format))
    }

    /// Returns the canonical text, with the largest suffix that leaves an integer.
    pub(crate) fn text(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        if let Some(text) = self.binary_text() {
            return format!("{sign}{text}");
        }
        let mut digits = self.number.to_string();
        let zeros = digits.len() - digits.trim_end_matches('0').len() + self.tens as usize;
        if self.number.is_zero() {
            return digits;
        }
        let power = match self.format {
            Format::Exponent => zeros / 3,
            _ => (zeros / 3).min(9),
        };
        digits.truncate(digits.trim_end_matches('0').len());
        digits.extend(std::iter::repeat_n('0', zeros - 3 * power));
        match ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].get(power) {
            Some(suffix) if self.format != Format::Exponent || power == 3 => format!("{sign}{digits}{suffix}"),
            _ => format!("{sign}{digits}e{}", 3 * (power as i64) - 9),
        }
    }

    /// Returns the canonical text, without its sign, of a whole number from 1024 in binary
    /// notation.
    fn binary_text(&self) -> Option<String> {
        if self.format != Format::Binary {
            return None;
        }
        let (mut whole, rest) = self.expanded(0).divided(1_000_000_000);
        if rest != 0 || whole < Natural::of_digits("1024") {
            return None;
        }
        let mut suffix = "";
        for larger in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
            match whole.clone().divided(1_024) {
                (quotient, 0) => (whole, suffix) = (quotient, larger),
                _ => break,
            }
        }
        Some(format!("{whole}{suffix}"))
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl Parts<'_> {
    /// Returns the number as an integer with a scale, where Kubernetes keeps it so.
    fn small(&self, format: Format, tens: i32, twos: u32) -> Option<Small> {
        let whole = self.whole.len().max(1);
        let fits = match format {
            // Limited to digit counts whose product has fewer than 15 digits.
            Format::Binary => self.fraction.is_empty() && whole + twos as usize * 3 / 10 < 15,
            Format::Decimal | Format::Exponent => whole + self.fraction.len() <= 18,
        };
        let scale = tens.checked_sub(i32::try_from(self.fraction.len()).ok()?)?;
        if !fits || scale < -9 {
            return None;
        }
        let digits = format!("0{}{}", self.whole, self.fraction);
        let value = digits.parse::<i64>().ok()?.checked_mul(1_i64.checked_shl(twos)?)?;
        let value = if self.negative { -value } else { value };
        Some(Small { value, scale })
    }
}

/// Divides by 10^`power` and rounds away from zero, so that a tiny request never becomes zero.
fn rounded_away(number: &Natural, power: u64) -> Natural {
    let digits = number.to_string();
    let kept = digits
        .len()
        .saturating_sub(usize::try_from(power).unwrap_or(usize::MAX));
    let (whole, cut) = digits.split_at(kept);
    let quotient = Natural::of_digits(whole);
    if cut.bytes().all(|digit| digit == b'0') {
        quotient
    } else {
        quotient.plus(&Natural::of_digits("1"))
    }
}
