//! Three-way merge of an edit that was made in another version. Both directions of a write use it.
//!
//! `old` and `new` are two conversions of the same value, before and after an edit; `onto` is the
//! current value, with fields that the editor cannot see. The result is `onto` with the edit
//! applied: what did not change between `old` and `new` stays as it is in `onto`; what changed is
//! taken from `new`, whatever `onto` had (the later edit wins).
//!
//! ```text
//! old  {first: Bob}            what v1 made of the hub before
//! new  {first: Rob}            and after its edit
//! onto {first: Bob, mood: ok}  the hub              →  {first: Rob, mood: ok}
//! ```
//!
//! Items of lists and entries of maps are added and removed as a whole; fields of an object that
//! the editor could not see survive the edit.

use crate::align::{align, covers};
use crate::fixed::Fixed;
use crate::trace::Trace;
use insula_schema::{Node, Structural};
use serde_json::{Map, Value as Json};
use std::collections::BTreeSet;

mod lists;
mod origin;

pub(crate) use origin::Origin;

use lists::{merge_lists, present, remove_named};

/// A value, and the trace of the inputs that it was computed from.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Side<'a> {
    pub(crate) value: Option<&'a Json>,
    pub(crate) trace: Option<&'a Trace>,
    origin: Option<Origin<'a>>,
}

impl<'a> Side<'a> {
    pub(crate) fn new(value: &'a Json, trace: &'a Trace) -> Self {
        Side {
            value: Some(value),
            trace: (!trace.is_empty()).then_some(trace),
            origin: None,
        }
    }

    /// Adds the value that this one was converted from.
    pub(crate) fn with_origin(self, origin: Option<Origin<'a>>) -> Side<'a> {
        Side { origin, ..self }
    }

    pub(crate) fn field(&self, name: &str) -> Side<'a> {
        let value = self.value.and_then(|v| v.get(name));
        // Lists alone are merged by their origin: most fields lead to none.
        let leads_to_lists = value.is_some_and(|value| value.is_object() || value.is_array());
        let origin = self.origin.filter(|_| leads_to_lists);
        Side {
            value,
            trace: self.trace.and_then(|t| t.field(name)),
            origin: origin.and_then(|origin| origin.field(name)),
        }
    }

    pub(crate) fn index(&self, index: usize) -> Side<'a> {
        Side {
            value: self.value.and_then(|v| v.get(index)),
            trace: self.trace.and_then(|t| t.index(index)),
            origin: self.origin.and_then(|origin| origin.index(index)),
        }
    }

    /// Returns an item; null stands for none.
    fn item(&self, index: usize) -> Side<'a> {
        let item = self.index(index);
        match item.value {
            Some(Json::Null) => Side::default(),
            _ => item,
        }
    }

    fn hash(&self) -> Option<u64> {
        self.trace.and_then(Trace::hash)
    }

    fn map(&self) -> Option<&'a Map<String, Json>> {
        self.value.and_then(Json::as_object)
    }

    fn list(&self) -> &'a [Json] {
        self.value
            .and_then(Json::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }
}

/// Applies the edit from `old` to `new` to `onto`, all of one version. Fields that are equal in
/// `old` and `new` stay as they are in `onto`. Of `metadata`, only labels and annotations are
/// edited; the rest stays.
pub fn apply_edit(schema: &Structural, old: &Json, new: &Json, onto: &Json) -> Json {
    let none = Trace::default();
    let mut merged = merge_objects(
        schema,
        Side::new(old, &none),
        Side::new(new, &none),
        onto,
        &Fixed::default(),
    );
    if let Some(Json::Object(kept)) = onto.get("metadata") {
        let mut metadata = kept.clone();
        for name in ["labels", "annotations"] {
            match merged["metadata"].get(name) {
                Some(edited) => metadata.insert(name.to_owned(), edited.clone()),
                None => metadata.remove(name),
            };
        }
        merged["metadata"] = Json::Object(metadata);
    }
    merged
}

