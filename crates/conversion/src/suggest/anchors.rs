//! Objects of two versions that belong together although their paths differ. Their fields are
//! compared by the names below them, and fields of other objects are compared with suspicion.

use super::Loose;
use super::across::Crossings;
use super::cost;
use super::is_object;
use super::names::{self, NameWords};
use super::places::unchanged;
use crate::path::Segment;
use insula_meter::{Ended, Meter};
use insula_schema::Node;
use std::collections::HashSet;

/// Least similarity of the names of two objects that belong together.
const NAMES_MIN: f64 = 0.6;
/// Least share of common fields of such objects.
const FIELDS_MIN: f64 = 0.1;
/// Least share of common fields if only one is common.
const FIELDS_OF_ONE_MIN: f64 = 0.5;
/// Share of common fields that needs less similar names.
const FIELDS_ENOUGH: f64 = 0.75;
/// Least similarity of the names of objects with the same fields.
const NAMES_OF_SAME_MIN: f64 = 0.5;

/// Least similarity of two names of which one is generic.
const NAMES_OF_GENERIC_MIN: f64 = 0.75;

/// Names that fields of many meanings have: only those of objects that belong together are
/// compared.
const GENERIC: &[&str] = &[
    "apiVersion",
    "fieldPath",
    "group",
    "id",
    "key",
    "kind",
    "lastTransitionTime",
    "message",
    "name",
    "namespace",
    "reason",
    "resourceVersion",
    "status",
    "type",
    "uid",
    "value",
    "version",
];

/// The objects that belong together.
pub(super) struct Anchors {
    /// Indices of the places.
    pairs: Vec<(usize, usize)>,
    /// For each place, the pairs above it, the deepest last, with the lengths of the paths.
    old: Vec<Vec<usize>>,
    new: Vec<Vec<usize>>,
}

/// Relation between the objects that hold two fields.
#[derive(Clone, Copy)]
pub(super) enum Context {
    /// Objects that belong together, with the numbers of segments of their paths.
    Inside(usize, usize),
    /// One is in an object whose counterpart does not hold the other.
    Apart,
    /// Nothing is known.
    Free,
}

