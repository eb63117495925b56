//! Look-ups in map literals: `{'Small': 's', 'Large': 'l'}[self.size]`. A caller that knows the
//! values of the key finds those for which the map has no entry.

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, MapExpr, operators};

/// A look-up of a field's value in a map literal, evaluated whenever the expression is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// Name of the variable that holds the key.
    pub variable: String,
    /// Names of the fields that lead to the key, as they are written.
    pub path: Vec<String>,
    /// The keys of the map.
    pub keys: Vec<String>,
}

/// Collects the look-ups of an expression. Those behind a condition are left out, because it may
/// exclude values, and so are optional ones, which provide for a missing entry.
pub(crate) fn lookups(expr: &IdedExpr, out: &mut Vec<Lookup>) {
    match &expr.expr {
        Expr::Call(call) => {
            if let (operators::INDEX, [map, key]) = (call.func_name.as_str(), call.args.as_slice())
                && let Expr::Map(map) = &map.expr
            {
                out.extend(lookup(map, key));
            }
            let is_condition = matches!(
                call.func_name.as_str(),
                operators::CONDITIONAL | operators::LOGICAL_AND | operators::LOGICAL_OR
            );
            let sure = if is_condition { 1 } else { call.args.len() };
            let args = call.args.iter().take(sure);
            call.target
                .as_deref()
                .into_iter()
                .chain(args)
                .for_each(|arg| lookups(arg, out));
        }
        Expr::Select(select) => lookups(&select.operand, out),
        Expr::List(list) => list.elements.iter().for_each(|item| lookups(item, out)),
        Expr::Map(map) => values(&map.entries).for_each(|value| lookups(value, out)),
        Expr::Struct(object) => values(&object.entries).for_each(|value| lookups(value, out)),
        Expr::Comprehension(fold) => lookups(&fold.iter_range, out),
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
    }
}

fn values(entries: &[cel::common::ast::IdedEntryExpr]) -> impl Iterator<Item = &IdedExpr> {
    entries.iter().map(|entry| match &entry.expr {
        EntryExpr::MapEntry(entry) => &entry.value,
        EntryExpr::StructField(field) => &field.value,
    })
}

fn lookup(map: &MapExpr, key: &IdedExpr) -> Option<Lookup> {
    let text = |entry: &cel::common::ast::IdedEntryExpr| match &entry.expr {
        EntryExpr::MapEntry(entry) => match &entry.key.expr {
            Expr::Literal(LiteralValue::String(key)) if !entry.optional => Some(key.inner().to_owned()),
            _ => None,
        },
        EntryExpr::StructField(_) => None,
    };
    let mut path = Vec::new();
    let mut from = key;
    while let Expr::Select(select) = &from.expr {
        if select.test {
            return None;
        }
        path.insert(0, select.field.clone());
        from = &select.operand;
    }
    let Expr::Ident(variable) = &from.expr else { return None };
    Some(Lookup {
        variable: variable.clone(),
        path,
        keys: map.entries.iter().map(text).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use crate::Program;

    #[test]
    fn lookups_that_always_happen_are_found() {
        let found = |source: &str| {
            let program = Program::compile(source, &["self"]).map(|program| program.lookups().to_vec());
            let texts = program.into_iter().flatten().map(|lookup| {
                let path = std::iter::once(&lookup.variable).chain(&lookup.path).cloned();
                format!("{} in {}", path.collect::<Vec<_>>().join("."), lookup.keys.join(" "))
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
        ] {
            assert_eq!(found(source), want, "{source}");
        }
    }
}
