//! Ranges of integer expressions. Arithmetic whose range is within 64 bits cannot overflow.

use super::Checked;
use crate::nodes::ACCUMULATOR;
use crate::types::Type;
use cel::common::ast::{Expr, IdedExpr, LiteralValue, operators};

/// Upper bound for counts of items, entries, bytes or rounds in one evaluation, whose memory is
/// bounded.
const SIZE_MAX: i128 = 1 << 40;

/// The least and the greatest value, both inclusive.
pub(super) type Range = (i128, i128);

/// Returns the range of an expression of type `int`, if it is known.
pub(super) fn range_of(expr: &IdedExpr, checked: &Checked) -> Option<Range> {
    match &expr.expr {
        Expr::Literal(LiteralValue::Int(number)) => Some((i128::from(*number.inner()), i128::from(*number.inner()))),
        Expr::Literal(LiteralValue::UInt(number)) => Some((i128::from(*number.inner()), i128::from(*number.inner()))),
        // Only loops that count rounds accumulate an `int`.
        Expr::Ident(name) if name == ACCUMULATOR && *checked.ty(expr.id) == Type::Int => Some((0, SIZE_MAX)),
        Expr::Call(call) => {
            if let (operators::CONDITIONAL, [_, then, otherwise]) = (call.func_name.as_str(), call.args.as_slice()) {
                let (then, otherwise) = (range_of(then, checked)?, range_of(otherwise, checked)?);
                return Some((then.0.min(otherwise.0), then.1.max(otherwise.1)));
            }
            let [id] = checked.overloads(expr.id) else { return None };
            let arguments: Vec<&IdedExpr> = call.target.as_deref().into_iter().chain(&call.args).collect();
            of_call(id, &arguments, checked)
        }
        _ => None,
    }
}

/// Returns the range of a call, if it is within 64 bits.
pub(super) fn of_call(id: &str, arguments: &[&IdedExpr], checked: &Checked) -> Option<Range> {
    let range = |index: usize| range_of(arguments.get(index)?, checked);
    // Each argument is analyzed once: expressions nest deeply.
    let both = || Some((range(0)?, range(1)?));
    let (low, high) = match id {
        "size_bytes" | "bytes_size" | "size_list" | "list_size" | "size_map" | "map_size" | "size_string"
        | "string_size" => (0, SIZE_MAX),
        "string_index_of_string"
        | "string_last_index_of_string"
        | "list_a_index_of_int"
        | "list_a_last_index_of_int" => (-1, SIZE_MAX),
        "add_int64" => both().map(|(one, other)| (one.0 + other.0, one.1 + other.1))?,
        "subtract_int64" => both().map(|(one, other)| (one.0 - other.1, one.1 - other.0))?,
        "negate_int64" => range(0).map(|(low, high)| (-high, -low))?,
        "multiply_int64" => {
            let (one, other) = both()?;
            let products = [one.0 * other.0, one.0 * other.1, one.1 * other.0, one.1 * other.1];
            (products.into_iter().min()?, products.into_iter().max()?)
        }
        _ => return None,
    };
    (low >= i128::from(i64::MIN) && high <= i128::from(i64::MAX)).then_some((low, high))
}
