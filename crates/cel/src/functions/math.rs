//! The `math.*` functions of cel-go's extension: rounding, signs, extremes, bits. Only conversion
//! rules have them.

use super::{Context, Function, global};
use crate::cost;
use crate::error::{EvalError, Overflowing, invalid, no_overload};
use crate::value::{Result, Val, numeric};
use std::cmp::Ordering;

/// Function that returns its greatest argument. cel-go makes it a macro of [`shown`].
pub(crate) const GREATEST: &str = "math.greatest";
/// Function that returns its least argument.
pub(crate) const LEAST: &str = "math.least";

/// Returns the name in cel-go's messages, where it differs.
pub(crate) fn shown(name: &str) -> Option<&'static str> {
    match name {
        GREATEST => Some("math.@max"),
        LEAST => Some("math.@min"),
        _ => None,
    }
}

/// Returns the number of arguments that overloads are chosen by: more than two are one list.
pub(super) fn arity(name: &str, count: usize) -> usize {
    match shown(name) {
        Some(_) if count > 2 => 1,
        _ => count,
    }
}

pub(super) static FUNCTIONS: &[Function] = &[
    global("math.ceil", &["math_ceil_double: (double) -> double"], |_, a| {
        rounded(a, "math.ceil", f64::ceil)
    }),
    global("math.floor", &["math_floor_double: (double) -> double"], |_, a| {
        rounded(a, "math.floor", f64::floor)
    }),
    global("math.round", &["math_round_double: (double) -> double"], |_, a| {
        rounded(a, "math.round", f64::round)
    }),
    global("math.trunc", &["math_trunc_double: (double) -> double"], |_, a| {
        rounded(a, "math.trunc", f64::trunc)
    }),
    global("math.isInf", &["math_isInf_double: (double) -> bool"], |_, a| {
        double(a, "math.isInf").map(|d| Val::Bool(d.is_infinite()))
    }),
    global("math.isNaN", &["math_isNaN_double: (double) -> bool"], |_, a| {
        double(a, "math.isNaN").map(|d| Val::Bool(d.is_nan()))
    }),
    global("math.isFinite", &["math_isFinite_double: (double) -> bool"], |_, a| {
        double(a, "math.isFinite").map(|d| Val::Bool(d.is_finite()))
    }),
    global(
        "math.abs",
        &[
            "math_abs_double: (double) -> double",
            "math_abs_int: (int) -> int",
            "math_abs_uint: (uint) -> uint",
        ],
        |_, a| match a {
            [Val::Double(d)] => Ok(Val::Double(d.abs())),
            [Val::Int(i)] => i
                .checked_abs()
                .map(Val::Int)
                .ok_or(EvalError::Overflow(Overflowing::Int)),
            [Val::Uint(u)] => Ok(Val::Uint(*u)),
            _ => Err(no_overload("math.abs")),
        },
    ),
    global(
        "math.sign",
        &[
            "math_sign_double: (double) -> double",
            "math_sign_int: (int) -> int",
            "math_sign_uint: (uint) -> uint",
        ],
        |_, a| match a {
            [Val::Double(d)] if d.is_nan() => Ok(Val::Double(*d)),
            // Both zeros have the sign 0, which `signum` does not give.
            [Val::Double(d)] if *d == 0.0 => Ok(Val::Double(0.0)),
            [Val::Double(d)] => Ok(Val::Double(d.signum())),
            [Val::Int(i)] => Ok(Val::Int(i.signum())),
            [Val::Uint(u)] => Ok(Val::Uint(u64::from(*u > 0))),
            _ => Err(no_overload("math.sign")),
        },
    ),
    global(
        "math.sqrt",
        &[
            "math_sqrt_double: (double) -> double",
            "math_sqrt_int: (int) -> double",
            "math_sqrt_uint: (uint) -> double",
        ],
        |_, a| match a {
            [Val::Double(d)] => Ok(Val::Double(d.sqrt())),
            [Val::Int(i)] => Ok(Val::Double((*i as f64).sqrt())),
            [Val::Uint(u)] => Ok(Val::Double((*u as f64).sqrt())),
            _ => Err(no_overload("math.sqrt")),
        },
    ),
    global(
        "math.bitAnd",
        &[
            "math_bitAnd_int_int: (int, int) -> int",
            "math_bitAnd_uint_uint: (uint, uint) -> uint",
        ],
        |_, a| bits(a, "math.bitAnd", |x, y| x & y),
    ),
    global(
        "math.bitOr",
        &[
            "math_bitOr_int_int: (int, int) -> int",
            "math_bitOr_uint_uint: (uint, uint) -> uint",
        ],
        |_, a| bits(a, "math.bitOr", |x, y| x | y),
    ),
    global(
        "math.bitXor",
        &[
            "math_bitXor_int_int: (int, int) -> int",
            "math_bitXor_uint_uint: (uint, uint) -> uint",
        ],
        |_, a| bits(a, "math.bitXor", |x, y| x ^ y),
    ),
    global(
        "math.bitNot",
        &[
            "math_bitNot_int_int: (int) -> int",
            "math_bitNot_uint_uint: (uint) -> uint",
        ],
        |_, a| match a {
            [Val::Int(i)] => Ok(Val::Int(!i)),
            [Val::Uint(u)] => Ok(Val::Uint(!u)),
            _ => Err(no_overload("math.bitNot")),
        },
    ),
    global(
        "math.bitShiftLeft",
        &[
            "math_bitShiftLeft_int_int: (int, int) -> int",
            "math_bitShiftLeft_uint_int: (uint, int) -> uint",
        ],
        |_, a| shifted(a, "math.bitShiftLeft", u64::checked_shl),
    ),
    // Bits move in from the left as zeros, of negative numbers as well.
    global(
        "math.bitShiftRight",
        &[
            "math_bitShiftRight_int_int: (int, int) -> int",
            "math_bitShiftRight_uint_int: (uint, int) -> uint",
        ],
        |_, a| shifted(a, "math.bitShiftRight", u64::checked_shr),
    ),
    global(
        GREATEST,
        &[
            "math_@max_double: (double) -> double",
            "math_@max_int: (int) -> int",
            "math_@max_uint: (uint) -> uint",
            "math_@max_double_double: (double, double) -> double",
            "math_@max_int_int: (int, int) -> int",
            "math_@max_uint_uint: (uint, uint) -> uint",
            "math_@max_int_uint: (int, uint) -> dyn",
            "math_@max_int_double: (int, double) -> dyn",
            "math_@max_double_int: (double, int) -> dyn",
            "math_@max_double_uint: (double, uint) -> dyn",
            "math_@max_uint_int: (uint, int) -> dyn",
            "math_@max_uint_double: (uint, double) -> dyn",
            "math_@max_list_double: (list(double)) -> double",
            "math_@max_list_int: (list(int)) -> int",
            "math_@max_list_uint: (list(uint)) -> uint",
        ],
        |cx, a| extreme(cx, a, GREATEST, Ordering::Greater),
    ),
    global(
        LEAST,
        &[
            "math_@min_double: (double) -> double",
            "math_@min_int: (int) -> int",
            "math_@min_uint: (uint) -> uint",
            "math_@min_double_double: (double, double) -> double",
            "math_@min_int_int: (int, int) -> int",
            "math_@min_uint_uint: (uint, uint) -> uint",
            "math_@min_int_uint: (int, uint) -> dyn",
            "math_@min_int_double: (int, double) -> dyn",
            "math_@min_double_int: (double, int) -> dyn",
            "math_@min_double_uint: (double, uint) -> dyn",
            "math_@min_uint_int: (uint, int) -> dyn",
            "math_@min_uint_double: (uint, double) -> dyn",
            "math_@min_list_double: (list(double)) -> double",
            "math_@min_list_int: (list(int)) -> int",
            "math_@min_list_uint: (list(uint)) -> uint",
        ],
        |cx, a| extreme(cx, a, LEAST, Ordering::Less),
    ),
];

