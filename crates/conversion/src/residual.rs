//! Residuals: the difference between an object and the conversion of its parent version, which the
//! conversion cannot show.
//!
//! A [`Patch`] is a tree of set and unset entries over a base. One is stored with the object for
//! each version that needs it, in a canonical JSON form: equal content has equal bytes.
//!
//! ```text
//! base {spec: {names: [bob]}}      object {spec: {names: [bob, al], mood: ok}}
//! {"fields": {"spec": {"fields": {
//!     "mood": {"set": "ok"},
//!     "names": {"items": [{"at": 0}, {"new": "al"}], "of": 1}}}}}
//! ```
//!
//! An entry at a path that a rule computed carries a guard: the hash of that rule's inputs. The
//! entry is ignored when the inputs have changed.

use crate::align::{align_to_base, equal, identities};
use crate::merge::Side;
use crate::trace::{Inputs, Trace};
use insula_schema::{ListType, Node, Structural};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;

mod codec;
mod forget;
mod index;
mod joined;
pub(crate) mod retained;
mod retire;
mod waiting;

pub(crate) use codec::{decode, encode};
pub(crate) use forget::forget;
use index::places;
use joined::is_hollow;
pub use retire::SchemaPath;

/// The difference between a base and an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Patch {
    Set {
        value: Json,
        guard: Option<u64>,
    },
    /// `hollow`: the base had objects without values there, and nothing else. What others have in
    /// such an object was no part of it: it shows when a release brings its field.
    Unset {
        guard: Option<u64>,
        hollow: bool,
    },
    Fields(BTreeMap<String, Patch>),
    /// The same items in the same order, some of them patched.
    Within(Vec<(Ref, Patch)>),
    /// Another sequence of items. `of` is the base's length; items of the base beyond it were added
    /// later and stay.
    Items {
        items: Vec<Item>,
        of: usize,
        guard: Option<u64>,
    },
}

/// An item of such a sequence.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Base(Ref, Option<Patch>),
    New(Json),
}

/// A reference to an item of the base: by key in keyed lists, else by index.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ref {
    Index(usize),
    Key(Json),
}

/// Returns the patch from `base` to `object`; `None` if they differ only in `apiVersion` and in
/// metadata that is not converted.
pub(crate) fn diff_objects(schema: &Structural, base: Side<'_>, object: &Json) -> Option<Patch> {
    let mut fields = BTreeMap::new();
    let names = base
        .value
        .and_then(Json::as_object)
        .into_iter()
        .chain(object.as_object())
        .flat_map(Map::keys);
    for name in names {
        if fields.contains_key(name) {
            continue;
        }
        let patch = match name.as_str() {
            "apiVersion" | "kind" => None,
            "metadata" => metadata(base.field(name), object.get(name)),
            _ => diff(
                schema.root().child(name),
                base.field(name),
                object.get(name),
                base_guard(base.trace),
            ),
        };
        fields.extend(patch.map(|patch| (name.clone(), patch)));
    }
    (!fields.is_empty()).then_some(Patch::Fields(fields))
}

fn metadata(base: Side<'_>, object: Option<&Json>) -> Option<Patch> {
    let mut fields = BTreeMap::new();
    for name in ["labels", "annotations"] {
        let patch = diff(None, base.field(name), object.and_then(|o| o.get(name)), None);
        fields.extend(patch.map(|patch| (name.to_owned(), patch)));
    }
    (!fields.is_empty()).then_some(Patch::Fields(fields))
}

/// Returns the hash of the inputs at this path, joined with those above.
fn base_guard(trace: Option<&Trace>) -> Option<u64> {
    trace.and_then(Trace::hash)
}

fn joined(above: Option<u64>, trace: Option<&Trace>) -> Option<u64> {
    join(above, trace.and_then(Trace::hash))
}

fn join(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => {
            let mut both = Inputs::default();
            both.word(a);
            both.word(b);
            Some(both.finish())
        }
        (one, other) => one.or(other),
    }
}

