//! Order of merged lists: items of the patch take the patch's order, the others keep their live
//! order, and the two sequences are merged so that live neighbours stay neighbours where possible.
//!
//! ```text
//! live [a,b,c], patch [d,b]: rows [d,b] and [a,c] → d (not live: first), a (before b), b, c
//! ```

use super::{ListMerge, PATCH, invalid};
use crate::error::PatchError;
use insula_api::Json;
use std::collections::HashMap;

/// Orders `merged` by `wanted`; other items keep their order in `live`.
pub(super) fn reorder(merged: Vec<Json>, wanted: &[Json], live: &[Json], merge: Option<&ListMerge>) -> Vec<Json> {
    let name = |item: &Json| match merge {
        // Lists without a key compare items by value.
        None | Some(ListMerge::Set) => item.to_string(),
        Some(ListMerge::Key(key)) => identity(item, key, "").unwrap_or_default(),
    };
    let places = |list: &[Json]| {
        let mut places = HashMap::new();
        for (place, item) in list.iter().enumerate() {
            places.entry(name(item)).or_insert(place);
        }
        places
    };
    let (wanted, live) = (places(wanted), places(live));
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for item in merged {
        let name = name(&item);
        let live = live.get(&name).copied();
        match wanted.get(&name) {
            Some(&place) => ours.push((place, live, item)),
            None => others.push((live.unwrap_or(usize::MAX), live, item)),
        }
    }
    // Stable: items with one key keep their order.
    ours.sort_by_key(|(place, ..)| *place);
    others.sort_by_key(|(place, ..)| *place);
    let mut out = Vec::with_capacity(ours.len() + others.len());
    let (mut ours, mut others) = (ours.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (ours.peek(), others.peek()) {
            (Some((_, Some(ours), _)), Some((_, Some(other), _))) => other < ours,
            (Some(_), _) => false,
            (None, _) => true,
        };
        let next = if other_first { others.next() } else { ours.next() };
        match next {
            Some((_, _, item)) => out.push(item),
            None => return out,
        }
    }
}

/// Checks that the items of a patch have the order that the same patch sets.
pub(super) fn check(patch: &[Json], order: &[Json], at: &str, merge: Option<&ListMerge>) -> Result<(), PatchError> {
    let name = |item: &Json| match merge {
        None | Some(ListMerge::Set) => Ok(item.to_string()),
        Some(ListMerge::Key(key)) => identity(item, key, at),
    };
    let mut rest = order.iter();
    for item in patch.iter().filter(|item| item.get(PATCH).is_none()) {
        let wanted = name(item)?;
        loop {
            let Some(next) = rest.next() else {
                return Err(invalid(
                    at,
                    "items are not in the order of the patch's $setElementOrder",
                ));
            };
            if name(next)? == wanted {
                break;
            }
        }
    }
    Ok(())
}

/// Returns an item's key as text with its type: `1` and `"1"` differ.
pub(super) fn identity(item: &Json, key: &str, at: &str) -> Result<String, PatchError> {
    match item.get(key) {
        Some(Json::Null) | None => Err(invalid(
            at,
            &format!("each item must be an object with the merge key {key}"),
        )),
        Some(value) => Ok(value.to_string()),
    }
}
