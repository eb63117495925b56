//! Merge of two lists: as sets, by key, or by replacement.

use super::order::{identity, reorder};
use super::{ListMerge, MergeKeys, PATCH, invalid, merge_map, plain_value};
use crate::error::PatchError;
use insula_api::Json;
use std::collections::HashMap;

/// Merges two lists. The result has the patch's order; other items go where they fit best.
pub(super) fn merge_list(
    live: Vec<Json>,
    patch: Vec<Json>,
    at: &str,
    keys: &MergeKeys,
) -> Result<Vec<Json>, PatchError> {
    match keys.get(at) {
        None => Ok(patch.into_iter().map(plain_value).collect()),
        Some(ListMerge::Set) => {
            if live
                .iter()
                .chain(&patch)
                .any(|item| item.is_object() || item.is_array())
            {
                return Err(invalid(at, "items must be scalars"));
            }
            let merged = union(&live, &patch);
            Ok(reorder(merged, &patch, &live, Some(&ListMerge::Set)))
        }
        Some(merge @ ListMerge::Key(key)) => merge_by_key(live, patch, at, key, merge, keys),
    }
}

/// Returns the items of `list` that are not in `gone`.
pub(super) fn without(list: Vec<Json>, gone: &[Json]) -> Vec<Json> {
    let gone: HashMap<String, ()> = gone.iter().map(|item| (item.to_string(), ())).collect();
    list.into_iter()
        .filter(|item| !gone.contains_key(&item.to_string()))
        .collect()
}

fn union(live: &[Json], patch: &[Json]) -> Vec<Json> {
    let mut seen = HashMap::new();
    let fresh = |item: &&Json| seen.insert(item.to_string(), ()).is_none();
    live.iter().chain(patch).filter(fresh).cloned().collect()
}

fn merge_by_key(
    live: Vec<Json>,
    patch: Vec<Json>,
    at: &str,
    key: &str,
    merge: &ListMerge,
    keys: &MergeKeys,
) -> Result<Vec<Json>, PatchError> {
    let (live, patch) = carry_out_directives(live, patch, at, key)?;
    let mut places: HashMap<String, usize> = HashMap::new();
    for (place, item) in live.iter().enumerate() {
        // Of several items with one key, the first one is merged.
        places.entry(identity(item, key, at)?).or_insert(place);
    }
    let mut merged = live.clone();
    for item in &patch {
        match places.get(&identity(item, key, at)?) {
            Some(&place) => {
                let (Some(Json::Object(old)), Json::Object(new)) = (merged.get_mut(place), item) else {
                    return Err(invalid(at, "items must be objects"));
                };
                *old = merge_map(std::mem::take(old), new.clone(), at, keys)?;
            }
            None => {
                places.insert(identity(item, key, at)?, merged.len());
                merged.push(plain_value(item.clone()));
            }
        }
    }
    Ok(reorder(merged, &patch, &live, Some(merge)))
}

/// Executes items with `$patch`: deletions remove items of `live`, a replacement empties it.
/// Returns the rest of the patch.
fn carry_out_directives(
    mut live: Vec<Json>,
    patch: Vec<Json>,
    at: &str,
    key: &str,
) -> Result<(Vec<Json>, Vec<Json>), PatchError> {
    let mut rest = Vec::new();
    let mut deleted: HashMap<String, ()> = HashMap::new();
    let mut replaces = false;
    for item in patch {
        match item.get(PATCH).map(|word| word.as_str().unwrap_or_default()) {
            None => rest.push(item),
            Some("replace") => replaces = true,
            Some("delete") => {
                deleted.insert(identity(&item, key, at)?, ());
            }
            Some(_) => return Err(invalid(at, "unknown $patch of an item; want replace or delete")),
        }
    }
    if replaces {
        return Ok((Vec::new(), rest));
    }
    if !deleted.is_empty() {
        live.retain(|item| identity(item, key, at).is_ok_and(|identity| !deleted.contains_key(&identity)));
    }
    Ok((live, rest))
}