/// Returns the guard of an entry: the hash of the inputs above, at and below its path.
fn guard(above: Option<u64>, trace: Option<&Trace>) -> Option<u64> {
    join(above, trace.and_then(Trace::digest))
}

fn diff(node: Option<&Node>, base: Side<'_>, object: Option<&Json>, above: Option<u64>) -> Option<Patch> {
    match (base.value, object) {
        (base, object) if base == object => None,
        (_, None) => Some(Patch::Unset {
            guard: guard(above, base.trace),
            hollow: base.value.is_some_and(|value| is_hollow(node, value)),
        }),
        (Some(Json::Object(from)), Some(Json::Object(to))) => {
            let above = joined(above, base.trace);
            let mut fields = BTreeMap::new();
            let added = to.keys().filter(|name| !from.contains_key(*name));
            for name in from.keys().chain(added) {
                if let Some((name, patch)) = waiting::read(node, name, to.get(name)) {
                    fields.insert(name, patch);
                    continue;
                }
                let child = node.and_then(|n| n.child(name));
                let patch = diff(child, base.field(name), to.get(name), above);
                fields.extend(patch.map(|patch| (name.clone(), patch)));
            }
            Some(Patch::Fields(fields))
        }
        (None, Some(Json::Object(to))) if waiting::is_in(to) => {
            let (none, trace) = (Json::Object(Map::new()), Trace::default());
            diff(node, Side::new(&none, &trace), object, above)
        }
        (Some(Json::Array(from)), Some(Json::Array(to))) => Some(diff_lists(node, base, from, to, above)),
        (_, Some(value)) => Some(Patch::Set {
            value: value.clone(),
            guard: guard(above, base.trace),
        }),
    }
}

fn diff_lists(node: Option<&Node>, base: Side<'_>, from: &[Json], to: &[Json], above: Option<u64>) -> Patch {
    let keyed = identities(from, node).is_some() && identities(to, node).is_some();
    let reference = |i: usize| {
        if keyed {
            key(node, &from[i]).map_or(Ref::Index(i), Ref::Key)
        } else {
            Ref::Index(i)
        }
    };
    let above_items = joined(above, base.trace);
    let mut origin = vec![None; to.len()];
    align_to_base(from, to, node, equal)
        .into_iter()
        .enumerate()
        .for_each(|(i, j)| {
            if let Some(j) = j {
                origin[j] = Some(i);
            }
        });
    let patched = |i: usize, j: usize| diff(node.and_then(Node::items), base.index(i), to.get(j), above_items);
    let in_place = from.len() == to.len() && origin.iter().enumerate().all(|(j, i)| *i == Some(j));
    if in_place {
        return Patch::Within(
            (0..to.len())
                .filter_map(|i| Some((reference(i), patched(i, i)?)))
                .collect(),
        );
    }
    let item = |(j, i): (usize, &Option<usize>)| match i {
        Some(i) => Item::Base(reference(*i), patched(*i, j)),
        None => Item::New(to[j].clone()),
    };
    let items = origin.iter().enumerate().map(item).collect();
    Patch::Items {
        items,
        of: from.len(),
        guard: above_items,
    }
}

/// Returns the key of an item, in the form of references: null for a part that is the default.
fn key(node: Option<&Node>, item: &Json) -> Option<Json> {
    let items = node.and_then(Node::items);
    let default = |key: &String| items?.child(key)?.default();
    let part = |key: &String| item.get(key).filter(|part| Some(*part) != default(key));
    match node?.list_type() {
        ListType::Atomic => None,
        ListType::Set => Some(json!([item])),
        ListType::Map { keys } => Some(
            keys.iter()
                .map(|key| part(key).cloned().unwrap_or(Json::Null))
                .collect(),
        ),
    }
}

