//! Construction and traversal of the parser's tree, for macro expansion and analyses.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators};
use cel::parser::MacroExprHelper;

/// Name of a comprehension's accumulator, which no source can spell.
pub(crate) const ACCUMULATOR: &str = "@result";
/// The loop variable of a comprehension that only binds its accumulator.
pub(crate) const UNUSED: &str = "#unused";

/// Variables of a loop.
pub(crate) struct Variables {
    pub(crate) first: String,
    pub(crate) second: Option<String>,
}

/// Parts of a loop: initial value, condition, step and result.
pub(crate) struct Parts {
    pub(crate) init: IdedExpr,
    pub(crate) condition: IdedExpr,
    pub(crate) step: IdedExpr,
    pub(crate) result: IdedExpr,
}

/// Constructs nodes at the position of the macro's call.
pub(crate) struct Make<'a, 'b>(pub(crate) &'a mut MacroExprHelper<'b>);

impl Make<'_, '_> {
    pub(crate) fn ident(&mut self, name: &str) -> IdedExpr {
        self.0.next_expr(Expr::Ident(name.to_owned()))
    }

    pub(crate) fn accumulator(&mut self) -> IdedExpr {
        self.ident(ACCUMULATOR)
    }

    pub(crate) fn bool(&mut self, value: bool) -> IdedExpr {
        self.0.next_expr(Expr::Literal(LiteralValue::Boolean(value.into())))
    }

    pub(crate) fn int(&mut self, value: i64) -> IdedExpr {
        self.0.next_expr(Expr::Literal(LiteralValue::Int(value.into())))
    }

    pub(crate) fn call(&mut self, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
        self.0.next_expr(Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target: None,
            args,
        }))
    }

    pub(crate) fn member(&mut self, name: &str, target: IdedExpr, args: Vec<IdedExpr>) -> IdedExpr {
        self.0.next_expr(Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target: Some(Box::new(target)),
            args,
        }))
    }

    /// Returns `@result + [item]`.
    pub(crate) fn append(&mut self, item: IdedExpr) -> IdedExpr {
        let list = self.0.next_expr(Expr::List(ListExpr::new(vec![item])));
        let args = vec![self.accumulator(), list];
        self.call(operators::ADD, args)
    }

    /// Returns a fold that applies `step` where `condition` holds.
    pub(crate) fn collect(
        &mut self,
        range: IdedExpr,
        variables: Variables,
        condition: Option<IdedExpr>,
        step: IdedExpr,
        empty: Expr,
    ) -> IdedExpr {
        let step = match condition {
            Some(condition) => {
                let args = vec![condition, step, self.accumulator()];
                self.call(operators::CONDITIONAL, args)
            }
            None => step,
        };
        let parts = Parts {
            init: self.0.next_expr(empty),
            condition: self.bool(true),
            step,
            result: self.accumulator(),
        };
        self.fold(range, variables, parts)
    }

    pub(crate) fn fold(&mut self, range: IdedExpr, variables: Variables, parts: Parts) -> IdedExpr {
        self.comprehension(ComprehensionExpr {
            iter_range: range,
            iter_var: variables.first,
            iter_var2: variables.second,
            accu_var: ACCUMULATOR.to_owned(),
            accu_init: parts.init,
            loop_cond: parts.condition,
            loop_step: parts.step,
            result: parts.result,
        })
    }

    pub(crate) fn comprehension(&mut self, fold: ComprehensionExpr) -> IdedExpr {
        self.0.next_expr(Expr::Comprehension(Box::new(fold)))
    }

    /// Returns a comprehension over nothing, whose result sees `value` as `name`.
    pub(crate) fn bind(&mut self, name: String, value: IdedExpr, body: IdedExpr) -> IdedExpr {
        let fold = ComprehensionExpr {
            iter_range: self.0.next_expr(Expr::List(ListExpr::default())),
            iter_var: UNUSED.to_owned(),
            iter_var2: None,
            accu_init: value,
            loop_cond: self.bool(false),
            loop_step: self.ident(&name),
            accu_var: name,
            result: body,
        };
        self.comprehension(fold)
    }
}

/// Returns true for a loop whose accumulator the author named: `fold`.
pub(crate) fn is_fold(fold: &ComprehensionExpr) -> bool {
    fold.accu_var != ACCUMULATOR && fold.iter_var != UNUSED
}

/// Returns true if a name occurs in an expression.
pub(crate) fn mentions(expr: &IdedExpr, name: &str) -> bool {
    let mut found = matches!(&expr.expr, Expr::Ident(ident) if ident == name);
    children(expr, &mut |child| found |= mentions(child, name));
    found
}

/// Visits each node of a tree, outer ones first.
pub(crate) fn each<'e>(expr: &'e IdedExpr, visit: &mut impl FnMut(&'e IdedExpr)) {
    visit(expr);
    children(expr, &mut |child| each(child, visit));
}

/// Calls `each` with every node directly below.
pub(crate) fn children<'t>(expr: &'t IdedExpr, each: &mut dyn FnMut(&'t IdedExpr)) {
    match &expr.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) => each(&select.operand),
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).for_each(each),
        Expr::List(list) => list.elements.iter().for_each(each),
        Expr::Map(map) => map.entries.iter().for_each(|e| entry(&e.expr, each)),
        Expr::Struct(literal) => literal.entries.iter().for_each(|e| entry(&e.expr, each)),
        Expr::Comprehension(fold) => {
            for part in [
                &fold.iter_range,
                &fold.accu_init,
                &fold.loop_cond,
                &fold.loop_step,
                &fold.result,
            ] {
                each(part);
            }
        }
    }
}

fn entry<'t>(entry: &'t EntryExpr, each: &mut dyn FnMut(&'t IdedExpr)) {
    match entry {
        EntryExpr::MapEntry(entry) => {
            each(&entry.key);
            each(&entry.value);
        }
        EntryExpr::StructField(field) => each(&field.value),
    }
}
