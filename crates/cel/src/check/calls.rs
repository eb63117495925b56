//! Resolution of calls: from a name to the overloads that fit the arguments.

use super::standard;
use super::walk::{Walk, global, qualified};
use crate::functions::{self, Overload, math};
use crate::program::AbsenceMode;
use crate::types::Type;
use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};

impl Walk<'_> {
    pub(super) fn call(&mut self, node: u64, call: &CallExpr) -> Type {
        if call.func_name == operators::OPT_SELECT
            && let [
                operand,
                IdedExpr {
                    id,
                    expr: Expr::Literal(LiteralValue::String(field)),
                },
            ] = call.args.as_slice()
        {
            self.types.insert(*id, Type::String);
            let ty = self.field(node, operand, field.inner(), true);
            self.overloads.insert(node, vec!["select_optional_field"]);
            return self.known.resolve(&ty);
        }
        let mut arguments: Vec<Type> = Vec::with_capacity(call.args.len() + 1);
        for argument in &call.args {
            arguments.push(self.check(argument));
        }
        let name = global(&call.func_name);
        let Some(target) = &call.target else {
            return match self.function(name) {
                [] => self.undeclared(node, &call.func_name),
                found => self.resolve(node, call, name, found, arguments),
            };
        };
        if let Some(prefix) = qualified(target) {
            let full = format!("{}.{name}", global(&prefix));
            let found = self.function(&full);
            if !found.is_empty() {
                if math::shown(&full).is_some() {
                    if let Some((at, why)) = misused(node, &full, &call.args) {
                        self.wrong(at, why);
                        return Type::Error;
                    }
                    arguments = self.as_list(arguments);
                }
                let ty = self.resolve_in(node, call, &full, found, arguments, Style::Global);
                self.names.insert(node, full);
                return ty;
            }
        }
        arguments.insert(0, self.check(target));
        match self.function(name) {
            [] => self.undeclared(node, name),
            found => self.resolve_in(node, call, name, found, arguments, Style::Member),
        }
    }

    fn function(&self, name: &str) -> &'static [Overload] {
        match standard::overloads(name) {
            [] if functions::is_for_patches(name) && !self.env.json_patch => &[],
            [] if functions::is_for_conversion(name) && !self.env.conversion => &[],
            [] => functions::overloads(name),
            found => found,
        }
    }

    fn resolve(
        &mut self,
        node: u64,
        call: &CallExpr,
        name: &str,
        overloads: &'static [Overload],
        arguments: Vec<Type>,
    ) -> Type {
        if name == operators::LOGICAL_AND || name == operators::LOGICAL_OR {
            return self.logic(node, call, overloads, &arguments);
        }
        self.resolve_in(node, call, name, overloads, arguments, Style::Global)
    }

    /// Checks `&&` and `||`, which report each operand of a wrong type.
    fn logic(&mut self, node: u64, call: &CallExpr, overloads: &'static [Overload], arguments: &[Type]) -> Type {
        let mut ty = Type::Bool;
        for (argument, operand) in arguments.iter().zip(&call.args) {
            if !self.known.assign(argument, &Type::Bool) {
                self.mismatch(operand.id, &Type::Bool, argument);
                ty = Type::Error;
            }
        }
        self.overloads.insert(node, overloads.iter().map(|o| o.id).collect());
        ty
    }

    /// Tries every overload. The result type is that of the fitting overloads, or `dyn` where they
    /// differ.
    fn resolve_in(
        &mut self,
        node: u64,
        call: &CallExpr,
        name: &str,
        overloads: &'static [Overload],
        mut arguments: Vec<Type>,
        style: Style,
    ) -> Type {
        if style == Style::Member && self.env.mode == AbsenceMode::Absent {
            self.accept_plain(name, &mut arguments);
        }
        let mut result: Option<Type> = None;
        let mut fitting = Vec::new();
        for overload in overloads.iter().filter(|o| o.receiver == (style == Style::Member)) {
            let (parameters, gives) = self.instance(overload);
            if !self.known.assign_all(&arguments, &parameters) {
                continue;
            }
            fitting.push(overload.id);
            let gives = self.known.resolve(&gives);
            result = Some(match result {
                None => gives,
                Some(Type::Dyn) => Type::Dyn,
                Some(before) if before == gives => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            let arguments: Vec<Type> = arguments.iter().map(|a| self.known.settle(a)).collect();
            let shape = shape(&arguments, style);
            let name = math::shown(name).unwrap_or(name);
            self.wrong(
                node,
                format!("found no matching overload for '{name}' applied to '{shape}'"),
            );
            return Type::Error;
        };
        debug_assert!(call.args.len() <= arguments.len() || math::shown(name).is_some());
        self.overloads.insert(node, fitting);
        result
    }

    /// Returns more than two arguments of an extreme as one list, as cel-go's macro writes them.
    fn as_list(&mut self, arguments: Vec<Type>) -> Vec<Type> {
        if arguments.len() <= 2 {
            return arguments;
        }
        let settled: Vec<Type> = arguments.iter().map(|ty| self.known.settle(ty)).collect();
        let item = match settled.split_first() {
            Some((first, rest)) if rest.iter().all(|ty| ty == first) => first.clone(),
            _ => Type::Dyn,
        };
        vec![Type::list(item)]
    }

    /// Accepts plain values for optional ones where absence is a result: in `self.a.orValue(b)` a
    /// field that may be absent counts as an optional, and a present value stands for itself.
    fn accept_plain(&mut self, name: &str, arguments: &mut [Type]) {
        let wrapped = match name {
            "hasValue" | "value" | "orValue" => 1,
            "or" => 2,
            _ => return,
        };
        for argument in arguments.iter_mut().take(wrapped) {
            let ty = self.known.resolve(argument);
            if !matches!(ty, Type::Optional(_) | Type::Dyn | Type::Error) {
                *argument = Type::optional(ty);
            }
        }
    }

    /// Returns the types of an overload, with fresh variables for its type parameters.
    fn instance(&mut self, overload: &Overload) -> (Vec<Type>, Type) {
        let variables: Vec<(&str, Type)> = overload
            .type_params
            .iter()
            .map(|name| (*name, self.known.fresh()))
            .collect();
        let put = |ty: &Type| instantiate(ty, &variables);
        (overload.arguments.iter().map(put).collect(), put(&overload.result))
    }
}

/// Form of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// `size(x)`
    Global,
    /// `x.size()`
    Member,
}

