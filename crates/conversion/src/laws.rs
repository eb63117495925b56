//! The laws as functions, for tests and for admission's search for counterexamples.
//!
//! 1. PutGet: what was written is what is read. 2. GetPut: writing back what was read changes no byte.
//! 3. Non-interference: a write changes nothing elsewhere that its version cannot see. 4. The later edit wins. 5. Readable:
//!    what is stored can be read in every served version.

use crate::bundle::{Bundle, Owned};
use crate::error::ConvertError;
use crate::object_budget;
use insula_cel::Budget;
use insula_schema::Node;
use serde_json::Value as Json;
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
pub fn put_get(bundle: &Bundle, x: &Json, from: &str, after: &Owned) -> Result<(), Violation> {
    Laws::new(bundle, &object_budget).put_get(x, from, after)
}

/// Law 2, and with it law 5: every version reads, and writing back what it reads changes no byte.
///
/// # Errors
/// The first version for which it does not hold.
pub fn get_put(bundle: &Bundle, stored: &Owned) -> Result<(), Violation> {
    Laws::new(bundle, &object_budget).get_put(stored)
}

/// Law 3, for places that are no part of a list: where what `from` shows converts to the same value before and after,
/// every other version shows the same as before.
///
/// # Errors
/// The first place that changed out of the writer's sight.
pub fn non_interference(bundle: &Bundle, from: &str, before: &Owned, after: &Owned) -> Result<(), Violation> {
    Laws::new(bundle, &object_budget).non_interference(from, before, after)
}

/// Law 4, for values that are no part of a list and are moved, not computed from several: where the edit shows in another
/// version, that version shows what the edit says.
///
/// # Errors
/// The first place that still shows something older.
pub fn later_edit_wins(bundle: &Bundle, from: &str, before: &Owned, after: &Owned) -> Result<(), Violation> {
    Laws::new(bundle, &object_budget).later_edit_wins(from, before, after)
}

/// The laws of one API, under budgets that the caller gives: a search that has to end gives empty ones.
pub(crate) struct Laws<'a> {
    bundle: &'a Bundle,
    budget: &'a dyn Fn() -> Budget,
}

impl<'a> Laws<'a> {
    pub(crate) fn new(bundle: &'a Bundle, budget: &'a dyn Fn() -> Budget) -> Self {
        Laws { bundle, budget }
    }

    pub(crate) fn put_get(&self, x: &Json, from: &str, after: &Owned) -> Result<(), Violation> {
        let read = self.read(after, from, Law::PutGet)?;
        let got = self.bundle.without_dropped(&read, from);
        same(&self.bundle.without_dropped(x, from), &got, "").map_err(|place| Violation {
            law: Law::PutGet,
            version: from.to_owned(),
            place,
        })
    }

