//! Fields that two versions carry: both declare the path with one type, and no rule between them
//! moves or writes it. Such a field reads the same in both.
//!
//! Derived from schemas and rules, and on purpose not from compiled plans: the search for
//! counterexamples compares plans with it.

use crate::passthrough::{Kind, known_kind};
use crate::path::{Path, Segment, covers};
use crate::rules::{Direction, Rule, RuleAt, Source};
use insula_api::FieldPath;
use insula_schema::Node;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// Paths that rules between two versions move or write, in either direction, and paths that either
/// version may lose.
#[derive(Debug, Default)]
pub(crate) struct Claims(Vec<Path>);

impl Claims {
    /// Collects the claims of all directions between versions `a` and `b`, and what either drops.
    pub(crate) fn between(a: &str, b: &str, directions: &[Direction]) -> Claims {
        let mut claims = Claims::of_rules(a, b, directions);
        for version in [a, b] {
            claims.0.extend(Claims::dropped(version, directions).0);
        }
        claims
    }

    /// Collects what a version drops: it loses such a path in every direction.
    pub(crate) fn dropped(version: &str, directions: &[Direction]) -> Claims {
        let own = directions.iter().filter(|direction| direction.from == version);
        Claims(own.flat_map(|direction| direction.drop.iter().cloned()).collect())
    }

    /// Collects the claims of the rules between versions `a` and `b`.
    pub(crate) fn of_rules(a: &str, b: &str, directions: &[Direction]) -> Claims {
        let mut claims = Claims::default();
        for direction in directions {
            let pair = (direction.from.as_str(), direction.to.as_str());
            if pair == (a, b) || pair == (b, a) {
                for rule in &direction.rules {
                    claims.rule(rule, &[], source(rule), rule.destination.segments());
                }
            }
        }
        claims
    }

    /// Collects the claims between `a` and `b`, of their own rules and of those that lead from one
    /// over the hub to the other.
    pub(crate) fn of_pair(a: &str, b: &str, hub: &str, directions: &[Direction]) -> Claims {
        let mut claims = Claims::between(a, b, directions);
        if [a, b].contains(&hub) {
            return claims;
        }
        let common = ListRules::common([a, b], hub, directions);
        for version in [a, b] {
            let by_hub = Claims::between(version, hub, directions).0.into_iter();
            claims.0.extend(by_hub.filter(|path| !common.contains(path.segments())));
        }
        claims
    }

    /// Adds what a rule claims below `items`, a path common to both sides. Rules over the items of
    /// a list or map that fill the same list or map claim paths inside of the items.
    fn rule(&mut self, rule: &Rule, items: &[Segment], read: &[Segment], destination: &[Segment]) {
        let (from, from_rest) = split(read);
        let (to, to_rest) = split(destination);
        let by_items = !rule.item_rules.is_empty();
        let loops = by_items || from.len() < read.len();
        let keyed = matches!(destination.get(to.len()), Some(Segment::Key(_) | Segment::Index(_)));
        if loops && !keyed && from == to && (by_items || to.len() < destination.len()) {
            let every = [Segment::Each(String::new())];
            let items: Vec<Segment> = items.iter().chain(to).chain(&every).cloned().collect();
            if !by_items {
                return self.rule(rule, &items, from_rest, to_rest);
            }
            for inner in &rule.item_rules {
                self.rule(inner, &items, source(inner), inner.destination.segments());
            }
            return;
        }
        self.add(items, to);
        if rule.moved().is_some() {
            self.add(items, from);
        }
    }

    fn add(&mut self, items: &[Segment], path: &[Segment]) {
        let path = items.iter().chain(path).cloned().collect();
        self.0.push(Path::from_segments(path));
    }

    pub(crate) fn cover(&self, at: &[Segment]) -> bool {
        self.0.iter().any(|claim| covers(claim.segments(), at))
    }

    pub(crate) fn below(&self, at: &[Segment]) -> bool {
        let inside = |claim: &Path| claim.segments().len() > at.len() && covers(&claim.segments()[..at.len()], at);
        self.0.iter().any(inside)
    }

