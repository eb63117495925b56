//! Retained values at a place where anything is kept (`x-kubernetes-preserve-unknown-fields`): all
//! of them show again, but for those in items of lists that had keys: no schema tells these apart.
//! They stay with the items.

use super::{Part, Patch, Ref};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, HashMap};

/// Returns what stands there, with the retained values beside it.
pub(super) fn show(patch: &Patch, stands: Option<Json>) -> Option<Json> {
    match (patch, stands) {
        (Patch::Set { value, .. }, stands) => Some(filled(value, stands)),
        (Patch::Fields(fields), stands @ (None | Some(Json::Object(_)))) => {
            let stood = stands.is_some();
            let mut map = match stands {
                Some(Json::Object(map)) => map,
                _ => Map::new(),
            };
            for (name, patch) in fields {
                let shown = show(patch, map.remove(name));
                map.extend(shown.map(|value| (name.clone(), value)));
            }
            (stood || !map.is_empty()).then_some(Json::Object(map))
        }
        (Patch::Within(entries), Some(Json::Array(mut items))) => {
            for (at, patch) in entries {
                if let Ref::Index(index) = at
                    && let Some(item) = items.get_mut(*index)
                {
                    let stands = std::mem::take(item);
                    *item = show(patch, Some(stands)).unwrap_or_default();
                }
            }
            Some(Json::Array(items))
        }
        (_, stands) => stands,
    }
}

/// Returns a value with what a retained one has beside it, in objects.
pub(super) fn filled(retained: &Json, stands: Option<Json>) -> Json {
    match (retained, stands) {
        (_, None) => retained.clone(),
        (Json::Object(retained), Some(Json::Object(mut map))) => {
            for (name, value) in retained {
                let value = filled(value, map.remove(name));
                map.insert(name.clone(), value);
            }
            Json::Object(map)
        }
        (_, Some(stands)) => stands,
    }
}

/// Returns the retained values that show there, or the others.
pub(super) fn part_of(part: Part, patch: &Patch) -> Option<Patch> {
    match patch {
        Patch::Set { guard: None, .. } => (part == Part::Own).then(|| patch.clone()),
        Patch::Fields(fields) => {
            let of = |(name, patch): (&String, &Patch)| Some((name.clone(), part_of(part, patch)?));
            let fields: BTreeMap<String, Patch> = fields.iter().filter_map(of).collect();
            (!fields.is_empty()).then_some(Patch::Fields(fields))
        }
        Patch::Within(entries) => {
            let of = |(at, patch): &(Ref, Patch)| {
                let left = match at {
                    Ref::Index(_) => part_of(part, patch),
                    Ref::Key(_) => (part == Part::Rest).then(|| patch.clone()),
                };
                Some((at.clone(), left?))
            };
            let entries: Vec<(Ref, Patch)> = entries.iter().filter_map(of).collect();
            (!entries.is_empty()).then_some(Patch::Within(entries))
        }
        _ => (part == Part::Rest).then(|| patch.clone()),
    }
}

/// Returns the retained values that do not show in a value there, as long as the items are there
/// that they belong to. Which fields were the key is in no schema: an item may be the one if it has
/// all the key's parts.
pub(super) fn hidden(patch: &Patch, value: &Json) -> Option<Patch> {
    match (patch, value) {
        (Patch::Fields(fields), Json::Object(map)) => {
            let of = |(name, patch): (&String, &Patch)| Some((name.clone(), hidden(patch, map.get(name)?)?));
            let fields: BTreeMap<String, Patch> = fields.iter().filter_map(of).collect();
            (!fields.is_empty()).then_some(Patch::Fields(fields))
        }
        (Patch::Within(entries), Json::Array(items)) => {
            let known = Items::new(items);
            let of = |(at, patch): &(Ref, Patch)| {
                let left = match at {
                    Ref::Index(index) => hidden(patch, items.get(*index)?),
                    Ref::Key(key) => known.may_have(key).then(|| patch.clone()),
                };
                Some((at.clone(), left?))
            };
            let entries: Vec<(Ref, Patch)> = entries.iter().filter_map(of).collect();
            (!entries.is_empty()).then_some(Patch::Within(entries))
        }
        _ => None,
    }
}

/// Items that are looked at for one key. With more that have the rarest of its parts, one of them
/// counts as the item.
const LOOKS_MAX: usize = 100;

/// The items of a list, by the values of their fields.
struct Items<'a> {
    items: &'a [Json],
    by_value: HashMap<String, Vec<usize>>,
}

impl<'a> Items<'a> {
    fn new(items: &'a [Json]) -> Self {
        let mut by_value: HashMap<String, Vec<usize>> = HashMap::new();
        for (i, item) in items.iter().enumerate() {
            let fields = item.as_object().into_iter().flat_map(Map::values);
            for value in fields.chain([item]).filter(|value| !is_structured(value)) {
                by_value.entry(value.to_string()).or_default().push(i);
            }
        }
        Items { items, by_value }
    }

    /// Returns true if an item may have a key: each part is the value of one of its fields. A part
    /// that is null was the default.
    fn may_have(&self, key: &Json) -> bool {
        let parts = key.as_array().into_iter().flatten();
        let parts: Vec<&Json> = parts.filter(|part| !part.is_null() && !is_structured(part)).collect();
        let with = |part: &Json| {
            self.by_value
                .get(&part.to_string())
                .map(Vec::as_slice)
                .unwrap_or_default()
        };
        let Some(rarest) = parts.iter().map(|part| with(part)).min_by_key(|with| with.len()) else {
            return !self.items.is_empty();
        };
        let has = |item: &Json, part: &Json| {
            item == part
                || item
                    .as_object()
                    .is_some_and(|map| map.values().any(|value| value == part))
        };
        let is_it = |i: &usize| parts.iter().all(|part| has(&self.items[*i], part));
        rarest.len() > LOOKS_MAX || rarest.iter().any(is_it)
    }
}

/// Returns true for an object and for a list.
pub(crate) fn is_structured(value: &Json) -> bool {
    value.is_object() || value.is_array()
}
