//! Fields that went from the spec to the status, or back.

use super::{Guess, Loose, Source, Suggestion, inner, is_object};
use crate::passthrough::same_shape;
use crate::path::Segment;

/// Least number of objects and lists that went the same way, under their names.
const MOVED_MIN: usize = 2;
/// Least number of common fields of such objects.
const FIELDS_MIN: usize = 2;

/// Directions in which fields of whole objects went. Equal names have different meanings in spec
/// and status, unless several objects went from one to the other.
#[derive(Default)]
pub(super) struct Crossings {
    /// First names of the old and the new paths.
    directions: Vec<(&'static str, &'static str)>,
}

impl Crossings {
    pub(super) fn find(olds: &[Loose<'_>], news: &[Loose<'_>]) -> Crossings {
        let went = |(from, to): &(&str, &str)| {
            let of = |place: &&Loose<'_>, first: &str| place.path.len() == 2 && is_in(&place.path, first);
            let moved = |old: &&Loose<'_>| {
                let mut beside = news.iter().filter(|new| of(new, to));
                beside.any(|new| new.name() == old.name() && is_structured_alike(old, new))
            };
            olds.iter().filter(|old| of(old, from)).filter(moved).count() >= MOVED_MIN
        };
        let ways = [("spec", "status"), ("status", "spec")];
        Crossings {
            directions: ways.into_iter().filter(went).collect(),
        }
    }

    /// Returns true if one of two fields of whole objects may be the other. Of two parts, only
    /// fields directly below them, and what is in objects of one name.
    pub(super) fn allows(&self, a: &[Segment], b: &[Segment]) -> bool {
        if a.first() == b.first() || a.len() < 2 || b.len() < 2 {
            return true;
        }
        let goes = |(from, to): &(&str, &str)| is_in(a, from) && is_in(b, to);
        self.directions.iter().any(goes) && (a[1] == b[1] || a.len() == 2 && b.len() == 2)
    }
}

/// Leaves out rules that make fields outside of a status from those of one: who may write a status
/// writes nothing else. The values stay where they are then.
pub(super) fn only_to_status(pair: &mut Suggestion) {
    let is_allowed = |guess: &Guess| match &guess.source {
        Source::Field(from) => !is_in(from.segments(), "status") || is_in(guess.to.segments(), "status"),
        Source::Object(_) => true,
    };
    let before = pair.forth.len() + pair.back.len();
    pair.forth.retain(is_allowed);
    pair.back.retain(is_allowed);
    if pair.forth.len() + pair.back.len() < before {
        pair.reasons
            .push("from the spec to the status only, since no status writes a spec".to_owned());
    }
}

fn is_in(path: &[Segment], first: &str) -> bool {
    matches!(path.first(), Some(Segment::Field(name)) if name == first)
}

/// Returns true for two objects with common fields, and for lists and maps of one shape.
fn is_structured_alike(a: &Loose<'_>, b: &Loose<'_>) -> bool {
    if is_object(a.node) && is_object(b.node) {
        let names = a.node.properties();
        let common = names.filter(|(name, _)| b.node.property(name).is_some()).count();
        return common >= FIELDS_MIN;
    }
    inner(a.node).is_some() && same_shape(a.node, b.node)
}
