//! Fields that a version has for itself: those whose values reach no other version.
//!
//! They follow from the plans. An object tells in which of them it had values when it was stored,
//! so that a later release can tell a value that had no other home from one that another version
//! did not take: the former belongs to all versions that have the field by then
//! ([`super::gained`]).

use super::Bundle;
use crate::field_coverage::each_field;
use crate::passthrough::{Kind, known_kind};
use crate::path::{Path, Segment};
use crate::residual::{Item, Patch};
use insula_schema::Node;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Fields by version, as `.spec.users[].mail`; beside them those that it shows from places of the
/// union with other names ([`super::renamed`]), as `.spec.g=.spec.f`.
pub(super) type OwnFields = BTreeMap<String, Vec<String>>;

/// Fields of a place where anything is kept that are noted, of one object. What is in a place with
/// more of them stays with the version that holds it.
const FREE_MAX: usize = 64;

/// The fields of a bundle by version and parent, made when they are needed first.
pub(super) type OwnTrees = Mutex<BTreeMap<(usize, usize), Arc<Fields>>>;

/// The fields of a version.
#[derive(Debug, Default)]
pub(super) struct Fields {
    tree: OwnTree,
    /// Fields that it shares, or something in them, in the form of [`OwnFields`]: each read of an
    /// object with residuals asks for some.
    shared: HashSet<String>,
    /// Those of them in which anything is kept.
    open: Vec<Vec<Segment>>,
}

/// A field of a version, and those in it.
#[derive(Debug, Default)]
struct OwnTree {
    /// True if the version has the field, and all that is in it, for itself.
    is_own: bool,
    /// True for an object without fields, and with room for none: the release has none in it.
    is_bare: bool,
    /// True for a place where anything is kept.
    is_open: bool,
    fields: BTreeMap<String, OwnTree>,
    each: Option<Box<OwnTree>>,
}

impl OwnTree {
    fn insert(&mut self, path: &[Segment], node: &Node, is_own: bool) {
        let Some((segment, rest)) = path.split_first() else {
            self.is_own = is_own;
            self.is_bare = is_bare(node);
            self.is_open = node.preserves_unknown();
            return;
        };
        match segment {
            Segment::Field(name) => self.fields.entry(name.clone()).or_default().insert(rest, node, is_own),
            _ => self.each.get_or_insert_default().insert(rest, node, is_own),
        }
        // An object comes before what is in it.
        self.is_own &= is_own;
    }

    /// Adds the fields that are shared, or have something in them that is.
    fn add_shared(&self, path: &mut Vec<Segment>, (shared, open): (&mut HashSet<String>, &mut Vec<Vec<Segment>>)) {
        if self.is_own {
            return;
        }
        shared.insert(Path::from_segments(path.clone()).to_string());
        if self.is_open {
            open.push(path.clone());
        }
        let fields = self
            .fields
            .iter()
            .map(|(name, tree)| (Segment::Field(name.clone()), tree));
        let each = self.each.iter().map(|tree| (Segment::Each(String::new()), &**tree));
        for (segment, tree) in fields.chain(each) {
            path.push(segment);
            tree.add_shared(path, (shared, open));
            path.pop();
        }
    }

    /// Finds the fields for itself in which a residual of the version has values.
    fn find(&self, patch: &Patch, path: &mut Vec<Segment>, found: &mut BTreeSet<Vec<Segment>>) {
        match patch {
            // Another object than what is there, and not something beside it.
            Patch::Set { value, .. } if self.is_free() && self.fields.is_empty() && value.is_object() => {}
            Patch::Set { value, .. } => self.find_value(value, path, found),
            Patch::Within(_) | Patch::Items { .. } if self.is_free() && self.each.is_none() => {
                found.insert(path.clone());
            }
            Patch::Unset { .. } => {}
            Patch::Fields(fields) => {
                for (name, patch) in fields {
                    let is_known = self.below(name, path, &mut |tree, path| tree.find(patch, path, found));
                    if !is_known && !matches!(patch, Patch::Unset { .. }) {
                        self.note((name, fields.len()), path, found);
                    }
                }
            }
            Patch::Within(entries) => {
                for (_, patch) in entries {
                    self.each(path, &mut |tree, path| tree.find(patch, path, found));
                }
            }
            Patch::Items { items, .. } => {
                for item in items {
                    self.each(path, &mut |tree, path| match item {
                        Item::Base(_, Some(patch)) => tree.find(patch, path, found),
                        Item::Base(_, None) => {}
                        Item::New(value) => tree.find_value(value, path, found),
                    });
                }
            }
        }
    }

    fn find_value(&self, value: &Json, path: &mut Vec<Segment>, found: &mut BTreeSet<Vec<Segment>>) {
        if self.is_own {
            if !found.contains(path) {
                found.insert(path.clone());
            }
            return;
        }
        match value {
            Json::Object(map) => {
                for (name, value) in map {
                    if !self.below(name, path, &mut |tree, path| tree.find_value(value, path, found)) {
                        self.note((name, map.len()), path, found);
                    }
                }
            }
            _ if self.is_free() && self.each.is_none() => {
                found.insert(path.clone());
            }
            Json::Array(items) => {
                for item in items {
                    self.each(path, &mut |tree, path| tree.find_value(item, path, found));
                }
            }
            _ => {}
        }
    }

