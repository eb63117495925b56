//! Printing of a parsed tree as source text that parses to the same tree, with macros as calls.

use crate::error::CompileError;
use crate::expand::{MAP_INSERT, SORT, ZIPPED};
use crate::macros::OptionalBinding;
use crate::nodes::{UNUSED, is_fold};
use crate::parse::parse;
use crate::scan::scan;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, operators,
};
use std::fmt::Write;

/// Prints an expression as it was parsed: macros as calls, operators spaced, groups in parentheses.
///
/// # Errors
///
/// Fails if `source` does not parse.
pub fn print(source: &str) -> Result<String, CompileError> {
    scan(source)?;
    Ok(text(&parse(source, true)?.tree))
}

fn text(tree: &IdedExpr) -> String {
    let mut printer = Printer(String::new());
    printer.expr(tree, LOWEST);
    printer.0
}

const LOWEST: u8 = 0;
const OR: u8 = 2;
const UNARY: u8 = 7;
const MEMBER: u8 = 8;

/// Returns the precedence and the symbol of a binary operator.
fn binary(name: &str) -> Option<(u8, &'static str)> {
    Some(match name {
        operators::LOGICAL_OR => (OR, "||"),
        operators::LOGICAL_AND => (3, "&&"),
        operators::EQUALS => (4, "=="),
        operators::NOT_EQUALS => (4, "!="),
        operators::LESS => (4, "<"),
        operators::LESS_EQUALS => (4, "<="),
        operators::GREATER => (4, ">"),
        operators::GREATER_EQUALS => (4, ">="),
        operators::IN => (4, "in"),
        operators::ADD => (5, "+"),
        operators::SUBSTRACT => (5, "-"),
        operators::MULTIPLY => (6, "*"),
        operators::DIVIDE => (6, "/"),
        operators::MODULO => (6, "%"),
        _ => return None,
    })
}

struct Printer(String);

impl Printer {
    /// Prints an expression, in parentheses if it binds less tightly than `least`.
    fn expr(&mut self, expr: &IdedExpr, least: u8) {
        if binding(expr) < least {
            self.0.push('(');
            self.bare(expr);
            self.0.push(')');
        } else {
            self.bare(expr);
        }
    }

    fn bare(&mut self, expr: &IdedExpr) {
        match &expr.expr {
            Expr::Unspecified => {}
            Expr::Ident(name) => self.0.push_str(name),
            Expr::Literal(literal) => self.literal(literal),
            Expr::Select(select) if select.test => {
                self.0.push_str("has(");
                self.expr(&select.operand, MEMBER);
                self.0 += &format!(".{})", select.field);
            }
            Expr::Select(select) => {
                self.expr(&select.operand, MEMBER);
                self.0 += &format!(".{}", select.field);
            }
            Expr::Call(call) => self.call(expr, call),
            Expr::List(list) => {
                self.0.push('[');
                for (i, element) in list.elements.iter().enumerate() {
                    self.0.push_str(if i == 0 { "" } else { ", " });
                    self.optional(list.optional_indices.contains(&i));
                    self.expr(element, LOWEST);
                }
                self.0.push(']');
            }
            Expr::Map(map) => self.entries(&map.entries),
            Expr::Struct(literal) => {
                self.0.push_str(&literal.type_name);
                self.entries(&literal.entries);
            }
            Expr::Comprehension(fold) => self.fold(fold),
        }
    }

    fn optional(&mut self, optional: bool) {
        self.0.push_str(if optional { "?" } else { "" });
    }

    fn entries(&mut self, entries: &[IdedEntryExpr]) {
        self.0.push('{');
        for (i, entry) in entries.iter().enumerate() {
            self.0.push_str(if i == 0 { "" } else { ", " });
            let value = match &entry.expr {
                EntryExpr::StructField(field) => {
                    self.optional(field.optional);
                    self.0.push_str(&field.field);
                    &field.value
                }
                EntryExpr::MapEntry(entry) => {
                    self.optional(entry.optional);
                    self.expr(&entry.key, LOWEST);
                    &entry.value
                }
            };
            self.0.push_str(": ");
            self.expr(value, LOWEST);
        }
        self.0.push('}');
    }

