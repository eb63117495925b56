//! Values that a version's schema has no field for any more.
//!
//! A release may take a field away. What objects hold in it is not gone with their next write: it
//! is kept beside the residuals. Versions that still have the field show it, and no other. When the
//! field returns, with a release or by going back to a former one, its values show again. They go
//! when somebody retires the field. The same holds for values of a type that the field takes no
//! more, until another value is written there.
//!
//! A [`Patch`] of such values has entries `set` at names that the schema lacks or has for values of
//! another type, and what leads to them.

use super::{Patch, Ref, apply, apply_objects, identities, waiting};
use crate::fixed::Fixed;
use crate::merge::{Side, merge_objects};
use crate::trace::Trace;
use insula_schema::{ListType, Node, Structural};
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::collections::BTreeMap;

mod free;
mod hidden;
mod unknown;

pub(crate) use free::is_structured;
pub(crate) use unknown::{has_unknown, unknown, unknown_beside};
use unknown::{sets_unknown, unknown_below};

/// Mark before the name of a version among the stored residuals; no name of a version has it.
const PREFIX: char = '~';

/// Takes the retained values out of what is stored, by version.
pub(crate) fn take(stored: &mut BTreeMap<String, Patch>) -> BTreeMap<String, Patch> {
    let of_version = |name: &str| name.strip_prefix(PREFIX).map(str::to_owned);
    if stored.keys().all(|name| of_version(name).is_none()) {
        return BTreeMap::new();
    }
    let (retained, rest) = std::mem::take(stored)
        .into_iter()
        .partition::<BTreeMap<_, _>, _>(|(name, _)| name.starts_with(PREFIX));
    *stored = rest;
    let by_version = retained.into_iter();
    by_version
        .filter_map(|(name, patch)| Some((of_version(&name)?, patch)))
        .collect()
}

/// Adds retained values to residuals, in the form in which they are stored.
pub(crate) fn add(residuals: &mut BTreeMap<String, Patch>, retained: &BTreeMap<String, Patch>) {
    let named = retained
        .iter()
        .map(|(version, patch)| (format!("{PREFIX}{version}"), patch.clone()));
    residuals.extend(named);
}

/// The meaning of a field's name at a node.
enum Name<'a> {
    Unknown,
    /// Kept whatever it holds.
    Opaque,
    Field(&'a Node),
}

fn name_at<'a>(node: Option<&'a Node>, name: &str) -> Name<'a> {
    let Some(node) = node else { return Name::Unknown };
    if node.embedded() && matches!(name, "apiVersion" | "kind" | "metadata") {
        return Name::Opaque;
    }
    match node.child(name) {
        Some(child) => Name::Field(child),
        None if node.preserves_unknown() => Name::Opaque,
        None => Name::Unknown,
    }
}

/// Returns true for a node that keeps whatever is in the items of a list.
fn keeps_items(node: &Node) -> bool {
    node.items().is_none() && node.preserves_unknown() && node.takes_type_of(&Json::Array(Vec::new()))
}

fn is_ours(name: &str) -> bool {
    !matches!(name, "apiVersion" | "kind" | "metadata")
}

/// Returns an object with its retained values, whether its schema has fields for them or not. What
/// is retained in items of a list that it has not waits for the list.
pub(crate) fn whole(schema: &Structural, retained: &Patch, object: Json) -> Json {
    let whole = apply_objects(schema, retained, object, &Trace::default());
    super::waiting_in(schema, retained, whole)
}

/// Returns an object with its retained values beside those that stand there.
pub(crate) fn within(schema: &Structural, retained: &Patch, object: Json) -> Json {
    let shown = show(schema, retained, object);
    let all = match beyond(schema, retained) {
        Some(rest) => apply_objects(schema, &rest, shown, &Trace::default()),
        None => shown,
    };
    super::waiting_in(schema, retained, all)
}

