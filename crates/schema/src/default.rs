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
