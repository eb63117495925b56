//! Defaulting. A default is copied where the field is absent, or null without being nullable; the
//! defaults below then complete the copy. An absent object without a default of its own stays
//! absent.

use crate::node::{Children, Node};
use crate::structural::Structural;
use insula_api::Json;

/// Fills in defaults, in place.
pub fn default(object: &mut Json, schema: &Structural) {
    default_value(object, schema.root());
}

/// Fills in the defaults of a value of `node`.
pub(crate) fn default_value(value: &mut Json, node: &Node) {
    if !node.below.defaults {
        return;
    }
    match value {
        Json::Object(map) => {
            for (name, child) in &node.properties {
                if let Some(fallback) = &child.default
                    && map.get(&**name).is_none_or(|v| v.is_null() && !child.nullable)
                {
                    map.insert(name.to_string(), fallback.clone());
                }
            }
            let mut children = Children::new(node);
            for (name, child) in map.iter_mut() {
                if let Some(node) = children.child(name) {
                    fill(child, node);
                }
            }
        }
        Json::Array(list) => {
            if let Some(items) = node.items() {
                for item in list {
                    fill(item, items);
                }
            }
        }
        _ => {}
    }
}

fn fill(value: &mut Json, node: &Node) {
    if value.is_null()
        && !node.nullable
        && let Some(fallback) = &node.default
    {
        *value = fallback.clone();
    }
    default_value(value, node);
}

/// Returns true if [`default`] would change an object, which stays as it is.
pub fn lacks_defaults(object: &Json, schema: &Structural) -> bool {
    value_lacks(object, schema.root())
}

fn value_lacks(value: &Json, node: &Node) -> bool {
    if !node.below.defaults {
        return false;
    }
    match value {
        Json::Object(map) => {
            let mut fields = node.properties.iter();
            if fields.any(|(name, child)| child.default.is_some() && !map.contains_key(&**name)) {
                return true;
            }
            let mut children = Children::new(node);
            map.iter()
                .any(|(name, child)| children.child(name).is_some_and(|node| is_unfilled(child, node)))
        }
        Json::Array(list) => node
            .items()
            .is_some_and(|items| list.iter().any(|item| is_unfilled(item, items))),
        _ => false,
    }
}

fn is_unfilled(value: &Json, node: &Node) -> bool {
    let fallback = node.default.as_ref().filter(|_| value.is_null() && !node.nullable);
    fallback.is_some_and(|fallback| !fallback.is_null()) || value_lacks(value, node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// It looks for exactly what the other one fills in.
    #[test]
    fn what_would_be_changed_lacks_something() {
        let size = json!({"type": "integer", "default": 1});
        let item = json!({"type": "object", "properties": {"size": size}});
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": {
            "size": size, "name": {"type": "string", "nullable": true, "default": "a"}, "text": {"type": "string"},
            "list": {"type": "array", "items": item}, "map": {"type": "object", "additionalProperties": item},
            "sizes": {"type": "array", "items": {"type": "integer", "default": 2}}}}}});
        let schema = Structural::parse_trusted(&schema).expect("a schema");
        let full = json!({"size": 2, "name": null});
        let mut lacking = 0;
        for more in [
            json!({}),
            json!({"size": null}),
            json!({"text": null}),
            json!({"list": [{"size": 1}, {}]}),
            json!({"list": [{"size": 1}, null]}),
            json!({"map": {"a": {"size": null}}}),
            json!({"map": {"a": {"size": 3}}, "list": []}),
            json!({"sizes": [1, null]}),
            json!({"sizes": [1]}),
        ] {
            for with in [true, false] {
                let mut spec = if with { full.clone() } else { json!({}) };
                let fields = spec.as_object_mut().expect("an object");
                fields.extend(more.as_object().expect("fields").clone());
                let object = json!({"spec": spec});
                let mut filled = object.clone();
                default(&mut filled, &schema);
                assert_eq!(lacks_defaults(&object, &schema), filled != object, "{object}");
                lacking += usize::from(filled != object);
            }
        }
        assert_eq!(lacking, 13);
        assert!(lacks_defaults(&json!({}), &schema));
    }
}