    /// Goes on below a name; returns false if the version has no field of it.
    fn below(&self, name: &str, path: &mut Vec<Segment>, then: &mut dyn FnMut(&OwnTree, &mut Vec<Segment>)) -> bool {
        match self.fields.get(name) {
            Some(tree) => {
                path.push(Segment::Field(name.to_owned()));
                then(tree, path);
                path.pop();
                true
            }
            None => {
                self.each(path, then);
                self.each.is_some() || self.fields.is_empty() && !self.is_bare && !self.is_open
            }
        }
    }

    /// Returns true for a place where anything is kept, which the version shares.
    fn is_free(&self) -> bool {
        self.is_open && !self.is_own
    }

    /// Notes a value that no version has a field for, for the time being; `beside`: the number of
    /// values of the object.
    fn note(&self, (name, beside): (&str, usize), path: &[Segment], found: &mut BTreeSet<Vec<Segment>>) {
        // Writers name the fields of such a place, and each read looks at all that are noted.
        if self.is_open && (beside > FREE_MAX || found.len() > FREE_MAX) {
            return;
        }
        let field = Segment::Field(name.to_owned());
        found.insert(path.iter().cloned().chain([field]).collect());
    }

    fn each(&self, path: &mut Vec<Segment>, then: &mut dyn FnMut(&OwnTree, &mut Vec<Segment>)) {
        let Some(tree) = &self.each else { return };
        path.push(Segment::Each(String::new()));
        then(tree, path);
        path.pop();
    }
}

/// Returns true if a node has a field or an entry at a path, or keeps anything on the way.
fn leads_to_field(node: &Node, path: &[Segment]) -> bool {
    let Some((segment, rest)) = path.split_first() else {
        return true;
    };
    let below = match segment {
        Segment::Field(name) => node.child(name),
        _ => node.items().or(node.additional()),
    };
    below.map_or(node.preserves_unknown(), |below| leads_to_field(below, rest))
}

fn is_bare(node: &Node) -> bool {
    let is_open = node.additional().is_some() || node.preserves_unknown() || node.embedded();
    known_kind(node) == Some(Kind::Object) && !is_open && node.properties().next().is_none()
}

impl Bundle {
    /// Returns the fields that each version has for itself and has values in beside an object.
    /// `before`: those that stood beside it.
    pub(super) fn own_fields(
        &self,
        root: usize,
        residuals: &BTreeMap<String, Patch>,
        (retained, before): (&BTreeMap<String, Patch>, Option<&OwnFields>),
    ) -> OwnFields {
        let own = residuals.iter().filter_map(|(name, patch)| {
            let version = self.versions.iter().position(|version| version.name == *name)?;
            let mut found = BTreeSet::new();
            self.fields_of(root, version)?
                .tree
                .find(patch, &mut Vec::new(), &mut found);
            let paths = found.into_iter().map(|path| Path::from_segments(path).to_string());
            let paths: Vec<String> = paths.collect();
            (!paths.is_empty()).then(|| (name.clone(), paths))
        });
        let mut own: OwnFields = own.collect();
        // What versions that are away hold stays as it was stored.
        for (name, fields) in before.into_iter().flatten() {
            if residuals.contains_key(name) && self.index(name).is_err() {
                own.insert(name.clone(), fields.clone());
            }
        }
        self.add_names(&mut own, &[residuals, retained], before);
        own
    }

    /// Returns true if a version shares a field, or one below it, with others. What is kept in a
    /// place where anything is kept is shared once the version that it is made from has the field.
    pub(super) fn shares(&self, root: usize, version: usize, field: &str) -> bool {
        let (Some(fields), Some(parent)) = (self.fields_of(root, version), self.parent(root, version)) else {
            return false;
        };
        let is_known = || {
            !fields.open.is_empty()
                && Path::parse(field).is_ok_and(|path| {
                    let mut open = fields.open.iter();
                    open.any(|open| path.segments().starts_with(open))
                        && leads_to_field(self.versions[parent].schema.root(), path.segments())
                })
        };
        fields.shared.contains(field) || is_known()
    }

    fn fields_of(&self, root: usize, version: usize) -> Option<Arc<Fields>> {
        let parent = self.parent(root, version)?;
        let mut all = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let fields = all.entry((version, parent)).or_insert_with(|| {
            let mut fields = Fields::default();
            if let Some(hop) = self.hops(version, parent).next() {
                let mut add = |path: &[Segment], node: &Node, is_own| fields.tree.insert(path, node, is_own);
                each_field(
                    hop,
                    self.hops(parent, version).next(),
                    &self.versions[version],
                    &mut add,
                );
            }
            let all = (&mut fields.shared, &mut fields.open);
            fields.tree.add_shared(&mut Vec::new(), all);
            Arc::new(fields)
        });
        Some(fields.clone())
    }
}
