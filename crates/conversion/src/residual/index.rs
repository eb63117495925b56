//! Items of a list by the references of a patch.

use super::{Ref, key};
use insula_schema::{ListType, Node};
use serde_json::Value as Json;
use std::borrow::Cow;
use std::collections::HashMap;

/// Comparisons of keys that one list may take, where a release has changed what keys consist of.
const COMPARISONS_MAX: usize = 65_536;

/// Returns the item of each reference, if the list has it. Lists of thousands of items have patches
/// of thousands of entries: one pass makes an index.
pub(super) fn places<'r>(
    refs: impl Iterator<Item = &'r Ref>,
    node: Option<&Node>,
    items: &[Json],
) -> Vec<Option<usize>> {
    let refs: Vec<&Ref> = refs.collect();
    if !refs.iter().any(|at| matches!(at, Ref::Key(_))) {
        let index = |at: &&Ref| match at {
            Ref::Index(i) => (*i < items.len()).then_some(*i),
            Ref::Key(_) => None,
        };
        return refs.iter().map(index).collect();
    }
    let keys: Vec<Option<Json>> = items.iter().map(|item| key(node, item)).collect();
    // Of several equal keys, the first one counts.
    let known = keys.iter().enumerate().rev();
    let known: HashMap<String, usize> = known
        .filter_map(|(i, key)| Some((key.as_ref()?.to_string(), i)))
        .collect();
    let place = |at: &&Ref| match at {
        Ref::Index(i) => (*i < items.len()).then_some(*i),
        Ref::Key(want) => known.get(&without_defaults(node, want).to_string()).copied(),
    };
    let mut places: Vec<Option<usize>> = refs.iter().map(place).collect();
    by_part_of_key(&refs, (&keys, items), &mut places);
    places
}

/// Returns a key of a reference as today's program stores it.
fn without_defaults<'k>(node: Option<&Node>, key: &'k Json) -> Cow<'k, Json> {
    let (Some(ListType::Map { keys }), Some(parts)) = (node.map(Node::list_type), key.as_array()) else {
        return Cow::Borrowed(key);
    };
    let items = node.and_then(Node::items);
    let default = |key: &String| items?.child(key)?.default();
    if keys.len() != parts.len() || keys.iter().all(|key| default(key).is_none()) {
        return Cow::Borrowed(key);
    }
    let told = keys
        .iter()
        .zip(parts)
        .map(|(key, part)| match default(key) == Some(part) {
            true => Json::Null,
            false => part.clone(),
        });
    Cow::Owned(told.collect())
}

/// Finds items whose keys have got or lost a part since the reference was made, or whose list no
/// schema has.
fn by_part_of_key(refs: &[&Ref], (keys, items): (&[Option<Json>], &[Json]), places: &mut [Option<usize>]) {
    let mut comparisons = COMPARISONS_MAX;
    let mut taken = vec![false; keys.len()];
    places.iter().flatten().for_each(|i| taken[*i] = true);
    for (at, place) in refs.iter().zip(places).filter(|(_, place)| place.is_none()) {
        let Ref::Key(want) = at else { continue };
        let is_same = |i: &usize| {
            !taken[*i]
                && match &keys[*i] {
                    Some(key) => is_part(key, want),
                    None => has_values(&items[*i], want),
                }
        };
        *place = (0..keys.len().min(comparisons)).find(is_same);
        comparisons -= place.map_or(keys.len().min(comparisons), |i| i + 1);
        place.iter().for_each(|i| taken[*i] = true);
    }
}

/// Returns true if one of two keys of different length has all parts of the other, in order; or if
/// two of one length differ only in parts that one of them lacks: its item has the default.
fn is_part(a: &Json, b: &Json) -> bool {
    let (Some(a), Some(b)) = (a.as_array(), b.as_array()) else {
        return false;
    };
    if a.len() == b.len() {
        let mut parts = a.iter().zip(b);
        let is_same = parts.clone().all(|(a, b)| a == b || a.is_null() || b.is_null());
        return is_same && parts.any(|(a, b)| a == b && !a.is_null());
    }
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    let mut rest = long.iter();
    short.len() < long.len() && !short.is_empty() && short.iter().all(|part| rest.any(|other| other == part))
}

/// Returns true if an item has all parts of a key that are no defaults as fields, whatever their
/// names are.
fn has_values(item: &Json, key: &Json) -> bool {
    let (Some(map), Some(parts)) = (item.as_object(), key.as_array()) else {
        return false;
    };
    let mut told = parts.iter().filter(|part| !part.is_null()).peekable();
    told.peek().is_some() && told.all(|part| map.values().any(|value| value == part))
}
