//! Macro expansion during parsing, to the trees that cel-go makes. The parser's own macros lack
//! those over two variables, of optional values and of sorting, and report some mistakes with other
//! messages.

use crate::nodes::{ACCUMULATOR, Make, Parts, UNUSED, Variables, each};
use cel::common::ast::{Expr, IdedExpr, ListExpr, MapExpr, operators};
use cel::parser::{Macro, MacroExprHelper};
use cel::{Env, ParseError};
use std::sync::LazyLock;

mod accumulating;

pub(crate) use accumulating::{ZIP_INDEX, ZIPPED};

/// The accumulator's name in older versions, which stays reserved.
const OLD_ACCUMULATOR: &str = "__result__";
/// Variable that `sortBy` binds the list to.
const SORT_INPUT: &str = "@__sortBy_input__";
/// Function that `sortBy` calls with the list and its keys.
pub(crate) const SORT: &str = "@sortByAssociatedKeys";
/// Function with which `transformMap` and `transformMapEntry` add to the result.
pub(crate) const MAP_INSERT: &str = "cel.@mapInsert";

/// Nodes of `optMap`'s target, which the expansion repeats: each of several nested calls doubles
/// the tree.
const COPIED_NODES_MAX: usize = 1_000;

type Helper<'a, 'b> = &'a mut MacroExprHelper<'b>;
type Expansion = Result<Option<IdedExpr>, ParseError>;

/// Returns the environment that makes parsers: it has the macros and nothing else. Only conversion
/// rules have those of [`accumulating`].
pub(crate) fn environment(conversion: bool) -> &'static Env {
    static COMMON: LazyLock<Env> = LazyLock::new(|| with(macros()));
    static CONVERSION: LazyLock<Env> = LazyLock::new(|| with(macros().into_iter().chain(accumulating::macros())));
    if conversion { &CONVERSION } else { &COMMON }
}

fn with(macros: impl IntoIterator<Item = Macro>) -> Env {
    let mut env = Env::default();
    for expansion in macros {
        // Fails for a macro that is added twice; the tests of each macro would show that.
        let added = env.add_macro(expansion);
        debug_assert!(added.is_ok(), "{added:?}");
    }
    env
}

fn macros() -> Vec<Macro> {
    let mut macros = vec![
        Macro::global("has", 1, |helper, _, args| has(helper, args)),
        Macro::receiver("map", 2, map),
        Macro::receiver("map", 3, map),
        Macro::receiver("filter", 2, filter),
        Macro::receiver("optMap", 2, |helper, target, args| {
            optional(helper, target, args, false)
        }),
        Macro::receiver("optFlatMap", 2, |helper, target, args| {
            optional(helper, target, args, true)
        }),
        Macro::receiver("sortBy", 2, sort_by),
    ];
    for (name, quantifier) in [
        ("all", Quantifier::All),
        ("exists", Quantifier::Exists),
        ("exists_one", Quantifier::One),
        ("existsOne", Quantifier::One),
    ] {
        // Only the newer macros have the newer spelling.
        if name != "existsOne" {
            macros.push(Macro::receiver(name, 2, move |helper, target, args| {
                quantify(helper, target, args, quantifier)
            }));
        }
        macros.push(Macro::receiver(name, 3, move |helper, target, args| {
            quantify(helper, target, args, quantifier)
        }));
    }
    for (name, transform) in [
        ("transformList", Transform::List),
        ("transformMap", Transform::Values),
        ("transformMapEntry", Transform::Entries),
    ] {
        for arguments in [3, 4] {
            macros.push(Macro::receiver(name, arguments, move |helper, target, args| {
                transforming(helper, target, args, transform)
            }));
        }
    }
    macros
}

/// Returns the node at fault in an error of an expansion.
///
/// The parser's own error positions count bytes where columns count characters, so the position
/// carries the node's id instead; a line below zero marks it.
pub(crate) fn failed_node(error: &ParseError) -> Option<u64> {
    (error.pos.0 == FAILED_NODE)
        .then(|| u64::try_from(error.pos.1).ok())
        .flatten()
}

const FAILED_NODE: isize = -1;

