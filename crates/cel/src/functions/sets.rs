//! The `sets.*` functions: lists used as sets.

use super::{Context, Function, global};
use crate::compare;
use crate::cost;
use crate::error::{EvalError, no_overload};
use crate::items::Items;
use crate::value::Val;

pub(super) static FUNCTIONS: &[Function] = &[
    global(
        "sets.contains",
        &["list_sets_contains_list: (list(T), list(T)) -> bool"],
        |cx, a| {
            let (a, b) = two_lists(a, "sets.contains")?;
            Ok(Val::Bool(all_in(cx, b, a)?))
        },
    ),
    global(
        "sets.equivalent",
        &["list_sets_equivalent_list: (list(T), list(T)) -> bool"],
        |cx, a| {
            let (a, b) = two_lists(a, "sets.equivalent")?;
            Ok(Val::Bool(all_in(cx, a, b)? && all_in(cx, b, a)?))
        },
    ),
    global(
        "sets.intersects",
        &["list_sets_intersects_list: (list(T), list(T)) -> bool"],
        |cx, a| {
            let (a, b) = two_lists(a, "sets.intersects")?;
            for item in a.iter() {
                if is_in(cx, &item, b)? {
                    return Ok(Val::Bool(true));
                }
            }
            Ok(Val::Bool(false))
        },
    ),
];

type Lists<'s, 'v> = (Items<'s, 'v>, Items<'s, 'v>);

fn two_lists<'s, 'v>(args: &'s [Val<'v>], name: &'static str) -> Result<Lists<'s, 'v>, EvalError> {
    match args {
        [a, b] => a.items().zip(b.items()).ok_or_else(|| no_overload(name)),
        _ => Err(no_overload(name)),
    }
}

fn all_in(cx: &mut Context<'_>, part: Items<'_, '_>, whole: Items<'_, '_>) -> Result<bool, EvalError> {
    for item in part.iter() {
        if !is_in(cx, &item, whole)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_in(cx: &mut Context<'_>, item: &Val<'_>, list: Items<'_, '_>) -> Result<bool, EvalError> {
    for other in list.iter() {
        cx.budget.charge(cost::ITEM)?;
        if compare::equal(item, &other, cx.budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}