/// Returns what is retained after a write of `new` over `old`: as with everything that a writer
/// cannot see, values live and die with the list items and map entries that they are in.
pub(crate) fn after(schema: &Structural, retained: &Patch, old: &Json, new: &Json) -> Option<Patch> {
    let none = Trace::default();
    let (old_side, new_side) = (Side::new(old, &none), Side::new(new, &none));
    let onto = whole(schema, retained, old.clone());
    let merged = merge_objects(schema, old_side, new_side, &onto, &Fixed::default());
    both(
        unknown_beside(schema, &merged, Some(new)),
        hidden::hidden(schema, retained, &merged),
    )
}

/// Joins two parts of what is retained.
pub(crate) fn both(one: Option<Patch>, other: Option<Patch>) -> Option<Patch> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.and(other)),
        (one, other) => one.or(other),
    }
}

/// Returns an object with those retained values that its schema has a field for again. A value that
/// stands there stays.
pub(crate) fn show(schema: &Structural, retained: &Patch, object: Json) -> Json {
    let Patch::Fields(fields) = retained else { return object };
    let Json::Object(mut map) = object else { return object };
    for (name, patch) in fields.iter().filter(|(name, _)| is_ours(name)) {
        show_field((Some(schema.root()), None), (name, patch), &mut map);
    }
    Json::Object(map)
}

fn show_field(
    (node, default): (Option<&Node>, Option<&Json>),
    (name, patch): (&String, &Patch),
    map: &mut Map<String, Json>,
) {
    let shown = match (name_at(node, name), patch) {
        (Name::Unknown, _) => return,
        (Name::Opaque, patch) => free::show(patch, map.remove(name)),
        (Name::Field(child), patch) => show_value((child, default.or(child.default())), patch, map.remove(name)),
    };
    map.extend(shown.map(|value| (name.clone(), value)));
}

/// `default` is read where nobody wrote: the node's, or what that of an object around it has there.
fn show_value((node, default): (&Node, Option<&Json>), patch: &Patch, stands: Option<Json>) -> Option<Json> {
    match (patch, stands) {
        (Patch::Set { value, .. }, None) => known_part(node, value),
        // A default of another type stands there.
        (Patch::Set { value, guard: None }, Some(stands)) if !node.takes_type_of(&stands) => {
            known_part(node, value).or(Some(stands))
        }
        (Patch::Set { value, guard: None }, Some(stands)) => Some(filled(node, default, value, stands)),
        (Patch::Fields(fields), stands) => {
            let stood = stands.is_some();
            let mut map = match stands {
                None => Map::new(),
                Some(Json::Object(map)) => map,
                other => return other,
            };
            let default = default.filter(|default| holds(&map, default));
            for (name, patch) in fields {
                let default = default.and_then(|default| default.get(name));
                show_field((Some(node), default), (name, patch), &mut map);
            }
            // What leads to values that still have no field is no value itself.
            (stood || !map.is_empty()).then_some(Json::Object(map))
        }
        (Patch::Within(_), stands @ Some(Json::Array(_))) if keeps_items(node) => free::show(patch, stands),
        (Patch::Within(entries), Some(Json::Array(mut items))) => {
            let places = super::places(entries.iter().map(|(at, _)| at), Some(node), &items);
            for ((_, patch), i) in entries.iter().zip(places) {
                let (Some(i), Some(item)) = (i, node.items()) else {
                    continue;
                };
                let stands = std::mem::take(&mut items[i]);
                items[i] = show_value((item, item.default()), patch, Some(stands)).unwrap_or_default();
            }
            Some(Json::Array(items))
        }
        // Of the version itself, which waited for the list.
        (Patch::Items { guard: None, .. }, Some(Json::Array(items))) => {
            let list = apply(patch, Some(node), Some(Json::Array(items.clone())), None, None);
            let known = list.and_then(|list| known_part(node, &list));
            known.or(Some(Json::Array(items)))
        }
        (_, stands) => stands,
    }
}

