//! The walk over the tree: derives each node's type from the types of its parts.

use super::standard;
use super::unify::{Substitution, most_general};
use super::{Checked, Wrong};
use crate::decl::Decl;
use crate::env::Env;
use crate::nodes::is_fold;
use crate::types::Type;
use cel::common::ast::{
    ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr, StructExpr,
};
use std::collections::HashMap;

pub(super) struct Walk<'e> {
    pub(super) env: &'e Env,
    pub(super) known: Substitution,
    pub(super) types: HashMap<u64, Type>,
    pub(super) overloads: HashMap<u64, Vec<&'static str>>,
    pub(super) names: HashMap<u64, String>,
    /// Variables of the enclosing comprehensions, outermost first.
    locals: Vec<(String, Type)>,
    wrong: Vec<Wrong>,
}

impl<'e> Walk<'e> {
    pub(super) fn new(env: &'e Env) -> Self {
        Walk {
            env,
            known: Substitution::default(),
            types: HashMap::new(),
            overloads: HashMap::new(),
            names: HashMap::new(),
            locals: Vec::new(),
            wrong: Vec::new(),
        }
    }

    /// Returns the checked tree, or its problems.
    pub(super) fn finish(mut self, tree: &IdedExpr) -> Result<Checked, Vec<Wrong>> {
        if self.known.exhausted() {
            self.wrong = vec![Wrong {
                node: tree.id,
                message: "types of the expression are too large".to_owned(),
            }];
        }
        if !self.wrong.is_empty() {
            return Err(self.wrong);
        }
        let types: HashMap<u64, Type> = self.types.iter().map(|(id, ty)| (*id, self.known.settle(ty))).collect();
        Ok(Checked {
            result: types.get(&tree.id).cloned().unwrap_or(Type::Dyn),
            types,
            overloads: self.overloads,
            names: self.names,
        })
    }

    pub(super) fn wrong(&mut self, node: u64, message: String) {
        self.wrong.push(Wrong { node, message });
    }

