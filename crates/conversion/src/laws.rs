//! The laws as functions, for tests and for admission's search for counterexamples.
//!
//! 1. PutGet: what was written is what is read. 2. GetPut: writing back what was read changes no
//!    byte.
//! 3. Non-interference: a write changes nothing elsewhere that its version cannot see. 4. The later
//!    edit wins. 5. Readable: what is stored can be read in every served version.

use crate::bundle::{Bundle, ToStore};
use crate::error::ConvertError;
use crate::merge::Side;
use crate::object_budget;
use crate::trace::Trace;
use insula_cel::Budget;
use insula_schema::Node;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::fmt;

/// A law that does not hold for an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub law: Law,
    /// The version in which it shows.
    pub version: String,
    /// The first place that differs, or the error.
    pub place: String,
}

/// The laws that one write can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Law {
    /// What was written is what is read.
    PutGet,
    /// Writing back what was read changes no byte.
    GetPut,
    /// A write changes nothing elsewhere that its version cannot see.
    NonInterference,
    /// What an edit makes of a value elsewhere replaces what was kept there.
    LaterEditWins,
    /// What is stored can be read in every served version.
    Readable,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} does not hold in {} at {}", self.law, self.version, self.place)
    }
}

/// Law 1: reading in `from` gives `x`, but for what its author dropped.
///
/// # Errors
/// The place where it does not.
pub fn put_get(bundle: &Bundle, x: &Json, from: &str, after: &ToStore) -> Result<(), Violation> {
    Laws::new(bundle, &object_budget).put_get(x, from, after)
}

/// Law 2, and with it law 5: every version reads, and writing back what it reads changes no byte.
///
/// # Errors
/// The first version for which it does not hold.
pub fn get_put(bundle: &Bundle, stored: &ToStore) -> Result<(), Violation> {
    Laws::new(bundle, &object_budget).get_put(stored)
}

/// Law 3, for places that are no part of a list: on every way that the edit goes, where the version
/// that it comes from converts to the same, of the same inputs, before and after, the next version
/// shows the same as before.
///
/// # Errors
/// The first place that changed out of the writer's sight.
pub fn non_interference(bundle: &Bundle, from: &str, before: &ToStore, after: &ToStore) -> Result<(), Violation> {
    Laws::new(bundle, &object_budget).non_interference(from, before, after)
}

/// Law 4, for values that are no part of a list: on every way that the edit goes, where it changes
/// what the next version is made of, that version shows what the edit says.
///
/// # Errors
/// The first place that still shows something older.
pub fn later_edit_wins(bundle: &Bundle, from: &str, before: &ToStore, after: &ToStore) -> Result<(), Violation> {
    Laws::new(bundle, &object_budget).later_edit_wins(from, before, after)
}

/// The laws of one API, under budgets that the caller gives: a search that has to end gives empty
/// ones.
pub(crate) struct Laws<'a> {
    bundle: &'a Bundle,
    budget: &'a dyn Fn() -> Budget,
}

impl<'a> Laws<'a> {
    pub(crate) fn new(bundle: &'a Bundle, budget: &'a dyn Fn() -> Budget) -> Self {
        Laws { bundle, budget }
    }

    pub(crate) fn put_get(&self, x: &Json, from: &str, after: &ToStore) -> Result<(), Violation> {
        let read = self.read(after, from, Law::PutGet)?;
        let got = self.bundle.without_dropped(&read, from);
        same(&self.bundle.without_dropped(x, from), &got, "").map_err(|place| Violation {
            law: Law::PutGet,
            version: from.to_owned(),
            place,
        })
    }

    pub(crate) fn get_put(&self, stored: &ToStore) -> Result<(), Violation> {
        let bundle = self.bundle;
        for version in bundle.versions() {
            let shown = self.read(stored, version, Law::Readable)?;
            let violation = |place| Violation {
                law: Law::GetPut,
                version: version.to_owned(),
                place,
            };
            let old = Some(stored.stored(bundle.storage()));
            let again = bundle.put(&shown, version, old, &mut (self.budget)());
            let again = again.map_err(|error| violation(error.to_string()))?;
            same(&stored.value, &again.value, "").map_err(violation)?;
            if stored.residual != again.residual {
                return Err(violation("the residual".to_owned()));
            }
        }
        Ok(())
    }

    pub(crate) fn non_interference(&self, from: &str, before: &ToStore, after: &ToStore) -> Result<(), Violation> {
        self.along(Law::NonInterference, from, before, after, |node, edit, shown, place| {
            unseen(node, edit, shown, place)
        })
    }

    pub(crate) fn later_edit_wins(&self, from: &str, before: &ToStore, after: &ToStore) -> Result<(), Violation> {
        self.along(Law::LaterEditWins, from, before, after, |node, edit, shown, place| {
            won(node, edit, shown.1, place, false)
        })
    }

