//! The laws as functions, for tests and for admission's search for counterexamples.
//!
//! 1. PutGet: what was written is what is read. 2. GetPut: writing back what was read changes no byte.
//! 3. Non-interference: a write changes nothing elsewhere that its version cannot see. 5. Readable: what is stored can be
//!    read in every served version. The fourth, that a later edit wins, speaks of two writes: see the tests.

use crate::bundle::{Bundle, Owned};
use crate::object_budget;
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
    let got = read(bundle, after, from, Law::PutGet)?;
    same(x, &got, "").map_err(|place| Violation {
        law: Law::PutGet,
        version: from.to_owned(),
        place,
    })
}

/// Law 2, and with it law 5: every version reads, and writing back what it reads changes no byte.
///
/// # Errors
/// The first version for which it does not hold.
pub fn get_put(bundle: &Bundle, stored: &Owned) -> Result<(), Violation> {
    for version in bundle.versions() {
        let shown = read(bundle, stored, version, Law::Readable)?;
        let violation = |place| Violation {
            law: Law::GetPut,
            version: version.to_owned(),
            place,
        };
        let again = bundle.put(
            &shown,
            version,
            Some(stored.stored(bundle.storage())),
            &mut object_budget(),
        );
        let again = again.map_err(|error| violation(error.to_string()))?;
        same(&stored.value, &again.value, "").map_err(violation)?;
        if stored.residual != again.residual {
            return Err(violation("the residual".to_owned()));
        }
    }
    Ok(())
}

/// Law 3, for places that are no part of a list: where what `from` shows converts to the same value before and after,
/// every other version shows the same as before.
///
/// # Errors
/// The first place that changed out of the writer's sight.
pub fn non_interference(bundle: &Bundle, from: &str, before: &Owned, after: &Owned) -> Result<(), Violation> {
    let law = Law::NonInterference;
    let (was, is) = (read(bundle, before, from, law)?, read(bundle, after, from, law)?);
    for version in bundle.versions().filter(|v| *v != from) {
        let violation = |place| Violation {
            law,
            version: version.to_owned(),
            place,
        };
        let convert = |x: &Json| {
            bundle
                .convert(x, version, &mut object_budget())
                .map_err(|e| violation(e.to_string()))
        };
        let seen = (convert(&was)?, convert(&is)?);
        let shown = (read(bundle, before, version, law)?, read(bundle, after, version, law)?);
        for name in shown
            .0
            .as_object()
            .into_iter()
            .chain(shown.1.as_object())
            .flat_map(|map| map.keys())
        {
            if name == "apiVersion" || name == "kind" || name == "metadata" {
                continue;
            }
            let field = |json: &'_ Json| json.get(name).cloned();
            unseen(
                (field(&seen.0), field(&seen.1)),
                (field(&shown.0), field(&shown.1)),
                name,
            )
            .map_err(violation)?;
        }
    }
    Ok(())
}

type Pair = (Option<Json>, Option<Json>);

fn unseen(seen: Pair, shown: Pair, place: &str) -> Result<(), String> {
    if seen.0 == seen.1 {
        return if shown.0 == shown.1 {
            Ok(())
        } else {
            Err(place.to_owned())
        };
    }
    let (Some(Json::Object(a)), Some(Json::Object(b))) = &shown else {
        return Ok(());
    };
    for name in a.keys().chain(b.keys()) {
        let field = |json: &Option<Json>| json.as_ref().and_then(|json| json.get(name)).cloned();
        unseen(
            (field(&seen.0), field(&seen.1)),
            (field(&shown.0), field(&shown.1)),
            &format!("{place}.{name}"),
        )?;
    }
    Ok(())
}

fn read(bundle: &Bundle, stored: &Owned, version: &str, law: Law) -> Result<Json, Violation> {
    bundle
        .get(stored.stored(bundle.storage()), version, &mut object_budget())
        .map_err(|error| Violation {
            law,
            version: version.to_owned(),
            place: error.to_string(),
        })
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
