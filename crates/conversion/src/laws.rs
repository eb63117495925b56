//! The laws of conversion as functions, for tests and for admission's search for counterexamples.
//!
//! 1. PutGet: a read returns what was written.
//! 2. GetPut: writing back what was read changes no byte.
//! 3. Non-interference: a write through a version changes nothing that the version cannot see.
//! 4. The later edit wins.
//! 5. Readable: every stored object can be read in every served version.
//! 6. Carried: a field that two versions have and that no rule moves or writes reads the same in
//!    both.
//! 7. Identity: an item that an edit leaves alone stays as it is in every version, and one that is
//!    edited keeps what the writer cannot see.
//! 8. Write-back: what a version shows can be written back, and so can a change of metadata or
//!    status beside it, also where its schema refuses a value.
//! 9. Metadata: all versions show the same, but for labels and annotations that rules name.
//! 10. Status: a write of the status alone changes nothing outside of it in any version.

use crate::bundle::{Bundle, ToStore};
use crate::error::ConvertError;
use crate::merge::Side;
use crate::object_budget;
use crate::trace::Trace;
use insula_meter::Meter;
use insula_schema::Node;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

mod identity;
mod observed;
#[cfg(test)]
mod planted;
mod status;
mod write_back;

use observed::Conversion;
pub(crate) use observed::Observed;

/// A law that an object breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The law.
    pub law: Law,
    /// The version that shows the violation.
    pub version: String,
    /// The first path that differs, or the error.
    pub place: String,
}

/// The laws that one write can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Law {
    /// A read returns what was written.
    PutGet,
    /// Writing back what was read changes no byte.
    GetPut,
    /// A write through a version changes nothing that the version cannot see.
    NonInterference,
    /// An edit replaces values in other versions that were derived from the edited one, or
    /// preserved.
    LaterEditWins,
    /// Every stored object can be read in every served version.
    Readable,
    /// A field that two versions have, and that no rule between them moves or writes, reads the
    /// same in both.
    Carried,
    /// An item that an edit leaves alone stays as it is in every version, and one that is edited
    /// keeps what the writer cannot see.
    Identity,
    /// Every read can be written back, and a change of metadata or status beside it.
    WriteBack,
    /// All versions show the same metadata, but for labels and annotations that rules name.
    Metadata,
    /// A write of the status alone changes nothing outside of it in any version.
    Status,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} does not hold in {} at {}", self.law, self.version, self.place)
    }
}

/// Checks law 1: reading in `from` returns `x`, except for dropped fields.
///
/// # Errors
/// Returns the first path that differs.
pub fn put_get(bundle: &Bundle, x: &Json, from: &str, after: &ToStore) -> Result<(), Violation> {
    Laws::unmetered(bundle).put_get(x, from, &unmetered(bundle, after))
}

/// Checks laws 2 and 5: every version can be read, and writing back what it reads changes no byte.
///
/// # Errors
/// Returns the first version that breaks the law.
pub fn get_put(bundle: &Bundle, stored: &ToStore) -> Result<(), Violation> {
    Laws::unmetered(bundle).get_put(&unmetered(bundle, stored))
}

/// Checks law 3 outside of lists, for each conversion that the edit passes: where the source
/// converts to the same value, from the same inputs, before and after, the target must not change.
///
/// # Errors
/// Returns the first path that changed although the writer cannot see it.
pub fn non_interference(bundle: &Bundle, from: &str, before: &ToStore, after: &ToStore) -> Result<(), Violation> {
    let [before, after] = [before, after].map(|stored| unmetered(bundle, stored));
    Laws::unmetered(bundle).non_interference(from, &before, &after)
}

/// Checks law 4 outside of lists, for each conversion that the edit passes: where the edit changes
/// the converted value, the target must show the new one.
///
/// # Errors
/// Returns the first path that still shows an older value.
pub fn later_edit_wins(bundle: &Bundle, from: &str, before: &ToStore, after: &ToStore) -> Result<(), Violation> {
    let [before, after] = [before, after].map(|stored| unmetered(bundle, stored));
    Laws::unmetered(bundle).later_edit_wins(from, &before, &after)
}

/// Checks law 6 between all versions.
///
/// # Errors
/// Returns the first path whose values differ.
pub fn carried(bundle: &Bundle, stored: &ToStore) -> Result<(), Violation> {
    Laws::unmetered(bundle).carried(&unmetered(bundle, stored))
}

