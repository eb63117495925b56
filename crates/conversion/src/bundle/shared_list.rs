//! Lists that the hub lacks and of which rules with the hub name an item. Versions whose rules for
//! such a list are the same have it in common.
//!
//! ```text
//! hub v1 {one}      v2, v3 {l}      rules one ↔ l[0]
//! put(v2, {l: [a, b]})              v1 shows {one: a}, and v3 {l: [a, b]}
//! ```
//!
//! The union has no place for the list: its first item is a field of the hub, and a list without
//! its first item does not tell at which place the others are. So each version holds all of it in
//! its residual, and an edit of one is an edit of all. A version that goes takes nothing with it.

use super::stored::Views;
use super::{Bundle, VersionSchema};
use crate::by_path::{get, get_mut, put};
use crate::carried::ListRules;
use crate::fixed::Fixed;
use crate::merge::{Side, merge_objects};
use crate::passthrough::{self, Except, Passthrough};
use crate::path::Segment;
use crate::residual::Patch;
use crate::rules::Direction;
use crate::trace::{Seg, Trace};
use insula_api::Json;
use insula_cel::Budget;
use insula_schema::{Node, Type};
use serde_json::Map;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

pub(super) mod apart;

/// A list that versions beside the hub have in common.
#[derive(Debug)]
pub(super) struct SharedList {
    /// Names of fields.
    path: Vec<Seg>,
    members: BTreeSet<usize>,
    /// Passthrough from the list of one member to that of another.
    ways: BTreeMap<(usize, usize), Passthrough>,
}

/// Finds the lists of all versions.
pub(super) fn find(versions: &[VersionSchema], hub: usize, directions: &[Direction]) -> Vec<SharedList> {
    let name = |version: usize| versions[version].name.as_str();
    let mut lists: Vec<SharedList> = Vec::new();
    for number in (0..versions.len()).filter(|number| *number != hub) {
        let rules = ListRules::of_version(name(number), name(hub), directions);
        if rules.lists().next().is_none() {
            continue;
        }
        let common = |other| ListRules::common([name(number), name(other)], name(hub), directions);
        let common: Vec<BTreeSet<Vec<Segment>>> = (0..number).map(common).collect();
        for path in rules.lists() {
            let Some(at) = path.iter().map(seg).collect::<Option<Vec<Seg>>>() else {
                continue;
            };
            let node = |version: usize| list(versions[version].schema.root(), &at);
            if node(number).is_none() || node(hub).is_some() {
                continue;
            }
            let both = |other: &usize| {
                let theirs = node(*other).filter(|_| common[*other].contains(path))?;
                let ours = node(number)?;
                Some([
                    ((number, *other), way(ours, theirs)?),
                    ((*other, number), way(theirs, ours)?),
                ])
            };
            let ways = |list: &SharedList| {
                let all = list.members.iter().map(both);
                (list.path == at).then(|| all.collect::<Option<Vec<_>>>())?
            };
            match lists.iter_mut().find_map(|list| Some((ways(list)?, list))) {
                Some((ways, list)) => {
                    list.members.insert(number);
                    list.ways.extend(ways.into_iter().flatten());
                }
                None => lists.push(SharedList {
                    path: at,
                    members: BTreeSet::from([number]),
                    ways: BTreeMap::new(),
                }),
            }
        }
    }
    lists.retain(|list| list.members.len() > 1);
    lists
}

fn seg(segment: &Segment) -> Option<Seg> {
    match segment {
        Segment::Field(name) => Some(Seg::Field(name.as_str().into())),
        _ => None,
    }
}

fn list<'n>(root: &'n Node, path: &[Seg]) -> Option<&'n Node> {
    let node = path.iter().try_fold(root, |node, seg| match seg {
        Seg::Field(name) => node.property(name),
        Seg::Index(_) => None,
    })?;
    (node.kind() == Some(Type::Array)).then_some(node)
}