    pub(super) fn undeclared(&mut self, node: u64, name: &str) -> Type {
        self.wrong(node, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    pub(super) fn mismatch(&mut self, node: u64, want: &Type, got: &Type) {
        self.wrong(node, format!("expected type '{want}' but found '{got}'"));
    }

    /// Finds and records the type of a node.
    pub(super) fn check(&mut self, expr: &IdedExpr) -> Type {
        let ty = match &expr.expr {
            Expr::Unspecified => Type::Error,
            Expr::Literal(literal) => type_of(literal),
            Expr::Ident(name) => match self.lookup(name) {
                Some(ty) => {
                    self.name(expr.id, name);
                    ty
                }
                None => self.undeclared(expr.id, name),
            },
            Expr::Select(select) => self.select(expr, select),
            Expr::Call(call) => self.call(expr.id, call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Struct(literal) => self.object(expr.id, literal),
            Expr::Comprehension(fold) => self.comprehension(fold),
        };
        self.types.insert(expr.id, ty.clone());
        ty
    }

    /// Returns the type of a name: the innermost comprehension variable, a declared variable, or a
    /// type.
    fn lookup(&self, name: &str) -> Option<Type> {
        let name = global(name);
        if let Some((_, ty)) = self.locals.iter().rfind(|(local, _)| local == name) {
            return Some(ty.clone());
        }
        if let Some(variable) = self.env.variables.iter().find(|v| *v.name == *name) {
            let ty = variable.decl.ty();
            return Some(if variable.optional { Type::optional(ty) } else { ty });
        }
        standard::named_type(name).or_else(|| self.env.literal(name).map(|decl| Type::Type(decl.ty().into())))
    }

    fn name(&mut self, node: u64, name: &str) {
        self.names.insert(node, global(name).to_owned());
    }

    fn select(&mut self, expr: &IdedExpr, select: &SelectExpr) -> Type {
        if let Some(name) = qualified(expr)
            && let Some(ty) = self.lookup(&name)
        {
            self.name(expr.id, &name);
            return ty;
        }
        let ty = self.field(expr.id, &select.operand, &select.field, false);
        if select.test {
            Type::Bool
        } else {
            self.known.resolve(&ty)
        }
    }

    /// Returns the type of a field; optional when the selection or its operand is.
    pub(super) fn field(&mut self, node: u64, operand: &IdedExpr, name: &str, optional: bool) -> Type {
        let operand = self.check(operand);
        let (target, optional) = match self.known.resolve(&operand) {
            Type::Optional(value) => ((*value).clone(), true),
            other => (other, optional),
        };
        let ty = match &target {
            Type::Map(pair) => pair.1.clone(),
            Type::Object(decl) => self.declared(node, decl, name),
            Type::Opaque(library) if is_message(library) => {
                self.wrong(node, format!("unexpected failed resolution of '{library}'"));
                Type::Error
            }
            Type::Dyn | Type::Error => Type::Dyn,
            Type::Var(_) => {
                // The operand stays `dyn`: no later use may narrow it.
                self.known.assign(&Type::Dyn, &target);
                Type::Dyn
            }
            _ => {
                self.wrong(node, format!("type '{target}' does not support field selection"));
                Type::Dyn
            }
        };
        if optional { Type::optional(ty) } else { ty }
    }

    fn declared(&mut self, node: u64, decl: &Decl, name: &str) -> Type {
        match self.env.field(decl, name) {
            Some(ty) => ty,
            None => {
                self.wrong(node, format!("undefined field '{name}'"));
                Type::Error
            }
        }
    }

    fn list(&mut self, list: &ListExpr) -> Type {
        let mut items: Option<Type> = None;
        for (index, element) in list.elements.iter().enumerate() {
            let mut ty = self.check(element);
            if list.optional_indices.contains(&index) {
                ty = self.unwrapped(element.id, ty);
            }
            items = Some(self.join(items, ty));
        }
        Type::list(items.unwrap_or_else(|| self.known.fresh()))
    }

    fn map(&mut self, map: &MapExpr) -> Type {
        let mut joined: Option<(Type, Type)> = None;
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                continue;
            };
            let key = self.check(&entry.key);
            let mut value = self.check(&entry.value);
            if entry.optional {
                value = self.unwrapped(entry.value.id, value);
            }
            let (keys, values) = joined.unzip();
            joined = Some((self.join(keys, key), self.join(values, value)));
        }
        let (keys, values) = joined.unwrap_or_else(|| (self.known.fresh(), self.known.fresh()));
        Type::map(keys, values)
    }

    /// Returns the type of an entry that is present only if its optional value is.
    fn unwrapped(&mut self, node: u64, ty: Type) -> Type {
        match ty {
            Type::Optional(value) => (*value).clone(),
            Type::Dyn => Type::Dyn,
            other => {
                self.mismatch(node, &Type::optional(other.clone()), &other);
                other
            }
        }
    }

    /// Joins the type of the previous entries with that of the next; a mixture is `dyn`.
    fn join(&mut self, before: Option<Type>, next: Type) -> Type {
        match before {
            None => next,
            Some(before) if self.known.assign(&before, &next) => most_general(&before, &next).clone(),
            Some(_) => Type::Dyn,
        }
    }

    fn object(&mut self, node: u64, literal: &StructExpr) -> Type {
        let Some(ty) = self.lookup(&literal.type_name) else {
            return self.undeclared(node, &literal.type_name);
        };
        self.name(node, &literal.type_name);
        let made = match &ty {
            Type::Type(of) => match &**of {
                Type::Object(_) => Some((**of).clone()),
                other => {
                    self.wrong(node, format!("'{}' is not a message type", other.runtime_name()));
                    None
                }
            },
            other => {
                self.wrong(node, format!("'{}' is not a type", other.runtime_name()));
                None
            }
        };
        for entry in &literal.entries {
            let EntryExpr::StructField(field) = &entry.expr else {
                continue;
            };
            let mut value = self.check(&field.value);
            let want = match &made {
                Some(Type::Object(decl)) => self.declared(entry.id, decl, &field.field),
                _ => Type::Error,
            };
            if field.optional {
                value = self.unwrapped(field.value.id, value);
            }
            if !self.known.assign(&want, &value) {
                let name = &field.field;
                self.wrong(
                    entry.id,
                    format!("expected type of field '{name}' is '{want}' but provided type is '{value}'"),
                );
            }
        }
        made.unwrap_or(Type::Error)
    }

    fn comprehension(&mut self, fold: &ComprehensionExpr) -> Type {
        let range = self.check(&fold.iter_range);
        let accumulator = self.check(&fold.accu_init);
        let range = self.known.resolve(&range);
        let (first, second) = match &range {
            Type::List(items) if fold.iter_var2.is_some() => (Type::Int, (**items).clone()),
            Type::List(items) => ((**items).clone(), Type::Dyn),
            Type::Map(pair) => pair.as_ref().clone(),
            Type::Dyn | Type::Error | Type::Var(_) => {
                // The range stays `dyn`: the loop accepts whatever it is at run time.
                self.known.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            _ => {
                self.wrong(
                    fold.iter_range.id,
                    format!(
                        "expression of type '{range}' cannot be range of a comprehension (must be list, map, or \
                        dynamic)"
                    ),
                );
                (Type::Error, Type::Error)
            }
        };
        let around = self.locals.len();
        self.locals.push((fold.accu_var.clone(), accumulator.clone()));
        self.locals.push((fold.iter_var.clone(), first));
        if let Some(name) = &fold.iter_var2 {
            self.locals.push((name.clone(), second));
        }
        self.check_as(&fold.loop_cond, &Type::Bool);
        self.check_as(&fold.loop_step, &accumulator);
        if is_fold(fold) {
            self.check_nesting(fold, &accumulator);
        }
        self.locals.truncate(around + 1);
        let result = self.check(&fold.result);
        self.locals.truncate(around);
        self.known.resolve(&result)
    }

    fn check_as(&mut self, expr: &IdedExpr, want: &Type) {
        let got = self.check(expr);
        if !self.known.assign(want, &got) {
            self.mismatch(expr.id, want, &got);
        }
    }
}

fn type_of(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Null => Type::Null,
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::UInt(_) => Type::Uint,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::String(_) => Type::String,
        LiteralValue::Bytes(_) => Type::Bytes,
    }
}

/// Strips the dot that makes a name global. There is no container that it would lead out of.
pub(super) fn global(name: &str) -> &str {
    name.strip_prefix('.').unwrap_or(name)
}

/// Returns the qualified name that an identifier and its selections spell: `a.b.c`.
pub(super) fn qualified(expr: &IdedExpr) -> Option<String> {
    let mut fields = Vec::new();
    let mut expr = expr;
    loop {
        match &expr.expr {
            Expr::Ident(root) => {
                let mut name = root.clone();
                for field in fields.into_iter().rev() {
                    name.push('.');
                    name.push_str(field);
                }
                return Some(name);
            }
            Expr::Select(select) if !select.test => {
                fields.push(select.field.as_str());
                expr = &select.operand;
            }
            _ => return None,
        }
    }
}

/// Returns true for library types that count as messages, whose fields would be looked up.
fn is_message(library: &str) -> bool {
    library.starts_with("kubernetes.")
}
