//! Evidence from the structure of lists and maps: fields that their items have in common, keys, and
//! that no other one changed in their object.

use super::compare::shared_fields;
use super::{Loose, inner, is_object, kinds_match};
use crate::passthrough::{known_kind, same_shape};
use crate::path::Segment;
use insula_schema::{ListType, Node};
use std::collections::{HashMap, HashSet};

/// Highest score of lists with different names that share half of their items' fields.
const LIKE_ITEMS: f64 = 0.6;
/// Score of lists with similar names and items of which one has all fields of the other.
const SAME_ITEMS: f64 = 0.8;
/// Least similarity of the names of such lists.
const NAMES_MIN: f64 = 0.4;
/// Number of common fields from which on items are told apart by them.
const FIELDS_MANY: usize = 3;
/// Least similarity of the last names of the only maps of one shape.
const NAMES_OF_ONLY_MIN: f64 = 0.25;

/// Scores two lists or maps by their items. `named` is the similarity of their names.
pub(super) fn by_items(a: &Loose<'_>, b: &Loose<'_>, named: f64) -> Option<(f64, &'static str)> {
    let only = a.is_only_list && b.is_only_list && a.above() == b.above();
    let common = contained(a.node, b.node).unwrap_or_default();
    // A map that became a list, or the reverse.
    let other_kind = common >= FIELDS_MANY && !kinds_match(a.node, b.node);
    let same = only && (common > 1 || same_keys(a.node, b.node)) || other_kind;
    if same && named >= NAMES_MIN {
        return Some((SAME_ITEMS, "items with the same fields"));
    }
    let share = shared_fields(a.node, b.node)?;
    Some((LIKE_ITEMS.min(0.2 + share), "items with the same fields"))
}

/// Returns the number of common fields, if one of two kinds of items has all fields of the other.
fn contained(a: &Node, b: &Node) -> Option<usize> {
    let (x, y) = (inner(a).filter(|x| is_object(x))?, inner(b).filter(|y| is_object(y))?);
    let has = |more: &Node, (name, field): (&str, &Node)| {
        let other = more.property(name);
        other.is_some_and(|other| known_kind(other) == known_kind(field))
    };
    let (fewer, more) = match x.properties().count() <= y.properties().count() {
        true => (x, y),
        false => (y, x),
    };
    fewer
        .properties()
        .all(|field| has(more, field))
        .then(|| fewer.properties().count())
}

/// Returns true for two lists with the same keys, of which there are several.
fn same_keys(a: &Node, b: &Node) -> bool {
    match (a.list_type(), b.list_type()) {
        (ListType::Map { keys: x }, ListType::Map { keys: y }) => x.len() > 1 && x == y,
        _ => false,
    }
}

/// Marks the lists and maps of objects that alone changed in their object.
pub(super) fn mark_only(places: &mut [Loose<'_>]) {
    let holds_objects = |place: &Loose<'_>| inner(place.node).is_some_and(is_object);
    let mut counts: HashMap<Vec<Segment>, usize> = HashMap::new();
    for place in places.iter().filter(|place| holds_objects(place)) {
        *counts.entry(place.above().to_vec()).or_default() += 1;
    }
    for place in places.iter_mut().filter(|place| holds_objects(place)) {
        place.is_only_list = counts[place.above()] == 1;
    }
}

/// Returns the pairs of maps with bounded values, or of objects, of which each version has one of
/// that shape, and whose names have a word in common.
pub(super) fn only_of_shape(olds: &[Loose<'_>], news: &[Loose<'_>]) -> HashSet<(usize, usize)> {
    let maps = |places: &[Loose<'_>]| -> Vec<usize> {
        let bounded = |at: &usize| {
            let value = places[*at].node.additional();
            value.is_some_and(|value| is_object(value) || value.pattern().is_some() || value.int_or_string())
        };
        (0..places.len()).filter(bounded).collect()
    };
    let (from, to) = (maps(olds), maps(news));
    let is_only = |places: &[Loose<'_>], maps: &[usize], node: &Node| {
        let like = maps.iter().filter(|at| same_shape(places[**at].node, node));
        like.count() == 1
    };
    let mut found = HashSet::new();
    for i in &from {
        let a = &olds[*i];
        let only = is_only(olds, &from, a.node) && is_only(news, &to, a.node);
        for j in to.iter().filter(|j| only && same_shape(a.node, news[**j].node)) {
            let alike = a.words.called_like(&news[*j].words) >= NAMES_OF_ONLY_MIN;
            if alike && kinds_match(a.node, news[*j].node) {
                found.insert((*i, *j));
            }
        }
    }
    found
}
