//! Texts of what the branches of combinations restrict. Branches of one text refuse the same
//! values: to compare texts costs what the schemas are long, at any depth.

use crate::node::{Junctors, Limits, Node, Type};
use std::{collections::BTreeSet, fmt::Write as _};

/// Returns the texts of the branches of each combination of a node, without those that say no more
/// than the type int-or-string.
pub(super) fn combinations(node: &Node) -> [(&'static str, BTreeSet<String>); 4] {
    let texts = |nodes: &[Node]| nodes.iter().map(text).collect();
    let (all_of, any_of, one_of, not) = match node.junctors.as_deref() {
        Some(junctors) => {
            let Junctors {
                all_of,
                any_of,
                one_of,
                not,
            } = junctors;
            (&**all_of, &**any_of, &**one_of, not.as_slice())
        }
        None => Default::default(),
    };
    let is_spelled = |branches: &[Node]| node.int_or_string && is_integer_or_string(branches);
    let first = all_of.first().and_then(|first| first.junctors.as_deref());
    let all_of = match first.is_some_and(|first| is_spelled(&first.any_of)) {
        true => &all_of[1..],
        false => all_of,
    };
    let any_of = if is_spelled(any_of) { &[] } else { any_of };
    [
        ("allOf", texts(all_of)),
        ("anyOf", texts(any_of)),
        ("oneOf", texts(one_of)),
        ("not", texts(not)),
    ]
}

/// Returns true for the branches `{type: integer}` and `{type: string}`, in this order.
fn is_integer_or_string(branches: &[Node]) -> bool {
    let kinds = branches.iter().map(|branch| branch.kind);
    let is_bare = |branch: &Node| branch.limits.is_none() && branch.required.is_empty() && branch.junctors.is_none();
    kinds.eq([Some(Type::Integer), Some(Type::String)]) && branches.iter().all(is_bare)
}

fn text(node: &Node) -> String {
    let mut out = String::new();
    write(node, &mut out);
    out
}

/// Writes everything of a node by which it may refuse a value. Names all fields, so that one that
/// comes later is not forgotten.
fn write(node: &Node, out: &mut String) {
    let Node {
        kind,
        nullable,
        int_or_string,
        preserves_unknown,
        embedded,
        below: _,
        description: _,
        default: _,
        properties,
        items,
        additional,
        list_type,
        map_type: _,
        required,
        limits,
        junctors,
        rules,
    } = node;
    let flags = (kind, nullable, int_or_string, preserves_unknown, embedded, list_type);
    let rules: Vec<&str> = rules.iter().map(|rule| rule.source()).collect();
    let mut required = required.clone();
    required.sort_unstable();
    let limits = limits.as_deref().map(of_limits);
    // A text takes writes without a limit.
    let _ = write!(out, "{{{flags:?}{required:?}{limits:?}{rules:?}");
    for (name, node) in properties {
        let _ = write!(out, "{name:?}");
        write(node, out);
    }
    for (name, node) in [("items", items), ("additional", additional)] {
        if let Some(node) = node {
            out.push_str(name);
            write(node, out);
        }
    }
    let Junctors {
        all_of,
        any_of,
        one_of,
        not,
    } = match junctors.as_deref() {
        Some(junctors) => junctors,
        None => return out.push('}'),
    };
    let combinations = [
        ("allOf", &**all_of),
        ("anyOf", any_of),
        ("oneOf", one_of),
        ("not", not.as_slice()),
    ];
    for (name, nodes) in combinations {
        out.push_str(name);
        nodes.iter().for_each(|node| write(node, out));
    }
    out.push('}');
}

fn of_limits(limits: &Limits) -> String {
    let Limits {
        format,
        check: _,
        pattern,
        choices,
        minimum,
        maximum,
        exclusive_minimum,
        exclusive_maximum,
        multiple_of,
        min_length,
        max_length,
        min_items,
        max_items,
        min_properties,
        max_properties,
    } = limits;
    let pattern = pattern.as_ref().map(|pattern| pattern.source());
    let numbers = (minimum, exclusive_minimum, maximum, exclusive_maximum, multiple_of);
    let sizes = (
        min_length,
        max_length,
        min_items,
        max_items,
        min_properties,
        max_properties,
    );
    format!("{:?}", (format, pattern, choices, numbers, sizes))
}
