//! Constant folding at compile time: lists and maps of constants, and conversions of constants
//! (`duration('1h')`). As in cel-go, folded parts cost nothing at run time, and one that always
//! fails is found when the program is compiled.

use crate::cost::Budget;
use crate::error::EvalError;
use crate::functions::{self, Context, Function};
use crate::ir::{FoldKind, Link, Node, Overloads, Step};
use crate::operator::Operator;
use crate::price;
use crate::value::{Const, Val};
use insula_meter::Meter;
use serde_json::{Map, Number, Value, json};

/// Cost units for folding one constant.
const COST_MAX: u64 = 100_000;

/// Replaces constant parts by their values. The error is that of the first part that always fails.
/// Recursion is as deep as the tree, which lowering bounds.
pub(crate) fn fold(node: &mut Node) -> Result<(), EvalError> {
    let mut failure = None;
    replace(node, &mut failure);
    failure.map_or(Ok(()), Err)
}

fn replace(node: &mut Node, failure: &mut Option<EvalError>) {
    children(node, &mut |child| replace(child, failure));
    match node {
        // `dyn()` only hides a type from the checker, which is done.
        Node::Call {
            function, arguments, ..
        } if function.name == "dyn" => {
            if let [argument] = &mut **arguments
                && price::is_constant(argument)
            {
                *node = std::mem::replace(argument, Node::Const(Const::Null));
            }
        }
        Node::Call {
            function, arguments, ..
        } if price::is_conversion(function.name) => {
            let value = match &**arguments {
                [Node::Const(argument)] => convert(function, argument),
                [list @ Node::List(_)] if price::is_constant(list) => convert(function, &json!([]).into()),
                [map @ Node::Map(_)] if price::is_constant(map) => convert(function, &json!({}).into()),
                _ => return,
            };
            match value {
                Ok(Some(constant)) => *node = Node::Const(constant),
                Ok(None) => {}
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        Node::And(terms) => logic(terms, false),
        Node::Or(terms) => logic(terms, true),
        Node::Conditional { arms, .. } => untaken(arms),
        Node::Chain { first, rest } => {
            // An empty list contains nothing, so the element is not evaluated.
            if let Some(at) = rest.iter().rposition(is_in_nothing) {
                **first = Node::Const(Const::Bool(false));
                *rest = std::mem::take(rest).into_vec().split_off(at + 1).into();
            }
        }
        _ => {
            if let Some(constant) = literal(node) {
                *node = Node::Const(constant);
            }
        }
    }
}

/// Removes terms that do not affect the result: constants have no price, so evaluating many of them
/// would be free work. The node keeps its kind, which a price may depend on.
fn logic(terms: &mut Box<[Node]>, decides: bool) {
    let mut kept = std::mem::take(terms).into_vec();
    if let Some(last) = kept.iter().position(|term| truth(term) == Some(decides)) {
        kept.truncate(last + 1);
    }
    kept.retain(|term| truth(term) != Some(!decides));
    *terms = kept.into();
}

/// Removes the arms of a conditional that are never taken.
fn untaken(arms: &mut Box<[(Node, Node)]>) {
    let mut kept = std::mem::take(arms).into_vec();
    kept.retain(|(condition, _)| truth(condition) != Some(false));
    *arms = kept.into();
}

/// Returns the constant truth value of a simplified node, if it has one.
fn truth(node: &Node) -> Option<bool> {
    match node {
        Node::Const(Const::Bool(b)) => Some(*b),
        Node::And(terms) | Node::Or(terms) => match &**terms {
            [] => Some(matches!(node, Node::And(_))),
            [term] => truth(term),
            _ => None,
        },
        Node::Conditional { arms, otherwise } => match &**arms {
            [] => truth(otherwise),
            [(condition, then), ..] if truth(condition) == Some(true) => truth(then),
            _ => None,
        },
        _ => None,
    }
}

fn is_in_nothing(link: &Link) -> bool {
    let empty = matches!(&link.operand, Node::Const(Const::Json(list)) if list.as_array().is_some_and(Vec::is_empty));
    empty && link.operator == Operator::In && link.overloads == Overloads::One
}

/// Folds a list or map of constants.
fn literal(node: &Node) -> Option<Const> {
    match node {
        Node::List(elements) => elements
            .iter()
            .map(|e| if e.optional { None } else { json(&e.node) })
            .collect::<Option<Vec<_>>>()
            .map(|items| Value::Array(items).into()),
        // The last value of a repeated key stays, as in cel-go, which refuses repeated keys only in
        // maps made at run time.
        Node::Map(entries) => entries
            .iter()
            .map(|e| match (&e.key, e.optional) {
                (Node::Const(Const::String(key)), false) => Some((key.to_string(), json(&e.value)?)),
                _ => None,
            })
            .collect::<Option<Map<_, _>>>()
            .map(|map| Value::Object(map).into()),
        _ => None,
    }
}

/// Folds a conversion of a constant; `None` if it has no constant form or is too expensive to fold.
fn convert(function: &Function, argument: &Const) -> Result<Option<Const>, EvalError> {
    let mut budget = Budget::new(COST_MAX, &Meter::unbounded());
    budget.begin();
    let arguments = [Val::from_const(argument)];
    match (function.call)(&mut Context::new(&mut budget, &[]), &arguments) {
        Ok(value) => Ok(scalar(value)),
        Err(error) if error.is_limit() => Ok(None),
        Err(EvalError::NoSuchOverload { .. }) => Err(functions::no_such_overload(function.name, &arguments)),
        Err(error) => Err(error),
    }
}

impl From<Value> for Const {
    fn from(value: Value) -> Self {
        Self::Json(Box::new(value))
    }
}

fn scalar(value: Val<'_>) -> Option<Const> {
    Some(match value {
        Val::Bool(b) => Const::Bool(b),
        Val::Int(i) => Const::Int(i),
        Val::Uint(u) => Const::Uint(u),
        Val::Double(d) => Const::Double(d),
        Val::Str(s) => Const::String(s.into()),
        Val::String(s) => Const::String((*s).into()),
        Val::Bytes(b) => Const::Bytes((*b).into()),
        Val::Timestamp(t) => Const::Timestamp(t),
        Val::Duration(d) => Const::Duration(d),
        Val::Type(name) => Const::Type(name),
        Val::Null => Const::Null,
        _ => return None,
    })
}

/// Writes a constant as the JSON that reads back as the same value.
fn json(node: &Node) -> Option<Value> {
    let Node::Const(constant) = node else { return None };
    Some(match constant {
        Const::Null => Value::Null,
        Const::Bool(b) => Value::Bool(*b),
        Const::Int(i) => Value::from(*i),
        Const::Double(d) => Value::Number(Number::from_f64(*d)?),
        Const::String(s) => Value::String(s.to_string()),
        Const::Json(value) => (**value).clone(),
        Const::Uint(_) | Const::Bytes(_) | Const::Type(_) | Const::Timestamp(_) | Const::Duration(_) => return None,
    })
}

/// Visits the direct children of a node.
fn children(node: &mut Node, visit: &mut dyn FnMut(&mut Node)) {
    match node {
        Node::Const(_) | Node::Variable(_) | Node::Local(_) => {}
        Node::Access { base, steps } => {
            visit(base);
            for step in steps.iter_mut() {
                if let Step::Index { index, .. } = step {
                    visit(index);
                }
            }
        }
        Node::Has { base: one, .. }
        | Node::Not(one)
        | Node::Negate(one)
        | Node::OptionalHasValue(one)
        | Node::Matches { target: one, .. } => visit(one),
        Node::And(nodes) | Node::Or(nodes) | Node::Call { arguments: nodes, .. } => nodes.iter_mut().for_each(visit),
        Node::Conditional { arms, otherwise } => {
            for (condition, then) in arms.iter_mut() {
                visit(condition);
                visit(then);
            }
            visit(otherwise);
        }
        Node::Chain { first, rest } => {
            visit(first);
            rest.iter_mut().for_each(|link| visit(&mut link.operand));
        }
        Node::List(elements) => elements.iter_mut().for_each(|e| visit(&mut e.node)),
        Node::Map(entries) | Node::Object(entries) => {
            for entry in entries.iter_mut() {
                visit(&mut entry.key);
                visit(&mut entry.value);
            }
        }
        Node::Fold(fold) => {
            visit(&mut fold.range);
            match &mut fold.kind {
                FoldKind::All(body) | FoldKind::Exists(body) | FoldKind::ExistsOne(body) => visit(body),
                FoldKind::Accumulate { init, step } => [init, step].into_iter().for_each(visit),
                FoldKind::List { condition, transform } => condition.iter_mut().chain(transform).for_each(visit),
                FoldKind::MapValues { condition, transform } | FoldKind::MapEntries { condition, transform } => {
                    condition.iter_mut().for_each(&mut *visit);
                    visit(transform);
                }
            }
        }
        Node::Bind { init: one, body: two }
        | Node::OptionalMap {
            target: one, body: two, ..
        }
        | Node::OptionalOr {
            target: one,
            alternative: two,
            ..
        } => {
            visit(one);
            visit(two);
        }
    }
}
