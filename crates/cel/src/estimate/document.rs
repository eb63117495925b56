//! Size of a value's JSON text, for `json.encode`.

use super::operand::Operand;
use super::origin::Origin;
use super::{Range, Walk, is_scalar};
use crate::decl::{Decl, Shape};
use crate::types::Type;
use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue};

/// Bytes of the text of a number, boolean or `null`, and of a time with its quotes.
const SCALAR: u64 = 37;
/// Bytes of a character of a text: an escaped control character.
const CHARACTER: u64 = 6;
/// Bytes around a text, list or map.
const BRACKETS: u64 = 2;
/// Bytes between two items, and around a key.
const COMMA: u64 = 1;
const KEY: u64 = 4;

/// Returns the size of an operand's JSON text.
pub(super) fn text(walk: &Walk<'_>, operand: &Operand<'_>) -> Range {
    Range::up_to(expression(walk, operand.expr))
}

fn expression(walk: &Walk<'_>, expr: &IdedExpr) -> u64 {
    let sum = |parts: u64, more: u64| parts.saturating_add(more);
    match &expr.expr {
        Expr::Literal(LiteralValue::String(text)) => characters(text.inner().chars().count() as u64),
        Expr::List(list) => list
            .elements
            .iter()
            .fold(BRACKETS, |all, element| sum(all, sum(expression(walk, element), COMMA))),
        Expr::Map(map) => map.entries.iter().fold(BRACKETS, |all, entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => sum(
                sum(all, KEY),
                sum(expression(walk, &entry.key), expression(walk, &entry.value)),
            ),
            EntryExpr::StructField(field) => sum(all, expression(walk, &field.value)),
        }),
        _ => value(walk, expr),
    }
}

fn value(walk: &Walk<'_>, expr: &IdedExpr) -> u64 {
    if let Origin::Declared(decl) = walk.origin(expr) {
        return declared(walk, &decl);
    }
    let ty = walk.ty(expr);
    if is_scalar(&ty) {
        return SCALAR;
    }
    let size = walk.size_or_any(expr).max;
    let parts = walk.contents(expr);
    match (ty, parts) {
        (Type::String | Type::Bytes, _) => characters(size),
        (_, Some(parts)) => {
            let part = characters(parts.value.max).saturating_add(SCALAR + KEY);
            let key = parts.key.max.saturating_mul(CHARACTER);
            size.saturating_mul(part.saturating_add(key)).saturating_add(BRACKETS)
        }
        _ => walk.unknown().max,
    }
}

fn characters(count: u64) -> u64 {
    count.saturating_mul(CHARACTER).saturating_add(BRACKETS)
}

/// Returns the size of the JSON text of a declared value with all its parts.
fn declared(walk: &Walk<'_>, decl: &Decl) -> u64 {
    let most = decl.max_elements().unwrap_or(walk.unknown().max);
    match decl.shape() {
        Shape::Scalar(Type::String | Type::Bytes) => characters(most),
        Shape::Scalar(Type::Dyn) => characters(most).max(SCALAR),
        Shape::Scalar(_) => SCALAR,
        Shape::List { items, .. } => declared(walk, items)
            .saturating_add(COMMA)
            .saturating_mul(most)
            .saturating_add(BRACKETS),
        Shape::Map { values } => declared(walk, values)
            .saturating_add(KEY)
            .saturating_mul(most)
            // Keys share the bytes of the object with the values.
            .saturating_add(characters(most)),
        Shape::Object { fields, .. } => fields.iter().fold(BRACKETS, |sum, field| {
            let name = field.name.len() as u64 + KEY;
            sum.saturating_add(name).saturating_add(declared(walk, &field.decl))
        }),
    }
}