/// Checks law 7 between the version of the writer and all others.
///
/// # Errors
/// Returns the first item that the edit changes although the writer did not.
pub fn identity(bundle: &Bundle, from: &str, before: &ToStore, after: &ToStore) -> Result<(), Violation> {
    let [before, after] = [before, after].map(|stored| unmetered(bundle, stored));
    Laws::unmetered(bundle).identity(from, &before, &after)
}

/// Checks law 8 in a version, as a server takes a write: pruned, with defaults, and validated as an
/// update of what the version shows.
///
/// # Errors
/// Returns the first path that the server would change, or the error.
pub fn write_back(bundle: &Bundle, version: &str, stored: &ToStore) -> Result<(), Violation> {
    Laws::unmetered(bundle).write_back(version, &unmetered(bundle, stored))
}

fn unmetered<'a>(bundle: &'a Bundle, stored: &'a ToStore) -> Observed<'a> {
    Observed::new(bundle, Cow::Borrowed(stored), &Meter::unbounded())
}

/// The laws of one API.
pub(crate) struct Laws<'a> {
    bundle: &'a Bundle,
    /// Pays for the conversions and the validations.
    meter: Meter,
}

impl<'a> Laws<'a> {
    pub(crate) fn new(bundle: &'a Bundle, meter: &Meter) -> Self {
        Laws {
            bundle,
            meter: meter.clone(),
        }
    }

    /// Returns the laws for tests and tools.
    fn unmetered(bundle: &'a Bundle) -> Self {
        Laws::new(bundle, &Meter::unbounded())
    }

    pub(crate) fn put_get(&self, x: &Json, from: &str, after: &Observed<'_>) -> Result<(), Violation> {
        let read = self.read(after, from, Law::PutGet)?;
        let got = self.bundle.without_dropped(read, from);
        same(&self.bundle.without_dropped(x, from), &got).map_err(|place| Violation {
            law: Law::PutGet,
            version: from.to_owned(),
            place,
        })
    }

    pub(crate) fn get_put(&self, stored: &Observed<'_>) -> Result<(), Violation> {
        let bundle = self.bundle;
        for version in bundle.versions() {
            let shown = self.read(stored, version, Law::Readable)?;
            let violation = |place| Violation {
                law: Law::GetPut,
                version: version.to_owned(),
                place,
            };
            let was = stored.to_store();
            let old = Some(was.stored(bundle.storage()));
            let again = bundle.put(shown, version, old, &mut object_budget(&self.meter));
            let again = again.map_err(|error| violation(error.to_string()))?;
            same(&was.value, &again.value).map_err(violation)?;
            if was.residual != again.residual {
                return Err(violation("the residual".to_owned()));
            }
        }
        Ok(())
    }

    pub(crate) fn non_interference(
        &self,
        from: &str,
        before: &Observed<'_>,
        after: &Observed<'_>,
    ) -> Result<(), Violation> {
        self.along(Law::NonInterference, from, before, after, |node, edit, shown, place| {
            unseen(node, edit, shown, place)
        })
    }

    pub(crate) fn later_edit_wins(
        &self,
        from: &str,
        before: &Observed<'_>,
        after: &Observed<'_>,
    ) -> Result<(), Violation> {
        self.along(Law::LaterEditWins, from, before, after, |node, edit, shown, place| {
            won(node, edit, shown.1, place, false)
        })
    }

    pub(crate) fn carried(&self, stored: &Observed<'_>) -> Result<(), Violation> {
        for (a, b, claims) in self.bundle.pairs() {
            // Law 5 covers versions that cannot be read.
            let (Ok(view_a), Ok(view_b)) = (stored.view(&a.name), stored.view(&b.name)) else {
                continue;
            };
            let between = [self.bundle.hub(), self.bundle.storage()];
            let between = between.map(|version| self.bundle.schema(version).map(|schema| schema.root()));
            let between: Vec<&Node> = between.into_iter().flatten().collect();
            if let Some(place) = claims.difference((a.schema.root(), view_a), (b.schema.root(), view_b), &between) {
                return Err(Violation {
                    law: Law::Carried,
                    version: b.name.clone(),
                    place,
                });
            }
        }
        Ok(())
    }

