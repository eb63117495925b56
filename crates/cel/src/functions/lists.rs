//! Lists: Kubernetes' functions (`sum`, `min`, `isSorted` …) and the extension's (`sort`, `slice`, `flatten` …).

use super::{Context, Function, global, integer, made, member, strings};
use crate::arithmetic;
use crate::compare;
use crate::error::{EvalError, invalid, no_overload};
use crate::eval::Result;
use crate::ir::Operator;
use crate::value::{Items, Val};
use std::cmp::Ordering;

pub(super) static FUNCTIONS: &[Function] = &[
    member("sum", 1, 1, sum),
    member("min", 1, 1, |cx, a| extreme(cx, a, Ordering::Less, "min")),
    member("max", 1, 1, |cx, a| extreme(cx, a, Ordering::Greater, "max")),
    member("isSorted", 1, 1, is_sorted),
    member("includes", 2, 2, |cx, a| match a {
        [list @ (Val::JsonList(_) | Val::List(_)), element] => {
            Ok(Val::Bool(compare::contains(list, element, cx.budget)?))
        }
        _ => Err(no_overload("includes")),
    }),
    member("indexOf", 2, 3, |cx, a| index_of(cx, a, false)),
    member("lastIndexOf", 2, 3, |cx, a| index_of(cx, a, true)),
    member("sort", 1, 1, sort),
    member("distinct", 1, 1, distinct),
    member("flatten", 1, 2, flatten),
    member("slice", 3, 3, slice),
    member("reverse", 1, 1, reverse),
    member("first", 1, 1, |_, a| end(a, "first", |i| i.get(0))),
    member("last", 1, 1, |_, a| end(a, "last", |i| i.get(i.len().wrapping_sub(1)))),
    global("lists.range", 1, 1, range),
];

fn items<'s, 'v>(value: &'s Val<'v>, function: &'static str) -> std::result::Result<Items<'s, 'v>, EvalError> {
    value.items().ok_or(no_overload(function))
}

/// A list made of `count` elements: reading and keeping them is paid for.
fn charge(cx: &mut Context<'_>, count: usize) -> std::result::Result<(), EvalError> {
    cx.budget.charge(count as u64)?;
    cx.budget.memory(count * size_of::<Val<'_>>())
}

fn sum<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [list] = args else { return Err(no_overload("sum")) };
    let mut total: Option<Val<'v>> = None;
    for item in items(list, "sum")?.iter() {
        cx.budget.charge(1)?;
        if !matches!(item, Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Duration(_)) {
            return Err(no_overload("sum"));
        }
        total = Some(match total {
            None => item,
            Some(sum) => arithmetic::apply(Operator::Add, &sum, &item, cx.budget)?,
        });
    }
    Ok(total.unwrap_or(Val::Int(0)))
}

fn order(
    cx: &mut Context<'_>,
    a: &Val<'_>,
    b: &Val<'_>,
    name: &'static str,
) -> std::result::Result<Ordering, EvalError> {
    cx.budget.charge(1)?;
    compare::order(a, b, cx.budget)?.flatten().ok_or(no_overload(name))
}

fn extreme<'v>(cx: &mut Context<'_>, args: &[Val<'v>], wanted: Ordering, name: &'static str) -> Result<'v> {
    let [list] = args else { return Err(no_overload(name)) };
    let mut best: Option<Val<'v>> = None;
    for item in items(list, name)?.iter() {
        best = Some(match best {
            None => item,
            Some(best) if order(cx, &item, &best, name)? == wanted => item,
            Some(best) => best,
        });
    }
    best.ok_or_else(|| invalid(format!("{name} called on empty list")))
}

fn is_sorted<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [list] = args else {
        return Err(no_overload("isSorted"));
    };
    let list = items(list, "isSorted")?;
    for (a, b) in list.iter().zip(list.iter().skip(1)) {
        if order(cx, &a, &b, "isSorted")?.is_gt() {
            return Ok(Val::Bool(false));
        }
    }
    Ok(Val::Bool(true))
}

