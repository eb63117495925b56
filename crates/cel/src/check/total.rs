//! Totality analysis: decides from the types if an expression can fail for values as declared. An
//! expression is total if every part of it is; a part that cannot be decided counts as fallible.
//!
//! Absence is no failure where it is a result. An exhausted budget is none either: the cost
//! estimate covers that.

use super::{Checked, literals, ranges, reasons, standard};
use crate::expand::{ZIP_INDEX, ZIPPED};
use crate::functions;
use crate::functions::Overload;
use crate::nodes::is_fold;
use crate::program::AbsenceMode;
use crate::types::Type;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr, operators,
};

/// A part that can fail, and the reason.
#[derive(Debug)]
pub(super) struct Risk {
    pub(super) node: u64,
    pub(super) message: String,
}

type Total = Result<(), Risk>;

/// Returns the first part that can fail, in the order of evaluation.
pub(super) fn risk(tree: &IdedExpr, checked: &Checked, mode: AbsenceMode) -> Option<Risk> {
    let mut prover = Prover {
        checked,
        mode,
        present: Vec::new(),
        key: None,
    };
    prover.whole(tree).and_then(|()| prover.has_json_form(tree)).err()
}

struct Prover<'c> {
    checked: &'c Checked,
    mode: AbsenceMode,
    /// Nodes of optional values that are known to be present at this point.
    present: Vec<u64>,
    /// The variable of the innermost comprehension that is different in each round.
    key: Option<&'c str>,
}

impl<'c> Prover<'c> {
    fn risk(&self, node: u64, what: &str, why: &str) -> Total {
        Err(Risk {
            node,
            message: format!("'{what}' can fail: {why}"),
        })
    }

    /// Checks that the result can be written as JSON.
    fn has_json_form(&self, tree: &IdedExpr) -> Total {
        let value = match &self.checked.result {
            Type::Optional(value) => value,
            other => other,
        };
        if has_json_form(value) {
            return Ok(());
        }
        Err(Risk {
            node: tree.id,
            message: format!("values of type '{}' have no form in JSON", self.checked.result),
        })
    }

