//! Recognition of macros in the comprehensions that they were expanded to. The evaluator has its
//! own loop for each macro; `fold` alone has an accumulator value.

use crate::error::CompileError;
use crate::expand::MAP_INSERT;
use crate::ir::{Fold, FoldKind, Node, OptionalOr, Variables};
use crate::lowering::Lowering;
use crate::nodes::{UNUSED, is_fold, mentions};
use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, LiteralValue, operators};

type Result<T> = std::result::Result<T, CompileError>;

impl Lowering<'_> {
    pub(crate) fn comprehension(&mut self, fold: &ComprehensionExpr, depth: usize) -> Result<Node> {
        if fold.iter_var == UNUSED {
            let init = Box::new(self.node(&fold.accu_init, depth)?);
            self.locals.push(fold.accu_var.clone());
            let body = Box::new(self.node(&fold.result, depth)?);
            self.locals.pop();
            return Ok(Node::Bind { init, body });
        }
        let range = self.node(&fold.iter_range, depth)?;
        let init = if is_fold(fold) {
            Some(self.node(&fold.accu_init, depth)?)
        } else {
            None
        };
        let outer = self.locals.len();
        if init.is_some() {
            self.locals.push(fold.accu_var.clone());
        }
        self.locals.push(fold.iter_var.clone());
        self.locals.extend(fold.iter_var2.clone());
        let kind = match init {
            Some(init) => FoldKind::Accumulate {
                init,
                step: self.node(&fold.loop_step, depth)?,
            },
            None => self.kind(fold, depth)?,
        };
        self.locals.truncate(outer);
        let variables = match fold.iter_var2 {
            Some(_) => Variables::Two,
            None => Variables::One,
        };
        Ok(Node::Fold(Box::new(Fold { range, variables, kind })))
    }

    /// Recognizes a macro by the initial value and the step.
    fn kind(&mut self, fold: &ComprehensionExpr, depth: usize) -> Result<FoldKind> {
        let step = call(&fold.loop_step).ok_or_else(malformed)?;
        match (&fold.accu_init.expr, step.func_name.as_str(), step.args.as_slice()) {
            (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_AND, [_, predicate]) => {
                Ok(FoldKind::All(self.node(predicate, depth)?))
            }
            (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_OR, [_, predicate]) => {
                Ok(FoldKind::Exists(self.node(predicate, depth)?))
            }
            (Expr::Literal(LiteralValue::Int(_)), operators::CONDITIONAL, [predicate, ..]) => {
                Ok(FoldKind::ExistsOne(self.node(predicate, depth)?))
            }
            (Expr::List(_) | Expr::Map(_), operators::CONDITIONAL, [condition, step, _]) => {
                let condition = Some(self.node(condition, depth)?);
                self.collecting(fold, condition, step, depth)
            }
            (Expr::List(_) | Expr::Map(_), _, _) => self.collecting(fold, None, &fold.loop_step, depth),
            _ => Err(malformed()),
        }
    }

    /// Recognizes a collecting step: `@result + [item]`, `cel.@mapInsert(@result, key, item)` or
    /// `cel.@mapInsert(@result, items)`.
    fn collecting(
        &mut self,
        fold: &ComprehensionExpr,
        condition: Option<Node>,
        step: &IdedExpr,
        depth: usize,
    ) -> Result<FoldKind> {
        let step = call(step).ok_or_else(malformed)?;
        match (step.func_name.as_str(), step.args.as_slice()) {
            (operators::ADD, [_, item]) => {
                let Expr::List(list) = &item.expr else {
                    return Err(malformed());
                };
                let [item] = list.elements.as_slice() else {
                    return Err(malformed());
                };
                let transform = match &item.expr {
                    Expr::Ident(name) if fold.iter_var2.is_none() && *name == fold.iter_var => None,
                    _ => Some(self.node(item, depth)?),
                };
                Ok(FoldKind::List { condition, transform })
            }
            (MAP_INSERT, [_, _, item]) => Ok(FoldKind::MapValues {
                condition,
                transform: self.node(item, depth)?,
            }),
            (MAP_INSERT, [_, items]) => Ok(FoldKind::MapEntries {
                condition,
                transform: self.node(items, depth)?,
            }),
            _ => Err(malformed()),
        }
    }

    pub(crate) fn optional_map(&mut self, binding: &OptionalBinding<'_>, depth: usize) -> Result<Node> {
        let target = self.optional_target(binding.target, depth)?;
        self.locals.push(binding.variable.to_owned());
        let body = Box::new(self.node(binding.body, depth)?);
        self.locals.pop();
        Ok(Node::OptionalMap {
            target,
            body,
            flat: binding.flat,
            read: mentions(binding.body, binding.variable),
        })
    }

    /// Lowers member calls that evaluate lazily or test absence, and so are no functions.
    pub(crate) fn lazy(
        &mut self,
        target: &IdedExpr,
        name: &str,
        args: &[IdedExpr],
        depth: usize,
    ) -> Result<Option<Node>> {
        let node = match (name, args) {
            ("orValue", [alternative]) => Node::OptionalOr {
                target: self.optional_target(target, depth)?,
                alternative: Box::new(self.node(alternative, depth)?),
                kind: OptionalOr::Value,
            },
            ("or", [alternative]) => Node::OptionalOr {
                target: self.optional_target(target, depth)?,
                alternative: self.optional_target(alternative, depth)?,
                kind: OptionalOr::Optional,
            },
            ("hasValue", []) => Node::OptionalHasValue(self.optional_target(target, depth)?),
            _ => return Ok(None),
        };
        Ok(Some(node))
    }
}

/// The parts of `target.optMap(variable, body)` or `optFlatMap`, read from its expansion.
pub(crate) struct OptionalBinding<'e> {
    pub(crate) target: &'e IdedExpr,
    pub(crate) variable: &'e str,
    pub(crate) body: &'e IdedExpr,
    pub(crate) flat: bool,
}

impl<'e> OptionalBinding<'e> {
    /// Recognizes an expansion: only there one node is the target of both `hasValue` and `value`.
    pub(crate) fn from_expansion(expr: &'e IdedExpr) -> Option<Self> {
        let conditional = call(expr).filter(|c| c.func_name == operators::CONDITIONAL)?;
        let [test, some, _] = conditional.args.as_slice() else {
            return None;
        };
        let target = call(test)?.target.as_deref()?;
        let (bound, flat) = match &some.expr {
            Expr::Call(of) if of.target.is_none() => (of.args.first()?, false),
            _ => (some, true),
        };
        let Expr::Comprehension(bound) = &bound.expr else {
            return None;
        };
        let value = call(&bound.accu_init)?.target.as_deref()?;
        (value.id == target.id && bound.iter_var == UNUSED).then_some(OptionalBinding {
            target,
            variable: &bound.accu_var,
            body: &bound.result,
            flat,
        })
    }
}

fn call(expr: &IdedExpr) -> Option<&CallExpr> {
    match &expr.expr {
        Expr::Call(call) => Some(call),
        _ => None,
    }
}

fn malformed() -> CompileError {
    CompileError::whole("unsupported comprehension")
}
