//! List functions of Kubernetes (`sum`, `min`, `isSorted` …) and of cel-go's extension (`sort`,
//! `slice`, `flatten` …).

use super::{Context, Function, global, integer, member, strings};
use crate::arithmetic;
use crate::compare;
use crate::cost;
use crate::error::{EvalError, invalid, no_overload};
use crate::items::Items;
use crate::operator::Operator;
use crate::typed;
use crate::types::Type;
use crate::value::{Result, Val};
use std::cmp::Ordering;

pub(super) static FUNCTIONS: &[Function] = &[
    member(
        "isSorted",
        &[
            "list_int_is_sorted_bool: list(int).() -> bool",
            "list_uint_is_sorted_bool: list(uint).() -> bool",
            "list_double_is_sorted_bool: list(double).() -> bool",
            "list_bool_is_sorted_bool: list(bool).() -> bool",
            "list_duration_is_sorted_bool: list(duration).() -> bool",
            "list_timestamp_is_sorted_bool: list(timestamp).() -> bool",
            "list_string_is_sorted_bool: list(string).() -> bool",
            "list_bytes_is_sorted_bool: list(bytes).() -> bool",
        ],
        is_sorted,
    ),
    member(
        "sum",
        &[
            "list_int_sum_int: list(int).() -> int",
            "list_uint_sum_uint: list(uint).() -> uint",
            "list_double_sum_double: list(double).() -> double",
            "list_duration_sum_duration: list(duration).() -> duration",
        ],
        sum,
    ),
    member(
        "min",
        &[
            "list_int_min_int: list(int).() -> int",
            "list_uint_min_uint: list(uint).() -> uint",
            "list_double_min_double: list(double).() -> double",
            "list_bool_min_bool: list(bool).() -> bool",
            "list_duration_min_duration: list(duration).() -> duration",
            "list_timestamp_min_timestamp: list(timestamp).() -> timestamp",
            "list_string_min_string: list(string).() -> string",
            "list_bytes_min_bytes: list(bytes).() -> bytes",
        ],
        |cx, a| extreme(cx, a, Ordering::Less, "min"),
    ),
    member(
        "max",
        &[
            "list_int_max_int: list(int).() -> int",
            "list_uint_max_uint: list(uint).() -> uint",
            "list_double_max_double: list(double).() -> double",
            "list_bool_max_bool: list(bool).() -> bool",
            "list_duration_max_duration: list(duration).() -> duration",
            "list_timestamp_max_timestamp: list(timestamp).() -> timestamp",
            "list_string_max_string: list(string).() -> string",
            "list_bytes_max_bytes: list(bytes).() -> bytes",
        ],
        |cx, a| extreme(cx, a, Ordering::Greater, "max"),
    ),
    member(
        "indexOf",
        &[
            "list_a_index_of_int: list(A).(A) -> int",
            "string_index_of_string: string.(string) -> int",
            "string_index_of_string_int: string.(string, int) -> int",
        ],
        |cx, a| index_of(cx, a, false),
    ),
    member(
        "lastIndexOf",
        &[
            "list_a_last_index_of_int: list(A).(A) -> int",
            "string_last_index_of_string: string.(string) -> int",
            "string_last_index_of_string_int: string.(string, int) -> int",
        ],
        |cx, a| index_of(cx, a, true),
    ),
    member(
        "sort",
        &[
            "list_int_sort: list(int).() -> list(int)",
            "list_uint_sort: list(uint).() -> list(uint)",
            "list_double_sort: list(double).() -> list(double)",
            "list_bool_sort: list(bool).() -> list(bool)",
            "list_google.protobuf.Duration_sort: list(duration).() -> list(duration)",
            "list_google.protobuf.Timestamp_sort: list(timestamp).() -> list(timestamp)",
            "list_string_sort: list(string).() -> list(string)",
            "list_bytes_sort: list(bytes).() -> list(bytes)",
        ],
        sort,
    ),
    member(
        "@sortByAssociatedKeys",
        &[
            "list_int_sortByAssociatedKeys: list(T).(list(int)) -> list(T)",
            "list_uint_sortByAssociatedKeys: list(T).(list(uint)) -> list(T)",
            "list_double_sortByAssociatedKeys: list(T).(list(double)) -> list(T)",
            "list_bool_sortByAssociatedKeys: list(T).(list(bool)) -> list(T)",
            "list_google.protobuf.Duration_sortByAssociatedKeys: list(T).(list(duration)) -> list(T)",
            "list_google.protobuf.Timestamp_sortByAssociatedKeys: list(T).(list(timestamp)) -> list(T)",
            "list_string_sortByAssociatedKeys: list(T).(list(string)) -> list(T)",
            "list_bytes_sortByAssociatedKeys: list(T).(list(bytes)) -> list(T)",
        ],
        sort_by,
    ),
    member("distinct", &["list_distinct: list(T).() -> list(T)"], distinct),
    member(
        "flatten",
        &[
            "list_flatten: list(list(T)).() -> list(T)",
            "list_flatten_int: list(dyn).(int) -> list(dyn)",
        ],
        flatten,
    ),
    member("slice", &["list_slice: list(T).(int, int) -> list(T)"], slice),
    member("reverse", &["list_reverse: list(T).() -> list(T)"], reverse),
    global("lists.range", &["lists_range: (int) -> list(int)"], range),
];