/// Returns a value with what a retained one has beside it, in objects and in items of lists.
/// `default`: as in [`show_value`].
fn filled(node: &Node, default: Option<&Json>, retained: &Json, stands: Json) -> Json {
    match (retained, stands) {
        (Json::Object(retained), Json::Object(mut map)) => {
            let default = default.filter(|default| holds(&map, default));
            for (name, value) in retained {
                let value = match (name_at(Some(node), name), map.remove(name)) {
                    (Name::Field(child), Some(stands)) => {
                        let given = default.and_then(|default| default.get(name));
                        Some(filled(child, given.or(child.default()), value, stands))
                    }
                    (Name::Field(child), None) => known_part(child, value),
                    (Name::Opaque, stands) => Some(free::filled(value, stands)),
                    (Name::Unknown, stands) => stands,
                };
                map.extend(value.map(|value| (name.clone(), value)));
            }
            Json::Object(map)
        }
        (Json::Array(retained), Json::Array(items)) => {
            let Some(item) = node.items() else {
                return Json::Array(items);
            };
            let from = same_items(node, retained, &items);
            let filled = items.into_iter().zip(from).map(|(stands, from)| match from {
                Some(from) => filled(item, item.default(), &retained[from], stands),
                None => stands,
            });
            Json::Array(filled.collect())
        }
        // A default is no value that somebody wrote.
        (retained, stands) if default == Some(&stands) => known_part(node, retained).unwrap_or(stands),
        (_, stands) => stands,
    }
}

/// Returns true if an object has all that a default has: other fields have defaults of their own.
fn holds(map: &Map<String, Json>, default: &Json) -> bool {
    let mut fields = default.as_object().into_iter().flatten();
    default.is_object() && fields.all(|(name, value)| map.get(name) == Some(value))
}

/// Returns for each item its place in another list: by key, or the same one in a list of equal
/// length. A key that only one of them shows may be a default.
fn same_items(node: &Node, list: &[Json], items: &[Json]) -> Vec<Option<usize>> {
    let mut places = vec![None; items.len()];
    if let (Some(from), Some(to)) = (identities(list, Some(node)), identities(items, Some(node))) {
        let known: std::collections::HashMap<&String, usize> = from.iter().zip(0..).collect();
        places = to.iter().map(|key| known.get(key).copied()).collect();
    }
    if list.len() == items.len() && places.contains(&None) {
        places = (0..items.len()).map(Some).collect();
    }
    places
}

/// Returns the part of a value that a node has fields for; `None` if it has none or is of another
/// type.
fn known_part(node: &Node, value: &Json) -> Option<Json> {
    match value {
        Json::Null => node.nullable().then_some(Json::Null),
        _ if !node.takes_type_of(value) => None,
        Json::Object(map) => {
            let known = map.iter().filter_map(|(name, value)| {
                let known = match name_at(Some(node), name) {
                    Name::Unknown => None,
                    Name::Opaque => Some(value.clone()),
                    Name::Field(child) if node.property(name).is_none() => known_entry(child, value),
                    Name::Field(child) => known_part(child, value),
                };
                Some((name.clone(), known?))
            });
            let known: Map<String, Json> = known.collect();
            (map.is_empty() || !known.is_empty()).then_some(Json::Object(known))
        }
        Json::Array(items) => match node.items() {
            Some(item) => {
                let known: Option<Json> = items.iter().map(|value| known_entry(item, value)).collect();
                let known = known?;
                // Items under other keys are no items of this list.
                has_keys(node, &known).then_some(known)
            }
            None => node.preserves_unknown().then(|| value.clone()),
        },
        _ => Some(value.clone()),
    }
}

/// Divides retained values: what is in fields that a version has, and the parent that it is made
/// from has not, whatever else is in these; and the others.
pub(crate) fn divide(parent: &Structural, own: &Structural, retained: &Patch) -> (Option<Patch>, Option<Patch>) {
    divide_at(parent.root(), own.root(), retained)
}

