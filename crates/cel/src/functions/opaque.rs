//! Functions of the libraries' own types that several of them share, and their arguments.

use super::{Context, Function, member};
use crate::cost;
use crate::error::{EvalError, no_overload};
use crate::opaque::Opaque;
use crate::value::{Result, Val};
use std::cmp::Ordering;
use std::rc::Rc;

/// Functions that several of the types share.
pub(super) static FUNCTIONS: &[Function] = &[
    member(
        "isGreaterThan",
        &[
            "quantity_is_greater_than: kubernetes.Quantity.(kubernetes.Quantity) -> bool",
            "semver_is_greater_than: kubernetes.Semver.(kubernetes.Semver) -> bool",
        ],
        |_, a| Ok(Val::Bool(pair(a, "isGreaterThan")?.is_gt())),
    ),
    member(
        "isLessThan",
        &[
            "quantity_is_less_than: kubernetes.Quantity.(kubernetes.Quantity) -> bool",
            "semver_is_less_than: kubernetes.Semver.(kubernetes.Semver) -> bool",
        ],
        |_, a| Ok(Val::Bool(pair(a, "isLessThan")?.is_lt())),
    ),
    member(
        "compareTo",
        &[
            "quantity_compare_to: kubernetes.Quantity.(kubernetes.Quantity) -> int",
            "semver_compare_to: kubernetes.Semver.(kubernetes.Semver) -> int",
        ],
        |_, a| Ok(Val::Int(pair(a, "compareTo")? as i64)),
    ),
];

fn pair(args: &[Val<'_>], name: &'static str) -> std::result::Result<Ordering, EvalError> {
    match args {
        [Val::Opaque(a), Val::Opaque(b)] => a.order(b).ok_or_else(|| no_overload(name)),
        _ => Err(no_overload(name)),
    }
}

/// Returns a library value and charges its memory.
pub(super) fn opaque<'v>(cx: &mut Context<'_>, value: Opaque<'v>) -> Result<'v> {
    cx.budget.allocation(size_of::<Opaque<'_>>())?;
    Ok(Val::Opaque(Rc::new(value)))
}

/// Returns the only argument, a text to be parsed, and charges for reading it.
pub(super) fn text_argument<'s>(
    cx: &mut Context<'_>,
    args: &'s [Val<'_>],
    name: &'static str,
) -> std::result::Result<&'s str, EvalError> {
    let [value] = args else { return Err(no_overload(name)) };
    let text = value.as_str().ok_or_else(|| no_overload(name))?;
    cx.budget.charge(cost::SYNTAX)?;
    cx.budget.traverse(text.len())?;
    Ok(text)
}
