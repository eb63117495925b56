//! `+ - * / %` and unary minus: checked, with cel-go's overloads.

use crate::collection;
use crate::cost::Budget;
use crate::error::{EvalError, Overflowing, no_overload};
use crate::functions::time;
use crate::operator::{Operator, unsupported};
use crate::value::{Result, Val};
use smallvec::SmallVec;

pub(crate) const INT: EvalError = EvalError::Overflow(Overflowing::Int);
/// Bytes of a joined text up to which only the result is allocated.
const SHORT_BYTES: usize = 64;

const UINT: EvalError = EvalError::Overflow(Overflowing::Uint);

pub(crate) fn negate<'v>(operand: &Val<'v>) -> Result<'v> {
    match operand {
        Val::Int(i) => i.checked_neg().map(Val::Int).ok_or(INT),
        Val::Double(d) => Ok(Val::Double(-d)),
        Val::Duration(d) => d.checked_neg().map(Val::Duration).ok_or(INT),
        Val::Bool(_) | Val::Str(_) | Val::String(_) | Val::Timestamp(_) => Err(no_overload("")),
        _ => Err(no_overload("-_")),
    }
}

pub(crate) fn apply<'v>(operator: Operator, left: &Val<'v>, right: &Val<'v>, budget: &mut Budget) -> Result<'v> {
    match (left, right) {
        (Val::Int(a), Val::Int(b)) => int(operator, *a, *b),
        (Val::Double(a), Val::Double(b)) => double(operator, *a, *b),
        // An integer read from JSON beside a double: see `lower::refuse_mixed_constants`.
        (Val::Int(a), Val::Double(b)) => double(operator, *a as f64, *b),
        (Val::Double(a), Val::Int(b)) => double(operator, *a, *b as f64),
        (Val::Uint(a), Val::Uint(b)) => uint(operator, *a, *b),
        _ if operator == Operator::Add => add(left, right, budget),
        _ if operator == Operator::Subtract => time::subtract(left, right).map_err(|e| plain(e, operator, left)),
        _ => Err(unsupported(operator, left)),
    }
}

/// Replaces the error of a time function by the operator's own message.
fn plain(error: EvalError, operator: Operator, left: &Val<'_>) -> EvalError {
    match error {
        EvalError::NoSuchOverload { .. } => unsupported(operator, left),
        error => error,
    }
}

pub(crate) fn int<'v>(operator: Operator, a: i64, b: i64) -> Result<'v> {
    let result = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::Divide if b == 0 => return Err(EvalError::DivisionByZero),
        Operator::Modulo if b == 0 => return Err(EvalError::ModulusByZero),
        Operator::Divide => a.checked_div(b),
        Operator::Modulo => a.checked_rem(b),
        _ => return Err(no_overload(operator.name())),
    };
    result.map(Val::Int).ok_or(INT)
}

fn uint<'v>(operator: Operator, a: u64, b: u64) -> Result<'v> {
    let result = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::Divide if b == 0 => return Err(EvalError::DivisionByZero),
        Operator::Modulo if b == 0 => return Err(EvalError::ModulusByZero),
        Operator::Divide => a.checked_div(b),
        Operator::Modulo => a.checked_rem(b),
        _ => return Err(no_overload(operator.name())),
    };
    result.map(Val::Uint).ok_or(UINT)
}

fn double<'v>(operator: Operator, a: f64, b: f64) -> Result<'v> {
    Ok(Val::Double(match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide => a / b,
        // CEL has no remainder of doubles.
        _ => return Err(no_overload(operator.name())),
    }))
}

fn add<'v>(left: &Val<'v>, right: &Val<'v>, budget: &mut Budget) -> Result<'v> {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        budget.memory(a.len() + b.len())?;
        if a.len() + b.len() <= SHORT_BYTES {
            let mut bytes = SmallVec::<[u8; SHORT_BYTES]>::from_slice(a.as_bytes());
            bytes.extend_from_slice(b.as_bytes());
            return Ok(Val::string(std::str::from_utf8(&bytes).unwrap_or_default()));
        }
        let mut joined = String::with_capacity(a.len() + b.len());
        joined.push_str(a);
        joined.push_str(b);
        return Ok(Val::string(joined));
    }
    if let (Some(a), Some(b)) = (left.items(), right.items()) {
        // cel-go concatenates lazily for one unit; we copy.
        budget.charge((a.len() + b.len()) as u64)?;
        budget.memory((a.len() + b.len()) * size_of::<Val<'_>>())?;
        return match collection::keyed(left) {
            Some(kind) => collection::join(left, kind, b, budget),
            None => Ok(Val::list(a.iter().chain(b.iter()).collect())),
        };
    }
    if let (Val::Bytes(a), Val::Bytes(b)) = (left, right) {
        budget.memory(a.len() + b.len())?;
        return Ok(Val::Bytes(a.iter().chain(b.iter()).copied().collect()));
    }
    time::add(left, right).map_err(|e| plain(e, Operator::Add, left))
}
