//! cel-go's validators of well-typed expressions: constants that their function would refuse,
//! literals of mixed types, formats that do not fit their arguments.

use super::{Checked, Wrong, format};
use crate::cost::{Budget, CALL_COST_MAX};
use crate::functions::{self, Context, Found};
use crate::nodes::children;
use crate::types::Type;
use crate::value::Val;
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr};
use insula_meter::Meter;

/// Policy for list and map literals of mixed types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mixtures {
    Allowed,
    Refused,
}

/// Returns the problems of constants anywhere in the tree.
pub(super) fn validate(tree: &IdedExpr, checked: &Checked, mixtures: Mixtures) -> Vec<Wrong> {
    let mut validator = Validator {
        checked,
        mixtures,
        wrong: Vec::new(),
        pattern_bytes: PATTERNS_BYTES_MAX,
    };
    validator.visit(tree, false);
    validator.wrong
}

struct Validator<'c> {
    checked: &'c Checked,
    mixtures: Mixtures,
    wrong: Vec<Wrong>,
    /// Bytes left for compiled patterns.
    pattern_bytes: usize,
}

/// Bytes of all compiled patterns of an expression.
const PATTERNS_BYTES_MAX: usize = 4 << 20;

impl Validator<'_> {
    /// Visits a subtree. `in_format` is set inside the arguments of `format`, which may be of all
    /// types.
    fn visit(&mut self, expr: &IdedExpr, in_format: bool) {
        let refuse_mixtures = self.mixtures == Mixtures::Refused && !in_format;
        let mut in_format = in_format;
        match &expr.expr {
            Expr::List(list) if refuse_mixtures => self.list(list),
            Expr::Map(map) if refuse_mixtures => self.map(map),
            Expr::Call(call) => {
                self.constant_argument(call);
                if call.func_name == "format" {
                    self.wrong.extend(format::validate(expr.id, call, self.checked));
                    in_format = true;
                }
            }
            _ => {}
        }
        children(expr, &mut |child| self.visit(child, in_format));
    }

    fn constant_argument(&mut self, call: &CallExpr) {
        let Some(IdedExpr {
            id,
            expr: Expr::Literal(literal),
        }) = call.args.first()
        else {
            return;
        };
        let valid = match (call.func_name.as_str(), literal) {
            ("matches", LiteralValue::String(pattern)) => self.is_pattern(pattern.inner()),
            ("timestamp" | "duration", literal) => converts(&call.func_name, literal),
            _ => true,
        };
        if !valid {
            let message = format!("invalid {} argument", call.func_name);
            self.wrong.push(Wrong { node: *id, message });
        }
    }

    fn is_pattern(&mut self, pattern: &str) -> bool {
        let pay = |bytes: usize| {
            self.pattern_bytes = self.pattern_bytes.checked_sub(bytes).ok_or(())?;
            Ok::<(), ()>(())
        };
        crate::regex::compiles(pattern, pay) == Ok(true)
    }

    fn list(&mut self, list: &ListExpr) {
        let mut first = None;
        for (index, element) in list.elements.iter().enumerate() {
            let ty = self.entry_type(element, list.optional_indices.contains(&index));
            let want: &Type = first.get_or_insert_with(|| ty.clone());
            if *want != ty {
                self.wrong.push(mismatch(element.id, want, &ty));
                break;
            }
        }
    }

    fn map(&mut self, map: &MapExpr) {
        let mut first = None;
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                continue;
            };
            let key = self.entry_type(&entry.key, false);
            let value = self.entry_type(&entry.value, entry.optional);
            let (keys, values): &(Type, Type) = first.get_or_insert_with(|| (key.clone(), value.clone()));
            if *keys != key {
                self.wrong.push(mismatch(entry.key.id, keys, &key));
            }
            if *values != value {
                self.wrong.push(mismatch(entry.value.id, values, &value));
            }
        }
    }

    fn entry_type(&self, expr: &IdedExpr, optional: bool) -> Type {
        match self.checked.ty(expr.id) {
            Type::Optional(value) if optional => (**value).clone(),
            ty => ty.clone(),
        }
    }
}

fn mismatch(node: u64, want: &Type, got: &Type) -> Wrong {
    Wrong {
        node,
        message: format!("expected type '{want}' but found '{got}'"),
    }
}

/// Returns true if a conversion accepts the constant. Runs the conversion.
fn converts(function: &str, literal: &LiteralValue) -> bool {
    called(function, false, &[value(literal)]).unwrap_or(true)
}

/// Returns true if the arguments are constants and the call has a value.
pub(super) fn call_has_value(function: &str, receiver: bool, arguments: &[&IdedExpr]) -> bool {
    let constants: Option<Vec<Val<'static>>> = arguments
        .iter()
        .map(|argument| match &argument.expr {
            Expr::Literal(literal) => Some(value(literal)),
            _ => None,
        })
        .collect();
    constants.and_then(|c| called(function, receiver, &c)) == Some(true)
}

/// Returns true if a function has a value for the arguments; `None` if there is no such function.
fn called(function: &str, receiver: bool, arguments: &[Val<'static>]) -> Option<bool> {
    let Found::Function(function) = functions::find(function, receiver, arguments.len()) else {
        return None;
    };
    // The cost limit of one call is enough for constants that fit into an expression.
    let mut budget = Budget::new(CALL_COST_MAX, &Meter::unbounded());
    Some((function.call)(&mut Context::new(&mut budget, &[]), arguments).is_ok())
}

fn value(literal: &LiteralValue) -> Val<'static> {
    match literal {
        LiteralValue::Null => Val::Null,
        LiteralValue::Boolean(b) => Val::Bool(*b.inner()),
        LiteralValue::Int(i) => Val::Int(*i.inner()),
        LiteralValue::UInt(u) => Val::Uint(*u.inner()),
        LiteralValue::Double(d) => Val::Double(*d.inner()),
        LiteralValue::String(s) => Val::String(s.inner().into()),
        LiteralValue::Bytes(b) => Val::Bytes(b.inner().into()),
    }
}
