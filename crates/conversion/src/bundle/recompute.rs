//! Recomputation of an object that was written by rules which were wrong.
//!
//! ```text
//! x        what the writer of version w saw:      get_w(S) by the former rules
//! x'       x, where fields that others wrote show as today's rules make them
//! was, is  convert(w→storage): of x by the former rules, of x' by today's
//! h'       h with the differences between the two, where nobody else wrote since
//! ```
//!
//! The object is then stored as if the writer had sent `x'` and the others their fields. Values
//! that residuals hold stay, as at any write.

use super::stored::{Views, Write};
use super::written::{Changed, Records, Written};
use super::{Bundle, Stored, ToStore};
use crate::error::ConvertError;
use crate::fixed::Fixed;
use crate::merge::{Side, merge_objects};
use crate::trace::Trace;
use insula_api::Json;
use insula_cel::Budget;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A version that wrote an object, with the rules of that time.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// Its name.
    pub version: &'a str,
    /// The former schema and rules.
    pub rules: &'a Bundle,
}

/// A step of the path to a field.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// A field of an object or an entry of a map.
    Field(&'a str),
    /// An item of a list, by its index from 0, and its value.
    Item(usize, &'a Json),
}

/// A field that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The version of the field.
    pub version: String,
    /// Its path: `spec.ports[0].name`.
    pub path: String,
    /// Its value today; `None` if it is absent.
    pub was: Option<Json>,
    /// Its value by the corrected rules; `None` if it is absent.
    pub is: Option<Json>,
}

/// A recomputed object.
#[derive(Debug, Clone, PartialEq)]
pub struct Recomputed {
    /// The object to store.
    pub stored: ToStore,
    /// The fields that clients of any served version will see changed.
    pub changes: Vec<Difference>,
    /// The fields that stay although the rules would make others: someone wrote them since.
    pub kept: Vec<Difference>,
}

/// Returns true if clients own the field at a path of a version.
pub type Owns<'a> = dyn Fn(&str, &[Step<'_>]) -> bool + 'a;

impl Bundle {
    /// Recomputes an object that is stored in the storage version: what `writers` wrote by former
    /// rules is converted by the rules of this bundle.
    ///
    /// # Errors
    /// Fails if the object cannot be read by the former rules, or not be converted by these.
    pub fn recompute(
        &self,
        stored: Stored<'_>,
        writers: &[Writer<'_>],
        owns: &Owns<'_>,
        budget: &mut Budget,
    ) -> Result<Recomputed, ConvertError> {
        let root = self.index(stored.version)?;
        let now = Views::open_to_write(self, root, stored, budget)?;
        let mut correction = Correction {
            bundle: self,
            root,
            stored,
            owns,
            views: BTreeMap::from([(root, now.view(root).clone())]),
            raw: now.raw.clone().into_owned(),
            records: now.records.clone(),
            now,
            kept: Vec::new(),
        };
        for writer in writers {
            correction.add(*writer, budget)?;
        }
        let Correction {
            views,
            raw,
            records,
            now,
            kept,
            ..
        } = correction;
        let mut write = Write {
            bundle: self,
            root,
            residuals: now.residuals.clone(),
            retained: BTreeMap::new(),
            carried: BTreeMap::new(),
            own: now.own.clone(),
            old: Some(now),
            raw: self.versions[root].has_defaults.then_some(raw),
            views,
            records,
            writer: None,
            from: root,
            budget,
        };
        let new = write.finish()?;
        let changes = self.changes(stored, new.stored(stored.version), budget)?;
        Ok(Recomputed {
            stored: new,
            changes,
            kept,
        })
    }

    /// Returns the differences that clients see: first those in the storage version.
    fn changes(&self, old: Stored<'_>, new: Stored<'_>, budget: &mut Budget) -> Result<Vec<Difference>, ConvertError> {
        let mut changes = Vec::new();
        let served = self.served().filter(|version| *version != self.storage());
        for version in [self.storage()].into_iter().chain(served) {
            // An object that could not be read shows for the first time.
            let before = self.get(old, version, budget).unwrap_or_default();
            let after = self.get(new, version, budget)?;
            differences(version, Some(&before), Some(&after), "", &mut changes);
        }
        Ok(changes)
    }
}

/// A recomputation in progress.
struct Correction<'a> {
    bundle: &'a Bundle,
    root: usize,
    stored: Stored<'a>,
    owns: &'a Owns<'a>,
    /// The object as today's rules show it.
    now: Views<'a>,
    views: BTreeMap<usize, Json>,
    raw: Json,
    records: Records,
    kept: Vec<Difference>,
}

