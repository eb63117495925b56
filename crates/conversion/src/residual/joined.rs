//! Two patches of one base, and objects that have no values.

use super::{Json, Map, Node, Patch, apply, places};

impl Patch {
    /// Joins a patch with another one of the same base, whose entries count less.
    pub(crate) fn and(self, other: Patch) -> Patch {
        match (self, other) {
            (Patch::Fields(mut fields), Patch::Fields(others)) => {
                for (name, other) in others {
                    let joined = match fields.remove(&name) {
                        Some(patch) => patch.and(other),
                        None => other,
                    };
                    fields.insert(name, joined);
                }
                Patch::Fields(fields)
            }
            (Patch::Within(mut entries), Patch::Within(others)) => {
                for (at, other) in others {
                    match entries.iter_mut().find(|(known, _)| *known == at) {
                        Some((_, patch)) => *patch = patch.clone().and(other),
                        None => entries.push((at, other)),
                    }
                }
                Patch::Within(entries)
            }
            // An object, and what is in it.
            (
                Patch::Set { value, guard: None },
                Patch::Set {
                    value: other,
                    guard: None,
                },
            ) => Patch::Set {
                value: both(value, other),
                guard: None,
            },
            (
                Patch::Set {
                    value: Json::Object(map),
                    guard: None,
                },
                fields @ Patch::Fields(_),
            ) => set_each(map).and(fields),
            (
                fields @ Patch::Fields(_),
                Patch::Set {
                    value: Json::Object(map),
                    guard: None,
                },
            ) => fields.and(set_each(map)),
            // A list, and what is in its items.
            (Patch::Set { value, guard: None }, within @ Patch::Within(_)) => Patch::Set {
                value: filled(value, &within),
                guard: None,
            },
            (
                within @ Patch::Within(_),
                Patch::Set {
                    value: list @ Json::Array(_),
                    guard: None,
                },
            ) => Patch::Set {
                value: apply(&within, None, Some(list), None, None).unwrap_or_default(),
                guard: None,
            },
            (patch, _) => patch,
        }
    }
}

fn set_each(map: Map<String, Json>) -> Patch {
    let set = |(name, value)| (name, Patch::Set { value, guard: None });
    Patch::Fields(map.into_iter().map(set).collect())
}

/// Returns a value with what another one has beside it.
fn both(value: Json, other: Json) -> Json {
    match (value, other) {
        (Json::Object(mut map), Json::Object(others)) => {
            for (name, other) in others {
                let value = match map.remove(&name) {
                    Some(value) => both(value, other),
                    None => other,
                };
                map.insert(name, value);
            }
            Json::Object(map)
        }
        (value, _) => value,
    }
}

/// Returns a value with what a patch sets where it has none.
fn filled(value: Json, patch: &Patch) -> Json {
    match (value, patch) {
        (Json::Object(mut map), Patch::Fields(fields)) => {
            for (name, patch) in fields {
                let filled = match map.remove(name) {
                    Some(value) => Some(filled(value, patch)),
                    None => apply(patch, None, None, None, None),
                };
                map.extend(filled.map(|value| (name.clone(), value)));
            }
            Json::Object(map)
        }
        (Json::Array(mut items), Patch::Within(entries)) => {
            let found = places(entries.iter().map(|(at, _)| at), None, &items);
            for ((_, patch), place) in entries.iter().zip(found) {
                if let Some(item) = place.and_then(|place| items.get_mut(place)) {
                    *item = filled(std::mem::take(item), patch);
                }
            }
            Json::Array(items)
        }
        (value, _) => value,
    }
}

/// Returns true for an object that leads to no value; an entry of a map is one.
pub(super) fn is_hollow(node: Option<&Node>, value: &Json) -> bool {
    let is_map = node.is_some_and(|node| node.additional().is_some());
    let below = |name: &String| node.and_then(|node| node.property(name));
    let is_hollow = |(name, value): (&String, &Json)| is_hollow(below(name), value);
    value
        .as_object()
        .is_some_and(|map| map.is_empty() || !is_map && map.iter().all(is_hollow))
}