    fn call(&mut self, expr: &IdedExpr, call: &CallExpr) {
        if let Some(binding) = OptionalBinding::from_expansion(expr) {
            let name = if binding.flat { "optFlatMap" } else { "optMap" };
            return self.bound(binding.target, name, &[binding.variable], &[binding.body]);
        }
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::CONDITIONAL, [condition, then, otherwise]) => {
                self.expr(condition, OR);
                self.0.push_str(" ? ");
                self.expr(then, OR);
                self.0.push_str(" : ");
                self.expr(otherwise, LOWEST);
            }
            (operators::LOGICAL_NOT, [operand]) => self.unary('!', operand),
            (operators::NEGATE, [operand]) => self.unary('-', operand),
            (operators::INDEX, [operand, index]) => self.index(operand, "[", index),
            (operators::OPT_INDEX, [operand, index]) => self.index(operand, "[?", index),
            (operators::OPT_SELECT, [operand, field]) => {
                self.expr(operand, MEMBER);
                if let Expr::Literal(LiteralValue::String(field)) = &field.expr {
                    self.0 += &format!(".?{}", field.inner());
                }
            }
            (name, [left, right]) if call.target.is_none() && binary(name).is_some() => {
                let (tightness, operator) = binary(name).unwrap_or_default();
                // Chains of `&&` and `||` are balanced trees; parentheses keep their shape.
                let logical = name == operators::LOGICAL_AND || name == operators::LOGICAL_OR;
                self.expr(left, tightness + u8::from(logical));
                self.0 += &format!(" {operator} ");
                self.expr(right, tightness + 1);
            }
            (name, args) => {
                if let Some(target) = &call.target {
                    self.expr(target, MEMBER);
                    self.0.push('.');
                }
                self.0.push_str(name);
                self.arguments(&[], &args.iter().collect::<Vec<_>>());
            }
        }
    }

    fn unary(&mut self, operator: char, operand: &IdedExpr) {
        self.0.push(operator);
        let start = self.0.len();
        self.expr(operand, MEMBER);
        // `-1` is a literal and `-(1)` is not; two signs in a row would cancel out.
        if self.0[start..].starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            self.0.insert(start, '(');
            self.0.push(')');
        }
    }

    fn index(&mut self, operand: &IdedExpr, open: &str, index: &IdedExpr) {
        self.expr(operand, MEMBER);
        self.0.push_str(open);
        self.expr(index, LOWEST);
        self.0.push(']');
    }

    fn arguments(&mut self, variables: &[&str], args: &[&IdedExpr]) {
        self.0.push('(');
        self.0.push_str(&variables.join(", "));
        for (i, arg) in args.iter().enumerate() {
            self.0.push_str(if i == 0 && variables.is_empty() { "" } else { ", " });
            self.expr(arg, LOWEST);
        }
        self.0.push(')');
    }

    /// Prints `target.name(variables, args)`.
    fn bound(&mut self, target: &IdedExpr, name: &str, variables: &[&str], args: &[&IdedExpr]) {
        self.expr(target, MEMBER);
        self.0 += &format!(".{name}");
        self.arguments(variables, args);
    }

    fn fold(&mut self, fold: &ComprehensionExpr) {
        if fold.iter_var == UNUSED {
            if fold.accu_var == ZIPPED {
                return self.zip(&fold.accu_init, &fold.result);
            }
            if let Expr::Call(CallExpr { func_name, args, .. }) = &fold.result.expr
                && func_name == SORT
                && let [keys] = args.as_slice()
                && let Expr::Comprehension(keys) = &keys.expr
                && let Some((_, args)) = written(keys)
            {
                self.bound(&fold.accu_init, "sortBy", &[&keys.iter_var], &args);
            }
            return;
        }
        if is_fold(fold) {
            let mut variables = vec![fold.accu_var.as_str(), fold.iter_var.as_str()];
            variables.extend(fold.iter_var2.as_deref());
            let args = [&fold.accu_init, &fold.loop_step];
            return self.bound(&fold.iter_range, "fold", &variables, &args);
        }
        if let Some((name, args)) = written(fold) {
            let mut variables = vec![fold.iter_var.as_str()];
            variables.extend(fold.iter_var2.as_deref());
            self.bound(&fold.iter_range, name, &variables, &args);
        }
    }

    /// Prints `one.zip(other, x, y, body)`.
    fn zip(&mut self, other: &IdedExpr, list: &IdedExpr) {
        let Expr::Comprehension(fold) = &list.expr else { return };
        let Some((_, parts)) = written(fold) else { return };
        let [_, bound] = parts.as_slice() else { return };
        let (Expr::Comprehension(bound), Some(of_one)) = (&bound.expr, &fold.iter_var2) else {
            return;
        };
        self.expr(&fold.iter_range, MEMBER);
        self.0.push_str(".zip(");
        self.expr(other, LOWEST);
        self.0 += &format!(", {of_one}, {}, ", bound.accu_var);
        self.expr(&bound.result, LOWEST);
        self.0.push(')');
    }

    fn literal(&mut self, literal: &LiteralValue) {
        match literal {
            LiteralValue::Null => self.0.push_str("null"),
            LiteralValue::Boolean(b) => self.0 += &b.inner().to_string(),
            LiteralValue::Int(i) => self.0 += &i.inner().to_string(),
            LiteralValue::UInt(u) => self.0 += &format!("{}u", u.inner()),
            LiteralValue::Double(d) => self.0 += &format!("{:?}", d.inner()),
            LiteralValue::String(s) => {
                self.0.push('"');
                s.inner().chars().for_each(|c| self.escaped(c));
                self.0.push('"');
            }
            LiteralValue::Bytes(bytes) => {
                self.0.push_str("b\"");
                for byte in bytes.inner() {
                    // Writing to a string does not fail.
                    let _ = write!(self.0, "\\x{byte:02x}");
                }
                self.0.push('"');
            }
        }
    }

    fn escaped(&mut self, c: char) {
        match c {
            '"' | '\\' => self.0.extend(['\\', c]),
            '\n' => self.0.push_str("\\n"),
            c if c.is_control() => self.0 += &format!("\\u{:04x}", u32::from(c)),
            c => self.0.push(c),
        }
    }
}