    /// Returns true if both schemas declare a field with one type, and no rule claims it, a field
    /// above or one inside of it.
    pub(crate) fn have_in_common(&self, a: &Node, b: &Node, path: &[Segment]) -> bool {
        let (mut a, mut b) = (a, b);
        for segment in path {
            let (Some(below_a), Some(below_b)) = (step(a, segment), step(b, segment)) else {
                return false;
            };
            if kinds(a) != kinds(b) {
                return false;
            }
            (a, b) = (below_a, below_b);
        }
        kinds(a) == kinds(b) && !self.cover(path) && !self.below(path)
    }

    /// Returns the first field that both versions carry and whose values differ. `between`: the
    /// schemas of the versions that lie between the two, whose defaults one may show and the other
    /// not.
    pub(crate) fn difference(&self, a: (&Node, &Json), b: (&Node, &Json), between: &[&Node]) -> Option<String> {
        let side = |(node, value)| Side {
            node,
            value: Some(value),
        };
        self.differs(side(a), side(b), between, &mut Vec::new())
    }

    fn differs(&self, a: Side<'_>, b: Side<'_>, between: &[&Node], at: &mut Vec<Segment>) -> Option<String> {
        if a.value == b.value || self.cover(at) {
            return None;
        }
        // Versions may differ in their defaults, and in the objects that hold defaulted fields.
        let same_default = a.node.default() == b.node.default();
        let fallback = |a: &Side<'_>| a.is_default() || between.iter().any(|node| node.default() == a.value);
        let excused = |a: &Side<'_>, b: &Side<'_>| b.value.is_none() && fallback(a) || a.is_default() && !same_default;
        if excused(&a, &b) || excused(&b, &a) {
            return None;
        }
        if kinds(a.node) != kinds(b.node) {
            return None;
        }
        match known_kind(a.node) {
            Some(Kind::Object) => self.objects(a, b, between, at),
            Some(Kind::List) => self.lists(a, b, between, at),
            Some(Kind::Scalar(_)) => Some(text(at)),
            None => None,
        }
    }

