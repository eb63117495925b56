//! Uniqueness of items in sets and keyed lists.
//!
//! Runs after defaulting, so that keys with defaults are present. A duplicate is reported once, at
//! its second occurrence.

use crate::node::{ListType, Node};
use crate::value_path::{Keys, ValuePath};
use insula_api::{FieldError, Json};
use std::collections::HashMap;

/// Items up to which a list is compared pairwise. Longer lists are compared by the text of their
/// items.
const PAIRWISE_MAX: usize = 16;

/// Maximum number of duplicates reported.
const ERRORS_MAX: usize = 1000;

/// Checks every set and keyed list.
pub(crate) fn validate(value: &Json, node: &Node, errors: &mut Vec<FieldError>) {
    walk(value, node, &ValuePath::ROOT, errors);
}

fn walk(value: &Json, node: &Node, at: &ValuePath<'_>, errors: &mut Vec<FieldError>) {
    if !node.below.lists || errors.len() >= ERRORS_MAX {
        return;
    }
    match value {
        Json::Object(map) => {
            for (name, child) in map {
                if let Some(field) = node.property(name) {
                    walk(child, field, &at.field(name), errors);
                } else if let Some(values) = node.additional() {
                    walk(child, values, &at.key(name), errors);
                }
            }
        }
        Json::Array(list) => {
            match &node.list_type {
                ListType::Atomic => {}
                ListType::Set => set(list, at, errors),
                ListType::Map { keys } => keyed(list, keys, node, at, errors),
            }
            if let Some(items) = node.items() {
                for (index, item) in list.iter().enumerate() {
                    walk(item, items, &at.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn set(list: &[Json], at: &ValuePath<'_>, errors: &mut Vec<FieldError>) {
    let items: Vec<Option<&Json>> = list.iter().map(Some).collect();
    for index in repeats(&items) {
        errors.push(FieldError::duplicate(
            &at.index(index).path(Keys::Bracketed),
            &list[index],
        ));
    }
}

fn keyed(list: &[Json], keys: &[String], node: &Node, at: &ValuePath<'_>, errors: &mut Vec<FieldError>) {
    for (index, item) in list.iter().enumerate() {
        if !item.is_object() && errors.len() < ERRORS_MAX {
            let path = at.index(index).path(Keys::Bracketed);
            errors.push(FieldError::invalid(
                &path,
                item,
                "must be an object for an array of list-type map",
            ));
        }
    }
    // Most keyed lists have one key: its values are compared without a copy.
    if let [key] = keys {
        let items: Vec<Option<&Json>> = list
            .iter()
            .map(|i| i.is_object().then(|| key_value(i, key, node)))
            .collect();
        for index in repeats(&items).into_iter().take(ERRORS_MAX) {
            let shown = key_of(&list[index], keys, node);
            errors.push(FieldError::duplicate(&at.index(index).path(Keys::Bracketed), &shown));
        }
        return;
    }
    let owned: Vec<Option<Json>> = list
        .iter()
        .map(|i| i.is_object().then(|| key_of(i, keys, node)))
        .collect();
    let items: Vec<Option<&Json>> = owned.iter().map(Option::as_ref).collect();
    for index in repeats(&items).into_iter().take(ERRORS_MAX) {
        if let Some(Some(shown)) = owned.get(index) {
            errors.push(FieldError::duplicate(&at.index(index).path(Keys::Bracketed), shown));
        }
    }
}

/// Returns the value of an item's key; null if it is missing.
pub(crate) fn key_value<'a>(item: &'a Json, key: &str, node: &'a Node) -> &'a Json {
    const NONE: &Json = &Json::Null;
    let fallback = || node.items()?.property(key)?.default.as_ref();
    item.get(key).or_else(fallback).unwrap_or(NONE)
}

/// Returns the keys of an item as an object, for errors.
fn key_of(item: &Json, keys: &[String], node: &Node) -> Json {
    let pairs = keys.iter().map(|key| (key.clone(), key_value(item, key, node).clone()));
    Json::Object(pairs.filter(|(_, value)| !value.is_null()).collect())
}

/// Returns the indices of second occurrences.
fn repeats(items: &[Option<&Json>]) -> Vec<usize> {
    let mut found = Vec::new();
    if items.len() <= PAIRWISE_MAX {
        for (index, item) in items.iter().enumerate() {
            let Some(item) = item else { continue };
            let before = items[..index].iter().flatten().filter(|other| *other == item).count();
            if before == 1 {
                found.push(index);
            }
        }
        return found;
    }
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let Some(item) = item else { continue };
        let times = seen.entry(item.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            found.push(index);
        }
    }
    found
}

/// Matching of a list's items with their old values: by key in keyed lists, never in other lists.
///
/// Lists mostly keep their order, so the old item after the last match is tried first. If that
/// fails, a long list is indexed once: two lists of a hundred thousand items in opposite orders
/// must not be compared pairwise.
pub(crate) struct Correlation<'a> {
    old: &'a [Json],
    keys: &'a [String],
    node: &'a Node,
    next: usize,
    index: Option<HashMap<String, usize>>,
}

impl<'a> Correlation<'a> {
    pub(crate) fn new(old: Option<&'a Json>, node: &'a Node) -> Correlation<'a> {
        let old = old.and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        match &node.list_type {
            ListType::Map { keys } => Correlation {
                old,
                keys,
                node,
                next: 0,
                index: None,
            },
            ListType::Atomic | ListType::Set => Correlation {
                old: &[],
                keys: &[],
                node,
                next: 0,
                index: None,
            },
        }
    }

    /// Returns the first old item with the keys of `item`.
    pub(crate) fn find(&mut self, item: &Json) -> Option<&'a Json> {
        if self.old.is_empty() || !item.is_object() {
            return None;
        }
        let found = if self.old.get(self.next).is_some_and(|old| self.same_keys(old, item)) {
            Some(self.next)
        } else if self.old.len() <= PAIRWISE_MAX {
            self.old.iter().position(|old| self.same_keys(old, item))
        } else {
            let key = key_of(item, self.keys, self.node).to_string();
            self.index().get(&key).copied()
        };
        self.next = found? + 1;
        self.old.get(found?)
    }

    fn same_keys(&self, old: &Json, item: &Json) -> bool {
        let same = |key: &String| key_value(old, key, self.node) == key_value(item, key, self.node);
        old.is_object() && self.keys.iter().all(same)
    }

    fn index(&mut self) -> &HashMap<String, usize> {
        self.index.get_or_insert_with(|| {
            let mut index = HashMap::with_capacity(self.old.len());
            for (position, item) in self.old.iter().enumerate().filter(|(_, item)| item.is_object()) {
                index
                    .entry(key_of(item, self.keys, self.node).to_string())
                    .or_insert(position);
            }
            index
        })
    }
}