/// Returns the error of cel-go's macro for arguments that are no numbers as they are written.
fn misused(node: u64, name: &str, arguments: &[IdedExpr]) -> Option<(u64, String)> {
    let numeric = |argument: &&IdedExpr| match &argument.expr {
        Expr::Literal(literal) => matches!(
            literal,
            LiteralValue::Int(_) | LiteralValue::UInt(_) | LiteralValue::Double(_)
        ),
        Expr::List(_) | Expr::Map(_) | Expr::Struct(_) => false,
        _ => true,
    };
    match arguments {
        [] => Some((node, format!("{name}() requires at least one argument"))),
        [one] => {
            let listed = match &one.expr {
                Expr::List(list) => !list.elements.is_empty() && list.elements.iter().all(|e| numeric(&e)),
                _ => numeric(&one),
            };
            (!listed).then(|| (one.id, format!("{name}() invalid single argument value")))
        }
        all => {
            let wrong = all.iter().find(|argument| !numeric(argument))?;
            Some((wrong.id, format!("{name}() simple literal arguments must be numeric")))
        }
    }
}

/// Renders the types of a call's arguments: `string.(int, int)`.
fn shape(arguments: &[Type], style: Style) -> String {
    let (target, arguments) = match (style, arguments) {
        (Style::Member, [target, rest @ ..]) => (format!("{target}."), rest),
        _ => (String::new(), arguments),
    };
    let arguments: Vec<String> = arguments.iter().map(Type::to_string).collect();
    format!("{target}({})", arguments.join(", "))
}

fn instantiate(ty: &Type, variables: &[(&str, Type)]) -> Type {
    match ty {
        Type::Param(name) => variables
            .iter()
            .find(|(parameter, _)| parameter == name)
            .map_or(Type::Dyn, |(_, variable)| variable.clone()),
        _ => super::unify::rebuild(ty, |part| instantiate(part, variables)),
    }
}
