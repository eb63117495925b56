//! Values of an object that its schema has no field for.

use super::super::{Item, Patch, Ref, identities, key, waiting};
use super::{Name, is_ours, keeps_items, known_part, name_at};
use insula_schema::{Children, Node, Structural};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Returns the values of an object that the schema has no field for; `None` if there are none.
pub(crate) fn unknown(schema: &Structural, object: &Json) -> Option<Patch> {
    unknown_beside(schema, object, None)
}

/// Returns the same for an object with retained values beside those that `stands` has: also those
/// of a type that their field does not take, as long as none stands there.
pub(crate) fn unknown_beside(schema: &Structural, object: &Json, stands: Option<&Json>) -> Option<Patch> {
    let fields = object.as_object()?.iter().filter(|(name, _)| is_ours(name));
    unknown_fields(Some(schema.root()), fields, stands)
}

/// Returns true for a field without a value, and for one with its default, which nobody wrote.
fn is_unwritten(node: &Node, stands: Option<&Json>) -> bool {
    stands.is_none_or(|stands| node.default() == Some(stands))
}

/// `node` is `None` for an item of what is no list in the schema: it has no fields there.
fn unknown_fields<'a>(
    node: Option<&Node>,
    fields: impl Iterator<Item = (&'a String, &'a Json)>,
    stands: Option<&Json>,
) -> Option<Patch> {
    // Every write asks this of every field: the names of both are in order.
    let mut children = node.filter(|node| !node.embedded()).map(Children::new);
    let unknown = fields.filter_map(|(name, value)| {
        if let Some(waiting) = waiting::read(node, name, Some(value)) {
            return Some(waiting);
        }
        let known = match children.as_mut().and_then(|children| children.child(name)) {
            Some(child) => Name::Field(child),
            None => name_at(node, name),
        };
        let patch = match known {
            Name::Unknown => Some(Patch::Set {
                value: value.clone(),
                guard: None,
            }),
            Name::Opaque => None,
            Name::Field(child) => match stands.map(|stands| stands.get(name)) {
                Some(stands) if is_unwritten(child, stands) && known_part(child, value).is_none() => Some(Patch::Set {
                    value: value.clone(),
                    guard: None,
                }),
                stands => unknown_below(Some(child), value, stands.flatten()),
            },
        };
        patch.map(|patch| (name.clone(), patch))
    });
    let mut all: BTreeMap<String, Patch> = BTreeMap::new();
    for (name, patch) in unknown {
        // A list, and what waits for it.
        let patch = match all.remove(&name) {
            Some(list) => list.and(patch),
            None => patch,
        };
        all.insert(name, patch);
    }
    let unknown = all;
    (!unknown.is_empty()).then_some(Patch::Fields(unknown))
}

pub(super) fn unknown_below(node: Option<&Node>, value: &Json, stands: Option<&Json>) -> Option<Patch> {
    match value {
        Json::Object(map) => unknown_fields(node, map.iter(), stands.filter(|stands| stands.is_object())),
        Json::Array(items) => {
            let item = node.and_then(Node::items);
            if node.is_some_and(keeps_items) {
                return None;
            }
            let stands = stands.and_then(Json::as_array);
            let stands = stands.filter(|stands| stands.len() == items.len());
            let unknown = |(i, value): (usize, &Json)| {
                let stands = stands.map(|stands| &stands[i]);
                Some((i, unknown_below(item, value, stands)?))
            };
            let unknown: Vec<(usize, Patch)> = items.iter().enumerate().filter_map(unknown).collect();
            let keyed = !unknown.is_empty() && identities(items, node).is_some();
            let reference = |i: usize| {
                let key = key(node, &items[i]).filter(|_| keyed);
                key.map_or(Ref::Index(i), Ref::Key)
            };
            let entries: Vec<(Ref, Patch)> = unknown.into_iter().map(|(i, patch)| (reference(i), patch)).collect();
            (!entries.is_empty()).then_some(Patch::Within(entries))
        }
        _ => None,
    }
}

/// Returns true if a residual of a version sets a value that its schema has no field for.
pub(crate) fn has_unknown(schema: &Structural, patch: &Patch) -> bool {
    let Patch::Fields(fields) = patch else { return false };
    let mut fields = fields.iter().filter(|(name, _)| is_ours(name));
    fields.any(|(name, patch)| is_unknown(Some(schema.root()), name, patch))
}

fn is_unknown(node: Option<&Node>, name: &str, patch: &Patch) -> bool {
    match name_at(node, name) {
        Name::Unknown => !matches!(patch, Patch::Unset { .. }),
        Name::Opaque => false,
        Name::Field(child) => sets_unknown(Some(child), patch),
    }
}

pub(super) fn sets_unknown(node: Option<&Node>, patch: &Patch) -> bool {
    let below = node.and_then(Node::items);
    let is_opaque = node.is_some_and(keeps_items);
    let in_item = |patch: &Patch| !is_opaque && sets_unknown(below, patch);
    match patch {
        Patch::Set { value, .. } => unknown_below(node, value, None).is_some(),
        Patch::Unset { .. } => false,
        Patch::Fields(fields) => fields.iter().any(|(name, patch)| is_unknown(node, name, patch)),
        Patch::Within(entries) => entries.iter().any(|(_, patch)| in_item(patch)),
        Patch::Items { items, .. } => items.iter().any(|item| match item {
            Item::Base(_, patch) => patch.as_ref().is_some_and(in_item),
            Item::New(value) => !is_opaque && unknown_below(below, value, None).is_some(),
        }),
    }
}