fn binding(expr: &IdedExpr) -> u8 {
    match &expr.expr {
        Expr::Call(_) if OptionalBinding::from_expansion(expr).is_some() => MEMBER,
        Expr::Call(call) => match (call.func_name.as_str(), call.args.len()) {
            (operators::CONDITIONAL, 3) => 1,
            (operators::LOGICAL_NOT | operators::NEGATE, 1) => UNARY,
            (name, 2) if call.target.is_none() => binary(name).map_or(MEMBER, |(tightness, _)| tightness),
            _ => MEMBER,
        },
        _ => MEMBER,
    }
}

/// Returns the macro that a loop was written as, and its arguments after the variables.
fn written(fold: &ComprehensionExpr) -> Option<(&'static str, Vec<&IdedExpr>)> {
    let two = fold.iter_var2.is_some();
    let Expr::Call(step) = &fold.loop_step.expr else {
        return None;
    };
    let (condition, body) = match (&fold.accu_init.expr, step.func_name.as_str(), step.args.as_slice()) {
        (Expr::Literal(_), operators::LOGICAL_AND, [_, predicate]) => return Some(("all", vec![predicate])),
        (Expr::Literal(_), operators::LOGICAL_OR, [_, predicate]) => return Some(("exists", vec![predicate])),
        (Expr::Literal(_), operators::CONDITIONAL, [predicate, ..]) => {
            let name = match fold.iter_var2 {
                Some(_) => "existsOne",
                None => "exists_one",
            };
            return Some((name, vec![predicate]));
        }
        (_, operators::CONDITIONAL, [condition, body, _]) => match &body.expr {
            Expr::Call(body) => (Some(condition), body),
            _ => return None,
        },
        _ => (None, step),
    };
    let (name, item) = match (body.func_name.as_str(), body.args.as_slice()) {
        (MAP_INSERT, [_, _, item]) => ("transformMap", item),
        (MAP_INSERT, [_, items]) => ("transformMapEntry", items),
        (operators::ADD, [_, list]) => match &list.expr {
            Expr::List(list) => (if two { "transformList" } else { "map" }, list.elements.first()?),
            _ => return None,
        },
        _ => return None,
    };
    let mut args: Vec<&IdedExpr> = condition.into_iter().collect();
    let is_filter = name == "map" && condition.is_some();
    match &item.expr {
        Expr::Ident(variable) if is_filter && *variable == fold.iter_var => return Some(("filter", args)),
        _ => args.push(item),
    }
    Some((name, args))
}

#[cfg(test)]
mod tests;