fn items<'s, 'v>(value: &'s Val<'v>, function: &'static str) -> std::result::Result<Items<'s, 'v>, EvalError> {
    value.items().ok_or_else(|| no_overload(function))
}

/// Charges for making a list of `count` elements.
fn charge(cx: &mut Context<'_>, count: usize) -> std::result::Result<(), EvalError> {
    cx.budget.charge(count as u64)?;
    cx.budget.memory(count.saturating_mul(size_of::<Val<'_>>()))
}

fn sum<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [list] = args else { return Err(no_overload("sum")) };
    let mut total: Option<Val<'v>> = None;
    for item in items(list, "sum")?.iter() {
        cx.budget.charge(cost::ITEM)?;
        if !matches!(item, Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Duration(_)) {
            return Err(no_overload("sum"));
        }
        total = Some(match total {
            None => item,
            // A fast path for integers, the most frequent case.
            Some(Val::Int(sum)) if let Val::Int(i) = item => Val::Int(sum.checked_add(i).ok_or(arithmetic::INT)?),
            Some(sum) => arithmetic::apply(Operator::Add, &sum, &item, cx.budget)?,
        });
    }
    Ok(total.unwrap_or_else(|| nothing(list)))
}

/// Returns the sum of an empty list: a duration where its items are declared to be.
fn nothing<'v>(list: &Val<'v>) -> Val<'v> {
    let items = match list {
        Val::JsonList(_, declared) => typed::items_of(*declared),
        _ => None,
    };
    match items.map(|items| items.ty()) {
        Some(Type::Duration) => Val::Duration(0),
        _ => Val::Int(0),
    }
}

fn order(
    cx: &mut Context<'_>,
    a: &Val<'_>,
    b: &Val<'_>,
    name: &'static str,
) -> std::result::Result<Ordering, EvalError> {
    cx.budget.charge(cost::ITEM)?;
    compare::order(a, b, cx.budget)?
        .flatten()
        .ok_or_else(|| no_overload(name))
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
        cx.budget.charge(cost::ITEM)?;
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
    let list = items(list, "sort")?;
    sorted_by(cx, list, list)
}

fn sort_by<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [list, keys] = args else {
        return Err(no_overload("sortBy"));
    };
    let (list, keys) = (items(list, "sortBy")?, items(keys, "sortBy")?);
    if list.len() != keys.len() {
        return Err(invalid(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            list.len(),
            keys.len()
        )));
    }
    sorted_by(cx, list, keys)
}

/// Sorts a list by keys. The sort is stable.
fn sorted_by<'v>(cx: &mut Context<'_>, list: Items<'_, 'v>, keys: Items<'_, 'v>) -> Result<'v> {
    charge(cx, list.len())?;
    // Memory of the pairs, and of the half of them that the sort buffers.
    cx.budget.memory(list.len() * 3 * size_of::<Val<'_>>())?;
    let mut pairs: Vec<(Val<'v>, Val<'v>)> = keys.iter().zip(list.iter()).collect();
    let Some((first, _)) = pairs.first() else {
        return Ok(Val::list(Vec::new()));
    };
    if compare::order(first, first, cx.budget)?.is_none() {
        return Err(invalid("list elements must be comparable"));
    }
    let name = first.type_name();
    if pairs.iter().any(|(key, _)| key.type_name() != name) {
        return Err(invalid("list elements must have the same type"));
    }
    // A failed comparison (cost) is remembered: the sort itself cannot be stopped, but its later
    // comparisons do nothing. NaN has no order and stays where it is, as in cel-go.
    let mut failure = None;
    pairs.sort_by(|(a, _), (b, _)| {
        if failure.is_some() {
            return Ordering::Equal;
        }
        match cx.budget.charge(1).and_then(|()| compare::order(a, b, cx.budget)) {
            Ok(order) => order.flatten().unwrap_or(Ordering::Equal),
            Err(error) => {
                failure = Some(error);
                Ordering::Equal
            }
        }
    });
    match failure {
        Some(error) => Err(error),
        None => Ok(Val::list(pairs.into_iter().map(|(_, value)| value).collect())),
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
            cx.budget.charge(cost::ITEM)?;
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
    // One level a pass, until nothing is nested: bounded by the value's own depth.
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
    let [list] = args else {
        return Err(no_overload("reverse"));
    };
    let list = items(list, "reverse")?;
    charge(cx, list.len())?;
    Ok(Val::list(list.iter().rev().collect()))
}

fn range<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [Val::Int(count)] = args else {
        return Err(no_overload("lists.range"));
    };
    charge(cx, usize::try_from(*count).unwrap_or(0))?;
    Ok(Val::list((0..*count).map(Val::Int).collect()))
}
