//! The fields of one object as a set.

use super::items::identified;
use super::shape::{Child, Kind, Shape};
use crate::fields::{Element, FieldNode, FieldSet};
use insula_api::Json;
use std::collections::BTreeMap;

/// What an applied configuration owns: every leaf, every item of a list, every entry of a map.
pub(crate) fn fields_of(shape: Shape<'_>, value: &Json) -> FieldSet {
    owned(shape, value).below
}

/// A leaf is a member; what has fields of its own is one only if its parent says so.
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
                    // Which of several equal items a field is of cannot be said: they are owned
                    // together.
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

/// Every place of a value, as if it had just been added.
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

/// Items that nothing tells apart, together.
pub(crate) fn grouped(items: Vec<(Element, &Json)>) -> BTreeMap<Element, Vec<&Json>> {
    let mut groups: BTreeMap<Element, Vec<&Json>> = BTreeMap::new();
    for (element, item) in items {
        groups.entry(element).or_default().push(item);
    }
    groups
}

/// The set with the named fields that lead to its members: who owns `spec.size` has `spec` too, but
/// who owns an entry of a map does not have the map's other entries.
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
