//! Look-ups in map literals: `{'Small': 's', 'Large': 'l'}[self.size]`. A caller that knows the
//! values of the key finds those for which the map has no entry.

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, MapExpr, operators};

/// A step on the way to the key of a look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupStep {
    /// The field of this name, or the entry of a map.
    Field(String),
    /// Any item of a list; `or_value` if it may be any value of a map as well.
    Item {
        /// True if the items may be the values of a map.
        or_value: bool,
    },
}

/// A look-up of a field's value in a map literal, evaluated whenever the expression is, or for each
/// item of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// Name of the variable that holds the key.
    pub variable: String,
    /// The way from the variable to the key.
    pub path: Vec<LookupStep>,
    /// The keys of the map.
    pub keys: Vec<String>,
}

/// A place: a variable of the expression, and the way from it.
type KeyPath = (String, Vec<LookupStep>);

/// The variables of the macros around, innermost last, with their places where they have one.
type Locals = Vec<(String, Option<KeyPath>)>;

/// Returns the look-ups of an expression. Those behind a condition are left out, because it may
/// exclude values, and so are optional ones, which provide for a missing entry.
pub(crate) fn lookups(expr: &IdedExpr) -> Vec<Lookup> {
    let mut found = Vec::new();
    collect(expr, &mut Locals::new(), &mut found);
    found
}

fn collect(expr: &IdedExpr, locals: &mut Locals, out: &mut Vec<Lookup>) {
    let mut below = |expr: &IdedExpr| collect(expr, locals, out);
    match &expr.expr {
        Expr::Call(call) => {
            let is_condition = matches!(
                call.func_name.as_str(),
                operators::CONDITIONAL | operators::LOGICAL_AND | operators::LOGICAL_OR
            );
            let sure = if is_condition { 1 } else { call.args.len() };
            let args = call.args.iter().take(sure);
            call.target.as_deref().into_iter().chain(args).for_each(below);
            if let (operators::INDEX, [map, key]) = (call.func_name.as_str(), call.args.as_slice())
                && let Expr::Map(map) = &map.expr
            {
                out.extend(lookup(map, key, locals));
            }
        }
        Expr::Select(select) => below(&select.operand),
        Expr::List(list) => list.elements.iter().for_each(below),
        Expr::Map(map) => values(&map.entries).for_each(below),
        Expr::Struct(object) => values(&object.entries).for_each(below),
        Expr::Comprehension(fold) => {
            below(&fold.iter_range);
            let around = locals.len();
            let item = |or_value: bool| {
                let (variable, mut path) = place(&fold.iter_range, locals)?;
                path.push(LookupStep::Item { or_value });
                Some((variable, path))
            };
            // One variable is a map's key or a list's item; of two the second is a value of either.
            let variables = match &fold.iter_var2 {
                None => vec![(fold.iter_var.clone(), item(false))],
                Some(second) => vec![(fold.iter_var.clone(), None), (second.clone(), item(true))],
            };
            locals.extend(variables);
            locals.push((fold.accu_var.clone(), None));
            collect(&fold.loop_step, locals, out);
            locals.truncate(around);
        }
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
    }
}

/// Returns the place that an expression names, if it is one.
fn place(expr: &IdedExpr, locals: &Locals) -> Option<KeyPath> {
    match &expr.expr {
        Expr::Ident(name) => match locals.iter().rev().find(|(local, _)| local == name) {
            Some((_, place)) => place.clone(),
            None => Some((name.clone(), Vec::new())),
        },
        Expr::Select(select) if !select.test => {
            let (variable, mut path) = place(&select.operand, locals)?;
            path.push(LookupStep::Field(select.field.clone()));
            Some((variable, path))
        }
        _ => None,
    }
}

fn values(entries: &[cel::common::ast::IdedEntryExpr]) -> impl Iterator<Item = &IdedExpr> {
    entries.iter().map(|entry| match &entry.expr {
        EntryExpr::MapEntry(entry) => &entry.value,
        EntryExpr::StructField(field) => &field.value,
    })
}

fn lookup(map: &MapExpr, key: &IdedExpr, locals: &Locals) -> Option<Lookup> {
    let text = |entry: &cel::common::ast::IdedEntryExpr| match &entry.expr {
        EntryExpr::MapEntry(entry) => match &entry.key.expr {
            Expr::Literal(LiteralValue::String(key)) if !entry.optional => Some(key.inner().to_owned()),
            _ => None,
        },
        EntryExpr::StructField(_) => None,
    };
    let (variable, path) = place(key, locals)?;
    Some(Lookup {
        variable,
        path,
        keys: map.entries.iter().map(text).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::LookupStep;
    use crate::Program;

    #[test]
    fn lookups_that_always_happen_are_found() {
        let found = |source: &str| {
            let program = Program::compile(source, &["self"]).map(|program| program.lookups().to_vec());
            let texts = program.into_iter().flatten().map(|lookup| {
                let path = lookup.path.iter().map(|step| match step {
                    LookupStep::Field(name) => format!(".{name}"),
                    LookupStep::Item { or_value: false } => "[]".to_owned(),
                    LookupStep::Item { or_value: true } => "[*]".to_owned(),
                });
                format!(
                    "{}{} in {}",
                    lookup.variable,
                    path.collect::<String>(),
                    lookup.keys.join(" ")
                )
            });
            texts.collect::<Vec<_>>().join("; ")
        };
        for (source, want) in [
            ("{'a': 1, 'b': 2}[self]", "self in a b"),
            ("{'a': 'x'}[self.spec.size] + 'y'", "self.spec.size in a"),
            ("{'k': {'a': 'x'}[self.size]}", "self.size in a"),
            ("[{'a': 'x'}[self]].map(x, x)", "self in a"),
            ("{'a': 1}[?self].orValue(2)", ""),
            ("self == 'b' ? 2 : {'a': 1}[self]", ""),
            ("self in ['a'] && {'a': true}[self]", ""),
            ("{'a': 1, self: 2}[self]", ""),
            ("{'a': 1}['a']", ""),
            ("self.l.map(x, {'a': 'b'}[x])", "self.l[] in a"),
            (
                "self.l.map(x, x.m.map(y, {'a': 1}[y.t] + {'b': 1}[x.u]))",
                "self.l[].m[].t in a; self.l[].u in b",
            ),
            ("self.l.filter(x, {'a': true}[x.t])", "self.l[].t in a"),
            ("self.l.map(x, x != 'b', {'a': 1}[x])", ""),
            ("[1].map(self, {'a': 1}[self])", ""),
            ("self.l.filter(x, x.ok).map(x, {'a': 1}[x.t])", ""),
        ] {
            assert_eq!(found(source), want, "{source}");
        }
    }
}
