//! Two patches of one base, and objects that have no values.

use super::{Json, Patch};

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
            (patch, _) => patch,
        }
    }
}

/// Returns true for an object that leads to no value.
pub(super) fn is_hollow(value: &Json) -> bool {
    value.as_object().is_some_and(|map| map.values().all(is_hollow))
}
