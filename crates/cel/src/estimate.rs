//! Static cost estimates from the expression, its types and the declared bounds, before any value
//! is known. The figures are exactly those of Kubernetes, whose messages about refused rules print
//! them.
//!
//! The model is that of cel-go's checker: a walk over the tree gives every node a range of costs
//! and, where it is known, a range of sizes. Sizes come from literals, from declared bounds, and
//! from functions whose results are bounded by their arguments. A loop costs its body times the
//! size of its range. An unbounded cost is `u64::MAX`. Rules of conversions get tighter bounds: see
//! [`closer`].

mod accumulate;
mod calls;
mod closer;
mod document;
mod library;
mod operand;
mod origin;
mod range;

use crate::check::Checked;
use crate::env::Env;
use crate::nodes::is_fold;
use crate::parse::Parsed;
use crate::types::Type;
use cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr};
use origin::{Origin, Step};
pub(crate) use range::Range;
use std::collections::HashMap;

/// Cost of reading a name or a field.
const READ: Range = Range::ONE;
/// Cost of a literal list, map or object without its parts.
const LIST: Range = Range::exactly(10);
const MAP: Range = Range::exactly(30);
const OBJECT: Range = Range::exactly(40);

/// Estimates the cost of one evaluation, in units.
pub(crate) fn estimate(parsed: &Parsed, checked: &Checked, env: &Env) -> Range {
    let mut walk = Walk {
        checked,
        env,
        origins: HashMap::new(),
        sizes: HashMap::new(),
        contents: HashMap::new(),
        locals: Vec::new(),
        folds: 0,
    };
    walk.cost(&parsed.tree)
}

/// Sizes of the parts of a list or map.
#[derive(Debug, Clone, Copy)]
struct Contents {
    kind: Container,
    key: Range,
    value: Range,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    List,
    Map,
}

impl Contents {
    fn or(self, other: Contents) -> Contents {
        Contents {
            kind: self.kind,
            key: self.key.or(other.key),
            value: self.value.or(other.value),
        }
    }
}

/// A variable of a macro.
#[derive(Debug)]
struct Local<'e> {
    name: &'e str,
    origin: Origin,
    size: Option<Range>,
    contents: Option<Contents>,
}

struct Walk<'e> {
    checked: &'e Checked,
    env: &'e Env,
    /// Origins of the nodes' values in the declared variables, by node.
    origins: HashMap<u64, Origin>,
    sizes: HashMap<u64, Range>,
    contents: HashMap<u64, Contents>,
    /// Variables of the enclosing macros, innermost last.
    locals: Vec<Local<'e>>,
    /// Number of enclosing `fold`s.
    folds: usize,
}

