//! What does not depend on variables is worked out once, when a program is compiled: lists and maps of constants,
//! and conversions of constants (`duration('1h')`). cel-go does the same, so they cost nothing when it runs.

use crate::cost::Budget;
use crate::functions::Context;
use crate::ir::{Const, FoldKind, Node, Step};
use crate::value::Val;
use serde_json::{Map, Number, Value};

/// Functions of one argument that cel-go applies to constants beforehand.
const CONVERSIONS: [&str; 10] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "string",
    "timestamp",
    "type",
    "uint",
];
/// Units that working out one constant may cost.
const COST_MAX: u64 = 100_000;

/// Replaces what is constant by its value. As deep as the tree, which lowering bounds.
pub(crate) fn fold(node: &mut Node) {
    children(node, &mut fold);
    let constant = match node {
        Node::List(elements) => elements
            .iter()
            .map(|e| if e.optional { None } else { json(&e.node) })
            .collect::<Option<Vec<_>>>()
            .map(|items| Const::Json(Box::new(Value::Array(items)))),
        Node::Map(entries) => entries
            .iter()
            .map(|e| match (&e.key, e.optional) {
                (Node::Const(Const::String(key)), false) => Some((key.to_string(), json(&e.value)?)),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .and_then(|pairs| {
                let count = pairs.len();
                let map: Map<String, Value> = pairs.into_iter().collect();
                // A repeated key is an error when it runs.
                (map.len() == count).then(|| Const::Json(Box::new(Value::Object(map))))
            }),
        Node::Call { function, arguments } if CONVERSIONS.contains(&function.name) => match &**arguments {
            [Node::Const(argument)] => {
                let mut budget = Budget::new(COST_MAX);
                budget.begin();
                let value = (function.call)(&mut Context::new(&mut budget), &[Val::from_const(argument)]);
                match function.name {
                    "dyn" => Some(argument.clone()),
                    _ => value.ok().and_then(scalar),
                }
            }
            _ => None,
        },
        _ => None,
    };
    if let Some(constant) = constant {
        *node = Node::Const(constant);
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

/// A constant as the JSON that reads back as the same value.
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

/// Every node right below one.
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
            rest.iter_mut().for_each(|(_, node)| visit(node));
        }
        Node::List(elements) => elements.iter_mut().for_each(|e| visit(&mut e.node)),
        Node::Map(entries) => {
            for entry in entries.iter_mut() {
                visit(&mut entry.key);
                visit(&mut entry.value);
            }
        }
        Node::Fold(fold) => {
            visit(&mut fold.range);
            match &mut fold.kind {
                FoldKind::All(body) | FoldKind::Exists(body) | FoldKind::ExistsOne(body) => visit(body),
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