    fn objects(&self, a: Side<'_>, b: Side<'_>, between: &[&Node], at: &mut Vec<Segment>) -> Option<String> {
        if a.node.embedded() || b.node.embedded() {
            return None;
        }
        let declared = a.node.properties().map(|(name, _)| name);
        let entries = [a.value, b.value].into_iter().flatten().filter_map(Json::as_object);
        let mut names: BTreeSet<&str> = declared.collect();
        names.extend(entries.flat_map(|map| map.keys().map(String::as_str)));
        for name in names {
            if at.is_empty() && matches!(name, "apiVersion" | "kind" | "metadata") {
                continue;
            }
            let (Some(below_a), Some(below_b)) = (a.node.child(name), b.node.child(name)) else {
                continue;
            };
            at.push(Segment::Field(name.to_owned()));
            let between: Vec<&Node> = between.iter().filter_map(|node| node.child(name)).collect();
            let found = self.differs(a.field(name, below_a), b.field(name, below_b), &between, at);
            at.pop();
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Compares items in order. Lists whose items rules make may have other lengths.
    fn lists(&self, a: Side<'_>, b: Side<'_>, between: &[&Node], at: &mut Vec<Segment>) -> Option<String> {
        let (Some(item_a), Some(item_b)) = (a.node.items(), b.node.items()) else {
            return None;
        };
        let (left, right) = (a.items(), b.items());
        if left.map(<[Json]>::len) != right.map(<[Json]>::len) {
            return (!self.below(at) && kinds(item_a) == kinds(item_b)).then(|| text(at));
        }
        let between: Vec<&Node> = between.iter().filter_map(|node| node.items()).collect();
        let pairs = left.unwrap_or_default().iter().zip(right.unwrap_or_default());
        for (index, (left, right)) in pairs.enumerate() {
            at.push(Segment::Index(index));
            let side = |node, value| Side {
                node,
                value: Some(value),
            };
            let found = self.differs(side(item_a, left), side(item_b, right), &between, at);
            at.pop();
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

/// Rules between a version and the hub that name items of lists of the version, by the list: the
/// way of each, and the rule as it is for any version.
#[derive(Default)]
pub(crate) struct ListRules(BTreeMap<Vec<Segment>, Vec<(bool, Rule)>>);

impl ListRules {
    pub(crate) fn of_version(version: &str, hub: &str, directions: &[Direction]) -> ListRules {
        let mut lists = ListRules::default();
        let mut others: Vec<&[Segment]> = Vec::new();
        for direction in directions {
            let is_up = (direction.from.as_str(), direction.to.as_str()) == (version, hub);
            if !is_up && (direction.from.as_str(), direction.to.as_str()) != (hub, version) {
                continue;
            }
            others.extend(direction.drop.iter().map(Path::segments));
            for rule in &direction.rules {
                let path = if is_up {
                    source(rule)
                } else {
                    rule.destination.segments()
                };
                let (list, _) = split(path);
                match path.get(list.len()) {
                    Some(Segment::Index(_)) => {
                        lists.0.entry(list.to_vec()).or_default().push((is_up, anywhere(rule)));
                    }
                    _ => others.push(path),
                }
            }
        }
        // What is said about all of the list is no rule for an item.
        let is_clear = |list: &Vec<Segment>| {
            let apart = |other: &&[Segment]| !covers(other, list) && !covers(list, other);
            others.iter().filter(|other| !other.is_empty()).all(apart)
        };
        lists.0.retain(|list, _| is_clear(list));
        for rules in lists.0.values_mut() {
            rules.sort_by_cached_key(|(is_up, rule)| (*is_up, rule.destination.clone(), source(rule).to_vec()));
        }
        lists
    }

    pub(crate) fn lists(&self) -> impl Iterator<Item = &Vec<Segment>> {
        self.0.keys()
    }

    /// Returns the lists of which rules name items in both of two versions, are the same for both,
    /// and are the only ones about the list: then all of it is one value of both.
    pub(crate) fn common([a, b]: [&str; 2], hub: &str, directions: &[Direction]) -> BTreeSet<Vec<Segment>> {
        let [ours, theirs] = [a, b].map(|version| ListRules::of_version(version, hub, directions).0);
        let between = Claims::of_rules(a, b, directions);
        let is_common = |(list, rules): &(Vec<Segment>, Vec<(bool, Rule)>)| {
            theirs.get(list) == Some(rules) && !between.cover(list) && !between.below(list)
        };
        ours.into_iter().filter(is_common).map(|(list, _)| list).collect()
    }
}

/// Returns a rule without its place and spelling.
fn anywhere(rule: &Rule) -> Rule {
    Rule {
        item_rules: rule.item_rules.iter().map(anywhere).collect(),
        at: RuleAt {
            path: FieldPath::new(""),
            source: "field",
            destination: "destination",
        },
        ..rule.clone()
    }
}

/// Returns the path that a rule reads; empty for an expression.
fn source(rule: &Rule) -> &[Segment] {
    match &rule.source {
        Source::Field(path) => path.segments(),
        Source::Expression(_) => &[],
    }
}

/// A value with its schema.
struct Side<'a> {
    node: &'a Node,
    value: Option<&'a Json>,
}

impl<'a> Side<'a> {
    fn field(&self, name: &str, node: &'a Node) -> Side<'a> {
        let value = self.value.and_then(|value| value.get(name));
        Side { node, value }
    }

    fn is_default(&self) -> bool {
        self.value.is_some() && self.value == self.node.default()
    }

    fn items(&self) -> Option<&'a [Json]> {
        self.value.and_then(Json::as_array).map(Vec::as_slice)
    }
}

/// Returns the type of a node's values, with nullability; `None` if it declares no type.
pub(crate) fn kinds(node: &Node) -> Option<(Kind, bool)> {
    known_kind(node).map(|kind| (kind, node.nullable()))
}

fn step<'n>(node: &'n Node, segment: &Segment) -> Option<&'n Node> {
    match segment {
        Segment::Field(name) => node.child(name),
        Segment::Index(_) => node.items(),
        Segment::Each(_) | Segment::Key(_) => node.items().or_else(|| node.additional()),
    }
}

/// Splits a path before its first segment that is no field.
fn split(path: &[Segment]) -> (&[Segment], &[Segment]) {
    let end = path.iter().position(|segment| !matches!(segment, Segment::Field(_)));
    let end = end.unwrap_or(path.len());
    (&path[..end], path.get(end + 1..).unwrap_or_default())
}

pub(crate) fn text(at: &[Segment]) -> String {
    let path = Path::from_segments(at.to_vec()).to_string();
    path.strip_prefix('.').unwrap_or(&path).to_owned()
}