impl<'e> Walk<'e> {
    fn cost(&mut self, expr: &'e IdedExpr) -> Range {
        match &expr.expr {
            Expr::Unspecified | Expr::Literal(_) => Range::ZERO,
            Expr::Ident(name) => {
                let origin = self.local(name).map(|l| l.origin.clone());
                let origin = origin.unwrap_or_else(|| Origin::variable(self.env, name));
                self.origins.insert(expr.id, origin);
                READ
            }
            Expr::Select(select) => match self.checked.name(expr.id) {
                // A qualified name of a type counts as one name.
                Some(name) => {
                    self.origins.insert(expr.id, Origin::variable(self.env, name));
                    READ
                }
                None => self.select(expr.id, select),
            },
            Expr::Call(call) => self.call(expr, call),
            Expr::List(list) => {
                let mut sum = LIST;
                let mut value = Range::NONE;
                for element in &list.elements {
                    sum = sum.plus(self.cost(element));
                    value = value.or(self.size_or_any(element));
                }
                self.contents
                    .insert(expr.id, contents(Container::List, Range::ONE, value));
                sum
            }
            Expr::Map(map) => {
                let mut sum = MAP;
                let (mut key, mut value) = (Range::NONE, Range::NONE);
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        sum = sum.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
                        key = key.or(self.size_or_any(&entry.key));
                        value = value.or(self.size_or_any(&entry.value));
                    }
                }
                self.contents.insert(expr.id, contents(Container::Map, key, value));
                sum
            }
            Expr::Struct(literal) => literal.entries.iter().fold(OBJECT, |sum, entry| match &entry.expr {
                EntryExpr::StructField(field) => sum.plus(self.cost(&field.value)),
                EntryExpr::MapEntry(entry) => sum.plus(self.cost(&entry.value)),
            }),
            Expr::Comprehension(fold) if is_bind(fold) => self.bind(expr.id, fold),
            Expr::Comprehension(fold) if is_fold(fold) => self.accumulate(expr.id, fold),
            Expr::Comprehension(fold) => self.fold(expr.id, fold),
        }
    }

    /// Estimates a selection. `has(a.b)` costs as much as reading `a`.
    fn select(&mut self, id: u64, select: &'e SelectExpr) -> Range {
        let sum = self.cost(&select.operand);
        if select.test {
            return sum;
        }
        let origin = self.origin(&select.operand).step(self.env, Step::Field(&select.field));
        self.origins.insert(id, origin);
        match self.ty(&select.operand) {
            Type::Map(_) | Type::Object(_) | Type::Param(_) => sum.plus(READ),
            _ => sum,
        }
    }

    fn fold(&mut self, id: u64, fold: &'e ComprehensionExpr) -> Range {
        let sum = self.cost(&fold.iter_range).plus(self.cost(&fold.accu_init));
        let depth = self.locals.len();
        self.declare(&fold.accu_var, &fold.accu_init);
        self.iterate_all(fold);
        let condition = self.cost(&fold.loop_cond);
        let round = self.cost(&fold.loop_step).plus(condition);
        self.locals.truncate(depth + 1);
        let sum = sum.plus(self.cost(&fold.result));
        self.locals.truncate(depth);
        let rounds = self.size_or_any(&fold.iter_range);
        match &fold.accu_init.expr {
            Expr::Literal(_) => self.set_size(id, self.size(&fold.accu_init)),
            Expr::List(_) | Expr::Map(_) => {
                self.set_size(id, Some(rounds));
                let contents = self.contents(&fold.loop_step);
                self.set_contents(id, contents);
            }
            _ => {}
        }
        sum.plus(rounds.times(round))
    }

    fn bind(&mut self, id: u64, fold: &'e ComprehensionExpr) -> Range {
        let sum = self.cost(&fold.iter_range).plus(self.cost(&fold.accu_init));
        self.declare(&fold.accu_var, &fold.accu_init);
        let sum = sum.plus(self.cost(&fold.result));
        self.locals.pop();
        self.alike(id, &fold.result);
        sum
    }

    /// Declares a variable that holds the value of an expression.
    fn declare(&mut self, name: &'e str, expr: &'e IdedExpr) {
        let local = Local {
            name,
            origin: self.origin(expr),
            size: self.size(expr),
            contents: self.contents(expr),
        };
        self.locals.push(local);
    }

    /// Declares the variables of a loop.
    fn iterate_all(&mut self, fold: &'e ComprehensionExpr) {
        match &fold.iter_var2 {
            Some(second) => {
                self.iterate(&fold.iter_var, &fold.iter_range, Part::Key);
                self.iterate(second, &fold.iter_range, Part::Value);
            }
            None => self.iterate(&fold.iter_var, &fold.iter_range, Part::Only),
        }
    }

    /// Declares a variable that iterates over the parts of an expression.
    fn iterate(&mut self, name: &'e str, over: &'e IdedExpr, part: Part) {
        let contents = self.contents(over);
        let kind = match (contents, self.ty(over)) {
            (Some(contents), _) => contents.kind,
            (None, Type::List(_)) => Container::List,
            (None, _) => Container::Map,
        };
        let (step, is_key) = match (part, kind) {
            (Part::Key, Container::List) => (Step::Indexes, true),
            (Part::Key | Part::Only, Container::Map) => (Step::Keys, true),
            (Part::Value | Part::Only, _) => (Step::Values, false),
        };
        let local = Local {
            name,
            origin: self.origin(over).step(self.env, step),
            size: contents.map(|c| if is_key { c.key } else { c.value }),
            contents: None,
        };
        self.locals.push(local);
    }

    fn local(&self, name: &str) -> Option<&Local<'e>> {
        self.locals.iter().rev().find(|l| l.name == name)
    }

    fn named(&self, expr: &IdedExpr) -> Option<&Local<'e>> {
        match &expr.expr {
            Expr::Ident(name) => self.local(name),
            _ => None,
        }
    }

    fn ty(&self, expr: &IdedExpr) -> Type {
        self.checked.ty(expr.id).clone()
    }

    fn origin(&self, expr: &IdedExpr) -> Origin {
        match self.named(expr) {
            Some(local) => local.origin.clone(),
            None => self.origins.get(&expr.id).cloned().unwrap_or(Origin::Computed),
        }
    }

    /// Returns the size of a value, as `size()` counts it. The first known of: a computed or
    /// literal size, the declared bounds, the type, the variable's size.
    fn size(&self, expr: &IdedExpr) -> Option<Range> {
        (self.sizes.get(&expr.id).copied())
            .or_else(|| written(expr))
            .or_else(|| self.origin(expr).size())
            .or_else(|| is_scalar(&self.ty(expr)).then_some(Range::ONE))
            .or_else(|| self.named(expr)?.size)
    }

    fn size_or_any(&self, expr: &IdedExpr) -> Range {
        self.size(expr).unwrap_or(self.unknown())
    }

    /// Returns the size of a value that nothing bounds.
    fn unknown(&self) -> Range {
        self.env.largest.map_or(Range::ANY, Range::up_to)
    }

    fn set_size(&mut self, id: u64, size: Option<Range>) {
        if let Some(size) = size {
            self.sizes.insert(id, size);
        }
    }

    fn contents(&self, expr: &IdedExpr) -> Option<Contents> {
        (self.contents.get(&expr.id).copied()).or_else(|| self.named(expr)?.contents)
    }

    fn set_contents(&mut self, id: u64, contents: Option<Contents>) {
        if let Some(contents) = contents {
            self.contents.insert(id, contents);
        }
    }

    /// Records that a node has the same value as another.
    fn alike(&mut self, id: u64, other: &IdedExpr) {
        self.set_size(id, self.size(other));
        self.set_contents(id, self.contents(other));
    }
}

