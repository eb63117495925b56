//! Paths of fields in the form of schemas.

use insula_api::Json;
use insula_schema::Node;

/// Returns the path of an error, `spec.list[3].x`, in the form of schemas, `.spec.list[].x`, as far
/// as the schema knows it.
pub(super) fn general(path: &str, root: &Node) -> String {
    let (mut node, mut out) = (root, String::new());
    for step in path.split(['.', '[']) {
        let (next, at) = match (node.property(step), node.items().or(node.additional())) {
            (Some(property), _) => (property, format!(".{step}")),
            (None, Some(inner)) => (inner, "[]".to_owned()),
            (None, None) => break,
        };
        node = next;
        out.push_str(&at);
    }
    out
}

/// Returns true if an object holds a value at a path in that form.
pub(super) fn holds(value: &Json, path: &str) -> bool {
    if let Some(rest) = path.strip_prefix("[]") {
        return match value {
            Json::Array(items) => items.iter().any(|item| holds(item, rest)),
            Json::Object(map) => map.values().any(|value| holds(value, rest)),
            _ => false,
        };
    }
    let Some(rest) = path.strip_prefix('.') else {
        return path.is_empty() && !value.is_null();
    };
    let end = rest.find(['.', '[']).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    value.get(name).is_some_and(|below| holds(below, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_leads_through_lists_and_maps() {
        let object = json!({"spec": {"list": [{"x": 1}, {"y": [2]}], "map": {"k": {"x": null}}}});
        for there in [
            ".spec",
            ".spec.list",
            ".spec.list[].x",
            ".spec.list[].y[]",
            ".spec.map[]",
        ] {
            assert!(holds(&object, there), "{there}");
        }
        for absent in [".status", ".spec.list[].z", ".spec.map[].x", ".spec.list.x", "[]x"] {
            assert!(!holds(&object, absent), "{absent}");
        }
    }
}
