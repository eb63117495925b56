//! The owners of an object's fields by version: who wrote a field last, and in which version.

use insula_api::Json;
use insula_conversion::Step;
use std::collections::BTreeMap;

/// The owned fields of an object by version, as lists of `fieldsV1`.
pub(super) struct FieldOwners(BTreeMap<String, Vec<Json>>);

impl FieldOwners {
    /// Reads `metadata.managedFields`.
    pub(super) fn read(value: &Json) -> FieldOwners {
        let mut owned: BTreeMap<String, Vec<Json>> = BTreeMap::new();
        for manager in value["metadata"]["managedFields"].as_array().into_iter().flatten() {
            let version = manager["apiVersion"].as_str().unwrap_or_default();
            let version = insula_api::names::version_of(version).to_owned();
            owned.entry(version).or_default().push(manager["fieldsV1"].clone());
        }
        FieldOwners(owned)
    }

    /// Returns true if nobody owns a field.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if a client owns the field at a path of a version.
    pub(super) fn owns(&self, version: &str, path: &[Step<'_>]) -> bool {
        self.0
            .get(version)
            .is_some_and(|sets| sets.iter().any(|set| contains(set, path)))
    }
}

/// Returns true if a set in the form of `fieldsV1` has members at, above or below a path.
fn contains(set: &Json, path: &[Step<'_>]) -> bool {
    let mut here = set;
    for (depth, step) in path.iter().enumerate() {
        let Some(below) = here.as_object() else { return false };
        if below.is_empty() {
            return depth > 0;
        }
        let next = match step {
            Step::Field(name) => below.get(&format!("f:{name}")),
            Step::Item(index, item) => {
                let mut items = below.iter();
                items
                    .find(|(element, _)| is_item(element, *index, item))
                    .map(|(_, below)| below)
            }
        };
        match next {
            Some(next) => here = next,
            None => return false,
        }
    }
    !path.is_empty()
}

fn is_item(element: &str, index: usize, item: &Json) -> bool {
    match element.split_once(':') {
        Some(("k", keys)) => serde_json::from_str::<serde_json::Map<String, Json>>(keys)
            .is_ok_and(|keys| keys.iter().all(|(name, value)| item.get(name) == Some(value))),
        Some(("v", value)) => serde_json::from_str::<Json>(value).is_ok_and(|value| value == *item),
        Some(("i", at)) => at.parse() == Ok(index),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn owners_of_a_path_are_found() {
        let set = json!({"f:spec": {"f:size": {}, "f:ports": {"k:{\"port\":80}": {".": {}, "f:note": {}}},
            "f:tags": {"v:\"a\"": {}}, "f:atomic": {}}});
        let field = Step::Field;
        let (http, other) = (json!({"port": 80, "note": "x"}), json!({"port": 81}));
        let (a, b) = (json!("a"), json!("b"));
        let rows: [(&[Step<'_>], bool); 10] = [
            (&[field("spec"), field("size")], true),
            (&[field("spec"), field("color")], false),
            (&[field("spec"), field("atomic"), field("deep")], true),
            (
                &[field("spec"), field("ports"), Step::Item(0, &http), field("note")],
                true,
            ),
            (
                &[field("spec"), field("ports"), Step::Item(0, &http), field("name")],
                false,
            ),
            (&[field("spec"), field("ports"), Step::Item(0, &other)], false),
            (&[field("spec"), field("tags"), Step::Item(3, &a)], true),
            (&[field("spec"), field("tags"), Step::Item(3, &b)], false),
            (&[field("spec")], true),
            (&[field("status")], false),
        ];
        for (path, wanted) in rows {
            assert_eq!(contains(&set, path), wanted, "{path:?}");
        }
        assert!(!contains(&json!({}), &[field("spec")]));
    }
}