fn fail(node: &IdedExpr, message: &str) -> ParseError {
    ParseError {
        source: None,
        pos: (FAILED_NODE, isize::try_from(node.id).unwrap_or_default()),
        msg: message.to_owned(),
        expr_id: node.id,
        source_info: None,
    }
}

#[derive(Clone, Copy)]
enum Quantifier {
    All,
    Exists,
    One,
}

#[derive(Clone, Copy)]
enum Transform {
    List,
    Values,
    Entries,
}

fn has(helper: Helper<'_, '_>, args: &mut Vec<IdedExpr>) -> Expansion {
    match args.pop() {
        Some(IdedExpr {
            expr: Expr::Select(mut select),
            ..
        }) => {
            select.test = true;
            Ok(Some(helper.next_expr(Expr::Select(select))))
        }
        Some(other) => Err(fail(&other, "invalid argument to has() macro")),
        None => Ok(None),
    }
}

fn quantify(
    helper: Helper<'_, '_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
    quantifier: Quantifier,
) -> Expansion {
    let (Some(range), Some(predicate)) = (target.take(), args.pop()) else {
        return Ok(None);
    };
    let variables = Variables::read(args, "argument must be a simple name")?;
    let mut make = Make(helper);
    let accumulator = make.accumulator();
    let fold = match quantifier {
        Quantifier::All => Parts {
            init: make.bool(true),
            condition: make.call(operators::NOT_STRICTLY_FALSE, vec![accumulator]),
            step: {
                let args = vec![make.accumulator(), predicate];
                make.call(operators::LOGICAL_AND, args)
            },
            result: make.accumulator(),
        },
        Quantifier::Exists => Parts {
            init: make.bool(false),
            condition: {
                let not = make.call(operators::LOGICAL_NOT, vec![accumulator]);
                make.call(operators::NOT_STRICTLY_FALSE, vec![not])
            },
            step: {
                let args = vec![make.accumulator(), predicate];
                make.call(operators::LOGICAL_OR, args)
            },
            result: make.accumulator(),
        },
        Quantifier::One => Parts {
            init: make.int(0),
            condition: make.bool(true),
            step: {
                let more = vec![make.accumulator(), make.int(1)];
                let more = make.call(operators::ADD, more);
                make.call(operators::CONDITIONAL, vec![predicate, more, accumulator])
            },
            result: {
                let args = vec![make.accumulator(), make.int(1)];
                make.call(operators::EQUALS, args)
            },
        },
    };
    Ok(Some(make.fold(range, variables, fold)))
}

/// Expands `map(v, f)` and `map(v, p, f)`.
fn map(helper: Helper<'_, '_>, target: &mut Option<IdedExpr>, args: &mut Vec<IdedExpr>) -> Expansion {
    let (Some(range), Some(item)) = (target.take(), args.pop()) else {
        return Ok(None);
    };
    let condition = if args.len() > 1 { args.pop() } else { None };
    let variables = Variables::read(args, "argument is not an identifier")?;
    let mut make = Make(helper);
    let step = make.append(item);
    Ok(Some(make.collect(
        range,
        variables,
        condition,
        step,
        Expr::List(ListExpr::default()),
    )))
}

fn filter(helper: Helper<'_, '_>, target: &mut Option<IdedExpr>, args: &mut Vec<IdedExpr>) -> Expansion {
    let (Some(range), Some(condition)) = (target.take(), args.pop()) else {
        return Ok(None);
    };
    let variables = Variables::read(args, "argument is not an identifier")?;
    let Some(variable) = args.pop() else { return Ok(None) };
    let mut make = Make(helper);
    let step = make.append(variable);
    let empty = Expr::List(ListExpr::default());
    Ok(Some(make.collect(range, variables, Some(condition), step, empty)))
}