fn double(args: &[Val<'_>], name: &'static str) -> std::result::Result<f64, EvalError> {
    match args {
        [Val::Double(d)] => Ok(*d),
        _ => Err(no_overload(name)),
    }
}

fn rounded<'v>(args: &[Val<'v>], name: &'static str, round: fn(f64) -> f64) -> Result<'v> {
    double(args, name).map(|d| Val::Double(round(d)))
}

fn bits<'v>(args: &[Val<'v>], name: &'static str, combine: fn(u64, u64) -> u64) -> Result<'v> {
    match args {
        [Val::Int(x), Val::Int(y)] => Ok(Val::Int(combine(x.cast_unsigned(), y.cast_unsigned()).cast_signed())),
        [Val::Uint(x), Val::Uint(y)] => Ok(Val::Uint(combine(*x, *y))),
        _ => Err(no_overload(name)),
    }
}

/// Shifts by at most 63 bits; more leave nothing.
fn shifted<'v>(args: &[Val<'v>], name: &'static str, shift: fn(u64, u32) -> Option<u64>) -> Result<'v> {
    let [number, Val::Int(offset)] = args else {
        return Err(no_overload(name));
    };
    let Ok(offset) = u64::try_from(*offset) else {
        return Err(invalid(format!("{name}() negative offset: {offset}")));
    };
    let moved = |bits: u64| u32::try_from(offset).ok().and_then(|n| shift(bits, n)).unwrap_or(0);
    match number {
        Val::Int(i) => Ok(Val::Int(moved(i.cast_unsigned()).cast_signed())),
        Val::Uint(u) => Ok(Val::Uint(moved(*u))),
        _ => Err(no_overload(name)),
    }
}