    pub(crate) fn identity(&self, from: &str, before: &Observed<'_>, after: &Observed<'_>) -> Result<(), Violation> {
        let (Ok(was), Ok(is)) = (before.view(from), after.view(from)) else {
            return Ok(());
        };
        for (a, b, claims) in self.bundle.pairs() {
            let (writer, other) = match (a.name == from, b.name == from) {
                (true, _) => (a, b),
                (_, true) => (b, a),
                _ => continue,
            };
            let (Ok(had), Ok(has)) = (before.view(&other.name), after.view(&other.name)) else {
                continue;
            };
            let seen = |node, before, after| identity::Seen {
                node,
                before: Some(before),
                after: Some(after),
                fallback: None,
            };
            let writer = seen(writer.schema.root(), was, is);
            let found = identity::broken(claims, writer, seen(other.schema.root(), had, has), &mut Vec::new());
            if let Some(place) = found {
                return Err(Violation {
                    law: Law::Identity,
                    version: other.name.clone(),
                    place,
                });
            }
        }
        Ok(())
    }

    /// Follows an edit from version to version, as a write does: up to the stored version, then
    /// down to the others. Each step compares the conversions of the source before and after the
    /// write, so that the laws hold for any rules. They do not cover dropped fields.
    fn along(
        &self,
        law: Law,
        from: &str,
        before: &Observed<'_>,
        after: &Observed<'_>,
        check: impl Fn(Option<&Node>, Edit<'_>, Shown<'_>, &str) -> Result<(), String>,
    ) -> Result<(), Violation> {
        let bundle = self.bundle;
        for (a, b) in bundle.edit_hops(from) {
            // A conversion that fails has no result to compare: the write needed none.
            let (was, is) = (self.made(before, (a, b), law)?, self.made(after, (a, b), law)?);
            let (Some(was), Some(is)) = (&*was, &*is) else { continue };
            // A list that both have in common changes as the writer changes it.
            let apart = |object| bundle.without_lists((from, b), object);
            let [was, is] = [was, is].map(|made| (apart(Cow::Borrowed(&made.0)), &made.1));
            let shown = |stored| Ok(apart(bundle.without_dropped(self.read(stored, b, law)?, b)));
            let (had, has) = match (shown(before), shown(after)) {
                (Ok(had), Ok(has)) => (had, has),
                // The laws cover served versions only.
                _ if !bundle.served().any(|version| version == b) => continue,
                (had, has) => (had?, has?),
            };
            let edit = Edit(Side::new(&was.0, was.1), Side::new(&is.0, is.1));
            let maps = [&was.0, &is.0, &had, &has]
                .into_iter()
                .filter_map(|object| object.as_object());
            let names: BTreeSet<&String> = maps.flat_map(|map| map.keys()).collect();
            for name in names {
                if name == "apiVersion" || name == "kind" || name == "metadata" {
                    continue;
                }
                let node = bundle.schema(b).and_then(|schema| schema.root().child(name));
                let checked = check(node, edit.field(name), Shown(had.get(name), has.get(name)), name);
                checked.map_err(|place| Violation {
                    law,
                    version: b.to_owned(),
                    place,
                })?;
            }
        }
        Ok(())
    }

    fn made(&self, stored: &Observed<'_>, (a, b): (&str, &str), law: Law) -> Result<Rc<Conversion>, Violation> {
        match stored.conversion((a, b)) {
            Err(_) if !self.bundle.served().any(|version| version == a) => Ok(Rc::new(None)),
            made => made.map_err(|error| Violation::from_error(law, a, &error)),
        }
    }

    fn read<'o>(&self, stored: &'o Observed<'_>, version: &str, law: Law) -> Result<&'o Json, Violation> {
        let read = stored.view(version);
        read.map_err(|error| Violation::from_error(law, version, &error))
    }
}

impl Violation {
    fn from_error(law: Law, version: &str, error: &ConvertError) -> Violation {
        Violation {
            law,
            version: version.to_owned(),
            place: error.to_string(),
        }
    }
}

/// The results of a conversion before and after an edit, with their traces.
#[derive(Clone, Copy)]
struct Edit<'a>(Side<'a>, Side<'a>);

/// The target's views before and after the edit.
#[derive(Clone, Copy)]
struct Shown<'a>(Option<&'a Json>, Option<&'a Json>);

impl<'a> Edit<'a> {
    fn field(&self, name: &str) -> Edit<'a> {
        Edit(self.0.field(name), self.1.field(name))
    }

    /// Returns true if the value was computed from other inputs after the edit.
    fn anew(&self) -> bool {
        self.0.trace.and_then(Trace::hash) != self.1.trace.and_then(Trace::hash)
    }
}

impl<'a> Shown<'a> {
    fn field(&self, name: &str) -> Shown<'a> {
        let field = |value: Option<&'a Json>| value.and_then(|value| value.get(name));
        Shown(field(self.0), field(self.1))
    }
}

