//! Three-way merge of lists: items by their identity, or by the index that rules name.

use super::{Location, Side, merge, remove};
use crate::align::{align, covers, equal};
use crate::fixed::Fixed;
use insula_schema::{ListType, Node};
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

impl Location<'_> {
    /// Returns true if items are told apart by their index: rules name all that `shown` shows, and
    /// `stands` has them there. A list whose gaps were closed has its items elsewhere.
    pub(super) fn by_index(&self, shown: &[Json], stands: &[Json]) -> bool {
        let Some(fixed) = self.fixed.filter(|fixed| fixed.has_items()) else {
            return false;
        };
        let is_there = |(index, item): (usize, &Json)| {
            let place = stands.get(index);
            item.is_null() || fixed.has_item(index) && place.is_some_and(|place| covers(item, place))
        };
        shown.iter().enumerate().all(is_there)
    }

    fn names_all(&self, items: &[Json]) -> bool {
        let named =
            |(index, item): (usize, &Json)| item.is_null() || self.fixed.is_some_and(|fixed| fixed.has_item(index));
        items.iter().enumerate().all(named)
    }
}

/// Merges two lists. Items of `onto` that `old` does not show are hidden from the editor: each
/// stays behind the item that it followed.
pub(super) fn merge_lists(place: Location<'_>, old: Side<'_>, new: Side<'_>, onto: &[Json], force: bool) -> Vec<Json> {
    if place.by_index(old.list(), onto) && place.names_all(new.list()) {
        return merge_named(place, old, new, onto, force);
    }
    let node = place.node;
    let has_gaps = place.fixed.is_some_and(Fixed::has_items);
    let (before, before_at) = present(old.list(), has_gaps);
    let (after, after_at) = present(new.list(), has_gaps);
    let (before, after) = (&*before, &*after);
    let to_onto = align(before, onto, node, covers);
    let origins = old.origin.zip(new.origin).filter(|_| !has_gaps);
    let origins = origins.and_then(|(old, new)| Some((old.items(before.len())?, new.items(after.len())?)));
    // Keys of this list tell more than the order of items without keys.
    let is_keyed = |node: &Node| matches!(node.list_type(), ListType::Map { .. });
    let origins = origins.filter(|((_, origin), _)| is_keyed(origin) || !node.is_some_and(is_keyed));
    let to_after = match origins {
        Some(((was, node), (is, _))) => align(was, is, Some(node), equal),
        None => align(before, after, node, equal),
    };
    let mut from_before: HashMap<usize, usize> = HashMap::new();
    to_after.iter().enumerate().for_each(|(i, j)| {
        if let Some(j) = j {
            from_before.insert(*j, i);
        }
    });
    let seen: BTreeSet<usize> = to_onto.iter().flatten().copied().collect();
    // An item that the editor adds may already exist, hidden from the editor.
    let added = if crate::align::identities(after, node).is_some() {
        align(after, onto, node, equal)
    } else {
        Vec::new()
    };
    let mut placed: Vec<(Option<usize>, Option<Json>)> = Vec::new();
    for (j, item) in after.iter().enumerate() {
        let here = place.index(after_at[j]);
        placed.push(match from_before.get(&j) {
            Some(&i) => {
                let at = to_onto[i];
                let stands = at.and_then(|k| onto.get(k));
                let (was, is) = (old.index(before_at[i]), new.index(after_at[j]));
                // Missing although it was shown: removed through another version. Only an edit
                // restores it.
                let gone = stands.is_none() && !force && was.value == is.value && was.trace == is.trace;
                (
                    at,
                    if gone {
                        None
                    } else {
                        merge(here, was, is, stands, force)
                    },
                )
            }
            None => match added.get(j).copied().flatten().filter(|k| !seen.contains(k)) {
                Some(k) => {
                    let is = new.index(after_at[j]);
                    (Some(k), merge(here, Side::default(), is, onto.get(k), force))
                }
                None => (None, Some(here.take(item))),
            },
        });
    }
    let kept: BTreeSet<usize> = placed.iter().filter_map(|(k, _)| *k).collect();
    let hidden = |k: &usize| !seen.contains(k) && !kept.contains(k);
    let order: Vec<usize> = to_after.iter().flatten().copied().collect();
    let reordered = order.windows(2).any(|pair| pair[0] > pair[1]);
    if reordered {
        editors_order(placed, onto, hidden)
    } else {
        standing_order(placed, onto, hidden)
    }
}