fn way(from: &Node, to: &Node) -> Option<Passthrough> {
    passthrough::compile(Some(from), to, &Except::default(), &mut Vec::new())
}

impl SharedList {
    fn is_at(&self, path: &[Segment]) -> bool {
        path.iter().map(seg).eq(self.path.iter().cloned().map(Some))
    }

    /// Returns an object that has nothing but the list, made by `way`, and the objects around it.
    fn alone(&self, object: &Json, way: &Passthrough) -> Json {
        let mut out = Json::Object(Map::new());
        for end in 1..self.path.len() {
            if get(object, &self.path[..end]).is_some_and(Json::is_object) {
                put(&mut out, &self.path[..end], Json::Object(Map::new()));
            }
        }
        if let Some(list) = get(object, &self.path).and_then(|list| way.copy(list)) {
            put(&mut out, &self.path, list);
        }
        out
    }

    /// Gives `onto`, an object of one member, the list of an object of another. Fields of its items
    /// that the other version lacks stay.
    fn give(&self, bundle: &Bundle, (from, object): (usize, &Json), (to, onto): (usize, &mut Json)) {
        let (Some(there), Some(back)) = (self.ways.get(&(from, to)), self.ways.get(&(to, from))) else {
            return;
        };
        let none = Trace::default();
        let schema = &bundle.versions[to].schema;
        let new = self.alone(object, there);
        let own = match bundle.versions[to].has_defaults {
            true => Cow::Owned(bundle.versions[to].tidied(onto.clone())),
            false => Cow::Borrowed(&*onto),
        };
        // Of its own list, what the other version has a field for.
        let old = self.alone(&self.alone(&own, back), there);
        if get(&old, &self.path) == get(&new, &self.path) {
            return;
        }
        let Seg::Field(first) = &self.path[0] else { return };
        let stands: Map<String, Json> = onto
            .get(&**first)
            .map(|value| (first.to_string(), value.clone()))
            .into_iter()
            .collect();
        let (old, new) = (Side::new(&old, &none), Side::new(&new, &none));
        let mut merged = merge_objects(schema, old, new, &Json::Object(stands), &Fixed::default());
        let Some(map) = onto.as_object_mut() else { return };
        match merged.as_object_mut().and_then(|merged| merged.remove(&**first)) {
            Some(value) => map.insert(first.to_string(), value),
            None => map.remove(&**first),
        };
    }

    /// Returns true if a residual says anything about the list.
    fn is_in(&self, patch: &Patch) -> bool {
        let below = self.path.iter().try_fold(patch, |patch, seg| match (patch, seg) {
            (Patch::Fields(fields), Seg::Field(name)) => fields.get(&**name).ok_or(false),
            _ => Err(true),
        });
        below.map_or_else(|is_above| is_above, |_| true)
    }
}

/// Adds to the items of a list what those of another one have in fields that `node` has not.
fn add_foreign(node: &Node, value: &mut Json, other: &Json) {
    match (value, other) {
        (Json::Object(map), Json::Object(others)) if !node.preserves_unknown() => {
            for (name, other) in others {
                match (node.child(name), map.get_mut(name)) {
                    (Some(child), Some(value)) => add_foreign(child, value, other),
                    (None, None) => drop(map.insert(name.clone(), other.clone())),
                    _ => {}
                }
            }
        }
        (Json::Array(items), Json::Array(others)) if items.len() == others.len() => {
            let Some(node) = node.items() else { return };
            for (item, other) in items.iter_mut().zip(others) {
                add_foreign(node, item, other);
            }
        }
        _ => {}
    }
}

