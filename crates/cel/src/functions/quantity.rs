//! Kubernetes quantities: `quantity('1.5Gi')`, compared and added exactly.
//!
//! A quantity is a decimal number with a suffix (`m`, `k`, `Mi`, `e3` …), rounded away from zero to whole
//! nano-units, so a natural number of those and a sign hold it. Kubernetes also keeps what fits as an integer with a
//! decimal scale, and calls only those integers: `1.5Gi` and `1000m` are none to it, so `Small` is kept as well.

use super::natural::Natural;
use super::opaque::{Opaque, opaque, text_argument};
use super::{Function, global, member};
use crate::error::{EvalError, invalid, no_overload};
use crate::value::Val;
use std::cmp::Ordering;

pub(super) static FUNCTIONS: &[Function] = &[
    global(
        "quantity",
        &["string_to_quantity: (string) -> kubernetes.Quantity"],
        |cx, a| {
            let quantity = Quantity::parse(text_argument(cx, a, "quantity")?).map_err(invalid)?;
            opaque(cx, Opaque::Quantity(quantity))
        },
    ),
    global("isQuantity", &["is_quantity_string: (string) -> bool"], |cx, a| {
        Ok(Val::Bool(Quantity::parse(text_argument(cx, a, "isQuantity")?).is_ok()))
    }),
    global("sign", &["quantity_sign: (kubernetes.Quantity) -> int"], |_, a| {
        Ok(Val::Int(one(a, "sign")?.sign() as i64))
    }),
    member(
        "isInteger",
        &["quantity_is_integer: kubernetes.Quantity.() -> bool"],
        |_, a| Ok(Val::Bool(one(a, "isInteger")?.integer().is_some())),
    ),
    member(
        "asInteger",
        &["quantity_get_int: kubernetes.Quantity.() -> int"],
        |_, a| {
            let integer = one(a, "asInteger")?.integer();
            integer
                .map(Val::Int)
                .ok_or_else(|| invalid("cannot convert value to integer"))
        },
    ),
    member(
        "asApproximateFloat",
        &["quantity_get_float: kubernetes.Quantity.() -> double"],
        |_, a| Ok(Val::Double(one(a, "asApproximateFloat")?.to_f64())),
    ),
    member(
        "add",
        &[
            "quantity_add: kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity",
            "quantity_add_int: kubernetes.Quantity.(int) -> kubernetes.Quantity",
        ],
        |cx, a| {
            let (a, b) = operands(a, "add")?;
            opaque(cx, Opaque::Quantity(a.plus(&b)))
        },
    ),
    member(
        "sub",
        &[
            "quantity_sub: kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity",
            "quantity_sub_int: kubernetes.Quantity.(int) -> kubernetes.Quantity",
        ],
        |cx, a| {
            let (a, b) = operands(a, "sub")?;
            opaque(cx, Opaque::Quantity(a.plus(&b.negated())))
        },
    ),
];

/// Digits of a number and powers of ten of an exponent: far beyond what anyone owns, small enough to multiply.
const DIGITS_MAX: usize = 512;

const WRONG_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_NUMBER: &str = "unable to parse numeric part of quantity";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";

/// How a quantity is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

#[derive(Debug, Clone)]
pub(crate) struct Quantity {
    nanos: Natural,
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
    /// The value with a smaller scale.
    fn rescaled(self, scale: i32) -> Option<i64> {
        let power = u32::try_from(self.scale - scale).ok()?;
        match self.value {
            0 => Some(0),
            value => value.checked_mul(10_i64.checked_pow(power)?),
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

/// A number's text, taken apart.
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

/// Format, power of ten and power of two of a suffix.
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
    pub(super) fn parse(text: &str) -> std::result::Result<Self, &'static str> {
        let parts = parts(text)?;
        let (format, tens, twos) = scale(parts.suffix).ok_or(WRONG_SUFFIX)?;
        let digits = parts.whole.len().max(1) + parts.fraction.len();
        if digits > DIGITS_MAX || tens.unsigned_abs() as usize > DIGITS_MAX {
            return Err(WRONG_NUMBER);
        }
        let small = parts.small(format, tens, twos);
        let mut nanos = Natural::of_digits(&[parts.whole, parts.fraction].concat()).times_power(2, twos);
        let fraction = i32::try_from(parts.fraction.len()).map_err(|_| WRONG_NUMBER)?;
        let power = tens - fraction + 9;
        if power >= 0 {
            nanos = nanos.times_power(10, power.unsigned_abs());
        } else {
            nanos = rounded_away(nanos, power.unsigned_abs());
        }
        let largest = Natural::of_digits("9223372036854775807000000000");
        if small.is_none() && format == Format::Binary && nanos > largest {
            nanos = largest;
        }
        Ok(Self {
            negative: parts.negative && !nanos.is_zero(),
            nanos,
            small,
            format,
        })
    }

    fn of_integer(value: i64) -> Self {
        Self {
            nanos: Natural::of_digits(&value.unsigned_abs().to_string()).times_power(10, 9),
            negative: value < 0,
            small: Some(Small { value, scale: 0 }),
            format: Format::Exponent,
        }
    }

    fn sign(&self) -> Ordering {
        match (self.nanos.is_zero(), self.negative) {
            (true, _) => Ordering::Equal,
            (false, true) => Ordering::Less,
            (false, false) => Ordering::Greater,
        }
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.nanos.cmp(&other.nanos),
            (true, true) => other.nanos.cmp(&self.nanos),
            _ => other.negative.cmp(&self.negative),
        }
    }

