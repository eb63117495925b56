//! Kubernetes' strategic merge patch, for kinds whose merge keys are known.
//!
//! ```text
//! live [a,b,c]  patch [{name: d}, {name: b, x: 1}]  →  [d, a, b{x}, c]   by key, patch order
//! {"$patch": "replace", …}   replaces the map or list
//! {"$patch": "delete"}       removes the map or item
//! "$deleteFromPrimitiveList/x": […]   "$setElementOrder/x": […]   "$retainKeys": […]
//! ```
//! Lists of unknown fields, and lists that Kubernetes treats as one value, are replaced.

mod list;
mod order;

use crate::PATCH_DEPTH_MAX;
use crate::decode::extent;
use crate::error::PatchError;
use insula_api::Json;
use list::{merge_list, without};
use order::reorder;
use serde_json::Map;
use std::collections::{BTreeMap, HashSet};

pub(crate) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_PREFIX: &str = "$deleteFromPrimitiveList/";
const ORDER_PREFIX: &str = "$setElementOrder/";

/// Merge strategy of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListMerge {
    /// A set of scalars.
    Set,
    /// A list of objects with this field as their key.
    Key(String),
}

/// Lists of a kind that are merged. Paths are dotted and pass through lists: `spec.containers.env`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MergeKeys {
    lists: BTreeMap<String, ListMerge>,
}

impl MergeKeys {
    /// Returns the merge keys of metadata, which all kinds have.
    pub fn metadata() -> Self {
        MergeKeys::default()
            .with("metadata.finalizers", ListMerge::Set)
            .with("metadata.ownerReferences", ListMerge::Key("uid".to_owned()))
    }

    /// Adds the merge strategy of one list.
    #[must_use]
    pub fn with(mut self, path: &str, merge: ListMerge) -> Self {
        self.lists.insert(path.to_owned(), merge);
        self
    }

    fn get(&self, path: &str) -> Option<&ListMerge> {
        self.lists.get(path)
    }
}

/// Applies a strategic merge patch.
///
/// # Errors
/// Fails if the patch is not an object, is too deep, or has invalid directives; the target is then
/// unchanged.
pub fn strategic_merge(target: &mut Json, patch: &Json, keys: &MergeKeys) -> Result<(), PatchError> {
    let (Json::Object(live), Json::Object(changes)) = (&*target, patch) else {
        return Err(PatchError::malformed(
            "error decoding patch: a strategic merge patch must be a JSON object",
        ));
    };
    if extent(patch).depth > PATCH_DEPTH_MAX || extent(target).depth > PATCH_DEPTH_MAX {
        return Err(PatchError::TooDeep);
    }
    let merged = merge_map(live.clone(), changes.clone(), "", keys)?;
    *target = Json::Object(merged);
    Ok(())
}

pub(crate) fn invalid(path: &str, problem: &str) -> PatchError {
    let place = if path.is_empty() { "the patch" } else { path };
    PatchError::Malformed(format!("invalid strategic merge patch: {place}: {problem}"))
}

pub(crate) fn merge_map(
    mut live: Map<String, Json>,
    mut patch: Map<String, Json>,
    path: &str,
    keys: &MergeKeys,
) -> Result<Map<String, Json>, PatchError> {
    match directive(&mut patch, path)? {
        Directive::Replace => return Ok(plain(patch)),
        Directive::Delete => return Ok(Map::new()),
        Directive::Merge => {}
    }
    retain_keys(&mut live, &mut patch, path)?;
    let orders: Vec<(String, Json)> = take_prefixed(&mut patch, ORDER_PREFIX);
    let deletions: Vec<(String, Json)> = take_prefixed(&mut patch, DELETE_PREFIX);
    // Ordered lists first: their order refers to the items that were live before.
    for (name, order) in orders {
        merge_ordered(&mut live, &mut patch, &name, &order, path, keys)?;
    }
    for (name, gone) in deletions {
        let Json::Array(gone) = gone else {
            return Err(invalid(&below(path, &name), "what to delete must be a list"));
        };
        if let Some(Json::Array(items)) = live.get_mut(&name) {
            *items = without(std::mem::take(items), &gone);
        }
    }
    for (name, change) in patch {
        merge_field(&mut live, name, change, path, keys)?;
    }
    Ok(live)
}