    fn whole(&mut self, expr: &'c IdedExpr) -> Total {
        match &expr.expr {
            Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => Ok(()),
            Expr::Select(select) => self.select(expr, select),
            Expr::Call(call) => self.call(expr, call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(expr.id, map),
            Expr::Struct(literal) => literal.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::StructField(field) => self.whole(&field.value),
                EntryExpr::MapEntry(_) => Ok(()),
            }),
            Expr::Comprehension(fold) => self.comprehension(fold),
        }
    }

    fn select(&mut self, expr: &'c IdedExpr, select: &'c SelectExpr) -> Total {
        if self.checked.name(expr.id).is_some() {
            return Ok(());
        }
        self.whole(&select.operand)?;
        if select.test {
            return Ok(());
        }
        match self.checked.ty(select.operand.id) {
            Type::Optional(_) => Ok(()),
            Type::Object(_) | Type::Map(_) if self.mode == AbsenceMode::Absent => Ok(()),
            Type::Object(_) | Type::Map(_) => self.risk(expr.id, &select.field, reasons::MISSING),
            _ => self.risk(expr.id, &select.field, reasons::OTHER_TYPE),
        }
    }

    fn list(&mut self, list: &'c ListExpr) -> Total {
        for (index, element) in list.elements.iter().enumerate() {
            self.entry(element, list.optional_indices.contains(&index))?;
        }
        Ok(())
    }

    fn entry(&mut self, value: &'c IdedExpr, optional: bool) -> Total {
        self.whole(value)?;
        match self.checked.ty(value.id) {
            Type::Optional(_) => Ok(()),
            _ if !optional => Ok(()),
            _ => self.risk(value.id, "?", reasons::OTHER_TYPE),
        }
    }

    fn map(&mut self, node: u64, map: &'c MapExpr) -> Total {
        let mut keys: Vec<&LiteralValue> = Vec::new();
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                continue;
            };
            self.whole(&entry.key)?;
            self.entry(&entry.value, entry.optional)?;
            let usable = matches!(
                self.checked.ty(entry.key.id),
                Type::String | Type::Int | Type::Uint | Type::Bool
            );
            if !usable {
                return self.risk(entry.key.id, "{}", "not every value can be a key");
            }
            match &entry.key.expr {
                Expr::Literal(key) if !keys.contains(&key) => keys.push(key),
                _ if map.entries.len() == 1 => {}
                _ => return self.risk(node, "{}", "two keys may be equal"),
            }
        }
        Ok(())
    }

    fn comprehension(&mut self, fold: &'c ComprehensionExpr) -> Total {
        self.whole(&fold.iter_range)?;
        self.whole(&fold.accu_init)?;
        let distinct = match self.checked.ty(fold.iter_range.id) {
            Type::Map(_) => true,
            Type::List(_) => fold.iter_var2.is_some(),
            _ => return self.risk(fold.iter_range.id, "comprehension", reasons::OTHER_TYPE),
        };
        let outer = std::mem::replace(&mut self.key, distinct.then_some(fold.iter_var.as_str()));
        let body = self.whole(&fold.loop_cond).and_then(|()| self.whole(&fold.loop_step));
        self.key = outer;
        body?;
        let (start, step) = (&fold.accu_init, &fold.loop_step);
        if is_fold(fold) && !is_surely(self.checked.ty(start.id), self.checked.ty(step.id)) {
            return self.risk(step.id, "fold", reasons::OTHER_TYPE);
        }
        self.whole(&fold.result)
    }

    fn call(&mut self, expr: &'c IdedExpr, call: &'c CallExpr) -> Total {
        let target = match self.checked.name(expr.id) {
            // The target is part of the function's name.
            Some(_) => None,
            None => call.target.as_deref(),
        };
        if call.func_name == operators::CONDITIONAL
            && let [condition, then, otherwise] = call.args.as_slice()
        {
            return self.conditional(condition, then, otherwise);
        }
        for part in target.into_iter().chain(&call.args) {
            self.whole(part)?;
        }
        self.outcome(expr.id, call, target)
    }

    /// Analyzes a conditional. In `x.hasValue() ? a : b` the value of `x` is present for `a`.
    fn conditional(&mut self, condition: &'c IdedExpr, then: &'c IdedExpr, otherwise: &'c IdedExpr) -> Total {
        self.whole(condition)?;
        if *self.checked.ty(condition.id) != Type::Bool {
            return self.risk(condition.id, "? :", reasons::OTHER_TYPE);
        }
        let known = self.present.len();
        if let Expr::Call(test) = &condition.expr
            && test.func_name == "hasValue"
            && let Some(target) = &test.target
        {
            self.present.push(target.id);
        }
        let then = self.whole(then);
        self.present.truncate(known);
        then?;
        self.whole(otherwise)
    }

    /// Checks the call itself, given total arguments.
    fn outcome(&mut self, node: u64, call: &'c CallExpr, target: Option<&'c IdedExpr>) -> Total {
        let name = self.checked.name(node).unwrap_or(&call.func_name);
        let arguments: Vec<&IdedExpr> = target.into_iter().chain(&call.args).collect();
        let [id] = self.checked.overloads(node) else {
            return match name {
                // Equality accepts all types on both sides.
                operators::EQUALS | operators::NOT_EQUALS => Ok(()),
                _ => self.risk(node, reasons::shown(name), reasons::OTHER_TYPE),
            };
        };
        if self.takes_anything(id) {
            return Ok(());
        }
        if !self.of_known_types(name, id, &arguments) {
            return self.risk(node, reasons::shown(name), reasons::OTHER_TYPE);
        }
        if reasons::is_total(id) || self.is_total_here(name, target.is_some(), id, &arguments) {
            return Ok(());
        }
        self.risk(node, reasons::shown(name), reasons::why(id))
    }

    /// Returns true for functions of optionals, which also accept a plain value where absence is a
    /// result.
    fn takes_anything(&self, id: &str) -> bool {
        self.mode == AbsenceMode::Absent
            && matches!(
                id,
                "optional_hasValue" | "optional_or_optional" | "optional_orValue_value"
            )
    }

    fn of_known_types(&self, name: &str, id: &str, arguments: &[&IdedExpr]) -> bool {
        let overload = standard::overloads(name)
            .iter()
            .chain(functions::overloads(name))
            .find(|o: &&Overload| o.id == id);
        // The optional selection has no declaration: it accepts any target of a selection.
        let Some(overload) = overload else {
            return id == "select_optional_field"
                && arguments.first().is_some_and(|a| {
                    matches!(
                        self.checked.ty(a.id),
                        Type::Object(_) | Type::Map(_) | Type::Optional(_)
                    )
                });
        };
        overload
            .arguments
            .iter()
            .zip(arguments)
            .all(|(parameter, argument)| is_surely(parameter, self.checked.ty(argument.id)))
    }

    /// Returns true for functions that are total for these arguments.
    fn is_total_here(&self, name: &str, receiver: bool, id: &str, arguments: &[&IdedExpr]) -> bool {
        if literals::call_has_value(name, receiver, arguments) {
            return true;
        }
        match (id, arguments) {
            ("index_map", _) => self.mode == AbsenceMode::Absent,
            // Sources cannot spell the names, and `zip` compares the index with the size.
            ("index_list", [list, index]) => is_named(list, ZIPPED) && is_named(index, ZIP_INDEX),
            ("optional_value", [target]) => self.present.contains(&target.id),
            (
                "matches"
                | "matches_string"
                | "string_find_string"
                | "string_find_all_string"
                | "string_find_all_string_int",
                [_, pattern, ..],
            ) => is_pattern(pattern),
            ("string_format", [format, _]) => matches!(format.expr, Expr::Literal(_)) && self.formats(arguments),
            ("divide_int64" | "divide_uint64" | "modulo_int64" | "modulo_uint64", [_, divisor]) => {
                matches!(ranges::range_of(divisor, self.checked), Some((low, _)) if low > 0)
            }
            ("add_int64" | "subtract_int64" | "multiply_int64" | "negate_int64", _) => {
                ranges::of_call(id, arguments, self.checked).is_some()
            }
            // Of several integers one is the greatest; a list may be empty, and NaN has no order.
            (
                "math_@max_list_int" | "math_@max_list_uint" | "math_@min_list_int" | "math_@min_list_uint",
                [_, _, ..],
            ) => true,
            ("json_encode" | "yaml_encode", [value]) => is_encodable(self.checked.ty(value.id)),
            ("@mapInsert_map_key_value", [_, key, _]) => self.is_key(key),
            ("@mapInsert_map_map", [_, entry]) => self.is_entry_of_key(entry),
            _ => false,
        }
    }

    /// Returns true if a validated format gets a literal list of values of known types.
    fn formats(&self, arguments: &[&IdedExpr]) -> bool {
        match arguments {
            [_, list] => match &list.expr {
                Expr::List(list) => list.elements.iter().all(|e| has_no_dyn(self.checked.ty(e.id))),
                _ => false,
            },
            _ => false,
        }
    }

    /// Returns true if no other round of the comprehension has the same key.
    fn is_key(&self, key: &IdedExpr) -> bool {
        matches!(&key.expr, Expr::Ident(name) if self.key == Some(name.as_str()))
    }

    fn is_entry_of_key(&self, entry: &IdedExpr) -> bool {
        let Expr::Map(map) = &entry.expr else { return false };
        match map.entries.as_slice() {
            [entry] => matches!(&entry.expr, EntryExpr::MapEntry(entry) if self.is_key(&entry.key)),
            _ => false,
        }
    }
}