fn divide_at(parent: &Node, own: &Node, patch: &Patch) -> (Option<Patch>, Option<Patch>) {
    match patch {
        Patch::Set { value, guard: None } => {
            let shows = |node: &Node| known_part(node, value).is_some();
            match value {
                _ if shows(own) && !shows(parent) => (Some(patch.clone()), None),
                Json::Object(map) if !map.is_empty() => divide_at(parent, own, &patch.clone().by_field()),
                _ => (None, Some(patch.clone())),
            }
        }
        Patch::Fields(fields) => {
            let (mut ours, mut rest) = (BTreeMap::new(), BTreeMap::new());
            for (name, patch) in fields {
                let (own_part, left) = match (name_at(Some(own), name), name_at(Some(parent), name)) {
                    (Name::Field(own), Name::Field(parent)) => divide_at(parent, own, patch),
                    (Name::Field(own), Name::Unknown) if part_of(Part::Own, None, own, patch).is_some() => {
                        (Some(patch.clone()), None)
                    }
                    (Name::Opaque, Name::Unknown) => {
                        (free::part_of(Part::Own, patch), free::part_of(Part::Rest, patch))
                    }
                    _ => (None, Some(patch.clone())),
                };
                ours.extend(own_part.map(|patch| (name.clone(), patch)));
                rest.extend(left.map(|patch| (name.clone(), patch)));
            }
            let fields = |fields: BTreeMap<String, Patch>| (!fields.is_empty()).then_some(Patch::Fields(fields));
            (fields(ours), fields(rest))
        }
        Patch::Within(_) if keeps_items(own) && parent.items().is_none() && !keeps_items(parent) => {
            (free::part_of(Part::Own, patch), free::part_of(Part::Rest, patch))
        }
        Patch::Within(entries) => {
            let (Some(own), Some(parent)) = (own.items(), parent.items()) else {
                return (None, Some(patch.clone()));
            };
            let (mut ours, mut rest) = (Vec::new(), Vec::new());
            for (at, patch) in entries {
                let (own_part, left) = divide_at(parent, own, patch);
                ours.extend(own_part.map(|patch| (at.clone(), patch)));
                rest.extend(left.map(|patch| (at.clone(), patch)));
            }
            let within = |entries: Vec<(Ref, Patch)>| (!entries.is_empty()).then_some(Patch::Within(entries));
            (within(ours), within(rest))
        }
        Patch::Set { .. } | Patch::Unset { .. } | Patch::Items { .. } => (None, Some(patch.clone())),
    }
}

/// A part of retained values: those that a version has fields for and the parent that it is made
/// from has none, or the others.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Own,
    Rest,
}

/// Returns true if a schema has a field for any of the retained values.
pub(crate) fn knows(schema: &Structural, retained: &Patch) -> bool {
    known(schema, retained).is_some()
}

/// Returns those retained values that a schema has fields for.
pub(crate) fn known(schema: &Structural, retained: &Patch) -> Option<Patch> {
    part_of(Part::Own, None, schema.root(), retained)
}

/// Returns those retained values that a schema has no field for.
pub(crate) fn beyond(schema: &Structural, retained: &Patch) -> Option<Patch> {
    part_of(Part::Rest, None, schema.root(), retained)
}

/// Returns those retained values that an object does not show: its schema has no field for them, or
/// the object has not the list that they are in the items of.
pub(crate) fn not_shown(schema: &Structural, retained: &Patch, object: &Json) -> Option<Patch> {
    let (beyond, waits) = (
        beyond(schema, retained),
        waiting::for_lists(retained, Some(schema.root()), Some(object)),
    );
    both(beyond, waits)
}