fn merge_field(
    live: &mut Map<String, Json>,
    name: String,
    change: Json,
    path: &str,
    keys: &MergeKeys,
) -> Result<(), PatchError> {
    let at = below(path, &name);
    if change.is_null() {
        live.remove(&name);
        return Ok(());
    }
    let deletes = change.get(PATCH).and_then(Json::as_str) == Some("delete");
    let merged = match (live.remove(&name), change) {
        // A deleted map leaves no value, not even an empty map.
        (_, Json::Object(_)) if deletes => return Ok(()),
        (Some(Json::Object(old)), Json::Object(new)) => Json::Object(merge_map(old, new, &at, keys)?),
        (Some(Json::Array(old)), Json::Array(new)) => Json::Array(merge_list(old, new, &at, keys)?),
        (None, Json::Array(new)) if keys.get(&at).is_some() => Json::Array(merge_list(Vec::new(), new, &at, keys)?),
        (_, change) => plain_value(change),
    };
    live.insert(name, merged);
    Ok(())
}

fn merge_ordered(
    live: &mut Map<String, Json>,
    patch: &mut Map<String, Json>,
    name: &str,
    order: &Json,
    path: &str,
    keys: &MergeKeys,
) -> Result<(), PatchError> {
    let at = below(path, name);
    let Json::Array(order) = order else {
        return Err(invalid(&at, "an element order must be a list"));
    };
    let before = match live.remove(name) {
        None => None,
        Some(Json::Array(items)) => Some(items),
        Some(_) => return Err(invalid(&at, "an element order is for lists only")),
    };
    let changes = match patch.remove(name) {
        None => None,
        // The list is removed as a whole: no items are left to order.
        Some(Json::Null) => return Ok(()),
        Some(Json::Array(items)) => Some(items),
        Some(_) => return Err(invalid(&at, "an element order is for lists only")),
    };
    if before.is_none() && changes.is_none() {
        return Ok(());
    }
    let old = before.unwrap_or_default();
    let merged = match changes {
        Some(changes) => {
            order::check(&changes, order, &at, keys.get(&at))?;
            merge_list(old.clone(), changes, &at, keys)?
        }
        None => old.clone(),
    };
    live.insert(
        name.to_owned(),
        Json::Array(reorder(merged, order, &old, keys.get(&at))),
    );
    Ok(())
}

enum Directive {
    Merge,
    Replace,
    Delete,
}

fn directive(patch: &mut Map<String, Json>, path: &str) -> Result<Directive, PatchError> {
    match patch.remove(PATCH) {
        None => Ok(Directive::Merge),
        Some(Json::String(word)) => match word.as_str() {
            "merge" => Ok(Directive::Merge),
            "replace" => Ok(Directive::Replace),
            "delete" => Ok(Directive::Delete),
            _ => Err(invalid(path, "unknown $patch; want merge, replace or delete")),
        },
        Some(_) => Err(invalid(path, "$patch must be a string: merge, replace or delete")),
    }
}

/// Removes fields that `$retainKeys` does not name; it must name all fields that the patch writes.
fn retain_keys(live: &mut Map<String, Json>, patch: &mut Map<String, Json>, path: &str) -> Result<(), PatchError> {
    let Some(list) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Json::Array(list) = list else {
        return Err(invalid(path, "$retainKeys must be a list of names"));
    };
    if !list.iter().all(Json::is_string) {
        return Err(invalid(path, "$retainKeys must be a list of names"));
    }
    let names: HashSet<&str> = list.iter().filter_map(Json::as_str).collect();
    for (name, value) in patch.iter() {
        let is_directive = name.starts_with(ORDER_PREFIX) || name.starts_with(DELETE_PREFIX);
        if !value.is_null() && !is_directive && !names.contains(name.as_str()) {
            return Err(invalid(
                &below(path, name),
                "the patch writes a field that its $retainKeys leaves out",
            ));
        }
    }
    live.retain(|name, _| names.contains(name.as_str()));
    Ok(())
}

fn take_prefixed(patch: &mut Map<String, Json>, prefix: &str) -> Vec<(String, Json)> {
    let names: Vec<String> = patch.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
    let take = |name: String| {
        patch
            .remove(&name)
            .map(|value| (name[prefix.len()..].to_owned(), value))
    };
    names.into_iter().filter_map(take).collect()
}

pub(crate) fn below(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Returns a value that replaces no live one, without directives and nulls.
pub(crate) fn plain_value(value: Json) -> Json {
    match value {
        Json::Object(map) => Json::Object(plain(map)),
        Json::Array(list) => {
            let is_kept = |item: &Json| item.get(PATCH).is_none();
            Json::Array(list.into_iter().filter(is_kept).map(plain_value).collect())
        }
        scalar => scalar,
    }
}

fn plain(map: Map<String, Json>) -> Map<String, Json> {
    let is_directive = |name: &str| {
        name == PATCH || name == RETAIN_KEYS || name.starts_with(ORDER_PREFIX) || name.starts_with(DELETE_PREFIX)
    };
    let kept = map
        .into_iter()
        .filter(|(name, value)| !value.is_null() && !is_directive(name));
    kept.map(|(name, value)| (name, plain_value(value))).collect()
}

#[cfg(test)]
mod tests;
