//! Texts of what the branches of combinations restrict. Branches of one text refuse the same
//! values: to compare texts costs what the schemas are long, at any depth.

use crate::node::{Junctors, Limits, Node, Type};
use std::{collections::BTreeSet, fmt::Write as _};

/// Returns the texts of the branches of each combination of a node, without those that say no more
/// than the type int-or-string.
pub(super) fn combinations(node: &Node) -> [(&'static str, BTreeSet<String>); 4] {
    let is_spelled = |branches: &[Node]| node.int_or_string && is_integer_or_string(branches);
    branches(node).map(|(name, branches)| {
        let first = branches.first().and_then(|first| first.junctors.as_deref());
        let left = match name {
            "allOf" if first.is_some_and(|first| is_spelled(&first.any_of)) => &branches[1..],
            "anyOf" if is_spelled(branches) => &[],
            _ => branches,
        };
        (name, left.iter().map(text).collect())
    })
}

/// Returns the branches of each combination of a node.
fn branches(node: &Node) -> [(&'static str, &[Node]); 4] {
    let (all_of, any_of, one_of, not) = match node.junctors.as_deref() {
        Some(Junctors {
            all_of,
            any_of,
            one_of,
            not,
        }) => (&**all_of, &**any_of, &**one_of, not.as_slice()),
        None => Default::default(),
    };
    [("allOf", all_of), ("anyOf", any_of), ("oneOf", one_of), ("not", not)]
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
        // All of them are `branches`.
        junctors: _,
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
    for (name, nodes) in branches(node) {
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