/// Expands `transformList`, `transformMap` and `transformMapEntry`, with or without a condition
/// before the last argument.
fn transforming(
    helper: Helper<'_, '_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
    transform: Transform,
) -> Expansion {
    let (Some(range), Some(item)) = (target.take(), args.pop()) else {
        return Ok(None);
    };
    let condition = if args.len() > 2 { args.pop() } else { None };
    let variables = Variables::read(args, "argument must be a simple name")?;
    let mut make = Make(helper);
    let (step, empty) = match transform {
        Transform::List => (make.append(item), Expr::List(ListExpr::default())),
        Transform::Values => {
            let key = make.ident(&variables.first);
            let args = vec![make.accumulator(), key, item];
            (make.call(MAP_INSERT, args), Expr::Map(MapExpr::default()))
        }
        Transform::Entries => {
            let args = vec![make.accumulator(), item];
            (make.call(MAP_INSERT, args), Expr::Map(MapExpr::default()))
        }
    };
    Ok(Some(make.collect(range, variables, condition, step, empty)))
}

/// Expands `target.optMap(x, body)` to `target.hasValue() ? optional.of(x = target.value(); body) :
/// optional.none()`.
fn optional(helper: Helper<'_, '_>, target: &mut Option<IdedExpr>, args: &mut Vec<IdedExpr>, flat: bool) -> Expansion {
    let (Some(target), Some(body), Some(variable)) = (target.take(), args.pop(), args.pop()) else {
        return Ok(None);
    };
    let Expr::Ident(name) = variable.expr else {
        let message = if flat {
            "optFlatMap() variable name must be a simple identifier"
        } else {
            "optMap() variable name must be a simple identifier"
        };
        return Err(fail(&variable, message));
    };
    let mut nodes = 0;
    each(&target, &mut |_| nodes += 1);
    if nodes > COPIED_NODES_MAX {
        return Err(fail(&target, "expression too large to be the target of a macro"));
    }
    let mut make = Make(helper);
    // Both occurrences of the target share their node ids, so that facts about one hold for the
    // other.
    let tested = make.member("hasValue", target.clone(), Vec::new());
    let value = make.member("value", target, Vec::new());
    let bound = make.bind(name, value, body);
    let some = if flat {
        bound
    } else {
        make.call("optional.of", vec![bound])
    };
    let none = make.call("optional.none", Vec::new());
    Ok(Some(make.call(operators::CONDITIONAL, vec![tested, some, none])))
}

/// Expands `target.sortBy(x, key)`: binds the target, maps it to its keys, and sorts the target by
/// the keys.
fn sort_by(helper: Helper<'_, '_>, target: &mut Option<IdedExpr>, args: &mut Vec<IdedExpr>) -> Expansion {
    let Some(list) = target.take() else { return Ok(None) };
    if !matches!(
        list.expr,
        Expr::List(_) | Expr::Select(_) | Expr::Ident(_) | Expr::Comprehension(_) | Expr::Call(_)
    ) {
        let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err(fail(&list, message));
    }
    let mut input = Some(Make(helper).ident(SORT_INPUT));
    let Some(keys) = map(helper, &mut input, args)? else {
        return Ok(None);
    };
    let mut make = Make(helper);
    let input = make.ident(SORT_INPUT);
    let sorted = make.member(SORT, input, vec![keys]);
    Ok(Some(make.bind(SORT_INPUT.to_owned(), list, sorted)))
}

impl Variables {
    /// Reads the one or two variables at the beginning of `args`.
    fn read(args: &[IdedExpr], not_a_name: &str) -> Result<Variables, ParseError> {
        let name = |node: &IdedExpr| match &node.expr {
            Expr::Ident(name) => Ok(name.clone()),
            _ => Err(fail(node, not_a_name)),
        };
        let (one, two) = match args {
            [one, two, ..] => (one, Some(two)),
            [one] => (one, None),
            [] => {
                return Ok(Variables {
                    first: UNUSED.to_owned(),
                    second: None,
                });
            }
        };
        let first = name(one)?;
        let second = two.map(name).transpose()?;
        if let Some(two) = two
            && second.as_ref() == Some(&first)
        {
            return Err(fail(two, &format!("duplicate variable name: {first}")));
        }
        for (node, name) in [(Some(one), Some(&first)), (two, second.as_ref())] {
            if let (Some(node), Some(name)) = (node, name)
                && [ACCUMULATOR, OLD_ACCUMULATOR].contains(&name.as_str())
            {
                return Err(fail(node, "iteration variable overwrites accumulator variable"));
            }
        }
        Ok(Variables { first, second })
    }
}
