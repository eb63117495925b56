//! Lints of schemas: missing declarations that would help users, rules or conversions.
//!
//! Each finding names the declaration to add.

use crate::declare::{ObjectRole, declaration, occurrences};
use crate::diff::step;
use crate::node::{ListType, Node, Type};
use crate::rules::{RULE_COST_MAX, factor};
use std::fmt;

/// Divisor of the cost limit: rules that may cost more than this part are reported.
const NEAR_LIMIT: u64 = 2;

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lint {
    /// Path of the node: `.spec.colors[].name`.
    pub path: String,
    /// Kind of the finding.
    pub kind: LintKind,
    /// The consequence, and the remedy.
    pub message: String,
}

/// Kinds of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LintKind {
    /// A rule runs over values without a bound.
    Unbounded,
    /// A rule may cost a large part of the limit.
    Cost,
    /// Items of a list have no keys.
    ListKeys,
    /// A required field that objects of another version lack.
    DefaultMissing,
    /// Expressions see a value of type `dyn`.
    IntOrString,
    /// Unknown fields are kept.
    PreserveUnknown,
}

impl LintKind {
    /// Returns true for findings worth a change in most schemas; the others are for information.
    pub fn warns(self) -> bool {
        match self {
            LintKind::Unbounded | LintKind::Cost | LintKind::DefaultMissing => true,
            LintKind::ListKeys | LintKind::IntOrString | LintKind::PreserveUnknown => false,
        }
    }
}

impl fmt::Display for LintKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LintKind::Unbounded => "unbounded",
            LintKind::Cost => "cost",
            LintKind::ListKeys => "list-keys",
            LintKind::DefaultMissing => "default-missing",
            LintKind::IntOrString => "int-or-string",
            LintKind::PreserveUnknown => "preserve-unknown",
        })
    }
}

/// Returns all findings of one schema, in order of path.
pub fn lint(root: &Node) -> Vec<Lint> {
    let mut linter = Linter { lints: Vec::new() };
    let context = NodeContext {
        most: Some(1),
        stands: ObjectRole::AsObject,
    };
    linter.node(root, "", context, &[]);
    linter.lints
}

/// Returns the required fields of `to` that objects written through `from` lack: `from` does not
/// declare them, and they have no default.
pub fn lint_between(from: &Node, to: &Node) -> Vec<Lint> {
    let mut lints = Vec::new();
    missing(from, to, "", &mut lints);
    lints
}

#[derive(Clone, Copy)]
struct NodeContext {
    /// Most values of one object at this node; `None` without a bound.
    most: Option<u64>,
    stands: ObjectRole,
}

struct Linter {
    lints: Vec<Lint>,
}

impl Linter {
    fn note(&mut self, path: &str, kind: LintKind, message: String) {
        self.lints.push(Lint {
            path: if path.is_empty() { "." } else { path }.to_owned(),
            kind,
            message,
        });
    }

    fn node(&mut self, node: &Node, path: &str, context: NodeContext, read: &[&[String]]) {
        self.costs(node, path, context);
        let own = node.rules().iter().flat_map(|rule| rule.reads());
        let read: Vec<&[String]> = read.iter().copied().chain(own).collect();
        if read.iter().any(|rest| rest.is_empty()) {
            self.bounds(node, path);
        }
        let of_objects = node.items().is_some_and(|items| items.kind() == Some(Type::Object));
        if of_objects && *node.list_type() == ListType::Atomic {
            let why = "items have no keys: who applies one item replaces all of them, and conversion tells them \
                       apart by what they hold; x-kubernetes-list-type: map with x-kubernetes-list-map-keys";
            self.note(path, LintKind::ListKeys, why.to_owned());
        }
        if node.int_or_string() {
            let why = "expressions see a value of any type here; one type, with a pattern for a text, can be checked";
            self.note(path, LintKind::IntOrString, why.to_owned());
        }
        if node.preserves_unknown() && !node.embedded() {
            let why = "whatever is sent is kept: mistyped fields are not found, and no conversion can look inside";
            self.note(path, LintKind::PreserveUnknown, why.to_owned());
        }
        let most = context
            .most
            .zip(factor(node))
            .map(|(most, times)| most.saturating_mul(times));
        let child_context = |child: &Node| NodeContext {
            most,
            stands: ObjectRole::for_node(child),
        };
        for (name, child) in node.properties() {
            if !(path.is_empty() && matches!(name, "apiVersion" | "kind" | "metadata")) {
                let read = below(&read, |step| step == name);
                self.node(child, &format!("{path}{}", step(name)), child_context(child), &read);
            }
        }
        if let Some(child) = node.items().or_else(|| node.additional()) {
            let read = below(&read, |_| true);
            self.node(child, &format!("{path}[]"), child_context(child), &read);
        }
    }