impl Correction<'_> {
    fn add(&mut self, writer: Writer<'_>, budget: &mut Budget) -> Result<(), ConvertError> {
        let (bundle, former) = (self.bundle, writer.rules);
        let at = bundle.index(writer.version)?;
        let record = self.records.get(writer.version).copied().unwrap_or_default();
        let Some(parent) = bundle.parent(self.root, at) else {
            return self.add_moved(writer, record.changed, budget);
        };
        let mut then = Views::open(former, former.index(self.stored.version)?, self.stored, budget)?;
        let seen = self.seen(former, &mut then, writer.version, budget)?;
        let mut shown = seen.clone();
        if self.now.make(at, budget).is_ok() {
            let changed = record.changed;
            shown = picked(&seen, self.now.view(at), &|path, _| {
                !changed.contains(writer.version, &field(path))
            });
            shown = self.adopted((at, parent), former, &mut then, shown, budget)?;
        }
        self.climb(at, former, (seen, shown), record.changed, budget)?;
        match bundle.rules_to(at, self.root) {
            Some(rules) => {
                let record = Written {
                    rules,
                    changed: Changed::default(),
                };
                self.records.insert(writer.version.to_owned(), record);
            }
            None => drop(self.records.remove(writer.version)),
        }
        Ok(())
    }

    /// Corrects what was written through the storage version while another was stored: the object
    /// was moved by today's rules, and not by those that wrote it.
    ///
    /// ```text
    /// r        what was stored then:            get_r(S), unchanged by the move
    /// was, is  convert(r→storage): of r by today's rules, by the former ones
    /// ```
    fn add_moved(&mut self, writer: Writer<'_>, changed: Changed, budget: &mut Budget) -> Result<(), ConvertError> {
        let (bundle, former, root) = (self.bundle, writer.rules, self.root);
        self.records.remove(writer.version);
        if former.storage() == writer.version {
            return Ok(());
        }
        let stored_then = bundle.index(former.storage())?;
        self.now.make(stored_then, budget)?;
        let then = self.now.view(stored_then);
        let was = bundle.route(stored_then, root, then, budget, None)?;
        let is = former.route(former.storage, former.index(writer.version)?, then, budget, None)?;
        let target = &bundle.versions[root];
        let onto = self.raw.clone();
        let keeps = |path: &[Step<'_>], _: Option<&Json>| changed.contains(writer.version, &field(path));
        self.raw = self.corrected(root, (&was, &is), &onto, &keeps);
        self.views.insert(root, target.tidied(self.raw.clone()));
        Ok(())
    }

    /// Returns the object as the former rules show it in a version.
    fn seen(
        &self,
        former: &Bundle,
        then: &mut Views<'_>,
        version: &str,
        budget: &mut Budget,
    ) -> Result<Json, ConvertError> {
        let at = former.index(version)?;
        then.make(at, budget)?;
        Ok(then.view(at).clone())
    }

    /// Returns the writer's object in which the fields that others wrote show as today's rules make
    /// them.
    fn adopted(
        &mut self,
        (at, parent): (usize, usize),
        former: &Bundle,
        then: &mut Views<'_>,
        shown: Json,
        budget: &mut Budget,
    ) -> Result<Json, ConvertError> {
        let bundle = self.bundle;
        let [name, above] = [at, parent].map(|version| bundle.versions[version].name.as_str());
        self.now.make(parent, budget)?;
        let seen_above = self.seen(former, then, above, budget)?;
        let was = former.route(former.index(above)?, former.index(name)?, &seen_above, budget, None)?;
        let is = bundle.route(parent, at, self.now.view(parent), budget, None)?;
        let merged = merged(&bundle.versions[at].schema, &was, &is, &shown);
        Ok(picked(&shown, &merged, &|path, _| (self.owns)(name, path)))
    }

    /// Carries the correction of a writer's object up to the storage version.
    fn climb(
        &mut self,
        from: usize,
        former: &Bundle,
        (mut seen, mut shown): (Json, Json),
        changed: Changed,
        budget: &mut Budget,
    ) -> Result<(), ConvertError> {
        let bundle = self.bundle;
        let mut at = from;
        while let Some(parent) = bundle.parent(self.root, at) {
            let [name, above] = [at, parent].map(|version| bundle.versions[version].name.as_str());
            let was = former.route(former.index(name)?, former.index(above)?, &seen, budget, None)?;
            let is = bundle.route(at, parent, &shown, budget, None)?;
            let is_root = parent == self.root;
            if !is_root {
                self.now.make(parent, budget)?;
            }
            let onto = match (is_root, self.views.get(&parent)) {
                (true, _) => self.raw.clone(),
                (false, Some(corrected)) => corrected.clone(),
                (false, None) => self.now.view(parent).clone(),
            };
            let target = &bundle.versions[parent];
            let keeps = |path: &[Step<'_>], present: Option<&Json>| {
                let is_list = present.is_some_and(Json::is_array);
                (self.owns)(above, path)
                    || is_root && changed.contains(above, &field(path))
                    || !is_list && present != find(&was, path)
            };
            let corrected = self.corrected(parent, (&was, &is), &onto, &keeps);
            self.views.insert(at, shown);
            seen = was;
            shown = target.tidied(corrected.clone());
            if is_root {
                self.raw = corrected;
            }
            at = parent;
        }
        self.views.insert(at, shown);
        Ok(())
    }

    /// Returns `onto`, an object of a version, with the differences between two conversions to it
    /// but for the fields that stay, which are noted.
    fn corrected(
        &mut self,
        version: usize,
        (was, is): (&Json, &Json),
        onto: &Json,
        keeps: &dyn Fn(&[Step<'_>], Option<&Json>) -> bool,
    ) -> Json {
        let target = &self.bundle.versions[version];
        let merged = merged(&target.schema, was, is, onto);
        let corrected = picked(onto, &merged, keeps);
        differences(&target.name, Some(&corrected), Some(&merged), "", &mut self.kept);
        corrected
    }
}

fn merged(schema: &insula_schema::Structural, was: &Json, is: &Json, onto: &Json) -> Json {
    let untraced = Trace::default();
    let (was, is) = (Side::new(was, &untraced), Side::new(is, &untraced));
    merge_objects(schema, was, is, onto, &Fixed::default())
}

/// Returns `onto` with the fields of `merged`, but for those that `keeps` tells to keep by their
/// path and their value in `onto`.
fn picked(onto: &Json, merged: &Json, keeps: &dyn Fn(&[Step<'_>], Option<&Json>) -> bool) -> Json {
    pick(Some(onto), Some(merged), &mut Vec::new(), keeps).unwrap_or_default()
}

fn pick<'a>(
    onto: Option<&'a Json>,
    merged: Option<&'a Json>,
    path: &mut Vec<Step<'a>>,
    keeps: &dyn Fn(&[Step<'_>], Option<&Json>) -> bool,
) -> Option<Json> {
    if onto == merged {
        return onto.cloned();
    }
    match (onto, merged) {
        (Some(Json::Object(old)), Some(Json::Object(new))) => {
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            let fields = names.into_iter().filter_map(|name| {
                path.push(Step::Field(name));
                let value = pick(old.get(name), new.get(name), path, keeps);
                path.pop();
                Some((name.clone(), value?))
            });
            Some(Json::Object(fields.collect()))
        }
        (Some(Json::Array(old)), Some(Json::Array(new))) if old.len() == new.len() => {
            let items = old.iter().zip(new).enumerate().filter_map(|(i, (old, new))| {
                path.push(Step::Item(i, old));
                let value = pick(Some(old), Some(new), path, keeps);
                path.pop();
                value
            });
            Some(Json::Array(items.collect()))
        }
        _ if keeps(path, onto) => onto.cloned(),
        _ => merged.cloned(),
    }
}

/// Returns the path of a field up to the first list, which counts as one field.
fn field(path: &[Step<'_>]) -> String {
    let names = path.iter().map_while(|step| match step {
        Step::Field(name) => Some(*name),
        Step::Item(..) => None,
    });
    names.collect::<Vec<_>>().join(".")
}

fn find<'a>(value: &'a Json, path: &[Step<'_>]) -> Option<&'a Json> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Field(name) => value.get(*name),
        Step::Item(index, _) => value.get(*index),
    })
}

/// Collects the fields in which two objects differ, without `apiVersion` and metadata that is not
/// converted.
fn differences(version: &str, was: Option<&Json>, is: Option<&Json>, path: &str, out: &mut Vec<Difference>) {
    if was == is {
        return;
    }
    let part = |value: Option<&'_ Json>, name: &str| value.and_then(|value| value.get(name)).cloned();
    match (was, is) {
        (Some(Json::Object(old)), Some(Json::Object(new))) => {
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let ours = match path {
                    "" => !matches!(name.as_str(), "apiVersion" | "kind"),
                    "metadata" => matches!(name.as_str(), "labels" | "annotations"),
                    _ => true,
                };
                if !ours {
                    continue;
                }
                let mut below = path.to_owned();
                let quoted = name.contains(['.', '/']);
                let _ = match (quoted, path.is_empty()) {
                    (true, _) => write!(below, "['{name}']"),
                    (false, true) => write!(below, "{name}"),
                    (false, false) => write!(below, ".{name}"),
                };
                differences(version, part(was, name).as_ref(), part(is, name).as_ref(), &below, out);
            }
        }
        (Some(Json::Array(old)), Some(Json::Array(new))) if old.len() == new.len() => {
            for (i, (old, new)) in old.iter().zip(new).enumerate() {
                differences(version, Some(old), Some(new), &format!("{path}[{i}]"), out);
            }
        }
        _ => out.push(Difference {
            version: version.to_owned(),
            path: path.to_owned(),
            was: was.cloned(),
            is: is.cloned(),
        }),
    }
}
