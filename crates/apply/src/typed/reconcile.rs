//! Adaptation of field sets that were written under an older schema.

use super::shape::{Kind, Shape};
use crate::fields::{Element, FieldNode, FieldSet};
use insula_api::Json;

/// Returns the set under the current schema: an owner of a field inside a list or map that has
/// become atomic owns the whole value.
pub(crate) fn reconcile(shape: Shape<'_>, set: FieldSet) -> FieldSet {
    set.map(|element, place| match element {
        _ if place.below.is_empty() => place,
        Element::Field(name) => reconcile_place(shape.field(name), place),
        Element::Key(_) | Element::Value(_) | Element::Index(_) => reconcile_place(shape.items(), place),
    })
}

fn reconcile_place(child: Shape<'_>, place: FieldNode) -> FieldNode {
    if child.is_unknown() {
        return place;
    }
    // Only the schema decides: where it leaves the type open, ownership stays as it is.
    match child.kind(&Json::Null) {
        Kind::AtomicList | Kind::AtomicMap => FieldNode {
            member: true,
            below: FieldSet::default(),
        },
        Kind::Scalar(_) | Kind::Set | Kind::Keyed(_) | Kind::Map => FieldNode {
            member: place.member,
            below: reconcile(child, place.below),
        },
    }
}
