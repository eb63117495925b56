//! What differs between two objects of one schema.

use super::items::identified;
use super::sets::{everything, grouped};
use super::shape::{Kind, Shape};
use crate::fields::{Element, FieldSet};
use insula_api::Json;

/// The fields that a change added, changed and removed. No field is in two of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Comparison {
    /// Leaves fields out, with all below them.
    pub(crate) fn cut(&mut self, ignored: &FieldSet) {
        self.added.cut(ignored);
        self.modified.cut(ignored);
        self.removed.cut(ignored);
    }

    /// What is new or other than it was.
    pub(crate) fn touched(&self) -> FieldSet {
        let mut touched = self.modified.clone();
        touched.unite(&self.added);
        touched
    }

    /// The same, of a comparison that is needed no more: of a new object all fields are added.
    pub(crate) fn into_touched(self) -> FieldSet {
        let mut touched = self.added;
        touched.unite(&self.modified);
        touched
    }
}

pub(crate) fn compare(shape: Shape<'_>, old: &Json, new: &Json) -> Comparison {
    let mut walk = Walk::default();
    walk.both(shape, old, new);
    walk.found
}

#[derive(Default)]
struct Walk {
    path: Vec<Element>,
    found: Comparison,
}

impl Walk {
    fn within(&mut self, element: Element, walk: impl FnOnce(&mut Walk)) {
        self.path.push(element);
        walk(self);
        self.path.pop();
    }

    fn added(&mut self, shape: Shape<'_>, new: &Json) {
        self.found.added.insert_tree(&self.path, everything(shape, new));
    }

    fn removed(&mut self, shape: Shape<'_>, old: &Json) {
        self.found.removed.insert_tree(&self.path, everything(shape, old));
    }

    fn both(&mut self, shape: Shape<'_>, old: &Json, new: &Json) {
        // Most of an object is as it was.
        if old == new {
            return;
        }
        let (before, after) = (shape.kind(old), shape.kind(new));
        if before != after {
            self.fields(shape, before, old, &Json::Null);
            self.fields(shape, after, &Json::Null, new);
            if is_leaf(before, old) || is_leaf(after, new) {
                self.found.modified.insert(&self.path);
            }
            return;
        }
        if is_leaf(before, old) && is_leaf(after, new) {
            self.found.modified.insert(&self.path);
            return;
        }
        self.fields(shape, before, old, new);
    }

    /// What differs below a place of which one side at least has fields.
    fn fields(&mut self, shape: Shape<'_>, kind: Kind<'_>, old: &Json, new: &Json) {
        match kind {
            Kind::Map => self.entries(shape, old, new),
            Kind::Set | Kind::Keyed(_) => self.items(shape, kind, old, new),
            Kind::Scalar(_) | Kind::AtomicList | Kind::AtomicMap => {}
        }
    }

    fn entries(&mut self, shape: Shape<'_>, old: &Json, new: &Json) {
        let empty = serde_json::Map::new();
        let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
        for (name, before) in old {
            let field = shape.field(name);
            self.within(Element::field(name), |walk| match new.get(name) {
                Some(after) => walk.both(field, before, after),
                None => walk.removed(field, before),
            });
        }
        for (name, after) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
            self.within(Element::field(name), |walk| walk.added(shape.field(name), after));
        }
    }

    fn items(&mut self, shape: Shape<'_>, kind: Kind<'_>, old: &Json, new: &Json) {
        let side = |value| {
            let items = Json::as_array(value).map_or(&[] as &[Json], Vec::as_slice);
            grouped(identified(shape, kind, items))
        };
        let (old, mut new) = (side(old), side(new));
        let items = shape.items();
        for (element, before) in old {
            let after = new.remove(&element).unwrap_or_default();
            self.within(element, |walk| match (before.as_slice(), after.as_slice()) {
                ([before], [after]) => walk.both(items, before, after),
                ([before], []) => walk.removed(items, before),
                // Equal items are one value, and turn into it and back.
                (before, after) if before.len() > 1 && after.len() > 1 => {
                    if before != after {
                        walk.found.modified.insert(&walk.path);
                    }
                }
                (before, after) => {
                    if let [after] = after {
                        walk.found.added.insert_tree(&walk.path, everything(items, after));
                        return;
                    }
                    if let [before] = before {
                        walk.found.removed.insert_tree(&walk.path, everything(items, before));
                    }
                    match after {
                        [] => walk.found.removed.insert(&walk.path),
                        _ => walk.found.modified.insert(&walk.path),
                    }
                }
            });
        }
        for (element, after) in new {
            self.within(element, |walk| match after.as_slice() {
                [after] => walk.added(items, after),
                _ => walk.found.added.insert(&walk.path),
            });
        }
    }
}

/// Whether a value is owned as one: a scalar, an atomic list or map, one that is empty.
fn is_leaf(kind: Kind<'_>, value: &Json) -> bool {
    match kind {
        Kind::Scalar(_) | Kind::AtomicList | Kind::AtomicMap => true,
        Kind::Map => value.as_object().is_none_or(serde_json::Map::is_empty),
        Kind::Set | Kind::Keyed(_) => value.as_array().is_none_or(Vec::is_empty),
    }
}