/// Merges whole objects. Of `metadata`, only labels and annotations are merged; the rest is
/// `new`'s.
pub(crate) fn merge_objects(schema: &Structural, old: Side<'_>, new: Side<'_>, onto: &Json, fixed: &Fixed) -> Json {
    let mut out = Map::new();
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for map in [old.map(), new.map(), onto.as_object()].into_iter().flatten() {
        names.extend(map.keys().map(String::as_str));
    }
    for name in names {
        let merged = match name {
            "apiVersion" | "kind" => onto.get(name).or_else(|| new.value?.get(name)).cloned(),
            "metadata" => metadata(old.field(name), new.field(name), onto.get(name)),
            _ => {
                let place = Location {
                    node: schema.root().child(name),
                    fixed: fixed.field(name),
                };
                merge(place, old.field(name), new.field(name), onto.get(name), false)
            }
        };
        out.extend(merged.map(|value| (name.to_owned(), value)));
    }
    Json::Object(out)
}

fn metadata(old: Side<'_>, new: Side<'_>, onto: Option<&Json>) -> Option<Json> {
    let mut out = new.map().cloned().unwrap_or_default();
    for name in ["labels", "annotations"] {
        match merge(
            Location::default(),
            old.field(name),
            new.field(name),
            onto.and_then(|o| o.get(name)),
            false,
        ) {
            Some(merged) => out.insert(name.to_owned(), merged),
            None => out.remove(name),
        };
    }
    (!out.is_empty() || new.value.is_some()).then_some(Json::Object(out))
}

/// Location of a value: its schema, and the items and entries in it that rules name.
#[derive(Debug, Clone, Copy, Default)]
struct Location<'a> {
    node: Option<&'a Node>,
    fixed: Option<&'a Fixed>,
}

impl<'a> Location<'a> {
    fn field(&self, name: &str) -> Location<'a> {
        Location {
            node: self.node.and_then(|node| node.child(name)),
            fixed: self.fixed.and_then(|fixed| fixed.field(name)),
        }
    }

    fn index(&self, index: usize) -> Location<'a> {
        Location {
            node: self.node.and_then(Node::items),
            fixed: self.fixed.and_then(|fixed| fixed.index(index)),
        }
    }

    /// Returns true if the value is a map, of which rules do not name this entry.
    fn is_entry(&self, name: &str) -> bool {
        let is_map = self.node.is_some_and(|node| node.additional().is_some());
        is_map && !self.fixed.is_some_and(|fixed| fixed.names(name))
    }

    /// Returns a new value as it is stored.
    fn take(&self, value: &Json) -> Json {
        let mut value = value.clone();
        if let Some(fixed) = self.fixed {
            fixed.close_gaps(&mut value);
        }
        value
    }
}

/// Merges one value. `force`: a value above was computed anew, so that values win even where they
/// are equal.
fn merge(place: Location<'_>, old: Side<'_>, new: Side<'_>, onto: Option<&Json>, force: bool) -> Option<Json> {
    let here = old.hash() != new.hash();
    if !force && !here && old.value == new.value && old.trace == new.trace {
        return onto.cloned();
    }
    let force = force || here;
    let Some(onto) = onto else {
        return new.value.map(|value| place.take(value));
    };
    match (old.value, new.value) {
        // Computed from other inputs, but absent both times: the value in `onto` was derived from
        // the old inputs.
        (None, None) if here => None,
        (None, None) => Some(merge_fields(place, old, new, onto, force)),
        (Some(seen), None) => remove(place, seen, onto),
        (_, Some(value)) => match (value, onto) {
            (Json::Object(_), Json::Object(_)) => Some(merge_fields(place, old, new, onto, force)),
            (Json::Array(_), Json::Array(items)) => Some(Json::Array(merge_lists(place, old, new, items, force))),
            _ if force || old.value != Some(value) => Some(place.take(value)),
            _ => Some(onto.clone()),
        },
    }
}

fn merge_fields(place: Location<'_>, old: Side<'_>, new: Side<'_>, onto: &Json, force: bool) -> Json {
    let Some(stands) = onto.as_object() else {
        return onto.clone();
    };
    let mut names: BTreeSet<&str> = stands.keys().map(String::as_str).collect();
    for map in [old.map(), new.map()].into_iter().flatten() {
        names.extend(map.keys().map(String::as_str));
    }
    let mut out = Map::new();
    for name in names {
        let (old, new) = (old.field(name), new.field(name));
        // An entry of a map is removed with all its fields.
        let dies = old.value.is_some() && new.value.is_none() && place.is_entry(name);
        let merged = if dies {
            None
        } else {
            let force = force && (old.value.is_some() || new.value.is_some());
            merge(place.field(name), old, new, stands.get(name), force)
        };
        out.extend(merged.map(|value| (name.to_owned(), value)));
    }
    Json::Object(out)
}

