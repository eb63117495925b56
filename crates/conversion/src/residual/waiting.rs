//! Entries for the items of a list that is away for the time being.
//!
//! A release may take a list away, and with it the base of what other versions keep in its items;
//! and a write that brings a list back begins without it ([`put_all`]).
//! Until the list returns, the entry is a value of the object that the list was in, under a name
//! that no field has: it moves, and goes, with that object. It is stored as it was.
//!
//! ```text
//! base {spec: {}}     {"fields": {"spec": {"fields": {"l": {"within": […]}}}}}
//! object {spec: {"l (items)": {"within": […]}}}
//! ```

use super::codec::{from_json, to_json};
use super::{Item, Patch, Ref, apply, places};
use insula_schema::Node;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// End of the name of a waiting entry.
const MARK: &str = " (items)";

/// Returns the value that stands for an entry, if its list is away: `node` is the object's, `base`
/// what the entry is for.
pub(super) fn of_list(
    node: Option<&Node>,
    (name, patch): (&str, &Patch),
    base: &Map<String, Json>,
) -> Option<(String, Json)> {
    let is_open = |node: &Node| node.additional().is_some() || node.preserves_unknown() || node.embedded();
    let is_known = node.is_some_and(|node| node.child(name).is_some());
    let is_away =
        !is_known && needs_items(patch) && !base.contains_key(name) && node.is_some_and(|node| !is_open(node));
    is_away.then(|| (format!("{name}{MARK}"), to_json(patch)))
}

/// Puts the entries for lists that an object, or an item in it, has not into it, also where the
/// schema has the list.
pub(super) fn put_all(patch: &Patch, node: Option<&Node>, value: &mut Json) {
    let (fields, map) = match (patch, value) {
        (Patch::Fields(fields), Json::Object(map)) => (fields, map),
        (patch, Json::Array(items)) => {
            for (i, patch) in in_items(patch, node, items) {
                put_all(patch, node.and_then(Node::items), &mut items[i]);
            }
            return;
        }
        _ => return,
    };
    for (name, patch) in fields {
        match map.get_mut(name) {
            Some(value) => put_all(patch, node.and_then(|node| node.child(name)), value),
            None if needs_items(patch) => {
                let marked = format!("{name}{MARK}");
                let stands = map.remove(&marked).and_then(|stands| from_json(stands).ok());
                let all = stands.map_or_else(|| patch.clone(), |stands| patch.clone().and(stands));
                map.insert(marked, to_json(&all));
            }
            None => {}
        }
    }
}

/// Returns the entries of a patch for lists that a value has not.
pub(super) fn for_lists(patch: &Patch, node: Option<&Node>, value: Option<&Json>) -> Option<Patch> {
    match (patch, value) {
        (Patch::Within(entries), Some(Json::Array(items))) => {
            let refs = entries.iter().map(|(at, _)| at);
            let places = places(refs, node, items);
            let waiting = entries.iter().zip(places).filter_map(|((at, patch), place)| {
                let value = place.and_then(|place| items.get(place))?;
                let waits = for_lists(patch, node.and_then(Node::items), Some(value))?;
                Some((at.clone(), waits))
            });
            let waiting: Vec<(Ref, Patch)> = waiting.collect();
            (!waiting.is_empty()).then_some(Patch::Within(waiting))
        }
        (Patch::Within(_) | Patch::Items { .. }, None) => Some(patch.clone()),
        (Patch::Fields(fields), value) => {
            let waiting = fields.iter().filter_map(|(name, patch)| {
                let value = value.and_then(|value| value.get(name));
                let node = node.and_then(|node| node.child(name));
                Some((name.clone(), for_lists(patch, node, value)?))
            });
            let waiting: BTreeMap<String, Patch> = waiting.collect();
            (!waiting.is_empty()).then_some(Patch::Fields(waiting))
        }
        _ => None,
    }
}

/// Returns the entries of a patch for items that a list has, with their places.
pub(super) fn in_items<'p>(patch: &'p Patch, node: Option<&Node>, items: &[Json]) -> Vec<(usize, &'p Patch)> {
    let entries: Vec<(&Ref, &Patch)> = match patch {
        Patch::Within(entries) => entries.iter().map(|(at, patch)| (at, patch)).collect(),
        Patch::Items { items, .. } => {
            let patched = items.iter().filter_map(|item| match item {
                Item::Base(at, patch) => Some((at, patch.as_ref()?)),
                Item::New(_) => None,
            });
            patched.collect()
        }
        Patch::Fields(_) | Patch::Set { .. } | Patch::Unset { .. } => Vec::new(),
    };
    let places = places(entries.iter().map(|(at, _)| *at), node, items);
    let found = entries.iter().zip(places);
    found.filter_map(|((_, patch), place)| Some((place?, *patch))).collect()
}

/// Returns true if a patch is for items of a list, or of one in an object.
fn needs_items(patch: &Patch) -> bool {
    match patch {
        Patch::Within(_) => true,
        Patch::Items { items, .. } => items.iter().any(|item| matches!(item, Item::Base(..))),
        Patch::Fields(fields) => fields.values().any(needs_items),
        Patch::Set { .. } | Patch::Unset { .. } => false,
    }
}

/// Reads an entry back from the value that stands for it.
pub(super) fn read(node: Option<&Node>, name: &str, value: Option<&Json>) -> Option<(String, Patch)> {
    let list = name.strip_suffix(MARK)?;
    if node.is_some_and(|node| node.child(name).is_some() || node.preserves_unknown()) {
        return None;
    }
    Some((list.to_owned(), from_json(value?.clone()).ok()?))
}

/// Returns true if an entry waits in an object, or in an object in it.
pub(super) fn is_in(map: &Map<String, Json>) -> bool {
    map.iter()
        .any(|(name, value)| name.ends_with(MARK) || value.as_object().is_some_and(is_in))
}

/// Applies the entries of an object whose lists are there again.
pub(super) fn settle(value: &mut Json, node: Option<&Node>) {
    // Few objects have any, and every write asks: names tell without the schema.
    if has_any(value) {
        settle_all(value, node);
    }
}

/// Returns true if an entry waits anywhere in a value.
fn has_any(value: &Json) -> bool {
    match value {
        Json::Object(map) => map.iter().any(|(name, value)| name.ends_with(MARK) || has_any(value)),
        Json::Array(items) => items.iter().any(has_any),
        _ => false,
    }
}

fn settle_all(value: &mut Json, node: Option<&Node>) {
    match value {
        Json::Object(map) => {
            let waiting = map.keys().filter_map(|name| name.strip_suffix(MARK));
            let returned: Vec<String> = waiting
                .filter(|list| map.contains_key(*list))
                .map(str::to_owned)
                .collect();
            for list in returned {
                let marked = format!("{list}{MARK}");
                let Some((_, patch)) = read(node, &marked, map.get(&marked)) else {
                    continue;
                };
                map.remove(&marked);
                let child = node.and_then(|node| node.child(&list));
                let items = apply(&patch, child, map.remove(&list), None, None);
                map.extend(items.map(|items| (list, items)));
            }
            for (name, value) in map {
                settle_all(value, node.and_then(|node| node.child(name)));
            }
        }
        Json::Array(items) => items
            .iter_mut()
            .for_each(|item| settle_all(item, node.and_then(Node::items))),
        _ => {}
    }
}
