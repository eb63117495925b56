//! Values of the union whose place there a release takes away.
//!
//! A place has the name that its first version has for it. When that version goes, or when the hub
//! gets the field under another name, the union has no such place any more. Versions that showed
//! the value hold it for themselves from then on, so that it counts as written through them.
//!
//! ```text
//! release 1   v1 {url}   v2 {url, f}   v3 {url, g}, rules f ↔ g    union {url, f}: v3 shows f as g
//! release 2   v1 {url}                 v3 {url, g}                 union {url, g}: f is v3's g
//! ```
//!
//! The name under which a version shows a place stands beside the object, among the fields that
//! versions have for themselves ([`super::own`]), as `.spec.g=.spec.f`. A value that the union had
//! for itself was written after those that versions retain for fields that were away.

use super::Bundle;
use super::own::OwnFields;
use super::stored::Views;
use crate::path::{Path, Segment};
use crate::residual::{Patch, SchemaPath, retained};
use crate::rules::{Rule, Source};
use crate::union::UNION;
use insula_schema::Structural;
use std::collections::BTreeMap;

/// A field that a version shows from a place of another name.
#[derive(Debug)]
pub(super) struct Renamed {
    version: usize,
    own: String,
    place: String,
    path: SchemaPath,
}

impl Renamed {
    /// Returns what a rule from the union to a version renames.
    pub(super) fn by_rule(version: usize, rule: &Rule) -> Option<Renamed> {
        let Source::Field(place) = &rule.source else {
            return None;
        };
        let is_plain = rule.transformation.is_none() && rule.item_rules.is_empty();
        (is_plain && is_of_fields(place) && is_of_fields(&rule.destination)).then(|| Renamed {
            version,
            own: rule.destination.to_string(),
            place: place.to_string(),
            path: SchemaPath::from_path(place),
        })
    }

    fn text(&self) -> String {
        format!("{}={}", self.own, self.place)
    }
}

/// Returns true for a path of plain names.
fn is_of_fields(path: &Path) -> bool {
    let mut segments = path.segments().iter();
    segments.all(|segment| matches!(segment, Segment::Field(_)))
}

fn schema_path(text: &str) -> Option<SchemaPath> {
    let path = Path::parse(text).ok()?;
    is_of_fields(&path).then(|| SchemaPath::from_path(&path))
}

/// Returns true if a schema has a field, by the text of a path of plain names: each read asks for
/// some.
fn has(schema: &Structural, field: &str) -> bool {
    let mut names = field.split('.').skip(1);
    names
        .try_fold(schema.root(), |node, name| node.property(name))
        .is_some()
}

/// Returns the names of fields that stand beside an object: version, own path, place.
fn names_beside(own: &OwnFields) -> impl Iterator<Item = (&str, &str, &str)> {
    own.iter().flat_map(|(version, fields)| {
        let names = fields.iter().filter_map(|field| field.split_once('='));
        names.map(|(own, place)| (version.as_str(), own, place))
    })
}

impl Bundle {
    /// Returns the place of the union from which a version shows a field.
    fn place_of(&self, version: usize, field: &str) -> String {
        let mut renamed = self.renamed.iter();
        let known = renamed.find(|renamed| renamed.version == version && renamed.own == field);
        known.map_or(field, |renamed| &renamed.place).to_owned()
    }

    /// Adds to the fields that versions have for themselves the names of those that the union
    /// holds. `before`: what stood beside the object; of versions that are away, the names stay.
    pub(super) fn add_names(&self, own: &mut OwnFields, held: &[&BTreeMap<String, Patch>], before: Option<&OwnFields>) {
        let of_union: Vec<&Patch> = held.iter().filter_map(|patches| patches.get(UNION)).collect();
        let is_held = |path: &SchemaPath| of_union.iter().any(|patch| path.find_in(patch).is_some());
        let mut add = |version: &str, text: String| {
            let fields = own.entry(version.to_owned()).or_default();
            if !fields.contains(&text) {
                fields.push(text);
            }
        };
        for renamed in self.renamed.iter().filter(|renamed| is_held(&renamed.path)) {
            add(&self.versions[renamed.version].name, renamed.text());
        }
        for (version, field, place) in before.into_iter().flat_map(names_beside) {
            let is_away = self
                .schema(version)
                .is_none_or(|schema| !schema_path(field).is_some_and(|path| path.is_in(schema)));
            if is_away && schema_path(place).is_some_and(|path| is_held(&path)) {
                add(version, format!("{field}={place}"));
            }
        }
    }
}