/// Returns the first of the extreme arguments, or items of a single list.
fn extreme<'v>(cx: &mut Context<'_>, args: &[Val<'v>], name: &'static str, better: Ordering) -> Result<'v> {
    let overload = || invalid(format!("no such overload: {}", shown(name).unwrap_or(name)));
    if let [list] = args
        && let Some(items) = list.items()
    {
        let mut items = items.iter();
        let empty = || format!("{}(list) argument must not be empty", shown(name).unwrap_or(name));
        let first = items.next().ok_or_else(|| invalid(empty()))?;
        return items.try_fold(number(first).ok_or_else(overload)?, |best, item| {
            cx.budget.charge(cost::ITEM)?;
            better_of(best, number(item).ok_or_else(overload)?, name, better)
        });
    }
    match args {
        [one] => number(one.clone()).ok_or_else(|| no_overload(name)),
        [one, rest @ ..] => {
            let first = number(one.clone()).ok_or_else(|| no_overload(name))?;
            rest.iter().try_fold(first, |best, item| {
                better_of(
                    best,
                    number(item.clone()).ok_or_else(|| no_overload(name))?,
                    name,
                    better,
                )
            })
        }
        [] => Err(no_overload(name)),
    }
}

fn number(value: Val<'_>) -> Option<Val<'_>> {
    matches!(value, Val::Int(_) | Val::Uint(_) | Val::Double(_)).then_some(value)
}

fn better_of<'v>(best: Val<'v>, other: Val<'v>, name: &'static str, better: Ordering) -> Result<'v> {
    match numeric(&other, &best) {
        Some(Some(order)) if order == better => Ok(other),
        Some(Some(_)) => Ok(best),
        Some(None) => Err(invalid(format!(
            "NaN values cannot be ordered: {}",
            shown(name).unwrap_or(name)
        ))),
        None => Err(no_overload(name)),
    }
}
