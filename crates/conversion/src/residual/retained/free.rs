//! Retained values at a place where anything is kept (`x-kubernetes-preserve-unknown-fields`): all
//! of them show again, but for those in items of lists that had keys: no schema tells these apart.

use super::{Part, Patch, Ref};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

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