impl Views<'_> {
    /// Gives versions what the union holds in places that it has no more, or not for them.
    pub(super) fn give_renamed(&mut self) {
        let Some(own) = &self.own else { return };
        let (bundle, root) = (self.bundle, self.root);
        let mut moves: Vec<(usize, String, String)> = Vec::new();
        for (version, field, place) in names_beside(own) {
            let Ok(version) = bundle.index(version) else { continue };
            let is_known =
                |renamed: &Renamed| (renamed.version, &*renamed.own, &*renamed.place) == (version, field, place);
            if !bundle.renamed.iter().any(is_known) {
                moves.push((version, field.to_owned(), place.to_owned()));
            }
        }
        let union = &bundle.versions[bundle.top].schema;
        let of_union = own.get(UNION).into_iter().flatten();
        for field in of_union.filter(|field| !field.contains(['=', '[']) && !has(union, field)) {
            let holders = (0..bundle.versions.len()).filter(|version| *version != bundle.top);
            moves.extend(holders.map(|version| (version, field.clone(), field.clone())));
        }
        let had_union = self.residuals.contains_key(UNION);
        let mut given = Vec::new();
        // Versions that share a field by now get its value once: each has what those before it have
        // no field for.
        let mut left: BTreeMap<(String, String), Option<Patch>> = BTreeMap::new();
        for (version, field, place) in moves {
            let (Some(path), Some(from)) = (schema_path(&field), schema_path(&place)) else {
                continue;
            };
            let target = &bundle.versions[version];
            let is_made = bundle.parent(root, version) == Some(bundle.top) && path.is_in(&target.schema);
            if !is_made || field == place && from.is_in(union) {
                continue;
            }
            // What was retained while no version had the place is the version's own, too.
            let found = |held: &BTreeMap<String, Patch>| held.get(UNION).and_then(|patch| from.find_in(patch));
            let (patch, kept) = (found(&self.residuals), found(&self.retained));
            if patch.is_none() && kept.is_none() {
                continue;
            }
            given.push((from, place.clone()));
            if let Some(kept) = kept {
                let kept = retained::both(self.retained.remove(&target.name), Some(path.around(kept)));
                self.retained.extend(kept.map(|kept| (target.name.clone(), kept)));
            }
            let Some(patch) = patch else { continue };
            let mut patch = path.around(patch);
            if bundle.shares(root, version, &field) {
                let shared = (place, bundle.place_of(version, &field));
                match left.get(&shared).cloned() {
                    Some(Some(rest)) => patch = rest,
                    Some(None) => continue,
                    None => {}
                }
                left.insert(shared, retained::beyond(&target.schema, &patch));
            }
            let patch = match self.residuals.remove(&target.name) {
                Some(known) => patch.and(known),
                None => patch,
            };
            self.residuals.insert(target.name.clone(), patch);
            let fields = self.own.get_or_insert_default().entry(target.name.clone()).or_default();
            fields.push(field);
        }
        for (from, place) in given.into_iter().filter(|(from, _)| !from.is_in(union)) {
            for held in [&mut self.residuals, &mut self.retained] {
                let Some(patch) = held.remove(UNION) else { continue };
                let left = from.remove_from(patch.by_field(), None).0;
                held.extend(left.map(|left| (UNION.to_owned(), left)));
            }
            if let Some(fields) = self.own.get_or_insert_default().get_mut(UNION) {
                fields.retain(|field| *field != place);
            }
        }
        let none = || Patch::Fields(BTreeMap::new());
        if had_union {
            self.residuals.entry(UNION.to_owned()).or_insert_with(none);
        }
    }
}
