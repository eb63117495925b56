//! Places of a version's paths in the union.

use crate::path::Segment;
use crate::rules::{Rule, Source};

/// Homes of the contents of a version's lists, maps and objects that rules map: prefixes of paths
/// in the version, with those in the union.
#[derive(Default)]
pub(crate) struct Homes(pub(super) Vec<(Vec<Segment>, Vec<Segment>)>);

impl Homes {
    /// Collects what rules of the version move to the union.
    pub(crate) fn moved<'r>(rules: impl Iterator<Item = &'r Rule>) -> Homes {
        let moved = rules.filter(|rule| rule.transformation.is_none()).filter_map(|rule| {
            let Source::Field(from) = &rule.source else { return None };
            Some((from.segments().to_vec(), rule.destination.segments().to_vec()))
        });
        Homes(moved.collect())
    }

    /// Returns the path in the union of a path of the version.
    pub(crate) fn find(&self, path: &[Segment]) -> Vec<Segment> {
        let longest = self
            .0
            .iter()
            .filter(|(own, _)| own.len() <= path.len() && alike(own, &path[..own.len()]))
            .max_by_key(|(own, _)| own.len());
        match longest {
            Some((own, place)) => place.iter().chain(&path[own.len()..]).cloned().collect(),
            None => path.to_vec(),
        }
    }
}

/// Returns true if two paths are equal but for the names of their variables.
pub(crate) fn alike(a: &[Segment], b: &[Segment]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|pair| match pair {
            (Segment::Each(_), Segment::Each(_)) => true,
            (a, b) => a == b,
        })
}
