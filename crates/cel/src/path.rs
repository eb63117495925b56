//! Lowering of paths: a chain of selections and indexings becomes one node and one reference.

use crate::error::CompileError;
use crate::ir::{Field, Node, Step};
use crate::lowering::Lowering;
use cel::common::ast::{Expr, IdedExpr, LiteralValue, operators};

type Result<T> = std::result::Result<T, CompileError>;

/// Treatment of the absence of a path that an expression reads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Absence<'e> {
    NotExpected,
    /// `has(path.field)`
    TestedFor(&'e str),
    /// `path.orValue(…)`
    ProvidedFor,
}

impl Lowering<'_> {
    /// Lowers a chain of selections and indexings on a base to one node.
    pub(crate) fn access(&mut self, expr: &IdedExpr, absence: Absence<'_>, depth: usize) -> Result<Node> {
        if let Some(name) = self.checked.name(expr.id)
            && matches!(expr.expr, Expr::Select(_))
        {
            return self.resolve(name).ok_or_else(|| self.undeclared(expr, name));
        }
        let mut links = Vec::new();
        let mut base = expr;
        loop {
            match &base.expr {
                Expr::Select(select) if !select.test => {
                    links.push(Link::Field {
                        field: self.field(&select.operand, &select.field),
                        optional: false,
                    });
                    base = &select.operand;
                }
                Expr::Call(call) if is_access(&call.func_name) => {
                    let [operand, index] = call.args.as_slice() else {
                        return Err(CompileError::whole("malformed index"));
                    };
                    let optional = call.func_name != operators::INDEX;
                    links.push(match (&index.expr, call.func_name.as_str()) {
                        (Expr::Literal(LiteralValue::String(name)), operators::OPT_SELECT) => Link::Field {
                            field: self.field(operand, name.inner()),
                            optional: true,
                        },
                        // A text index is a field by its stored name, with any characters.
                        (Expr::Literal(LiteralValue::String(name)), _) => Link::Field {
                            field: Field::stored(name.inner()),
                            optional,
                        },
                        _ => Link::Index { index, optional },
                    });
                    base = operand;
                }
                _ => break,
            }
        }
        links.reverse();
        let base = match &base.expr {
            // Not `identifier`: the reference is to the whole path, not to the variable alone.
            Expr::Ident(name) => self.resolve(name).ok_or_else(|| self.undeclared(base, name))?,
            _ => self.node(base, depth)?,
        };
        if let Node::Variable(slot) = base {
            let (path, optional) = static_path(&links, absence);
            self.refer(slot, path, optional);
        }
        if links.is_empty() {
            return Ok(base);
        }
        let steps = links.into_iter().map(|l| self.step(l, depth)).collect::<Result<_>>()?;
        Ok(Node::Access {
            base: Box::new(base),
            steps,
        })
    }

    fn step(&mut self, link: Link<'_>, depth: usize) -> Result<Step> {
        Ok(match link {
            Link::Field { field, optional } => Step::Field { field, optional },
            Link::Index { index, optional } => Step::Index {
                index: self.node(index, depth)?,
                optional,
            },
        })
    }

    /// Lowers the target of `orValue` and similar functions, which provide for its absence.
    pub(crate) fn optional_target(&mut self, target: &IdedExpr, depth: usize) -> Result<Box<Node>> {
        let is_path = match &target.expr {
            Expr::Ident(_) => true,
            Expr::Select(select) => !select.test,
            Expr::Call(call) => is_access(&call.func_name),
            _ => false,
        };
        let node = if is_path {
            self.access(target, Absence::ProvidedFor, depth)?
        } else {
            self.node(target, depth)?
        };
        Ok(Box::new(node))
    }
}

enum Link<'e> {
    Field { field: Field, optional: bool },
    Index { index: &'e IdedExpr, optional: bool },
}

/// Returns the leading fields of a chain. The flag is true if absence of its end is provided for.
fn static_path(links: &[Link<'_>], absence: Absence<'_>) -> (Vec<String>, bool) {
    let mut path = Vec::new();
    let mut optional = !matches!(absence, Absence::NotExpected);
    for link in links {
        match link {
            Link::Field { field, optional: o } => {
                optional |= o;
                path.push(field.name.to_string());
            }
            Link::Index { .. } => return (path, optional),
        }
    }
    if let Absence::TestedFor(field) = absence {
        path.push(field.to_owned());
    }
    (path, optional)
}

pub(crate) fn is_access(name: &str) -> bool {
    matches!(name, operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT)
}
