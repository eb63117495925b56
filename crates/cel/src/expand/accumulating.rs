//! Macros that only conversion rules have: `fold` over a list or map with an accumulator, and `zip`
//! over two lists in step.
//!
//! `list.fold(sum, x, 0, sum + x)` and `map.fold(sum, key, value, 0, sum + value)` start with an
//! initial value; each round's result is the accumulator of the next, the last one the result.
//! `names.zip(ports, name, port, {'name': name, 'port': port})` makes a list as long as the shorter
//! one.

use super::{Expansion, Helper, fail};
use crate::nodes::{Make, Variables};
use cel::common::ast::{ComprehensionExpr, Expr, IdedExpr, ListExpr, operators};
use cel::parser::Macro;

/// Variable that `zip` binds the second list to.
pub(crate) const ZIPPED: &str = "@__zip_other__";
/// Variable of the index in both lists of `zip`.
pub(crate) const ZIP_INDEX: &str = "@__zip_index__";

const NO_NAME: &str = "argument must be a simple name";

pub(super) fn macros() -> Vec<Macro> {
    vec![
        Macro::receiver("fold", 4, fold),
        Macro::receiver("fold", 5, fold),
        Macro::receiver("zip", 4, zip),
    ]
}

/// Expands `fold(accumulator, x, init, step)` and `fold(accumulator, key, value, init, step)`.
fn fold(helper: Helper<'_, '_>, target: &mut Option<IdedExpr>, args: &mut Vec<IdedExpr>) -> Expansion {
    let (Some(range), Some(step), Some(init)) = (target.take(), args.pop(), args.pop()) else {
        return Ok(None);
    };
    let Some((accumulator, variables)) = args.split_first() else {
        return Ok(None);
    };
    let name = Variables::read(std::slice::from_ref(accumulator), NO_NAME)?.first;
    let variables = Variables::read(variables, NO_NAME)?;
    if variables.first == name || variables.second.as_ref() == Some(&name) {
        return Err(fail(accumulator, &format!("duplicate variable name: {name}")));
    }
    let mut make = Make(helper);
    let fold = ComprehensionExpr {
        iter_range: range,
        iter_var: variables.first,
        iter_var2: variables.second,
        accu_init: init,
        loop_cond: make.bool(true),
        loop_step: step,
        result: make.ident(&name),
        accu_var: name,
    };
    Ok(Some(make.comprehension(fold)))
}

/// Expands `one.zip(other, x, y, f)`: binds the other list, and maps the first one with its
/// indices, as far as the other reaches.
fn zip(helper: Helper<'_, '_>, target: &mut Option<IdedExpr>, args: &mut Vec<IdedExpr>) -> Expansion {
    let (Some(one), Some(body)) = (target.take(), args.pop()) else {
        return Ok(None);
    };
    let variables = Variables::read(args.get(1..).unwrap_or_default(), NO_NAME)?;
    let (Some(of_other), Some(other)) = (variables.second, args.drain(..).next()) else {
        return Ok(None);
    };
    let mut make = Make(helper);
    let indexed = vec![make.ident(ZIPPED), make.ident(ZIP_INDEX)];
    let item = make.call(operators::INDEX, indexed);
    let body = make.bind(of_other, item, body);
    let step = make.append(body);
    let other_size = make.ident(ZIPPED);
    let compared = vec![make.ident(ZIP_INDEX), make.member("size", other_size, Vec::new())];
    let reaches = make.call(operators::LESS, compared);
    let loop_variables = Variables {
        first: ZIP_INDEX.to_owned(),
        second: Some(variables.first),
    };
    let list = make.collect(
        one,
        loop_variables,
        Some(reaches),
        step,
        Expr::List(ListExpr::default()),
    );
    Ok(Some(make.bind(ZIPPED.to_owned(), other, list)))
}
