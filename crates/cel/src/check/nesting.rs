//! Accumulators of `fold` that would nest: one that is put into a list or map in each round has as
//! many levels as there are rounds, and values are walked by recursion.
//!
//! Types exclude that where every part has one: `acc` and `[acc]` are not of one type. Where a part
//! is `dyn`, the accumulator and what is made of it may not go into a list, a map or an optional.

use super::total::has_no_dyn;
use super::walk::Walk;
use crate::expand::MAP_INSERT;
use crate::nodes::{children, mentions};
use crate::types::Type;
use cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr};

impl Walk<'_> {
    /// Refuses a step that would nest the accumulator.
    pub(super) fn check_nesting(&mut self, fold: &ComprehensionExpr, accumulator: &Type) {
        if has_no_dyn(&self.known.settle(accumulator)) {
            return;
        }
        if let Some(node) = self.nested(&fold.loop_step, &mut vec![fold.accu_var.as_str()]) {
            let message = "the accumulator of 'fold' may not be put into a list or map: it would be nested deeper in \
                           each round";
            self.wrong(node, message.to_owned());
        }
    }

    /// Returns the first node that is put into another value and holds one of the names.
    fn nested<'e>(&self, expr: &'e IdedExpr, names: &mut Vec<&'e str>) -> Option<u64> {
        let parts: Vec<&IdedExpr> = match &expr.expr {
            Expr::List(list) => list.elements.iter().collect(),
            Expr::Map(map) => map.entries.iter().map(entry).collect(),
            Expr::Struct(literal) => literal.entries.iter().map(entry).collect(),
            Expr::Call(call) if call.func_name == MAP_INSERT => call.args.iter().skip(1).collect(),
            Expr::Call(call) if call.func_name.starts_with("optional.") || is_optional(call.target.as_deref()) => {
                call.args.iter().collect()
            }
            _ => Vec::new(),
        };
        let holds = |part: &IdedExpr| names.iter().any(|name| mentions(part, name));
        // A literal's own parts are examined like these.
        let is_literal = |part: &IdedExpr| matches!(part.expr, Expr::List(_) | Expr::Map(_) | Expr::Struct(_));
        let nests = |part: &&IdedExpr| holds(part) && !is_literal(part) && !self.is_flat(part);
        if let Some(part) = parts.into_iter().find(nests) {
            return Some(part.id);
        }
        let known = names.len();
        if let Expr::Comprehension(fold) = &expr.expr
            && [&fold.iter_range, &fold.accu_init, &fold.loop_step]
                .into_iter()
                .any(holds)
        {
            names.extend([fold.iter_var.as_str(), &fold.accu_var]);
            names.extend(fold.iter_var2.as_deref());
        }
        let mut found = None;
        children(expr, &mut |child| {
            if found.is_none() {
                found = self.nested(child, names);
            }
        });
        names.truncate(known);
        found
    }

    /// Returns true for values without parts.
    fn is_flat(&self, expr: &IdedExpr) -> bool {
        matches!(
            self.types.get(&expr.id),
            Some(
                Type::Bool
                    | Type::Int
                    | Type::Uint
                    | Type::Double
                    | Type::String
                    | Type::Bytes
                    | Type::Duration
                    | Type::Timestamp
            )
        )
    }
}

fn entry(entry: &IdedEntryExpr) -> &IdedExpr {
    match &entry.expr {
        EntryExpr::MapEntry(entry) => &entry.value,
        EntryExpr::StructField(field) => &field.value,
    }
}

fn is_optional(target: Option<&IdedExpr>) -> bool {
    matches!(target.map(|target| &target.expr), Some(Expr::Ident(name)) if name == "optional")
}