/// `parent` is `None` where the parent has no field.
fn part_of(part: Part, parent: Option<&Node>, own: &Node, patch: &Patch) -> Option<Patch> {
    let rest = || (part == Part::Rest).then(|| patch.clone());
    match patch {
        Patch::Set { value, guard: None } => {
            let shows = |node: &Node| known_part(node, value).is_some();
            let is_own = shows(own) && !parent.is_some_and(shows);
            match (is_own, part, value) {
                (true, Part::Own, _) => Some(patch.clone()),
                (false, ..) if parent.is_none() => rest(),
                (_, _, Json::Object(map)) if !map.is_empty() => {
                    let parent = parent.filter(|_| !is_own);
                    part_of(part, parent, own, &patch.clone().by_field())
                }
                (true, Part::Rest, value) => unknown_below(Some(own), value, None),
                (false, ..) => rest(),
            }
        }
        Patch::Fields(fields) => {
            let fields = fields.iter().filter_map(|(name, patch)| {
                let above = parent.map(|parent| name_at(Some(parent), name));
                let found = match (name_at(Some(own), name), above) {
                    (Name::Field(own), Some(Name::Field(parent))) => part_of(part, Some(parent), own, patch),
                    (Name::Field(own), None | Some(Name::Unknown)) => part_of(part, None, own, patch),
                    (Name::Opaque, None | Some(Name::Unknown)) => free::part_of(part, patch),
                    _ => (part == Part::Rest).then(|| patch.clone()),
                };
                Some((name.clone(), found?))
            });
            let fields: BTreeMap<String, Patch> = fields.collect();
            (!fields.is_empty()).then_some(Patch::Fields(fields))
        }
        Patch::Within(_) if parent.is_none() && keeps_items(own) => free::part_of(part, patch),
        Patch::Within(entries) => {
            let (Some(own), Some(above)) = (own.items(), parent.map_or(Some(None), |node| node.items().map(Some)))
            else {
                return rest();
            };
            let entries = entries
                .iter()
                .filter_map(|(at, patch)| Some((at.clone(), part_of(part, above, own, patch)?)));
            let entries: Vec<(Ref, Patch)> = entries.collect();
            (!entries.is_empty()).then_some(Patch::Within(entries))
        }
        Patch::Items { guard: None, .. }
            if parent.is_none() && own.items().is_some() && !sets_unknown(Some(own), patch) =>
        {
            (part == Part::Own).then(|| patch.clone())
        }
        Patch::Set { .. } | Patch::Unset { .. } | Patch::Items { .. } => rest(),
    }
}

/// Returns the part of an item of a list, or of an entry of a map, that its node has fields for: it
/// is there also without any.
fn known_entry(node: &Node, value: &Json) -> Option<Json> {
    let known = known_part(node, value);
    known.or_else(|| (value.is_object() && node.takes_type_of(value)).then(|| Json::Object(Map::new())))
}

/// Returns true unless an item of a list lacks a part of its key that has no default.
fn has_keys(node: &Node, list: &Json) -> bool {
    let ListType::Map { keys } = node.list_type() else {
        return true;
    };
    let has_default = |key: &String| node.items().and_then(|item| item.child(key)?.default()).is_some();
    let mut needed = keys.iter().filter(|key| !has_default(key));
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    needed.all(|key| items.iter().all(|item| item.get(key).is_some()))
}

/// Returns an object as its schema has it, with those retained values that it has a field for
/// again, and what is retained from then on.
pub(crate) fn split(schema: &Structural, retained: Option<&Patch>, object: &Json) -> (Json, Option<Patch>) {
    let (mut shown, all) = match retained {
        Some(patch) => (
            show(schema, patch, object.clone()),
            Cow::Owned(whole(schema, patch, object.clone())),
        ),
        None => (object.clone(), Cow::Borrowed(object)),
    };
    insula_schema::prune(&mut shown, schema);
    let hidden = retained.and_then(|patch| hidden::hidden(schema, patch, &shown));
    let unknown = unknown_beside(schema, &all, retained.map(|_| &shown));
    (shown, both(unknown, hidden))
}