/// Returns the names of the fields of any of these objects.
fn names<'a>(values: impl IntoIterator<Item = Option<&'a Json>>) -> BTreeSet<&'a str> {
    let maps = values.into_iter().flatten().filter_map(Json::as_object);
    maps.flat_map(|map| map.keys().map(String::as_str)).collect()
}

/// Checks that the edited value won. `anew`: a value above was computed from other inputs, so that
/// equal values are edits, too.
fn won(node: Option<&Node>, edit: Edit<'_>, shown: Option<&Json>, place: &str, anew: bool) -> Result<(), String> {
    let (old, new) = (edit.0.value, edit.1.value);
    let anew = anew || edit.anew();
    // Defaults are no edits; a removed value gives way to the default, if its parent still exists.
    let default = node.and_then(Node::default);
    let defaulted = default.is_some() && (new == default || new.is_none() && shown == default);
    if !anew && old == new && edit.0.trace == edit.1.trace || defaulted {
        return Ok(());
    }
    match (old, new) {
        // When a whole object is removed, fields hidden from the writer may stay, with defaults
        // around them.
        (Some(Json::Object(_)), None) => Ok(()),
        (Some(Json::Object(_)), _) | (_, Some(Json::Object(_))) => names([old, new]).into_iter().try_for_each(|name| {
            let (node, place) = (node.and_then(|n| n.child(name)), format!("{place}.{name}"));
            won(
                node,
                edit.field(name),
                shown.and_then(|shown| shown.get(name)),
                &place,
                anew,
            )
        }),
        (Some(Json::Array(_)), _) | (_, Some(Json::Array(_))) => Ok(()),
        // Absent before and after, though computed from other inputs: the law does not apply here.
        (None, None) if !edit.anew() => Ok(()),
        _ if old == new && !anew || new == shown => Ok(()),
        _ => Err(place.to_owned()),
    }
}

fn unseen(node: Option<&Node>, edit: Edit<'_>, shown: Shown<'_>, place: &str) -> Result<(), String> {
    // Defaults may change.
    let default = node.and_then(Node::default);
    if shown.0 == shown.1 || default.is_some() && shown.0 == default || edit.anew() {
        return Ok(());
    }
    match (shown.0, shown.1) {
        // An object may appear to hold a value that was edited inside it.
        (None, Some(Json::Object(_))) => Ok(()),
        (Some(Json::Object(_)), Some(Json::Object(_))) => names([shown.0, shown.1]).into_iter().try_for_each(|name| {
            let (node, place) = (node.and_then(|n| n.child(name)), format!("{place}.{name}"));
            unseen(node, edit.field(name), shown.field(name), &place)
        }),
        _ if edit.0.value == edit.1.value && edit.0.trace == edit.1.trace => Err(place.to_owned()),
        _ => Ok(()),
    }
}

/// Finds the first path at which two values differ.
fn same(want: &Json, got: &Json) -> Result<(), String> {
    match (want, got) {
        (Json::Object(want), Json::Object(got)) => {
            for (name, want) in want {
                let same = got.get(name).map_or(Err(String::new()), |got| same(want, got));
                same.map_err(|below| format!(".{name}{below}"))?;
            }
            match got.keys().find(|name| !want.contains_key(*name)) {
                Some(name) => Err(format!(".{name}")),
                None => Ok(()),
            }
        }
        (Json::Array(want), Json::Array(got)) if want.len() == got.len() => want
            .iter()
            .zip(got)
            .enumerate()
            .try_for_each(|(i, (want, got))| same(want, got).map_err(|below| format!("[{i}]{below}"))),
        (want, got) if want == got => Ok(()),
        _ => Err(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_difference_has_its_path() {
        for (want, got, path) in [
            (json!({"a": [1, {"b": 2}]}), json!({"a": [1, {"b": 2}]}), None),
            (
                json!({"a": [1, {"b": 2}]}),
                json!({"a": [1, {"b": 3}]}),
                Some(".a[1].b"),
            ),
            (json!({"a": 1, "b": 1}), json!({"b": 1}), Some(".a")),
            (json!({"b": 1}), json!({"b": 1, "c": 1}), Some(".c")),
            (json!({"a": [1]}), json!({"a": [1, 2]}), Some(".a")),
        ] {
            assert_eq!(same(&want, &got).err().as_deref(), path);
        }
    }

    /// A comparison that visits a level twice needs 2^64 steps here.
    #[test]
    fn deep_objects_are_compared_in_linear_time() {
        let deep = (0..64).fold(json!(1), |below, _| json!({"a": below}));
        assert_eq!(same(&deep, &deep), Ok(()));
    }
}
