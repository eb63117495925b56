//! Field sets of whole objects.

use super::items::identified;
use super::shape::{Child, Kind, Shape};
use crate::fields::{Element, FieldNode, FieldSet};
use insula_api::Json;
use std::collections::BTreeMap;

/// Returns the fields that an applied configuration owns: every leaf, item of a list and entry of a
/// map.
pub(crate) fn fields_of(shape: Shape<'_>, value: &Json) -> FieldSet {
    owned(shape, value).below
}

/// A leaf is a member; a value with fields of its own is one only if it is an item or entry.
fn owned(shape: Shape<'_>, value: &Json) -> FieldNode {
    let mut below = FieldSet::default();
    match (shape.kind(value), value) {
        (Kind::Scalar(_) | Kind::AtomicList | Kind::AtomicMap, _) => return FieldNode { member: true, below },
        (Kind::Map, Json::Object(fields)) => {
            let mut shapes = shape.fields();
            for (name, value) in fields {
                let Child { shape: field, named } = shapes.child(name).unwrap_or(Child::UNKNOWN);
                let mut place = owned(field, value);
                let hollow = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                place.member |= hollow || !named;
                below.put(Element::field(name), place);
            }
        }
        (kind @ (Kind::Set | Kind::Keyed(_)), Json::Array(items)) => {
            for (element, items) in grouped(identified(shape, kind, items)) {
                let below_item = match items.as_slice() {
                    [item] => owned(shape.items(), item).below,
                    // The fields of duplicate items cannot be told apart: the items are owned as
                    // wholes.
                    _ => FieldSet::default(),
                };
                below.put(
                    element,
                    FieldNode {
                        member: true,
                        below: below_item,
                    },
                );
            }
        }
        _ => {}
    }
    FieldNode { member: false, below }
}

/// Returns every path of a value, as if all of it had just been added.
pub(crate) fn everything(shape: Shape<'_>, value: &Json) -> FieldSet {
    let mut all = FieldSet::default();
    match (shape.kind(value), value) {
        (Kind::Map, Json::Object(fields)) => {
            all = FieldSet::with_capacity(fields.len());
            let mut shapes = shape.fields();
            for (name, value) in fields {
                let below = everything(shapes.field(name), value);
                all.put(Element::field(name), FieldNode { member: true, below });
            }
        }
        (kind @ (Kind::Set | Kind::Keyed(_)), Json::Array(items)) => {
            for (element, items) in grouped(identified(shape, kind, items)) {
                let below = match items.as_slice() {
                    [item] => everything(shape.items(), item),
                    _ => FieldSet::default(),
                };
                all.put(element, FieldNode { member: true, below });
            }
        }
        _ => {}
    }
    all
}

/// Groups items by their element.
pub(crate) fn grouped(items: Vec<(Element, &Json)>) -> BTreeMap<Element, Vec<&Json>> {
    let mut groups: BTreeMap<Element, Vec<&Json>> = BTreeMap::new();
    for (element, item) in items {
        groups.entry(element).or_default().push(item);
    }
    groups
}

/// Adds the declared fields that lead to members: the owner of `spec.size` has `spec` too, but the
/// owner of a map's entry does not have its other entries.
pub(crate) fn with_named(shape: Shape<'_>, set: FieldSet) -> FieldSet {
    let mut fields = shape.fields();
    set.map(|element, place| {
        let child = match element {
            Element::Field(name) => fields.child(name).unwrap_or(Child::UNKNOWN),
            Element::Key(_) | Element::Value(_) | Element::Index(_) => Child::entry(shape.items()),
        };
        FieldNode {
            member: place.member || child.named,
            below: with_named(child.shape, place.below),
        }
    })
}