/// Applies a patch to a conversion and returns the object.
pub(crate) fn apply_objects(schema: &Structural, patch: &Patch, base: Json, trace: &Trace) -> Json {
    let kept = (base.get("apiVersion").cloned(), base.get("kind").cloned());
    let Patch::Fields(fields) = patch else { return base };
    let Json::Object(mut map) = base else { return base };
    let trace = (!trace.is_empty()).then_some(trace);
    for (name, patch) in fields {
        let node = if name == "metadata" {
            None
        } else {
            schema.root().child(name)
        };
        let changed = apply(
            patch,
            node,
            map.remove(name),
            trace.and_then(|t| t.field(name)),
            base_guard(trace),
        );
        map.extend(changed.map(|value| (name.clone(), value)));
    }
    for (name, value) in [("apiVersion", kept.0), ("kind", kept.1)] {
        map.extend(value.map(|value| (name.to_owned(), value)));
    }
    Json::Object(map)
}

fn apply(
    patch: &Patch,
    node: Option<&Node>,
    base: Option<Json>,
    trace: Option<&Trace>,
    above: Option<u64>,
) -> Option<Json> {
    match patch {
        Patch::Set { guard: want, .. } | Patch::Unset { guard: want, .. }
            if want.is_some() && *want != guard(above, trace) =>
        {
            base
        }
        // There was no object when the patch was made: a release has brought it.
        Patch::Set {
            value: Json::Object(set),
            guard: None,
        } if matches!(base, Some(Json::Object(_))) => match set.is_empty() {
            true => base,
            false => apply(&patch.clone().by_field(), node, base, trace, above),
        },
        Patch::Set { value, .. } => Some(value.clone()),
        Patch::Unset { hollow, .. } => base.filter(|base| *hollow && !is_hollow(node, base)),
        Patch::Fields(fields) => {
            let above = joined(above, trace);
            let mut map = match base {
                Some(Json::Object(map)) => map,
                // The parent object of hidden fields is gone from the base: they outlive it.
                None => Map::new(),
                other => return other,
            };
            for (name, patch) in fields {
                let child = node.and_then(|n| n.child(name));
                if let Some((name, waiting)) = waiting::of_list(node, (name, patch), &map) {
                    map.insert(name, waiting);
                    continue;
                }
                let changed = apply(patch, child, map.remove(name), trace.and_then(|t| t.field(name)), above);
                map.extend(changed.map(|value| (name.clone(), value)));
            }
            Some(Json::Object(map))
        }
        Patch::Within(entries) => {
            let Some(Json::Array(mut items)) = base else {
                return base;
            };
            let above = joined(above, trace);
            let places = places(entries.iter().map(|(at, _)| at), node, &items);
            for ((_, patch), i) in entries.iter().zip(places) {
                let Some(i) = i else { continue };
                let item = std::mem::take(&mut items[i]);
                let inner = trace.and_then(|t| t.index(i));
                items[i] = apply(patch, node.and_then(Node::items), Some(item), inner, above).unwrap_or_default();
            }
            Some(Json::Array(items))
        }
        Patch::Items { items, of, guard } => {
            let above = joined(above, trace);
            if guard.is_some() && *guard != above {
                return base;
            }
            let base = match base {
                Some(Json::Array(base)) => base,
                None => Vec::new(),
                other => return other,
            };
            Some(Json::Array(resequence(items, *of, node, base, trace, above)))
        }
    }
}

fn resequence(
    items: &[Item],
    of: usize,
    node: Option<&Node>,
    base: Vec<Json>,
    trace: Option<&Trace>,
    above: Option<u64>,
) -> Vec<Json> {
    let refs = items.iter().filter_map(|item| match item {
        Item::Base(at, _) => Some(at),
        Item::New(_) => None,
    });
    let mut places = places(refs, node, &base).into_iter();
    let mut base: Vec<Option<Json>> = base.into_iter().map(Some).collect();
    let mut out = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Item::New(value) => out.push(value.clone()),
            Item::Base(_, patch) => {
                let place = places.next().flatten();
                let Some((i, value)) = place.and_then(|i| Some((i, base.get_mut(i)?.take()?))) else {
                    continue;
                };
                out.extend(match patch {
                    Some(patch) => apply(
                        patch,
                        node.and_then(Node::items),
                        Some(value),
                        trace.and_then(|t| t.index(i)),
                        above,
                    ),
                    None => Some(value),
                });
            }
        }
    }
    out.extend(base.into_iter().skip(of).flatten());
    out
}

