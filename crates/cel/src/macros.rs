//! Macros: the parser's comprehensions read back as what was written, and those the parser does not know.

use crate::error::CompileError;
use crate::ir::{Fold, FoldKind, Node, OptionalOr, Variables};
use crate::lower::{Lowering, Place};
use cel::common::ast::{ComprehensionExpr, Expr, IdedExpr, LiteralValue, operators};

type Result<T> = std::result::Result<T, CompileError>;

impl Lowering<'_> {
    /// The parser expands `all`, `exists`, `exists_one`, `map` and `filter` to accumulator loops; the initial value
    /// and the step tell which one it was.
    pub(crate) fn comprehension(&mut self, fold: &ComprehensionExpr, depth: usize) -> Result<Node> {
        let Expr::Call(step) = &fold.loop_step.expr else {
            return Err(malformed());
        };
        let range = self.node(&fold.iter_range, depth)?;
        self.locals.push(fold.iter_var.clone());
        let kind = match (&fold.accu_init.expr, step.func_name.as_str(), step.args.as_slice()) {
            (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_AND, [_, predicate]) => {
                FoldKind::All(self.node(predicate, depth)?)
            }
            (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_OR, [_, predicate]) => {
                FoldKind::Exists(self.node(predicate, depth)?)
            }
            (Expr::Literal(LiteralValue::Int(_)), operators::CONDITIONAL, [predicate, ..]) => {
                FoldKind::ExistsOne(self.node(predicate, depth)?)
            }
            (Expr::List(_), operators::CONDITIONAL, [condition, step, _]) => {
                let condition = self.node(condition, depth)?;
                let transform = self.transform(step, &fold.iter_var, depth)?;
                FoldKind::List {
                    condition: Some(condition),
                    transform,
                }
            }
            (Expr::List(_), operators::ADD, _) => FoldKind::List {
                condition: None,
                transform: self.transform(&fold.loop_step, &fold.iter_var, depth)?,
            },
            _ => return Err(malformed()),
        };
        self.locals.pop();
        Ok(Node::Fold(Box::new(Fold {
            range,
            variables: Variables::One,
            kind,
        })))
    }

    /// The `e` of `@result + [e]`; `None` for the loop variable itself.
    fn transform(&mut self, step: &IdedExpr, variable: &str, depth: usize) -> Result<Option<Node>> {
        let Expr::Call(add) = &step.expr else {
            return Err(malformed());
        };
        let [_, item] = add.args.as_slice() else {
            return Err(malformed());
        };
        let Expr::List(list) = &item.expr else {
            return Err(malformed());
        };
        let [transform] = list.elements.as_slice() else {
            return Err(malformed());
        };
        match &transform.expr {
            Expr::Ident(name) if name == variable => Ok(None),
            _ => Ok(Some(self.node(transform, depth)?)),
        }
    }

    /// Member calls that bind variables or evaluate lazily, so that they are no functions.
    pub(crate) fn macro_call(
        &mut self,
        target: &IdedExpr,
        name: &str,
        args: &[IdedExpr],
        depth: usize,
    ) -> Result<Option<Node>> {
        let node = match (name, args) {
            ("optMap" | "optFlatMap", [variable, body]) => {
                let variable = self.simple_name(variable, name)?;
                let target = self.optional_target(target, depth)?;
                self.locals.push(variable);
                let body = Box::new(self.node(body, depth)?);
                self.locals.pop();
                Node::OptionalMap {
                    target,
                    body,
                    flat: name == "optFlatMap",
                }
            }
            ("orValue" | "or", [alternative]) => {
                let target = self.optional_target(target, depth)?;
                let kind = if name == "or" {
                    OptionalOr::Optional
                } else {
                    OptionalOr::Value
                };
                let alternative = match kind {
                    OptionalOr::Optional => self.optional_target(alternative, depth)?,
                    OptionalOr::Value => Box::new(self.node(alternative, depth)?),
                };
                Node::OptionalOr {
                    target,
                    alternative,
                    kind,
                }
            }
            ("hasValue", []) => {
                let target = self.optional_target(target, depth)?;
                Node::OptionalHasValue(target)
            }
            (
                "all" | "exists" | "existsOne" | "exists_one" | "transformList" | "transformMap" | "transformMapEntry",
                [key, value, rest @ ..],
            ) if matches!(rest.len(), 1 | 2) => {
                let names = [self.simple_name(key, name)?, self.simple_name(value, name)?];
                if names[0] == names[1] {
                    let message = format!("cannot use the same variable name for both variables: {}", names[0]);
                    return Err(self.error(name, Place::Call, message));
                }
                match self.two_variable_fold(target, name, names, rest, depth)? {
                    Some(node) => node,
                    None => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(node))
    }

    fn two_variable_fold(
        &mut self,
        target: &IdedExpr,
        name: &str,
        variables: [String; 2],
        rest: &[IdedExpr],
        depth: usize,
    ) -> Result<Option<Node>> {
        let range = self.node(target, depth)?;
        self.locals.extend(variables);
        let parts = self.nodes(rest, depth)?;
        self.locals.truncate(self.locals.len() - 2);
        let (condition, last) = match <[Node; 2]>::try_from(parts.into_vec()) {
            Ok([condition, last]) => (Some(condition), last),
            Err(mut one) => match one.pop() {
                Some(last) => (None, last),
                None => return Ok(None),
            },
        };
        let kind = match (name, condition) {
            ("all", None) => FoldKind::All(last),
            ("exists", None) => FoldKind::Exists(last),
            ("existsOne" | "exists_one", None) => FoldKind::ExistsOne(last),
            ("transformList", condition) => FoldKind::List {
                condition,
                transform: Some(last),
            },
            ("transformMap", condition) => FoldKind::MapValues {
                condition,
                transform: last,
            },
            ("transformMapEntry", condition) => FoldKind::MapEntries {
                condition,
                transform: last,
            },
            _ => return Ok(None),
        };
        Ok(Some(Node::Fold(Box::new(Fold {
            range,
            variables: Variables::Two,
            kind,
        }))))
    }

    /// `cel.bind(name, init, body)`.
    pub(crate) fn bind(&mut self, args: &[IdedExpr], depth: usize) -> Result<Node> {
        let [variable, init, body] = args else {
            return Err(self.undeclared("cel.bind", Place::Call));
        };
        let variable = self.simple_name(variable, "bind")?;
        let init = Box::new(self.node(init, depth)?);
        self.locals.push(variable);
        let body = Box::new(self.node(body, depth)?);
        self.locals.pop();
        Ok(Node::Bind { init, body })
    }

    fn simple_name(&self, expr: &IdedExpr, name: &str) -> Result<String> {
        match &expr.expr {
            Expr::Ident(variable) if !variable.starts_with('.') => Ok(variable.clone()),
            _ => Err(self.error(name, Place::Call, "argument must be a simple name".to_owned())),
        }
    }
}

fn malformed() -> CompileError {
    CompileError::whole("unsupported comprehension")
}
