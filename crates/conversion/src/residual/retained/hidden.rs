//! Retained values that a write through a place where anything is kept leaves where they are.

use super::super::places;
use super::{Name, Patch, Ref, free, is_ours, keeps_items, name_at};
use insula_schema::{Node, Structural};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Returns the retained values of items that an object has at places where anything is kept, and
/// that do not show there.
pub(super) fn hidden(schema: &Structural, retained: &Patch, object: &Json) -> Option<Patch> {
    let Patch::Fields(fields) = retained else { return None };
    let ours = fields.iter().filter(|(name, _)| is_ours(name));
    hidden_fields(schema.root(), ours, object)
}

fn hidden_fields<'a>(
    node: &Node,
    fields: impl Iterator<Item = (&'a String, &'a Patch)>,
    value: &Json,
) -> Option<Patch> {
    let hidden = fields.filter_map(|(name, patch)| {
        let below = value.get(name)?;
        let hidden = match name_at(Some(node), name) {
            Name::Unknown => None,
            Name::Opaque => free::hidden(patch, below),
            Name::Field(child) => hidden_below(child, patch, below),
        };
        Some((name.clone(), hidden?))
    });
    let hidden: BTreeMap<String, Patch> = hidden.collect();
    (!hidden.is_empty()).then_some(Patch::Fields(hidden))
}

fn hidden_below(node: &Node, patch: &Patch, value: &Json) -> Option<Patch> {
    match (patch, value) {
        (Patch::Fields(fields), Json::Object(_)) => hidden_fields(node, fields.iter(), value),
        (Patch::Within(_), Json::Array(_)) if keeps_items(node) => free::hidden(patch, value),
        (Patch::Within(entries), Json::Array(items)) => {
            let item = node.items()?;
            let places = places(entries.iter().map(|(at, _)| at), Some(node), items);
            let hidden = entries.iter().zip(places).filter_map(|((at, patch), i)| {
                let hidden = hidden_below(item, patch, items.get(i?)?)?;
                Some((at.clone(), hidden))
            });
            let hidden: Vec<(Ref, Patch)> = hidden.collect();
            (!hidden.is_empty()).then_some(Patch::Within(hidden))
        }
        _ => None,
    }
}
