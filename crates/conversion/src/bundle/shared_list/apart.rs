//! Lists of which rules name an item and that are not one list in all versions that have them.

use super::SharedList;
use crate::bundle::{Bundle, VersionSchema};
use crate::path::{Path, Segment};
use crate::rules::{Direction, Rule, Source};
use insula_schema::{Node, Type};
use std::collections::BTreeSet;

/// Describes the lists of which each version keeps for itself what no rule moves.
pub(in crate::bundle) fn find(
    versions: &[VersionSchema],
    hub: usize,
    directions: &[Direction],
    lists: &[SharedList],
) -> Vec<String> {
    let hub_name = &versions[hub].name;
    let mut named = BTreeSet::new();
    for direction in directions {
        let is_up = direction.to == *hub_name;
        if is_up || direction.from == *hub_name {
            direction
                .rules
                .iter()
                .for_each(|rule| add(rule, is_up, &[], &mut named));
        }
    }
    let mut found = Vec::new();
    for path in named {
        let items = |version: usize| items(versions[version].schema.root(), &path);
        let has: Vec<usize> = (0..versions.len())
            .filter(|version| items(*version).is_some())
            .collect();
        let is_one = has.contains(&hub)
            || has.len() < 2
            || lists
                .iter()
                .any(|list| list.is_at(&path) && has.iter().all(|version| list.members.contains(version)));
        if is_one {
            continue;
        }
        let names: Vec<&str> = has.iter().map(|version| versions[*version].name.as_str()).collect();
        let help = match path.iter().any(|segment| matches!(segment, Segment::Each(_))) {
            true => "",
            false => "; with the same rules in each all of it is one list",
        };
        found.push(format!(
            "{} is not one list in {}: the hub {hub_name} lacks it, rules name an item of it, and each version keeps \
             for itself what no rule moves{help}",
            Path::from_segments(path.clone()),
            joined(&names),
        ));
    }
    found
}

/// Adds the lists of which a rule names an item, on the side that is not the hub's.
fn add(rule: &Rule, is_up: bool, base: &[Segment], named: &mut BTreeSet<Vec<Segment>>) {
    let path = match (&rule.source, is_up) {
        (_, false) => rule.destination.segments(),
        (Source::Field(path), true) => path.segments(),
        (Source::Expression(_), true) => return,
    };
    let mut at = base.to_vec();
    for segment in path {
        match segment {
            Segment::Field(_) => at.push(segment.clone()),
            Segment::Index(_) => {
                named.insert(at.clone());
                at.push(Segment::Each(String::new()));
            }
            Segment::Each(_) | Segment::Key(_) => at.push(Segment::Each(String::new())),
        }
    }
    if !rule.item_rules.is_empty() {
        at.push(Segment::Each(String::new()));
        rule.item_rules.iter().for_each(|inner| add(inner, is_up, &at, named));
    }
}

fn items<'n>(root: &'n Node, path: &[Segment]) -> Option<&'n Node> {
    let node = path.iter().try_fold(root, |node, segment| match segment {
        Segment::Field(name) => node.property(name),
        _ => node.items().or_else(|| node.additional()),
    })?;
    node.items().filter(|_| node.kind() == Some(Type::Array))
}

fn joined(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

impl Bundle {
    /// Describes, for their author, each list that is not one value in all versions that have it,
    /// because rules name an item of it and the hub lacks it.
    pub fn lists_apart(&self) -> &[String] {
        &self.lists_apart
    }
}
