//! Equality, order and membership. Numbers compare by value across `int`, `uint` and `double`.

use crate::collection;
use crate::cost::{self, Budget};
use crate::error::{EvalError, invalid, no_overload};
use crate::operator::{Operator, unsupported};
use crate::value::{Val, numeric};
use std::cmp::Ordering;

type Result<T> = std::result::Result<T, EvalError>;

/// Evaluates `==`. Values of different types are unequal, not an error.
pub(crate) fn equal(left: &Val<'_>, right: &Val<'_>, budget: &mut Budget) -> Result<bool> {
    equal_within(left, right, budget, DEPTH_MAX)
}

/// Depth of JSON that is compared; the parsers' own limits refuse deeper values.
pub(crate) const DEPTH_MAX: usize = 192;

fn equal_within(left: &Val<'_>, right: &Val<'_>, budget: &mut Budget, depth: usize) -> Result<bool> {
    match (left, right) {
        (Val::Int(a), Val::Int(b)) => Ok(a == b),
        (Val::Str(a), Val::Str(b)) => Ok(a == b),
        _ => equal_of_any_kind(left, right, budget, depth),
    }
}

#[inline(never)]
fn equal_of_any_kind(left: &Val<'_>, right: &Val<'_>, budget: &mut Budget, depth: usize) -> Result<bool> {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        return Ok(a == b);
    }
    if let Some(order) = numeric(left, right) {
        return Ok(order == Some(Ordering::Equal));
    }
    if let (Some(a), Some(b)) = (left.items(), right.items()) {
        if a.len() != b.len() {
            return Ok(false);
        }
        let depth = depth.checked_sub(1).ok_or(EvalError::DepthExceeded)?;
        if let Some(kind) = collection::keyed(left) {
            return collection::equal(kind, a, b, budget, |x, y, budget| equal_within(x, y, budget, depth));
        }
        for (x, y) in a.iter().zip(b.iter()) {
            budget.charge(cost::ITEM)?;
            if !equal_within(&x, &y, budget, depth)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    if left.is_map() && right.is_map() {
        return equal_maps(left, right, budget, depth);
    }
    Ok(match (left, right) {
        (Val::Null, Val::Null) => true,
        (Val::Bool(a), Val::Bool(b)) => a == b,
        (Val::Bytes(a), Val::Bytes(b)) => a == b,
        (Val::Invalid(message), _) | (_, Val::Invalid(message)) => return Err(invalid((**message).to_owned())),
        (Val::Timestamp(a), Val::Timestamp(b)) => a == b,
        (Val::Duration(a), Val::Duration(b)) => a == b,
        (Val::Type(a), Val::Type(b)) => a == b,
        (Val::Opaque(a), Val::Opaque(b)) => a.equal(b),
        (Val::Optional(None), Val::Optional(None)) => true,
        (Val::Optional(Some(a)), Val::Optional(Some(b))) => {
            let depth = depth.checked_sub(1).ok_or(EvalError::DepthExceeded)?;
            equal_within(a, b, budget, depth)?
        }
        _ => false,
    })
}

fn equal_maps(left: &Val<'_>, right: &Val<'_>, budget: &mut Budget, depth: usize) -> Result<bool> {
    if left.map_len() != right.map_len() {
        return Ok(false);
    }
    let depth = depth.checked_sub(1).ok_or(EvalError::DepthExceeded)?;
    budget.memory(left.map_len().unwrap_or(0) * 2 * size_of::<Val<'_>>())?;
    for (key, value) in left.entries().unwrap_or_default() {
        budget.charge(2 * cost::ITEM)?;
        let other = match right {
            Val::Map(map) => map.get(&key).cloned(),
            _ => key.as_str().and_then(|k| right.entry(k)),
        };
        let Some(other) = other else { return Ok(false) };
        if !equal_within(&value, &other, budget, depth)? {
            return Ok(false);
        }
    }
    equal_unknown(left, right, budget)
}

/// Compares the fields of two objects that their schema does not declare, or that no expression can
/// name: they are out of reach, and part of `==`, as in Kubernetes.
fn equal_unknown(left: &Val<'_>, right: &Val<'_>, budget: &mut Budget) -> Result<bool> {
    let (Some(fields), Some(other)) = (left.unknown_fields(), right.unknown_fields()) else {
        return Ok(true);
    };
    let mut count = 0;
    for (name, value) in fields {
        count += 1;
        budget.charge(2 * cost::ITEM)?;
        let Val::JsonMap(fields, _) = right else {
            return Ok(false);
        };
        let Some(other) = fields.get(name) else {
            return Ok(false);
        };
        if !equal(&Val::from_json(value), &Val::from_json(other), budget)? {
            return Ok(false);
        }
    }
    Ok(count == other.count())
}

/// Evaluates `< <= > >=`.
pub(crate) fn ordered(operator: Operator, left: &Val<'_>, right: &Val<'_>, budget: &mut Budget) -> Result<bool> {
    let order = order(left, right, budget)?.ok_or_else(|| unsupported(operator, left))?;
    let order = order.ok_or_else(|| invalid("NaN values cannot be ordered"))?;
    Ok(match operator {
        Operator::Less => order.is_lt(),
        Operator::LessOrEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        _ => order.is_ge(),
    })
}

/// Returns the order of two values: outer `None` if their types have none, inner `None` for NaN.
pub(crate) fn order(left: &Val<'_>, right: &Val<'_>, budget: &mut Budget) -> Result<Option<Option<Ordering>>> {
    if let Some(order) = numeric(left, right) {
        return Ok(Some(order));
    }
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        budget.charge(1)?;
        return Ok(Some(Some(a.cmp(b))));
    }
    Ok(match (left, right) {
        (Val::Bool(a), Val::Bool(b)) => Some(Some(a.cmp(b))),
        (Val::Bytes(a), Val::Bytes(b)) => Some(Some(a.cmp(b))),
        (Val::Timestamp(a), Val::Timestamp(b)) => Some(Some(a.cmp(b))),
        (Val::Duration(a), Val::Duration(b)) => Some(Some(a.cmp(b))),
        _ => None,
    })
}

/// Evaluates `element in container`: by equality in a list, by key in a map.
pub(crate) fn contains(container: &Val<'_>, element: &Val<'_>, budget: &mut Budget) -> Result<bool> {
    if let Some(items) = container.items() {
        for item in items.iter() {
            budget.charge(cost::ITEM)?;
            if equal(&item, element, budget)? {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    match container {
        Val::JsonMap(..) => Ok(element.as_str().is_some_and(|k| container.field(k).is_some())),
        Val::Map(map) => Ok(map.get(element).is_some()),
        _ => Err(no_overload("")),
    }
}
