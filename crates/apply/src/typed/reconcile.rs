//! Sets that were written under an older schema.

use super::shape::{Kind, Shape};
use crate::fields::{Element, FieldSet, Place};
use insula_api::Json;

/// The set under today's schema: who owned something inside a list or map that has become one value owns that value.
pub(crate) fn reconcile(shape: Shape<'_>, set: &FieldSet) -> FieldSet {
    let mut out = FieldSet::default();
    for (element, place) in set.places() {
        out.put(element.clone(), reconcile_place(shape, element, place));
    }
    out
}

fn reconcile_place(shape: Shape<'_>, element: &Element, place: &Place) -> Place {
    let child = match element {
        Element::Field(name) => match shape.child(name) {
            Some(child) => child.shape,
            None => return place.clone(),
        },
        Element::Key(_) | Element::Value(_) | Element::Index(_) => shape.items(),
    };
    if child.is_unknown() || place.below.is_empty() {
        return place.clone();
    }
    // The schema alone decides: where it leaves the type open, it has no opinion on ownership either.
    match child.kind(&Json::Null) {
        Kind::AtomicList | Kind::AtomicMap => Place {
            member: true,
            below: FieldSet::default(),
        },
        Kind::Scalar(_) | Kind::Set | Kind::Keyed(_) | Kind::Map => Place {
            member: place.member,
            below: reconcile(child, &place.below),
        },
    }
}
