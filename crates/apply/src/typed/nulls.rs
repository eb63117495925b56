//! Nulls of an applied configuration.

use super::items::identified;
use super::shape::{Kind, Shape};
use insula_api::Json;
use std::collections::BTreeMap;

/// Sets the nulls of a configuration where the object has nothing in their place: nothing, or a
/// container that became empty. A merge keeps what is in a container, since others may own it, and
/// so leaves an empty one behind once the writer's own fields are gone.
pub(crate) fn set_nulls(shape: Shape<'_>, object: &mut Json, applied: &Json) {
    match (shape.kind(applied), &mut *object, applied) {
        (Kind::Map, Json::Object(fields), Json::Object(applied)) => {
            for (name, applied) in applied {
                match fields.get_mut(name) {
                    Some(value) if applied.is_null() && is_empty(value) => *value = Json::Null,
                    Some(value) => set_nulls(shape.field(name), value, applied),
                    None if applied.is_null() => {
                        fields.insert(name.clone(), Json::Null);
                    }
                    None => {}
                }
            }
        }
        (kind @ Kind::Keyed(_), Json::Array(items), Json::Array(applied)) => {
            let mut places = BTreeMap::new();
            for (place, (element, _)) in identified(shape, kind, items).into_iter().enumerate() {
                places.entry(element).or_insert(place);
            }
            for (element, applied) in identified(shape, kind, applied) {
                let place = places.get(&element);
                if let Some(item) = place.and_then(|place| items.get_mut(*place)) {
                    set_nulls(shape.items(), item, applied);
                }
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Json) -> bool {
    match value {
        Json::Object(fields) => fields.is_empty(),
        Json::Array(items) => items.is_empty(),
        _ => false,
    }
}
