//! Pairs beside a pair: others that share one of its fields, and names that tell of another field.

use super::{Loose, Pair, TIE, joined};
use crate::path::Segment;
use insula_meter::{Ended, Meter};

/// Factor for fields of one name where the names beside them tell of another field.
const OTHER_TELLS: f64 = 0.6;

/// Returns a pair of about the same score that shares one of the fields, and whose other field has
/// no better counterpart among the chosen pairs.
pub(super) fn rival<'p>(
    pair: &Pair,
    (pairs, chosen): (&'p [Pair], &[&Pair]),
    (olds, news): (&[Loose<'_>], &[Loose<'_>]),
    meter: &Meter,
) -> Result<Option<&'p Pair>, Ended> {
    let (a, b) = (&olds[pair.old].path, &news[pair.new].path);
    let is_settled = |other: &Pair| {
        let has_other = |better: &&&Pair| match other.old == pair.old {
            true => better.new == other.new,
            false => better.old == other.old,
        };
        let mut settled = chosen.iter().filter(has_other);
        settled.any(|better| better.score - other.score >= TIE)
    };
    for other in pairs {
        let shares = (other.old == pair.old) != (other.new == pair.new);
        let nested = |x: &[Segment], y: &[Segment]| x.starts_with(y) || y.starts_with(x);
        let same = nested(&olds[other.old].path, a) && nested(&news[other.new].path, b);
        if shares && !same && pair.score - other.score < TIE {
            meter.spend(chosen.len() as u64)?;
            if !is_settled(other) {
                return Ok(Some(other));
            }
        }
    }
    Ok(None)
}

/// Returns a pair with less of a score if the names beside it tell of another field.
pub(super) fn weighed(
    pair: &Pair,
    pairs: &[Pair],
    places: (&[Loose<'_>], &[Loose<'_>]),
    above_old: &[Segment],
) -> Pair {
    let mut weighed = pair.clone();
    if let Some(other) = told_beside(pair, pairs, places) {
        weighed.score *= OTHER_TELLS;
        let other = joined(above_old, &other.path);
        weighed.reasons.push(format!("the names beside it tell of {other}"));
    }
    weighed
}

/// Returns the old field that became the new one of a pair of one name, if the names of fields
/// beside the two change alike and tell so.
///
/// ```text
/// controlPlaneInitialized                              ↔  init.controlPlaneInitialized, by name
/// infrastructureReady  →  init.infrastructureProvisioned, and so
/// controlPlaneReady    →  init.controlPlaneInitialized
/// ```
fn told_beside<'p, 's>(
    pair: &Pair,
    pairs: &[Pair],
    (olds, news): (&'p [Loose<'s>], &[Loose<'s>]),
) -> Option<&'p Loose<'s>> {
    let (a, b) = (&olds[pair.old], &news[pair.new]);
    if a.name() != b.name() || a.above() == b.above() {
        return None;
    }
    let (stem, _) = last_word(b.name());
    pairs.iter().find_map(|other| {
        let (x, y) = (&olds[other.old], &news[other.new]);
        let is_beside = x.above() == a.above() && y.above() == b.above();
        let ((from, was), (to, is)) = (last_word(x.name()), last_word(y.name()));
        if !is_beside || from.is_empty() || from != to || from == stem || was == is {
            return None;
        }
        let is_told = |place: &&Loose<'_>| {
            place.above() == a.above() && place.name().strip_prefix(stem) == Some(was) && place.path != a.path
        };
        olds.iter()
            .filter(is_told)
            .find(|place| place.node.kind() == a.node.kind())
    })
}

/// Splits a name before its last word.
fn last_word(name: &str) -> (&str, &str) {
    name.split_at(name.rfind(char::is_uppercase).unwrap_or_default())
}