    fn integer(&self) -> Option<i64> {
        self.small.filter(|s| s.scale >= 0)?.rescaled(0)
    }

    fn to_f64(&self) -> f64 {
        let (number, scale) = match self.small {
            Some(small) => (small.value as f64, small.scale),
            None if self.negative => (-self.nanos.to_f64(), -9),
            None => (self.nanos.to_f64(), -9),
        };
        // A power of ten out of text is rounded once.
        number * format!("1e{scale}").parse::<f64>().unwrap_or(f64::NAN)
    }

    fn negated(mut self) -> Self {
        self.negative = !self.negative && !self.nanos.is_zero();
        self.small = self.small.and_then(|s| {
            let value = s.value.checked_neg()?;
            Some(Small { value, ..s })
        });
        self
    }

    fn plus(&self, other: &Self) -> Self {
        let (nanos, negative) = if self.negative == other.negative {
            (self.nanos.plus(&other.nanos), self.negative)
        } else {
            let larger = if self.nanos < other.nanos { other } else { self };
            (self.nanos.distance(&other.nanos), larger.negative)
        };
        Self {
            negative: negative && !nanos.is_zero(),
            nanos,
            small: self.small.zip(other.small).and_then(|(a, b)| a.plus(b)),
            format: if self.nanos.is_zero() {
                other.format
            } else {
                self.format
            },
        }
    }

    /// The canonical text: the largest suffix that leaves an integer.
    pub(super) fn text(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        if self.format == Format::Binary {
            let (whole, rest) = self.nanos.clone().divided(1_000_000_000);
            if rest == 0 && whole >= Natural::of_digits("1024") {
                let (number, power) = reduced(whole, 1_024, 6);
                let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
                    .get(power)
                    .copied()
                    .unwrap_or_default();
                return format!("{sign}{number}{suffix}");
            }
        }
        let powers_max = if self.format == Format::Exponent { usize::MAX } else { 9 };
        let (number, power) = reduced(self.nanos.clone(), 1_000, powers_max);
        if self.nanos.is_zero() || power == 3 {
            return format!("{sign}{number}");
        }
        match ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].get(power) {
            Some(suffix) if self.format != Format::Exponent => format!("{sign}{number}{suffix}"),
            _ => format!("{sign}{number}e{}", 3 * (power as i64) - 9),
        }
    }
}

impl Parts<'_> {
    /// The number as an integer with a scale, where Kubernetes keeps it so.
    fn small(&self, format: Format, tens: i32, twos: u32) -> Option<Small> {
        let whole = self.whole.len().max(1);
        let fits = match format {
            // Up to so many digits that the product has fewer than 15.
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

/// A quotient by 10^`power`, away from zero, so that a tiny request is never nothing.
fn rounded_away(number: Natural, power: u32) -> Natural {
    let (mut number, mut exact) = (number, true);
    for _ in 0..power {
        let (quotient, rest) = number.divided(10);
        number = quotient;
        exact &= rest == 0;
    }
    if exact {
        number
    } else {
        number.plus(&Natural::of_digits("1"))
    }
}

/// A number divided by `base` while that leaves no rest, and how often.
fn reduced(mut number: Natural, base: u32, powers_max: usize) -> (Natural, usize) {
    let mut power = 0;
    while !number.is_zero() && power < powers_max {
        let (quotient, rest) = number.clone().divided(base);
        if rest != 0 {
            break;
        }
        number = quotient;
        power += 1;
    }
    (number, power)
}

fn one<'s>(args: &'s [Val<'_>], name: &'static str) -> std::result::Result<&'s Quantity, EvalError> {
    match args {
        [Val::Opaque(value)] => match &**value {
            Opaque::Quantity(quantity) => Ok(quantity),
            _ => Err(no_overload(name)),
        },
        _ => Err(no_overload(name)),
    }
}

fn operands(args: &[Val<'_>], name: &'static str) -> std::result::Result<(Quantity, Quantity), EvalError> {
    match args {
        [_, Val::Int(integer)] => Ok((one(&args[..1], name)?.clone(), Quantity::of_integer(*integer))),
        [_, _] => Ok((one(&args[..1], name)?.clone(), one(&args[1..], name)?.clone())),
        _ => Err(no_overload(name)),
    }
}