fn index_of<'v>(cx: &mut Context<'_>, args: &[Val<'v>], last: bool) -> Result<'v> {
    let name = if last { "lastIndexOf" } else { "indexOf" };
    let [target, element, rest @ ..] = args else {
        return Err(no_overload(name));
    };
    if let (Some(text), Some(part)) = (target.as_str(), element.as_str()) {
        return match rest {
            [] => strings::index_of(cx, text, part, None, last),
            [Val::Int(from)] => strings::index_of(cx, text, part, Some(*from), last),
            _ => Err(no_overload(name)),
        };
    }
    let list = items(target, name)?;
    if !rest.is_empty() {
        return Err(no_overload(name));
    }
    let mut found = None;
    for (i, item) in list.iter().enumerate() {
        cx.budget.charge(1)?;
        if compare::equal(&item, element, cx.budget)? {
            found = Some(i);
            if !last {
                break;
            }
        }
    }
    found.map_or(Ok(Val::Int(-1)), integer)
}

fn sort<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [list] = args else { return Err(no_overload("sort")) };
    let mut sorted: Vec<Val<'v>> = items(list, "sort")?.iter().collect();
    charge(cx, sorted.len())?;
    // A failed comparison (types, NaN, or cost) is remembered: the sort itself cannot be stopped, but from then on
    // its comparisons are free of work.
    let mut failure = None;
    sorted.sort_by(|a, b| {
        if failure.is_some() {
            return Ordering::Equal;
        }
        order(cx, a, b, "sort").unwrap_or_else(|error| {
            failure = Some(error);
            Ordering::Equal
        })
    });
    match failure {
        Some(error) => Err(error),
        None => Ok(Val::list(sorted)),
    }
}

fn distinct<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [list] = args else {
        return Err(no_overload("distinct"));
    };
    let mut kept: Vec<Val<'v>> = Vec::new();
    for item in items(list, "distinct")?.iter() {
        let mut seen = false;
        for other in &kept {
            cx.budget.charge(1)?;
            if compare::equal(other, &item, cx.budget)? {
                seen = true;
                break;
            }
        }
        if !seen {
            charge(cx, 1)?;
            kept.push(item);
        }
    }
    Ok(Val::list(kept))
}

fn flatten<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let (list, levels) = match args {
        [list] => (list, 1),
        [list, Val::Int(levels)] => (
            list,
            usize::try_from(*levels).map_err(|_| invalid("level must be non-negative"))?,
        ),
        _ => return Err(no_overload("flatten")),
    };
    let mut flat: Vec<Val<'v>> = items(list, "flatten")?.iter().collect();
    charge(cx, flat.len())?;
    // A level a pass, until nothing is left to open: bounded by the value's own depth.
    for _ in 0..levels {
        if !flat.iter().any(|v| v.items().is_some()) {
            break;
        }
        let mut next = Vec::new();
        for value in flat {
            match value.items() {
                Some(inner) => {
                    charge(cx, inner.len() + 1)?;
                    next.extend(inner.iter());
                }
                None => {
                    charge(cx, 1)?;
                    next.push(value);
                }
            }
        }
        flat = next;
    }
    Ok(Val::list(flat))
}

fn slice<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [list, Val::Int(start), Val::Int(end)] = args else {
        return Err(no_overload("slice"));
    };
    let list = items(list, "slice")?;
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return Err(invalid(format!(
            "cannot slice({start}, {end}), negative indexes not supported"
        )));
    };
    if from > to {
        return Err(invalid(format!(
            "cannot slice({start}, {end}), start index must be less than or equal to end index"
        )));
    }
    if to > list.len() {
        return Err(invalid(format!(
            "cannot slice({start}, {end}), list is length {}",
            list.len()
        )));
    }
    charge(cx, to - from)?;
    Ok(Val::list(list.iter().skip(from).take(to - from).collect()))
}

fn reverse<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [value] = args else {
        return Err(no_overload("reverse"));
    };
    if let Some(text) = value.as_str() {
        cx.budget.traverse(text.len())?;
        return made(cx, text.chars().rev().collect());
    }
    let list = items(value, "reverse")?;
    charge(cx, list.len())?;
    Ok(Val::list(list.iter().rev().collect()))
}

fn end<'v>(args: &[Val<'v>], name: &'static str, pick: impl Fn(Items<'_, 'v>) -> Option<Val<'v>>) -> Result<'v> {
    let [list] = args else { return Err(no_overload(name)) };
    Ok(pick(items(list, name)?).map_or(Val::Optional(None), Val::some))
}

/// Elements of `lists.range`; more would be refused by the memory bound anyway, with the allocation made.
const RANGE_MAX: i64 = 500_000;

fn range<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [Val::Int(count)] = args else {
        return Err(no_overload("lists.range"));
    };
    if *count > RANGE_MAX {
        return Err(EvalError::MemoryExceeded);
    }
    charge(cx, usize::try_from(*count).unwrap_or(0))?;
    Ok(Val::list((0..*count).map(Val::Int).collect()))
}