/// Returns true if each value of the argument's type is one of the parameter's type, whatever a
/// `dyn` holds.
fn is_surely(parameter: &Type, argument: &Type) -> bool {
    match (parameter, argument) {
        (Type::Dyn | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Null) => false,
        (Type::List(parameter), Type::List(argument)) | (Type::Optional(parameter), Type::Optional(argument)) => {
            is_surely(parameter, argument)
        }
        (Type::Map(parameter), Type::Map(argument)) => {
            is_surely(&parameter.0, &argument.0) && is_surely(&parameter.1, &argument.1)
        }
        _ => true,
    }
}

pub(super) fn has_no_dyn(ty: &Type) -> bool {
    match ty {
        Type::Dyn => false,
        Type::List(part) | Type::Optional(part) => has_no_dyn(part),
        Type::Map(parts) => has_no_dyn(&parts.0) && has_no_dyn(&parts.1),
        _ => true,
    }
}

/// Returns true if every value of the type can be written as JSON. A `dyn` comes from JSON, except
/// for a value hidden by `dyn(x)`.
fn has_json_form(ty: &Type) -> bool {
    match ty {
        Type::Optional(_) | Type::Type(_) | Type::Opaque(_) => false,
        Type::List(item) => has_json_form(item),
        Type::Map(pair) => has_json_form(&pair.1),
        _ => true,
    }
}

/// Returns true if every value of the type has a JSON text. A computed number may be NaN; those of
/// an object are JSON.
fn is_encodable(ty: &Type) -> bool {
    match ty {
        Type::Double => false,
        Type::List(item) => is_encodable(item),
        Type::Map(pair) => is_encodable(&pair.1),
        ty => has_json_form(ty),
    }
}

fn is_named(expr: &IdedExpr, name: &str) -> bool {
    matches!(&expr.expr, Expr::Ident(found) if found == name)
}

fn is_pattern(expr: &IdedExpr) -> bool {
    match &expr.expr {
        // An invalid pattern was refused before.
        Expr::Literal(LiteralValue::String(_)) => true,
        _ => false,
    }
}
