//! Merge of an applied configuration into a live object.

use super::items::identified;
use super::shape::{Kind, Shape};
use crate::fields::Element;
use insula_api::Json;
use serde_json::Map;
use std::collections::{BTreeMap, BTreeSet};

/// Merges a configuration into the live object. Removes nothing; lists keep their items and take
/// the applied order.
pub(crate) fn merge(shape: Shape<'_>, live: &Json, applied: &Json) -> Json {
    let kind = shape.kind(applied);
    match kind {
        Kind::Scalar(_) | Kind::AtomicList | Kind::AtomicMap => applied.clone(),
        Kind::Map => match (entries(live), entries(applied)) {
            (_, None) if entries(live).is_none() => applied.clone(),
            (None, _) => applied.clone(),
            (_, None) => live.clone(),
            (Some(live), Some(applied)) => Json::Object(merge_maps(shape, live, applied)),
        },
        Kind::Set | Kind::Keyed(_) => match (items(live), items(applied)) {
            (None, _) => applied.clone(),
            (_, None) => live.clone(),
            (Some(live), Some(applied)) => Json::Array(merge_lists(shape, kind, live, applied)),
        },
    }
}

fn entries(value: &Json) -> Option<&Map<String, Json>> {
    value.as_object().filter(|fields| !fields.is_empty())
}

fn items(value: &Json) -> Option<&[Json]> {
    value.as_array().map(Vec::as_slice).filter(|items| !items.is_empty())
}

fn merge_maps(shape: Shape<'_>, live: &Map<String, Json>, applied: &Map<String, Json>) -> Map<String, Json> {
    let mut merged = live.clone();
    for (name, value) in applied {
        let value = match live.get(name) {
            Some(live) => merge(shape.field(name), live, value),
            None => value.clone(),
        };
        merged.insert(name.clone(), value);
    }
    merged
}

/// Merges two lists. Items that exist only in `live` keep their position among those whose order is
/// unchanged; common items take the applied order.
///
/// ```text
/// live [a b c], applied [c x a] -> [b c x a]
/// ```
fn merge_lists(shape: Shape<'_>, kind: Kind<'_>, live: &[Json], applied: &[Json]) -> Vec<Json> {
    let live = identified(shape, kind, live);
    let applied = identified(shape, kind, applied);
    let mut known: BTreeMap<&Element, Option<&Json>> = BTreeMap::new();
    for (element, item) in &live {
        // Duplicate items are replaced by the applied one, not merged with it.
        known
            .entry(element)
            .and_modify(|item| *item = None)
            .or_insert(Some(item));
    }
    let wanted: BTreeSet<&Element> = applied.iter().map(|(element, _)| element).collect();
    let over = |element: &Element, item: &Json| match known.get(element).copied().flatten() {
        Some(live) => merge(shape.items(), live, item),
        None => item.clone(),
    };
    let mut shared = applied
        .iter()
        .map(|(element, _)| element)
        .filter(|element| known.contains_key(element));
    let mut next = shared.next();
    let mut merged = Vec::with_capacity(live.len() + applied.len());
    let mut taken: BTreeSet<&Element> = BTreeSet::new();
    let (mut l, mut a) = (live.iter().peekable(), applied.iter().peekable());
    loop {
        if let Some((element, item)) = l.peek() {
            if !wanted.contains(element) {
                // Only in `live`: goes before the next item.
                merged.push((*item).clone());
                l.next();
                continue;
            }
            let due = a.peek().is_some_and(|(first, _)| first == element);
            if !due && a.peek().is_some() && next.is_some_and(|next| next != element) {
                // Applied at a later position.
                l.next();
                continue;
            }
            if due || taken.contains(element) {
                l.next();
            }
        }
        let Some((element, item)) = a.next() else {
            match l.peek() {
                Some(_) => continue,
                None => break,
            }
        };
        merged.push(over(element, item));
        taken.insert(element);
        if next == Some(element) {
            next = shared.next();
        }
    }
    merged
}
