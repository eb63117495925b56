//! Comparison of two objects under one schema.

use super::items::identified;
use super::sets::{everything, grouped};
use super::shape::{Kind, Shape};
use crate::fields::{Element, FieldSet};
use insula_api::Json;
use std::collections::BTreeMap;

/// Fields that a change added, changed and removed; the three sets are disjoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Comparison {
    /// Removes ignored fields, with everything below them.
    pub(crate) fn cut(&mut self, ignored: &FieldSet) {
        self.added.cut(ignored);
        self.modified.cut(ignored);
        self.removed.cut(ignored);
    }

    /// Returns the fields of a set that were added or changed.
    pub(crate) fn touched(&self, fields: &FieldSet) -> FieldSet {
        let mut touched = fields.intersection(&self.added);
        touched.unite(fields.intersection(&self.modified));
        touched
    }

    /// Returns all fields that were added or changed.
    pub(crate) fn into_touched(self) -> FieldSet {
        let mut touched = self.added;
        touched.unite(self.modified);
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
        // Most of an object is unchanged.
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

    /// Compares a path where at least one side has fields of its own.
    fn fields(&mut self, shape: Shape<'_>, kind: Kind<'_>, old: &Json, new: &Json) {
        match kind {
            Kind::Map => self.entries(shape, old, new),
            Kind::Set | Kind::Keyed(_) => self.items(shape, kind, old, new),
            Kind::Scalar(_) | Kind::AtomicList | Kind::AtomicMap => {}
        }
    }

    fn entries(&mut self, shape: Shape<'_>, old: &Json, new: &Json) {
        let empty = Object::new();
        let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
        let mut shapes = shape.fields();
        for (name, before, after) in beside(old, new) {
            let field = shapes.field(name);
            self.within(Element::field(name), |walk| match (before, after) {
                (Some(before), Some(after)) => walk.both(field, before, after),
                (Some(before), None) => walk.removed(field, before),
                (None, Some(after)) => walk.added(field, after),
                (None, None) => {}
            });
        }
    }

    fn items(&mut self, shape: Shape<'_>, kind: Kind<'_>, old: &Json, new: &Json) {
        let side = |value| {
            let items = Json::as_array(value).map_or(&[] as &[Json], Vec::as_slice);
            grouped(identified(shape, kind, items))
        };
        let mut both: BTreeMap<Element, (Vec<&Json>, Vec<&Json>)> = BTreeMap::new();
        for (element, before) in side(old) {
            both.entry(element).or_default().0 = before;
        }
        for (element, after) in side(new) {
            both.entry(element).or_default().1 = after;
        }
        let items = shape.items();
        for (element, (before, after)) in both {
            self.within(element, |walk| walk.item(items, &before, &after));
        }
    }

    /// Compares the items of a list with one identity. Duplicates count together as one value.
    fn item(&mut self, shape: Shape<'_>, before: &[&Json], after: &[&Json]) {
        match (before, after) {
            ([before], [after]) => self.both(shape, before, after),
            ([before], []) => self.removed(shape, before),
            ([], [after]) => self.added(shape, after),
            (_, []) => self.found.removed.insert(&self.path),
            ([], _) => self.found.added.insert(&self.path),
            ([before], _) => {
                self.removed(shape, before);
                self.found.modified.insert(&self.path);
            }
            (_, [after]) => self.added(shape, after),
            (before, after) if before != after => self.found.modified.insert(&self.path),
            _ => {}
        }
    }
}

type Object = serde_json::Map<String, Json>;

/// Iterates over the fields of two objects in order, each name once.
fn beside<'v>(old: &'v Object, new: &'v Object) -> impl Iterator<Item = (&'v str, Option<&'v Json>, Option<&'v Json>)> {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    std::iter::from_fn(move || {
        let name = match (old.peek(), new.peek()) {
            (Some((before, _)), Some((after, _))) => Ord::min(*before, *after),
            (Some((name, _)), None) | (None, Some((name, _))) => *name,
            (None, None) => return None,
        };
        let before = old.next_if(|(own, _)| *own == name).map(|(_, value)| value);
        let after = new.next_if(|(own, _)| *own == name).map(|(_, value)| value);
        Some((name.as_str(), before, after))
    })
}

/// Returns true if a value has one owner: a scalar, an atomic list or map, or an empty one.
fn is_leaf(kind: Kind<'_>, value: &Json) -> bool {
    match kind {
        Kind::Scalar(_) | Kind::AtomicList | Kind::AtomicMap => true,
        Kind::Map => value.as_object().is_none_or(serde_json::Map::is_empty),
        Kind::Set | Kind::Keyed(_) => value.as_array().is_none_or(Vec::is_empty),
    }
}