/// Returns the items of a list, without the nulls that stand for none, with their indices.
pub(super) fn present(items: &[Json], has_gaps: bool) -> (Cow<'_, [Json]>, Vec<usize>) {
    if !has_gaps || !items.iter().any(Json::is_null) {
        return (Cow::Borrowed(items), (0..items.len()).collect());
    }
    let there = items.iter().enumerate().filter(|(_, item)| !item.is_null());
    let (at, items): (Vec<usize>, Vec<Json>) = there.map(|(at, item)| (at, item.clone())).unzip();
    (Cow::Owned(items), at)
}

/// Orders items after an edit that moved some: the editor's order holds, and hidden items follow
/// the item that they followed before.
fn editors_order(
    placed: Vec<(Option<usize>, Option<Json>)>,
    onto: &[Json],
    hidden: impl Fn(&usize) -> bool,
) -> Vec<Json> {
    let known: BTreeSet<usize> = placed.iter().filter_map(|(k, _)| *k).collect();
    let mut behind: HashMap<Option<usize>, Vec<Json>> = HashMap::new();
    let mut last = None;
    for (k, item) in onto.iter().enumerate() {
        if known.contains(&k) {
            last = Some(k);
        } else if hidden(&k) {
            behind.entry(last).or_default().push(item.clone());
        }
    }
    let mut out = behind.remove(&None).unwrap_or_default();
    for (k, item) in placed {
        out.extend(item);
        if k.is_some() {
            out.extend(behind.remove(&k).unwrap_or_default());
        }
    }
    out
}

/// Orders items after an edit that moved none: the current order holds, and new items follow the
/// item behind which they were inserted.
fn standing_order(
    placed: Vec<(Option<usize>, Option<Json>)>,
    onto: &[Json],
    hidden: impl Fn(&usize) -> bool,
) -> Vec<Json> {
    let mut merged: HashMap<usize, Option<Json>> = HashMap::new();
    let mut behind: HashMap<Option<usize>, Vec<Json>> = HashMap::new();
    let mut last = None;
    for (k, item) in placed {
        if let Some(k) = k {
            merged.insert(k, item);
            last = Some(k);
        } else if let Some(item) = item {
            behind.entry(last).or_default().push(item);
        }
    }
    let mut out = behind.remove(&None).unwrap_or_default();
    for (k, item) in onto.iter().enumerate() {
        if let Some(item) = merged.remove(&k) {
            out.extend(item);
        } else if hidden(&k) {
            out.push(item.clone());
        }
        out.extend(behind.remove(&Some(k)).unwrap_or_default());
    }
    out
}

/// Merges the items that rules name, each in its place; the others stay.
fn merge_named(place: Location<'_>, old: Side<'_>, new: Side<'_>, onto: &[Json], force: bool) -> Vec<Json> {
    let count = onto.len().max(new.list().len());
    let item = |index: usize| {
        let (old, new, stands) = (old.item(index), new.item(index), onto.get(index));
        match (old.value, new.value, stands) {
            (Some(seen), None, Some(stands)) => remove_named(place.index(index), seen, stands),
            (None, None, stands) => stands.cloned(),
            (_, _, stands) => merge(place.index(index), old, new, stands, force),
        }
    };
    (0..count).filter_map(item).collect()
}

/// Returns what remains of an item that rules name: it stays as long as anything in it is there.
pub(super) fn remove_named(place: Location<'_>, seen: &Json, stands: &Json) -> Option<Json> {
    let (Json::Object(shown), Json::Object(fields)) = (seen, stands) else {
        return remove(place, seen, stands);
    };
    let left = fields.iter().filter_map(|(name, value)| match shown.get(name) {
        None => Some((name.clone(), value.clone())),
        Some(seen) => Some((name.clone(), remove(place.field(name), seen, value)?)),
    });
    let left: Map<String, Json> = left.collect();
    (!left.is_empty()).then_some(Json::Object(left))
}
