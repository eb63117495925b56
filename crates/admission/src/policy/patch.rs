//! Mutations of an object: operations of a JSON patch, or fields merged as in server-side apply.

use insula_api::Json;
use insula_apply::PatchError;
use insula_meter::Meter;
use insula_schema::{ListType, MapType, Node};
use serde_json::Map;

/// Applies the result of a `jsonPatch` expression. A failed `test` leaves the object unchanged.
pub(crate) fn json_patch(object: &mut Json, patch: &Json, meter: &Meter) -> Result<(), String> {
    if !patch.is_array() {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    }
    match insula_apply::json_patch(object, patch, meter) {
        Err(PatchError::Failed { at, .. }) if patch[at]["op"] == "test" => Ok(()),
        applied => applied.map_err(|error| format!("JSONPath: {error}")),
    }
}

/// Merges the result of an `applyConfiguration` expression.
pub(crate) fn apply_configuration(object: &mut Json, configuration: &Json, schema: &Node) -> Result<(), String> {
    let mut atomics = Vec::new();
    find_atomics(configuration, Some(schema), String::new(), &mut atomics);
    if !atomics.is_empty() {
        return Err(format!(
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.join(", ")
        ));
    }
    merge(object, configuration, Some(schema));
    Ok(())
}

/// Collects atomic values that a configuration sets in part, which would drop their other fields.
fn find_atomics(value: &Json, node: Option<&Node>, path: String, found: &mut Vec<String>) {
    match value {
        Json::Object(fields) => {
            if node.is_some_and(|node| node.map_type() == MapType::Atomic) {
                found.push(path.clone());
            }
            for (name, value) in fields {
                find_atomics(
                    value,
                    node.and_then(|node| node.child(name)),
                    format!("{path}.{name}"),
                    found,
                );
            }
        }
        Json::Array(items) => {
            // A list without a schema has no list type and is replaced as a whole.
            if node.is_some_and(|node| *node.list_type() == ListType::Atomic) {
                found.push(path.clone());
            }
            for (index, item) in items.iter().enumerate() {
                find_atomics(item, node.and_then(Node::items), format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

fn merge(target: &mut Json, change: &Json, node: Option<&Node>) {
    match (target, change) {
        (Json::Object(target), Json::Object(change)) => merge_fields(target, change, node),
        (Json::Array(target), Json::Array(change)) => merge_items(target, change, node),
        (target, change) => target.clone_from(change),
    }
}

fn merge_fields(target: &mut Map<String, Json>, change: &Map<String, Json>, node: Option<&Node>) {
    for (name, value) in change {
        let child = node.and_then(|node| node.child(name));
        match target.get_mut(name) {
            Some(known) => merge(known, value, child),
            None => drop(target.insert(name.clone(), value.clone())),
        }
    }
}

fn merge_items(target: &mut Vec<Json>, change: &[Json], node: Option<&Node>) {
    match node.map(Node::list_type) {
        Some(ListType::Set) => {
            let new = change
                .iter()
                .filter(|item| !target.contains(item))
                .cloned()
                .collect::<Vec<_>>();
            target.extend(new);
        }
        Some(ListType::Map { keys }) => {
            let items = node.and_then(Node::items);
            for item in change {
                let same = |known: &&mut Json| keys.iter().all(|key| known.get(key) == item.get(key));
                match target.iter_mut().find(same) {
                    Some(known) => merge(known, item, items),
                    None => target.push(item.clone()),
                }
            }
        }
        Some(ListType::Atomic) | None => *target = change.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_schema::Structural;
    use serde_json::json;

    fn schema() -> Structural {
        Structural::parse_trusted(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "size": {"type": "integer"},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}, "port": {"type": "integer"}, "open": {"type": "boolean"}}}},
            "words": {"type": "array", "items": {"type": "string"}},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "integer"}}},
        }}}}))
        .expect("a schema")
    }

    #[test]
    fn configurations_merge_by_the_schema() {
        let table = [
            (
                json!({"size": 2}),
                Ok(json!({"size": 2, "tags": ["a"], "ports": [{"name": "x", "port": 1}]})),
            ),
            (
                json!({"tags": ["b", "a"]}),
                Ok(json!({"size": 1, "tags": ["a", "b"], "ports": [{"name": "x", "port": 1}]})),
            ),
            (
                json!({"ports": [{"name": "y", "port": 2}, {"name": "x", "open": true}]}),
                Ok(json!({"size": 1, "tags": ["a"],
                    "ports": [{"name": "x", "port": 1, "open": true}, {"name": "y", "port": 2}]})),
            ),
            (json!({"words": ["w"]}), Err(".spec.words")),
            (json!({"whole": {"a": 1}, "words": []}), Err(".spec.whole, .spec.words")),
        ];
        for (spec, want) in table {
            let mut object = json!({"spec": {"size": 1, "tags": ["a"], "ports": [{"name": "x", "port": 1}]}});
            let got = apply_configuration(&mut object, &json!({"spec": spec}), schema().root());
            let got = got.map(|()| object["spec"].clone());
            let want = want.map_err(|paths| {
                format!("error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {paths}")
            });
            assert_eq!(got, want, "{spec}");
        }
    }

    #[test]
    fn a_test_that_does_not_hold_leaves_the_object() {
        let table = [
            (
                json!([{"op": "add", "path": "/b", "value": 2}]),
                Ok(json!({"a": 1, "b": 2})),
            ),
            (
                json!([{"op": "add", "path": "/b", "value": 2}, {"op": "test", "path": "/a", "value": 7}]),
                Ok(json!({"a": 1})),
            ),
            (json!([{"op": "remove", "path": "/x"}]), Err(())),
            (json!({"op": "remove"}), Err(())),
        ];
        for (patch, want) in table {
            let mut object = json!({"a": 1});
            let got = json_patch(&mut object, &patch, &Meter::unbounded())
                .map(|()| object)
                .map_err(drop);
            assert_eq!(got, want, "{patch}");
        }
    }
}
