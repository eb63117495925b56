//! Kubernetes quantities: `quantity('1.5Gi')`, compared and added exactly.
//!
//! A quantity is a decimal mantissa with a suffix: `m`, `k`, `Mi`, `e3` … Held as an integer of nano-units, rounded
//! up beyond that as Kubernetes does.

use super::{Context, Function, global, member};
use crate::error::{EvalError, invalid, no_overload};
use crate::eval::Result;
use crate::value::Val;
use std::cmp::Ordering;
use std::rc::Rc;

pub(super) static FUNCTIONS: &[Function] = &[
    global(
        "quantity",
        &["string_to_quantity: (string) -> kubernetes.Quantity"],
        |cx, a| {
            let text = text_of(cx, a, "quantity")?;
            let quantity = Quantity::parse(&text).ok_or_else(|| {
                invalid("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
            })?;
            Ok(Val::Quantity(Rc::new(quantity)))
        },
    ),
    global("isQuantity", &["is_quantity_string: (string) -> bool"], |cx, a| {
        Ok(Val::Bool(Quantity::parse(&text_of(cx, a, "isQuantity")?).is_some()))
    }),
    global(
        "sign",
        &["quantity_sign: (kubernetes.Quantity) -> int"],
        |_, a| match a {
            [Val::Quantity(q)] => Ok(Val::Int(q.nanos.signum() as i64)),
            _ => Err(no_overload("sign")),
        },
    ),
    member(
        "isGreaterThan",
        &["quantity_is_greater_than: kubernetes.Quantity.(kubernetes.Quantity) -> bool"],
        |_, a| Ok(Val::Bool(pair(a, "isGreaterThan")?.is_gt())),
    ),
    member(
        "isLessThan",
        &["quantity_is_less_than: kubernetes.Quantity.(kubernetes.Quantity) -> bool"],
        |_, a| Ok(Val::Bool(pair(a, "isLessThan")?.is_lt())),
    ),
    member(
        "compareTo",
        &["quantity_compare_to: kubernetes.Quantity.(kubernetes.Quantity) -> int"],
        |_, a| Ok(Val::Int(pair(a, "compareTo")? as i64)),
    ),
    member(
        "isInteger",
        &["quantity_is_integer: kubernetes.Quantity.() -> bool"],
        |_, a| match a {
            [Val::Quantity(q)] => Ok(Val::Bool(q.integer().is_some())),
            _ => Err(no_overload("isInteger")),
        },
    ),
    member(
        "asInteger",
        &["quantity_get_int: kubernetes.Quantity.() -> int"],
        |_, a| match a {
            [Val::Quantity(q)] => q
                .integer()
                .map(Val::Int)
                .ok_or_else(|| invalid("cannot convert value to integer")),
            _ => Err(no_overload("asInteger")),
        },
    ),
    member(
        "asApproximateFloat",
        &["quantity_get_float: kubernetes.Quantity.() -> double"],
        |_, a| match a {
            [Val::Quantity(q)] => Ok(Val::Double(q.nanos as f64 / NANO as f64)),
            _ => Err(no_overload("asApproximateFloat")),
        },
    ),
    member(
        "add",
        &[
            "quantity_add: kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity",
            "quantity_add_int: kubernetes.Quantity.(int) -> kubernetes.Quantity",
        ],
        |_, a| combine(a, "add", 1),
    ),
    member(
        "sub",
        &[
            "quantity_sub: kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity",
            "quantity_sub_int: kubernetes.Quantity.(int) -> kubernetes.Quantity",
        ],
        |_, a| combine(a, "sub", -1),
    ),
];

const NANO: i128 = 1_000_000_000;
/// Digits of a mantissa; more than fit 128 bits with any suffix in use.
const DIGITS_MAX: usize = 24;

/// A quantity: its value in nano-units, and the text it came from (or a canonical one when computed).
#[derive(Debug)]
pub(crate) struct Quantity {
    nanos: i128,
    text: String,
}

impl Quantity {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }

    fn integer(&self) -> Option<i64> {
        if self.nanos % NANO == 0 {
            i64::try_from(self.nanos / NANO).ok()
        } else {
            None
        }
    }

    fn of(nanos: i128) -> Self {
        let text = if nanos % NANO == 0 {
            (nanos / NANO).to_string()
        } else if nanos % 1_000_000 == 0 {
            format!("{}m", nanos / 1_000_000)
        } else if nanos % 1_000 == 0 {
            format!("{}u", nanos / 1_000)
        } else {
            format!("{nanos}n")
        };
        Self { nanos, text }
    }

    fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty())
            || fraction.contains('.')
            || whole.len() + fraction.len() > DIGITS_MAX
        {
            return None;
        }
        let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
        let (base, exponent) = scale(suffix)?;
        let mut numerator = mantissa;
        let mut denominator = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let factor = i128::from(base).checked_pow(exponent.unsigned_abs())?;
        if exponent >= 0 {
            numerator = numerator.checked_mul(factor)?;
        } else {
            denominator = denominator.checked_mul(factor)?;
        }
        numerator = numerator.checked_mul(NANO)?;
        // Rounded away from zero, so that a tiny request is never nothing.
        let nanos = numerator.checked_add(denominator - 1)? / denominator;
        Some(Self {
            nanos: if negative { -nanos } else { nanos },
            text: text.to_owned(),
        })
    }
}

/// Base and exponent of a suffix.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            (10, exponent.parse().ok().filter(|e: &i32| e.abs() <= 30)?)
        }
    })
}

fn text_of(cx: &mut Context<'_>, args: &[Val<'_>], name: &'static str) -> std::result::Result<String, EvalError> {
    let [value] = args else { return Err(no_overload(name)) };
    let text = value.as_str().ok_or(no_overload(name))?;
    cx.budget.traverse(text.len())?;
    // No quantity is longer; the copy stays small.
    Ok(text.chars().take(64).collect())
}

fn pair(args: &[Val<'_>], name: &'static str) -> std::result::Result<Ordering, EvalError> {
    match args {
        [Val::Quantity(a), Val::Quantity(b)] => Ok(a.compare(b)),
        _ => Err(no_overload(name)),
    }
}

fn combine<'v>(args: &[Val<'v>], name: &'static str, sign: i128) -> Result<'v> {
    let (a, b) = match args {
        [Val::Quantity(a), Val::Quantity(b)] => (a.nanos, Some(b.nanos)),
        [Val::Quantity(a), Val::Int(b)] => (a.nanos, i128::from(*b).checked_mul(NANO)),
        _ => return Err(no_overload(name)),
    };
    let sum = b.and_then(|b| b.checked_mul(sign)).and_then(|b| a.checked_add(b));
    sum.map(|nanos| Val::Quantity(Rc::new(Quantity::of(nanos))))
        .ok_or(EvalError::Overflow("quantity"))
}