impl Patch {
    /// Returns the patch for another base than its own: the fields of an object that it sets are
    /// set one by one, so that those of the base stay.
    pub(crate) fn by_field(self) -> Patch {
        match self {
            Patch::Set {
                value: Json::Object(map),
                guard: None,
            } if !map.is_empty() => {
                let set = |value| Patch::Set { value, guard: None }.by_field();
                Patch::Fields(map.into_iter().map(|(name, value)| (name, set(value))).collect())
            }
            Patch::Fields(fields) => {
                let fields = fields.into_iter();
                Patch::Fields(fields.map(|(name, patch)| (name, patch.by_field())).collect())
            }
            other => other,
        }
    }

    /// Returns true if any entry depends on the inputs of a computed value.
    pub(crate) fn has_guard(&self) -> bool {
        match self {
            Patch::Set { guard, .. } | Patch::Unset { guard, .. } => guard.is_some(),
            Patch::Fields(fields) => fields.values().any(Patch::has_guard),
            Patch::Within(entries) => entries.iter().any(|(_, patch)| patch.has_guard()),
            Patch::Items { items, guard, .. } => {
                let guarded = |item: &Item| matches!(item, Item::Base(_, Some(patch)) if patch.has_guard());
                guard.is_some() || items.iter().any(guarded)
            }
        }
    }
}

/// Returns an object in which the entries of a patch wait for the lists that it has not.
pub(crate) fn waiting_in(schema: &Structural, patch: &Patch, mut object: Json) -> Json {
    waiting::put_all(patch, Some(schema.root()), &mut object);
    object
}

/// Applies what waits in an object for lists that are there again.
pub(crate) fn settle(schema: &Structural, object: &mut Json) {
    waiting::settle(object, Some(schema.root()));
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::path::Segment;
    use proptest::prelude::*;

    fn json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            (0..3i64).prop_map(Json::from),
            "[ab]?".prop_map(Json::from),
            Just(json!(1.0))
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
                prop::collection::btree_map("[abc]", inner, 0..4).prop_map(|m| json!(m)),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_patch_makes_its_object(base in json(), object in json()) {
            let schema = Structural::default();
            let (base, object) = (json!({"x": base}), json!({"x": object}));
            let patch = diff_objects(&schema, Side::new(&base, &Trace::default()), &object);
            prop_assert_eq!(patch.is_none(), base == object);
            let Some(patch) = patch else { return Ok(()) };
            let all = BTreeMap::from([("v1".to_owned(), patch.clone())]);
            let bytes = encode(&all);
            prop_assert_eq!(decode(bytes.as_deref()), Ok((all, None)));
            prop_assert_eq!(apply_objects(&schema, &patch, base, &Trace::default()), object);
        }

        #[test]
        fn what_is_not_ours_is_refused_without_panic(bytes in "[\\[\\]{}\":,a-z0-9 ]{0,40}") {
            let _ = decode(Some(bytes.as_bytes()));
        }
    }

    #[test]
    fn an_entry_is_void_when_its_rule_has_other_inputs() {
        let schema = Structural::default();
        let traced = |input: &str| {
            let mut inputs = Inputs::default();
            inputs.value(Some(&Json::from(input)));
            let mut trace = Trace::default();
            trace
                .entry(&crate::trace::Seg::single(&[Segment::Field("x".into())]))
                .set(inputs.finish());
            trace
        };
        let base = json!({"x": "JONES"});
        let patch = diff_objects(&schema, Side::new(&base, &traced("jones")), &json!({"x": "mine"})).unwrap();
        assert!(patch.has_guard());
        assert_eq!(
            apply_objects(&schema, &patch, base.clone(), &traced("jones")),
            json!({"x": "mine"})
        );
        assert_eq!(
            apply_objects(&schema, &patch, base, &traced("Jones")),
            json!({"x": "JONES"})
        );
    }
}