/// Part of a collection that a macro's variable iterates over.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// The first of two variables: keys, or indexes of a list.
    Key,
    /// The second of two variables.
    Value,
    /// A single variable: keys of a map, items of a list.
    Only,
}

fn contents(kind: Container, key: Range, value: Range) -> Contents {
    let or_empty = |range: Range| if range == Range::NONE { Range::ZERO } else { range };
    Contents {
        kind,
        key: or_empty(key),
        value: or_empty(value),
    }
}

/// Returns true for `cel.bind`: a loop over nothing that never starts; only its result matters.
fn is_bind(fold: &ComprehensionExpr) -> bool {
    matches!(&fold.iter_range.expr, Expr::List(list) if list.elements.is_empty())
        && matches!(&fold.loop_cond.expr, Expr::Literal(LiteralValue::Boolean(b)) if !*b.inner())
}

/// Returns the size of a literal.
fn written(expr: &IdedExpr) -> Option<Range> {
    let size = match &expr.expr {
        Expr::Literal(LiteralValue::String(text)) => text.inner().chars().count(),
        Expr::Literal(LiteralValue::Bytes(bytes)) => bytes.inner().len(),
        Expr::Literal(_) => 1,
        Expr::List(list) => list.elements.len(),
        Expr::Map(map) => map.entries.len(),
        _ => return None,
    };
    Some(Range::exactly(size as u64))
}

/// Returns true for types whose values are all of one size.
fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(inner) => is_scalar(inner),
        _ => false,
    }
}
