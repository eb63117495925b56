//! Functions of optional values. `or`, `orValue`, `optMap` and `optFlatMap` evaluate lazily and are
//! nodes of the evaluator; `or` and `orValue` are declared here for the type checker only.

use super::{Context, Function, global, member};
use crate::error::{invalid, no_overload};
use crate::items::Items;
use crate::value::{Result, Val};
use jiff::civil::date;

pub(super) static FUNCTIONS: &[Function] = &[
    global(
        "optional.of",
        &["optional_of: (V) -> optional_type(V)"],
        |_, args| match args {
            [value] => Ok(Val::some(value.clone())),
            _ => Err(no_overload("optional.of")),
        },
    ),
    global("optional.none", &["optional_none: () -> optional_type(V)"], |_, _| {
        Ok(Val::Optional(None))
    }),
    global(
        "optional.ofNonZeroValue",
        &["optional_ofNonZeroValue: (V) -> optional_type(V)"],
        |_, args| match args {
            [value] if is_zero(value) => Ok(Val::Optional(None)),
            [value] => Ok(Val::some(value.clone())),
            _ => Err(no_overload("optional.ofNonZeroValue")),
        },
    ),
    global(
        "optional.unwrap",
        &["optional_unwrap: (list(optional_type(V))) -> list(V)"],
        unwrap,
    ),
    member(
        "unwrapOpt",
        &["optional_unwrapOpt: list(optional_type(V)).() -> list(V)"],
        unwrap,
    ),
    member(
        "value",
        &["optional_value: optional_type(V).() -> V"],
        |_, args| match args {
            [Val::Optional(Some(inner))] => Ok((**inner).clone()),
            [Val::Optional(None)] => Err(invalid("optional.none() dereference")),
            _ => Err(no_overload("value")),
        },
    ),
    member(
        "hasValue",
        &["optional_hasValue: optional_type(V).() -> bool"],
        |_, args| match args {
            [Val::Optional(inner)] => Ok(Val::Bool(inner.is_some())),
            _ => Err(no_overload("hasValue")),
        },
    ),
    member(
        "or",
        &["optional_or_optional: optional_type(V).(optional_type(V)) -> optional_type(V)"],
        |_, args| match args {
            [some @ Val::Optional(Some(_)), _] | [Val::Optional(None), some @ Val::Optional(_)] => Ok(some.clone()),
            _ => Err(no_overload("or")),
        },
    ),
    member(
        "orValue",
        &["optional_orValue_value: optional_type(V).(V) -> V"],
        |_, args| match args {
            [Val::Optional(Some(inner)), _] => Ok((**inner).clone()),
            [Val::Optional(None), value] => Ok(value.clone()),
            _ => Err(no_overload("orValue")),
        },
    ),
    member("first", &["list_first: list(V).() -> optional_type(V)"], |_, a| {
        end(a, "first", |i| i.get(0))
    }),
    member("last", &["list_last: list(V).() -> optional_type(V)"], |_, a| {
        end(a, "last", |i| i.get(i.len().wrapping_sub(1)))
    }),
];

fn end<'v>(args: &[Val<'v>], name: &'static str, pick: impl Fn(Items<'_, 'v>) -> Option<Val<'v>>) -> Result<'v> {
    let [list] = args else { return Err(no_overload(name)) };
    let items = list.items().ok_or_else(|| no_overload(name))?;
    Ok(pick(items).map_or(Val::Optional(None), Val::some))
}

/// Returns the values of the optionals that have one.
fn unwrap<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [list] = args else {
        return Err(no_overload("optional.unwrap"));
    };
    let items = list.items().ok_or_else(|| no_overload("optional.unwrap"))?;
    cx.budget.memory(items.len() * size_of::<Val<'_>>())?;
    let mut values = Vec::new();
    for item in items.iter() {
        cx.budget.charge(1)?;
        match item {
            Val::Optional(Some(inner)) => values.push((*inner).clone()),
            Val::Optional(None) => {}
            _ => return Err(no_overload("optional.unwrap")),
        }
    }
    Ok(Val::list(values))
}

/// Returns true for the zero value of a type, as `ofNonZeroValue` defines it.
fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null => true,
        Val::Bool(b) => !b,
        Val::Int(i) => *i == 0,
        Val::Uint(u) => *u == 0,
        Val::Double(d) => *d == 0.0,
        Val::Duration(nanos) => *nanos == 0,
        Val::Bytes(bytes) => bytes.is_empty(),
        // Go's zero time.
        Val::Timestamp(time) => *time == date(1, 1, 1).at(0, 0, 0, 0),
        Val::Type(_) | Val::Invalid(_) | Val::Opaque(_) | Val::Optional(_) => false,
        Val::Str(_) | Val::String(_) | Val::JsonList(..) | Val::List(_) | Val::JsonMap(..) | Val::Map(_) => {
            value.as_str().is_some_and(str::is_empty)
                || value.items().is_some_and(|i| i.len() == 0)
                || value.map_len() == Some(0)
        }
    }
}