/// Returns what remains of `stands` without everything that `seen` shows.
fn remove(place: Location<'_>, seen: &Json, stands: &Json) -> Option<Json> {
    match (seen, stands) {
        (Json::Object(seen), Json::Object(stands)) => {
            let mut out = Map::new();
            for (name, value) in stands {
                let left = match seen.get(name) {
                    None => Some(value.clone()),
                    Some(_) if place.is_entry(name) => None,
                    Some(seen) => remove(place.field(name), seen, value),
                };
                out.extend(left.map(|value| (name.clone(), value)));
            }
            // Without its required fields, the rest would not be a valid object; defaults alone are
            // nothing that anybody wrote.
            let whole = place
                .node
                .is_none_or(|node| node.required().iter().all(|name| out.contains_key(name)));
            let default = |name: &String| place.node.and_then(|node| node.child(name)?.default());
            let is_left = out.iter().any(|(name, value)| default(name) != Some(value));
            (whole && is_left).then_some(Json::Object(out))
        }
        (Json::Array(seen), Json::Array(stands)) if place.by_index(seen, stands) => {
            let left = stands.iter().enumerate().filter_map(|(i, item)| match seen.get(i) {
                Some(seen) if !seen.is_null() => remove_named(place.index(i), seen, item),
                _ => Some(item.clone()),
            });
            let left: Vec<Json> = left.collect();
            (!left.is_empty()).then_some(Json::Array(left))
        }
        (Json::Array(seen), Json::Array(stands)) => {
            let (seen, _) = present(seen, place.fixed.is_some_and(Fixed::has_items));
            let mut visible = vec![false; stands.len()];
            align(&seen, stands, place.node, covers)
                .into_iter()
                .flatten()
                .for_each(|k| visible[k] = true);
            let left: Vec<Json> = stands
                .iter()
                .zip(visible)
                .filter(|(_, v)| !v)
                .map(|(item, _)| item.clone())
                .collect();
            (!left.is_empty()).then_some(Json::Array(left))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(old: &Json, new: &Json, onto: &Json) -> Option<Json> {
        let side = |value| Side {
            value: Some(value),
            trace: None,
            origin: None,
        };
        merge(Location::default(), side(old), side(new), Some(onto), false)
    }

    #[test]
    fn edits_land_and_hidden_things_stay() {
        let rows = [
            (
                json!({"a": 1}),
                json!({"a": 2}),
                json!({"a": 1, "h": 9}),
                json!({"a": 2, "h": 9}),
            ),
            (json!({"a": 1}), json!({}), json!({"a": 1, "h": 9}), json!({"h": 9})),
            (json!({"a": 1}), json!({"a": 1}), json!({"a": 7}), json!({"a": 7})),
            (json!({"a": 1}), json!({"a": 2}), json!({"a": 7}), json!({"a": 2})),
            (
                json!(["bob"]),
                json!(["rob"]),
                json!(["bob", "al"]),
                json!(["rob", "al"]),
            ),
            (json!(["bob"]), json!([]), json!(["bob", "al"]), json!(["al"])),
            // Without keys, a moved item is removed and added; hidden items stay.
            (json!([1, 2]), json!([2, 1]), json!([1, 9, 2]), json!([9, 2, 1])),
            (json!([1, 2]), json!([1, 2, 3]), json!([1, 2, 9]), json!([1, 2, 3, 9])),
            (
                json!([{"n": 1}]),
                json!([{"n": 2}]),
                json!([{"n": 1, "h": 1}]),
                json!([{"n": 2, "h": 1}]),
            ),
        ];
        for (old, new, onto, want) in rows {
            assert_eq!(merged(&old, &new, &onto), Some(want), "{old} -> {new} onto {onto}");
        }
    }
}