impl Anchors {
    /// Finds them. In whole objects, spec and status have fields of their own, but for those that
    /// went `across`.
    pub(super) fn find(
        olds: &[Loose<'_>],
        news: &[Loose<'_>],
        across: Option<&Crossings>,
        meter: &Meter,
    ) -> Result<Anchors, Ended> {
        let objects = |places: &[Loose<'_>]| -> Vec<(usize, HashSet<String>)> {
            let object = places.iter().enumerate().filter(|(_, place)| is_object(place.node));
            object.map(|(at, place)| (at, ends(place.node))).collect()
        };
        meter.spend(olds.iter().chain(news).map(|place| place.size.cost()).sum())?;
        let (from, to) = (objects(olds), objects(news));
        let mut found = Vec::new();
        for (i, ends_a) in &from {
            for (j, ends_b) in &to {
                let (a, b) = (&olds[*i].path, &news[*j].path);
                let goes = |across: &Crossings| a.len() > 1 && b.len() > 1 && across.allows(a, b);
                if across.is_some_and(|across| a.first() != b.first() && !goes(across)) {
                    continue;
                }
                meter.spend(cost::of_ends(ends_a.len(), ends_b.len()))?;
                if let Some(score) = alike((&olds[*i], ends_a), (&news[*j], ends_b)) {
                    found.push((score, *i, *j));
                }
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        for (_, i, j) in found {
            let (a, b) = (&olds[i].path, &news[j].path);
            let fits = |(x, y): &(usize, usize)| {
                let (x, y) = (&olds[*x].path, &news[*y].path);
                x != a && y != b && x.starts_with(a) == y.starts_with(b) && a.starts_with(x) == b.starts_with(y)
            };
            meter.spend(pairs.len() as u64)?;
            if pairs.iter().all(fits) {
                pairs.push((i, j));
            }
        }
        meter.spend((olds.len() + news.len()) as u64 * pairs.len() as u64)?;
        let above = |places: &[Loose<'_>], of: fn(&(usize, usize)) -> usize| -> Vec<Vec<usize>> {
            let above = |place: &Loose<'_>| {
                let holds = |at: &usize| {
                    let path = &places[of(&pairs[*at])].path;
                    path.len() < place.path.len() && place.path.starts_with(path)
                };
                let mut above: Vec<usize> = (0..pairs.len()).filter(holds).collect();
                above.sort_by_key(|at| places[of(&pairs[*at])].path.len());
                above
            };
            places.iter().map(above).collect()
        };
        let (old, new) = (above(olds, |pair| pair.0), above(news, |pair| pair.1));
        Ok(Anchors { pairs, old, new })
    }

    /// Returns true for two objects that belong together.
    pub(super) fn paired(&self, old: usize, new: usize) -> bool {
        self.pairs.contains(&(old, new))
    }

    /// Returns the relation of two places.
    pub(super) fn context(&self, (i, a): (usize, &[Loose<'_>]), (j, b): (usize, &[Loose<'_>])) -> Context {
        let common = self.old[i].iter().rev().find(|at| self.new[j].contains(at));
        match common.map(|at| self.pairs[*at]) {
            Some((x, y)) => Context::Inside(a[x].path.len(), b[y].path.len()),
            None if self.old[i].is_empty() && self.new[j].is_empty() => Context::Free,
            None => Context::Apart,
        }
    }
}

impl Context {
    /// Returns the numbers of segments that names are compared without.
    pub(super) fn starts(self) -> (usize, usize) {
        match self {
            Context::Inside(old, new) => (old, new),
            _ => (0, 0),
        }
    }

    /// Returns true if the names say too little about two fields, where they are. `score` is the
    /// similarity of their names.
    pub(super) fn says_nothing(self, a: &Loose<'_>, b: &Loose<'_>, score: f64) -> bool {
        let generic = [a, b].map(|place| GENERIC.contains(&place.name()));
        let (x, y) = (a.above(), b.above());
        match (generic, a.name() == b.name()) {
            ([false, false], _) => false,
            ([true, true], false) => ![a.name(), b.name()].iter().all(|name| ["type", "kind"].contains(name)),
            (_, false) => x != y && !self.holds(x, y) && score < NAMES_OF_GENERIC_MIN,
            (_, true) => {
                let last = |path: &[Segment]| match path.last() {
                    Some(Segment::Field(name)) => name.clone(),
                    _ => String::new(),
                };
                !self.holds(x, y)
                    && (matches!(self, Context::Apart) || names::names_alike(&last(x), &last(y)) < NAMES_MIN)
            }
        }
    }

    /// Returns true if these are the objects that belong together.
    pub(super) fn holds(self, old: &[Segment], new: &[Segment]) -> bool {
        matches!(self, Context::Inside(x, y) if old.len() == x && new.len() == y)
    }
}

fn alike(a: (&Loose<'_>, &HashSet<String>), b: (&Loose<'_>, &HashSet<String>)) -> Option<f64> {
    let common = a.1.intersection(b.1).count();
    #[expect(clippy::cast_precision_loss, reason = "numbers of fields")]
    let share = 2.0 * common as f64 / (a.1.len() + b.1.len()) as f64;
    // One common field is little for objects that have several.
    if common == 0 || common == 1 && share < FIELDS_OF_ONE_MIN {
        return None;
    }
    let named = NameWords::like(&a.0.words, &b.0.words, (0, 0)).score;
    let least = if unchanged(a.0.node, b.0.node) || share >= FIELDS_ENOUGH && common > 2 {
        NAMES_OF_SAME_MIN
    } else {
        NAMES_MIN
    };
    (named >= least && share >= FIELDS_MIN).then_some(0.7 * named + 0.3 * share)
}

/// Returns the names of the fields below an object, in lower case.
fn ends(node: &Node) -> HashSet<String> {
    fn add(node: &Node, out: &mut HashSet<String>) {
        for (name, child) in node.properties() {
            if child.properties().next().is_none() {
                out.insert(name.to_lowercase());
            }
            add(child, out);
        }
    }
    let mut out = HashSet::new();
    add(node, &mut out);
    out
}