impl Views<'_> {
    /// Gives a version the lists that others hold and it does not: it has them in common with those
    /// since a release.
    pub(super) fn with_shared_lists(&mut self, version: usize, mut shown: Json, budget: &mut Budget) -> Json {
        let bundle = self.bundle;
        for list in bundle.lists_of(version) {
            if self.holds(list, version) {
                continue;
            }
            let Some(holder) = list.members.iter().copied().find(|member| self.holds(list, *member)) else {
                continue;
            };
            // An object whose rules fail reads as far as it can.
            if self.make(holder, budget).is_err() {
                continue;
            }
            list.give(bundle, (holder, self.view(holder)), (version, &mut shown));
            shown = bundle.versions[version].tidied(shown);
        }
        shown
    }

    fn holds(&self, list: &SharedList, version: usize) -> bool {
        let patch = self.residuals.get(&self.bundle.versions[version].name);
        version == self.root || patch.is_some_and(|patch| list.is_in(patch))
    }

    /// Returns true if a version has a list in common with one that holds it.
    pub(super) fn has_shared_list(&self, version: usize) -> bool {
        let mut lists = self.bundle.lists_of(version);
        lists.any(|list| list.members.iter().any(|member| self.holds(list, *member)))
    }

    /// Makes the versions that a version has lists in common with, as far as rules allow.
    pub(super) fn make_sharers(&mut self, version: usize, budget: &mut Budget) {
        let bundle = self.bundle;
        for member in bundle.lists_of(version).flat_map(|list| &list.members) {
            // Without it, its items have nothing of their own.
            let _ = self.make(*member, budget);
        }
    }

    /// Returns an object of a version with what other versions have in the items of its lists: an
    /// item is there as long as anything in it is.
    pub(super) fn with_foreign<'o>(&self, version: usize, object: &'o Json) -> Cow<'o, Json> {
        let mut whole = Cow::Borrowed(object);
        for list in self
            .bundle
            .lists_of(version)
            .filter(|list| get(object, &list.path).is_some())
        {
            let node = self::list(self.bundle.versions[version].schema.root(), &list.path);
            for member in list.members.iter().filter(|member| **member != version) {
                let is_made = *member == self.root || self.made.contains_key(member);
                let other = get(self.view(*member), &list.path).filter(|_| is_made);
                let value = get_mut(whole.to_mut(), &list.path);
                if let (Some(node), Some(value), Some(other)) = (node, value, other) {
                    add_foreign(node, value, other);
                }
            }
        }
        whole
    }
}

impl Bundle {
    fn lists_of(&self, version: usize) -> impl Iterator<Item = &SharedList> {
        self.lists.iter().filter(move |list| list.members.contains(&version))
    }

    /// Gives an object of a version the lists that a writer changed through another version.
    /// `before`: the object that the writer saw.
    pub(super) fn give_lists(
        &self,
        (from, before, after): (usize, Option<&Json>, &Json),
        (to, onto): (usize, &mut Json),
    ) {
        for list in self.lists_of(from).filter(|list| list.members.contains(&to)) {
            let now = get(after, &list.path);
            if before.is_none_or(|before| get(before, &list.path) != now) {
                list.give(self, (from, after), (to, onto));
            }
        }
        insula_schema::prune(onto, &self.versions[to].schema);
    }

    /// Returns true if a version has a list in common with others.
    pub(super) fn has_lists(&self, version: usize) -> bool {
        self.lists_of(version).next().is_some()
    }

    /// Returns an object without the lists that two versions have in common.
    pub(crate) fn without_lists<'o>(&self, (a, b): (&str, &str), object: Cow<'o, Json>) -> Cow<'o, Json> {
        let mut left = object;
        let (Ok(a), Ok(b)) = (self.index(a), self.index(b)) else {
            return left;
        };
        for list in self.lists_of(a).filter(|list| a != b && list.members.contains(&b)) {
            let Some((Seg::Field(last), above)) = list.path.split_last() else {
                continue;
            };
            if let Some(Json::Object(map)) = get_mut(left.to_mut(), above) {
                map.remove(&**last);
            }
        }
        left
    }

    /// Returns true if two versions have a list in common.
    pub(super) fn share_lists(&self, a: usize, b: usize) -> bool {
        self.lists_of(a).any(|list| list.members.contains(&b))
    }
}
