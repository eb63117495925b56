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

use crate::align::{align, covers, equal};
use crate::trace::Trace;
use insula_schema::{Node, Structural};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeSet, HashMap};

/// A value, and the trace of the inputs that it was computed from.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Side<'a> {
    pub(crate) value: Option<&'a Json>,
    pub(crate) trace: Option<&'a Trace>,
}

impl<'a> Side<'a> {
    pub(crate) fn new(value: &'a Json, trace: &'a Trace) -> Self {
        Side {
            value: Some(value),
            trace: (!trace.is_empty()).then_some(trace),
        }
    }

    pub(crate) fn field(&self, name: &str) -> Side<'a> {
        Side {
            value: self.value.and_then(|v| v.get(name)),
            trace: self.trace.and_then(|t| t.field(name)),
        }
    }

    pub(crate) fn index(&self, index: usize) -> Side<'a> {
        Side {
            value: self.value.and_then(|v| v.get(index)),
            trace: self.trace.and_then(|t| t.index(index)),
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
    let mut merged = merge_objects(schema, Side::new(old, &none), Side::new(new, &none), onto);
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
pub(crate) fn merge_objects(schema: &Structural, old: Side<'_>, new: Side<'_>, onto: &Json) -> Json {
    let mut out = Map::new();
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for map in [old.map(), new.map(), onto.as_object()].into_iter().flatten() {
        names.extend(map.keys().map(String::as_str));
    }
    for name in names {
        let merged = match name {
            "apiVersion" | "kind" => onto.get(name).or_else(|| new.value?.get(name)).cloned(),
            "metadata" => metadata(old.field(name), new.field(name), onto.get(name)),
            _ => merge(
                schema.root().child(name),
                old.field(name),
                new.field(name),
                onto.get(name),
                false,
            ),
        };
        out.extend(merged.map(|value| (name.to_owned(), value)));
    }
    Json::Object(out)
}

fn metadata(old: Side<'_>, new: Side<'_>, onto: Option<&Json>) -> Option<Json> {
    let mut out = new.map().cloned().unwrap_or_default();
    for name in ["labels", "annotations"] {
        match merge(
            None,
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

/// Merges one value. `force`: a value above was computed anew, so that values win even where they
/// are equal.
fn merge(node: Option<&Node>, old: Side<'_>, new: Side<'_>, onto: Option<&Json>, force: bool) -> Option<Json> {
    let here = old.hash() != new.hash();
    if !force && !here && old.value == new.value && old.trace == new.trace {
        return onto.cloned();
    }
    let force = force || here;
    let Some(onto) = onto else { return new.value.cloned() };
    match (old.value, new.value) {
        // Computed from other inputs, but absent both times: the value in `onto` was derived from
        // the old inputs.
        (None, None) if here => None,
        (None, None) => Some(merge_fields(node, old, new, onto, force)),
        (Some(seen), None) => remove(node, seen, onto),
        (_, Some(value)) => match (value, onto) {
            (Json::Object(_), Json::Object(_)) => Some(merge_fields(node, old, new, onto, force)),
            (Json::Array(_), Json::Array(items)) => Some(Json::Array(merge_lists(node, old, new, items, force))),
            _ if force || old.value != Some(value) => Some(value.clone()),
            _ => Some(onto.clone()),
        },
    }
}

fn merge_fields(node: Option<&Node>, old: Side<'_>, new: Side<'_>, onto: &Json, force: bool) -> Json {
    let Some(stands) = onto.as_object() else {
        return onto.clone();
    };
    let mut names: BTreeSet<&str> = stands.keys().map(String::as_str).collect();
    for map in [old.map(), new.map()].into_iter().flatten() {
        names.extend(map.keys().map(String::as_str));
    }
    let is_map = node.is_some_and(|n| n.additional().is_some());
    let mut out = Map::new();
    for name in names {
        let (old, new) = (old.field(name), new.field(name));
        // An entry of a map is removed with all its fields.
        let dies = is_map && old.value.is_some() && new.value.is_none();
        let merged = if dies {
            None
        } else {
            let force = force && (old.value.is_some() || new.value.is_some());
            merge(node.and_then(|n| n.child(name)), old, new, stands.get(name), force)
        };
        out.extend(merged.map(|value| (name.to_owned(), value)));
    }
    Json::Object(out)
}

/// Returns what remains of `stands` without everything that `seen` shows.
fn remove(node: Option<&Node>, seen: &Json, stands: &Json) -> Option<Json> {
    match (seen, stands) {
        (Json::Object(seen), Json::Object(stands)) => {
            let is_map = node.is_some_and(|n| n.additional().is_some());
            let mut out = Map::new();
            for (name, value) in stands {
                let left = match seen.get(name) {
                    None => Some(value.clone()),
                    Some(_) if is_map => None,
                    Some(seen) => remove(node.and_then(|n| n.child(name)), seen, value),
                };
                out.extend(left.map(|value| (name.clone(), value)));
            }
            // Without its required fields, the rest would not be a valid object.
            let whole = node.is_none_or(|n| n.required().iter().all(|name| out.contains_key(name)));
            (whole && !out.is_empty()).then_some(Json::Object(out))
        }
        (Json::Array(seen), Json::Array(stands)) => {
            let mut visible = vec![false; stands.len()];
            align(seen, stands, node, covers)
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

/// Merges two lists. Items of `onto` that `old` does not show are hidden from the editor: each
/// stays behind the item that it followed.
fn merge_lists(node: Option<&Node>, old: Side<'_>, new: Side<'_>, onto: &[Json], force: bool) -> Vec<Json> {
    let (before, after) = (old.list(), new.list());
    let item_node = node.and_then(Node::items);
    let to_onto = align(before, onto, node, covers);
    let to_after = align(before, after, node, equal);
    let mut from_before: HashMap<usize, usize> = HashMap::new();
    to_after.iter().enumerate().for_each(|(i, j)| {
        if let Some(j) = j {
            from_before.insert(*j, i);
        }
    });
    let seen: BTreeSet<usize> = to_onto.iter().flatten().copied().collect();
    // An item that the editor adds may already exist, hidden from the editor.
    let added = if crate::align::identities(after, node).is_some() {
        align(after, onto, node, equal)
    } else {
        Vec::new()
    };
    let mut placed: Vec<(Option<usize>, Option<Json>)> = Vec::new();
    for (j, item) in after.iter().enumerate() {
        placed.push(match from_before.get(&j) {
            Some(&i) => {
                let at = to_onto[i];
                let stands = at.and_then(|k| onto.get(k));
                let (was, is) = (old.index(i), new.index(j));
                // Missing although it was shown: removed through another version. Only an edit
                // restores it.
                let gone = stands.is_none() && !force && was.value == is.value && was.trace == is.trace;
                (
                    at,
                    if gone {
                        None
                    } else {
                        merge(item_node, was, is, stands, force)
                    },
                )
            }
            None => match added.get(j).copied().flatten().filter(|k| !seen.contains(k)) {
                Some(k) => (
                    Some(k),
                    merge(item_node, Side::default(), new.index(j), onto.get(k), force),
                ),
                None => (None, Some(item.clone())),
            },
        });
    }
    let kept: BTreeSet<usize> = placed.iter().filter_map(|(k, _)| *k).collect();
    let hidden = |k: &usize| !seen.contains(k) && !kept.contains(k);
    let order: Vec<usize> = to_after.iter().flatten().copied().collect();
    let reordered = order.windows(2).any(|pair| pair[0] > pair[1]);
    if reordered {
        editors_order(placed, onto, hidden)
    } else {
        standing_order(placed, onto, hidden)
    }
}

/// Orders items after an edit that moved some: the editor's order holds, and hidden items follow
/// the item that they followed before.
fn editors_order(
    placed: Vec<(Option<usize>, Option<Json>)>,
    onto: &[Json],
    hidden: impl Fn(&usize) -> bool,
) -> Vec<Json> {
    let known: BTreeSet<usize> = placed.iter().filter_map(|(k, _)| *k).collect();
    let mut behind: HashMap<Option<usize>, Vec<Json>> = HashMap::new();
    let mut last = None;
    for (k, item) in onto.iter().enumerate() {
        if known.contains(&k) {
            last = Some(k);
        } else if hidden(&k) {
            behind.entry(last).or_default().push(item.clone());
        }
    }
    let mut out = behind.remove(&None).unwrap_or_default();
    for (k, item) in placed {
        out.extend(item);
        if k.is_some() {
            out.extend(behind.remove(&k).unwrap_or_default());
        }
    }
    out
}

/// Orders items after an edit that moved none: the current order holds, and new items follow the
/// item behind which they were inserted.
fn standing_order(
    placed: Vec<(Option<usize>, Option<Json>)>,
    onto: &[Json],
    hidden: impl Fn(&usize) -> bool,
) -> Vec<Json> {
    let mut merged: HashMap<usize, Option<Json>> = HashMap::new();
    let mut behind: HashMap<Option<usize>, Vec<Json>> = HashMap::new();
    let mut last = None;
    for (k, item) in placed {
        if let Some(k) = k {
            merged.insert(k, item);
            last = Some(k);
        } else if let Some(item) = item {
            behind.entry(last).or_default().push(item);
        }
    }
    let mut out = behind.remove(&None).unwrap_or_default();
    for (k, item) in onto.iter().enumerate() {
        if let Some(item) = merged.remove(&k) {
            out.extend(item);
        } else if hidden(&k) {
            out.push(item.clone());
        }
        out.extend(behind.remove(&Some(k)).unwrap_or_default());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(old: &Json, new: &Json, onto: &Json) -> Option<Json> {
        let side = |value| Side {
            value: Some(value),
            trace: None,
        };
        merge(None, side(old), side(new), Some(onto), false)
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