    pub(crate) fn get_put(&self, stored: &Owned) -> Result<(), Violation> {
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

    pub(crate) fn non_interference(&self, from: &str, before: &Owned, after: &Owned) -> Result<(), Violation> {
        let (law, bundle) = (Law::NonInterference, self.bundle);
        let (was, is) = (self.read(before, from, law)?, self.read(after, from, law)?);
        for version in bundle.versions().filter(|v| *v != from) {
            let violation = |place| Violation {
                law,
                version: version.to_owned(),
                place,
            };
            let seen = (self.convert(&was, version, law)?, self.convert(&is, version, law)?);
            let shown = (self.read(before, version, law)?, self.read(after, version, law)?);
            let maps = [shown.0.as_object(), shown.1.as_object()].into_iter().flatten();
            for name in maps.flat_map(|map| map.keys()) {
                if name == "apiVersion" || name == "kind" || name == "metadata" {
                    continue;
                }
                let field = |json: &'_ Json| json.get(name).cloned();
                let node = bundle.schema(version).and_then(|schema| schema.root().child(name));
                let seen = (field(&seen.0), field(&seen.1));
                unseen(node, seen, (field(&shown.0), field(&shown.1)), name).map_err(violation)?;
            }
        }
        Ok(())
    }

    pub(crate) fn later_edit_wins(&self, from: &str, before: &Owned, after: &Owned) -> Result<(), Violation> {
        let (law, bundle) = (Law::LaterEditWins, self.bundle);
        let (was, is) = (self.read(before, from, law)?, self.read(after, from, law)?);
        for version in bundle.versions().filter(|v| *v != from) {
            let (old, new) = (self.convert(&was, version, law)?, self.convert(&is, version, law)?);
            let shown = self.read(after, version, law)?;
            let node = bundle.schema(version).map(|schema| schema.root());
            won(node, Some(&old), Some(&new), Some(&shown), "").map_err(|place| Violation {
                law,
                version: version.to_owned(),
                place,
            })?;
        }
        Ok(())
    }

    fn read(&self, stored: &Owned, version: &str, law: Law) -> Result<Json, Violation> {
        let stored = stored.stored(self.bundle.storage());
        let read = self.bundle.get(stored, version, &mut (self.budget)());
        read.map_err(|error| Violation::of(law, version, &error))
    }

    fn convert(&self, object: &Json, version: &str, law: Law) -> Result<Json, Violation> {
        let made = self.bundle.convert(object, version, &mut (self.budget)());
        made.map_err(|error| Violation::of(law, version, &error))
    }
}

impl Violation {
    fn of(law: Law, version: &str, error: &ConvertError) -> Violation {
        Violation {
            law,
            version: version.to_owned(),
            place: error.to_string(),
        }
    }
}

fn won(
    node: Option<&Node>,
    old: Option<&Json>,
    new: Option<&Json>,
    shown: Option<&Json>,
    place: &str,
) -> Result<(), String> {
    // Defaults are no edits; and a value that is gone gives way to the default, if what holds it is still there.
    let default = node.and_then(Node::default);
    let defaulted = default.is_some() && (new == default || new.is_none() && shown == default);
    if old == new || defaulted {
        return Ok(());
    }
    match (old, new) {
        // Of a whole object that goes, what nobody could see may stay, with defaults around it.
        (Some(Json::Object(_)), None) => Ok(()),
        (Some(Json::Object(_)), _) | (_, Some(Json::Object(_))) => {
            let maps = [old, new].into_iter().flatten().filter_map(Json::as_object);
            for name in maps
                .flat_map(|map| map.keys())
                .filter(|name| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"))
            {
                let field = |json: Option<&'_ Json>| json.and_then(|json| json.get(name)).cloned();
                let (old, new, shown) = (field(old), field(new), field(shown));
                won(
                    node.and_then(|n| n.child(name)),
                    old.as_ref(),
                    new.as_ref(),
                    shown.as_ref(),
                    &format!("{place}.{name}"),
                )?;
            }
            Ok(())
        }
        (Some(Json::Array(_)), _) | (_, Some(Json::Array(_))) => Ok(()),
        _ if new == shown => Ok(()),
        _ => Err(place.to_owned()),
    }
}

type Pair = (Option<Json>, Option<Json>);

fn unseen(node: Option<&Node>, seen: Pair, shown: Pair, place: &str) -> Result<(), String> {
    // A default is nobody's value.
    let default = node.and_then(Node::default);
    if shown.0 == shown.1 || default.is_some() && shown.0.as_ref() == default {
        return Ok(());
    }
    match &shown {
        // An object may come to be, to hold what was edited inside it.
        (None, Some(Json::Object(_))) => Ok(()),
        (Some(Json::Object(a)), Some(Json::Object(b))) => {
            for name in a.keys().chain(b.keys()) {
                let field = |json: &Option<Json>| json.as_ref().and_then(|json| json.get(name)).cloned();
                let pairs = ((field(&seen.0), field(&seen.1)), (field(&shown.0), field(&shown.1)));
                unseen(
                    node.and_then(|n| n.child(name)),
                    pairs.0,
                    pairs.1,
                    &format!("{place}.{name}"),
                )?;
            }
            Ok(())
        }
        _ if seen.0 == seen.1 => Err(place.to_owned()),
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
