//! Removal of fields from an object.

use super::items::identity;
use super::shape::{Kind, Shape};
use crate::fields::{Element, FieldSet};
use insula_api::Json;

/// Returns the value without the members of the set. Parents stay, even if they are empty.
pub(crate) fn remove(shape: Shape<'_>, value: &Json, gone: &FieldSet) -> Json {
    match (shape.kind(value), value) {
        (Kind::Map, Json::Object(fields)) => {
            let kept = fields.iter().filter_map(|(name, value)| {
                let value = match gone.place(&Element::field(name)) {
                    Some(place) if place.member => return None,
                    Some(place) => remove(shape.field(name), value, &place.below),
                    None => value.clone(),
                };
                Some((name.clone(), value))
            });
            Json::Object(kept.collect())
        }
        (kind @ (Kind::Set | Kind::Keyed(_)), Json::Array(items)) => {
            let kept = items.iter().filter_map(|item| {
                let element = identity(shape, kind, item).ok();
                match element.and_then(|element| gone.place(&element)) {
                    Some(place) if place.member => None,
                    Some(place) => Some(remove(shape.items(), item, &place.below)),
                    None => Some(item.clone()),
                }
            });
            Json::Array(kept.collect())
        }
        _ => value.clone(),
    }
}