    /// Follows an edit from version to version, as a write does: up to the stored one, and down to
    /// those beside. Each step is a conversion of what a version showed and shows, so that the laws
    /// hold for whatever rules compute. Of what is dropped they say nothing.
    fn along(
        &self,
        law: Law,
        from: &str,
        before: &ToStore,
        after: &ToStore,
        check: impl Fn(Option<&Node>, Edit<'_>, Shown<'_>, &str) -> Result<(), String>,
    ) -> Result<(), Violation> {
        let bundle = self.bundle;
        for (a, b) in bundle.edit_hops(from) {
            // A conversion that fails says nothing of what it would make: the write was one that
            // needs none.
            let (Some(was), Some(is)) = (self.made(before, (a, b), law)?, self.made(after, (a, b), law)?) else {
                continue;
            };
            let shown = |stored| Ok(bundle.without_dropped(&self.read(stored, b, law)?, b));
            let (had, has) = match (shown(before), shown(after)) {
                (Ok(had), Ok(has)) => (had, has),
                // What nobody can read is no promise.
                _ if !bundle.served().any(|version| version == b) => continue,
                (had, has) => (had?, has?),
            };
            let edit = Edit(Side::new(&was.0, &was.1), Side::new(&is.0, &is.1));
            let maps = [&was.0, &is.0, &had, &has].into_iter().filter_map(Json::as_object);
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

    /// What a conversion makes of what is shown, but for what is dropped, and of what.
    fn made(&self, stored: &ToStore, (a, b): (&str, &str), law: Law) -> Result<Option<(Json, Trace)>, Violation> {
        let bundle = self.bundle;
        let mut object = match self.read(stored, a, law) {
            Err(_) if !bundle.served().any(|version| version == a) => return Ok(None),
            read => read?,
        };
        if let Some(schema) = bundle.schema(a) {
            insula_schema::default(&mut object, schema);
        }
        let made = bundle.traced(&object, b, &mut (self.budget)()).ok();
        Ok(made.map(|(made, trace)| (bundle.without_dropped(&made, b), trace)))
    }

    fn read(&self, stored: &ToStore, version: &str, law: Law) -> Result<Json, Violation> {
        let stored = stored.stored(self.bundle.storage());
        let read = self.bundle.get(stored, version, &mut (self.budget)());
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

/// What a conversion made before and after an edit, and of what.
#[derive(Clone, Copy)]
struct Edit<'a>(Side<'a>, Side<'a>);

/// What the version that it was made for showed and shows.
#[derive(Clone, Copy)]
struct Shown<'a>(Option<&'a Json>, Option<&'a Json>);

impl<'a> Edit<'a> {
    fn field(&self, name: &str) -> Edit<'a> {
        Edit(self.0.field(name), self.1.field(name))
    }

    /// Whether it was computed from other inputs here.
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

/// Names of what is in any of these.
fn names<'a>(values: impl IntoIterator<Item = Option<&'a Json>>) -> BTreeSet<&'a str> {
    let maps = values.into_iter().flatten().filter_map(Json::as_object);
    maps.flat_map(|map| map.keys().map(String::as_str)).collect()
}

/// `anew`: something above was computed from other inputs, so that equal values are edits, too.
fn won(node: Option<&Node>, edit: Edit<'_>, shown: Option<&Json>, place: &str, anew: bool) -> Result<(), String> {
    let (old, new) = (edit.0.value, edit.1.value);
    let anew = anew || edit.anew();
    // Defaults are no edits; and a value that is gone gives way to the default, if what holds it is
    // still there.
    let default = node.and_then(Node::default);
    let defaulted = default.is_some() && (new == default || new.is_none() && shown == default);
    if !anew && old == new && edit.0.trace == edit.1.trace || defaulted {
        return Ok(());
    }
    match (old, new) {
        // Of a whole object that goes, what nobody could see may stay, with defaults around it.
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
        // Not made before and not made now, though of other inputs below: nothing is said of this
        // place.
        (None, None) if !edit.anew() => Ok(()),
        _ if old == new && !anew || new == shown => Ok(()),
        _ => Err(place.to_owned()),
    }
}

fn unseen(node: Option<&Node>, edit: Edit<'_>, shown: Shown<'_>, place: &str) -> Result<(), String> {
    // A default is nobody's value.
    let default = node.and_then(Node::default);
    if shown.0 == shown.1 || default.is_some() && shown.0 == default || edit.anew() {
        return Ok(());
    }
    match (shown.0, shown.1) {
        // An object may come to be, to hold what was edited inside it.
        (None, Some(Json::Object(_))) => Ok(()),
        (Some(Json::Object(_)), Some(Json::Object(_))) => names([shown.0, shown.1]).into_iter().try_for_each(|name| {
            let (node, place) = (node.and_then(|n| n.child(name)), format!("{place}.{name}"));
            unseen(node, edit.field(name), shown.field(name), &place)
        }),
        _ if edit.0.value == edit.1.value && edit.0.trace == edit.1.trace => Err(place.to_owned()),
        _ => Ok(()),
    }
}

/// The first place where two values differ.
fn same(want: &Json, got: &Json, place: &str) -> Result<(), String> {
    match (want, got) {
        (Json::Object(want), Json::Object(got)) => {
            for name in want.keys().chain(got.keys()) {
                let place = format!("{place}.{name}");
                match (want.get(name), got.get(name)) {
                    (Some(want), Some(got)) => same(want, got, &place)?,
                    _ => return Err(place),
                }
            }
            Ok(())
        }
        (Json::Array(want), Json::Array(got)) if want.len() == got.len() => want
            .iter()
            .zip(got)
            .enumerate()
            .try_for_each(|(i, (want, got))| same(want, got, &format!("{place}[{i}]"))),
        (want, got) if want == got => Ok(()),
        _ => Err(place.to_owned()),
    }
}
