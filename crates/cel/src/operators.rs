//! Binary operators, dispatched by the types of their operands.

use crate::arithmetic;
use crate::compare;
use crate::cost::Budget;
use crate::error::no_overload;
use crate::operator::Operator;
use crate::value::{Result, Val};

/// Evaluates `left operator right`.
pub(crate) fn apply<'v>(operator: Operator, left: &Val<'v>, right: &Val<'v>, budget: &mut Budget) -> Result<'v> {
    match operator {
        Operator::Equal if is_alien(left, right) => Err(no_overload("")),
        Operator::Equal => compare::equal(left, right, budget).map(Val::Bool),
        Operator::NotEqual => compare::equal(left, right, budget).map(|e| Val::Bool(!e)),
        Operator::In => compare::contains(right, left, budget).map(Val::Bool),
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
            compare::ordered(operator, left, right, budget).map(Val::Bool)
        }
        Operator::Add | Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Modulo => {
            arithmetic::apply(operator, left, right, budget)
        }
    }
}

/// Evaluates an operator on integers, the most frequent operands of loops.
pub(crate) fn of_integers<'v>(operator: Operator, left: i64, right: i64) -> Result<'v> {
    Ok(Val::Bool(match operator {
        Operator::Equal => left == right,
        Operator::NotEqual => left != right,
        Operator::Less => left < right,
        Operator::LessOrEqual => left <= right,
        Operator::Greater => left > right,
        Operator::GreaterOrEqual => left >= right,
        Operator::In => return Err(no_overload("")),
        Operator::Add | Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Modulo => {
            return arithmetic::int(operator, left, right);
        }
    }))
}

/// Returns true for a library value beside a value of another kind. Library values compare only
/// with their own kind and with null.
fn is_alien(left: &Val<'_>, right: &Val<'_>) -> bool {
    matches!(left, Val::Opaque(_)) && !matches!(right, Val::Null) && left.type_name() != right.type_name()
}