    fn bounds(&mut self, node: &Node, path: &str) {
        let (what, bound, has) = match node.kind() {
            Some(Type::Array) => ("list", "maxItems", node.max_items().is_some()),
            Some(Type::Object) if node.additional().is_some() => {
                ("map", "maxProperties", node.max_properties().is_some())
            }
            Some(Type::String) => {
                let known = node.max_length().is_some() || node.format().is_some() || !node.choices().is_empty();
                ("text", "maxLength", known)
            }
            _ => return,
        };
        if !has {
            let why =
                format!("a rule reads this {what}, and nothing bounds it: {bound} makes the rule cheaper by estimate");
            self.note(path, LintKind::Unbounded, why);
        }
    }

    fn costs(&mut self, node: &Node, path: &str, context: NodeContext) {
        if node.rules().is_empty() {
            return;
        }
        let times = context.most.unwrap_or_else(|| {
            let decl = declaration(node, context.stands, "object");
            decl.as_ref().map_or(u64::MAX, occurrences)
        });
        for rule in node.rules() {
            let Some(cost) = rule.estimate() else { continue };
            let cost = cost.saturating_mul(times);
            if cost > RULE_COST_MAX / NEAR_LIMIT {
                let share = cost.saturating_mul(100) / RULE_COST_MAX;
                let why = format!(
                    "rule {} may cost {share}% of what one rule may: bound what it reads",
                    rule.source()
                );
                self.note(path, LintKind::Cost, why);
            }
        }
    }
}

/// Returns the read paths that go through a child, relative to it.
fn below<'r>(read: &[&'r [String]], here: impl Fn(&str) -> bool) -> Vec<&'r [String]> {
    let step = |rest: &&'r [String]| match rest.split_first() {
        None => Some(*rest),
        Some((first, rest)) => here(first).then_some(rest),
    };
    read.iter().filter_map(step).collect()
}

fn missing(from: &Node, to: &Node, path: &str, lints: &mut Vec<Lint>) {
    let is_required = |name: &str| to.required().iter().any(|required| required == name);
    for (name, child) in to.properties() {
        if path.is_empty() && matches!(name, "apiVersion" | "kind" | "metadata") {
            continue;
        }
        let at = format!("{path}{}", step(name));
        match from.child(name) {
            Some(other) => missing(other, child, &at, lints),
            None if from.preserves_unknown() => {}
            None if child.default().is_none() && is_required(name) => lints.push(Lint {
                path: at,
                kind: LintKind::DefaultMissing,
                message: "is required, and objects of the other version have no such field: a default, or a rule that \
                          writes it"
                    .to_owned(),
            }),
            None => {}
        }
    }
    if let (Some(from), Some(to)) = (from.items(), to.items()) {
        missing(from, to, &format!("{path}[]"), lints);
    }
    if let (Some(from), Some(to)) = (from.additional(), to.additional()) {
        missing(from, to, &format!("{path}[]"), lints);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Structural;
    use insula_api::Json;
    use serde_json::json;

    fn parse(schema: &Json) -> Structural {
        Structural::parse_trusted(schema).unwrap()
    }

    fn lines(lints: &[Lint]) -> Vec<String> {
        lints
            .iter()
            .map(|lint| format!("{} {}", lint.path, lint.kind))
            .collect()
    }

    #[test]
    fn what_a_rule_reads_is_bounded() {
        let text = json!({"type": "string"});
        let schema = |list: Json| {
            json!({"type": "object", "properties": {
                "free": {"type": "array", "items": text},
                "spec": {"type": "object", "properties": {"names": list, "short": {"type": "string", "maxLength": 5},
                    "unread": {"type": "string"}},
                    "x-kubernetes-validations": [{"rule": "self.names.all(n, n != self.short)"}]}}})
        };
        let unbounded = lint(parse(&schema(json!({"type": "array", "items": text}))).root());
        assert_eq!(
            lines(&unbounded),
            [".spec cost", ".spec.names unbounded", ".spec.names[] unbounded"]
        );
        let bounded = json!({"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5}});
        assert!(lint(parse(&schema(bounded)).root()).is_empty());
    }

    #[test]
    fn loose_places_are_named() {
        let schema = json!({"type": "object", "properties": {
            "port": {"x-kubernetes-int-or-string": true},
            "rest": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "l": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "string"}}}},
            "m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}}},
        }});
        let found = lint(parse(&schema).root());
        assert_eq!(
            lines(&found),
            [".l list-keys", ".port int-or-string", ".rest preserve-unknown"]
        );
        assert!(found.iter().all(|lint| !lint.kind.warns()));
    }

    #[test]
    fn required_fields_of_one_version_alone_need_a_default() {
        let version = |fields: Json, required: Json| {
            parse(
                &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields,
                    "required": required}}}),
            )
        };
        let old = version(json!({"a": {"type": "string"}}), json!(["a"]));
        let fields = json!({"a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "string", "default": "x"}});
        let new = version(fields, json!(["a", "b", "c"]));
        assert_eq!(
            lines(&lint_between(old.root(), new.root())),
            [".spec.b default-missing"]
        );
        assert!(lint_between(new.root(), old.root()).is_empty());
    }
}
