//! Rules of a pair of versions beside the hub: what they move is one value of both.

use super::{Growth, Homes, Member, below, meets};
use crate::path::{Path, Segment};
use crate::plan::Plan;
use crate::rules::{Direction, Rule, Source};
use insula_schema::{Node, Structural};

impl Growth<'_> {
    /// Adds moves for rules between the version and another one, about fields that the hub lacks.
    pub(super) fn of_pair(
        &mut self,
        (other, homes): (&Member<'_>, &Homes),
        own: &Member<'_>,
        hub: &Structural,
        union: &Node,
        directions: &[Direction],
    ) {
        let between = |from: &str, to: &str| {
            let found = directions.iter().find(|d| d.from == from && d.to == to);
            found.map(|d| d.rules.as_slice()).unwrap_or_default()
        };
        let (there, back) = (between(other.name, own.name), between(own.name, other.name));
        let mut pairs: Vec<(Path, Path)> = there.iter().filter_map(plain_move).collect();
        let reverse = back.iter().filter_map(plain_move).map(|(from, to)| (to, from));
        let more: Vec<(Path, Path)> = reverse.filter(|pair| !pairs.contains(pair)).collect();
        pairs.extend(more);
        for (theirs, ours) in pairs {
            // Another rule of the pair says something else about either field.
            let contradicts = |rules: &[Rule], (from, to): (&Path, &Path)| {
                rules.iter().any(|rule| match plain_move(rule) {
                    Some((source, place)) => (source == *from || place.overlaps(to)) && (&source, &place) != (from, to),
                    None => rule.destination.overlaps(to),
                })
            };
            if contradicts(there, (&theirs, &ours)) || contradicts(back, (&ours, &theirs)) {
                continue;
            }
            let place = homes.find(theirs.segments());
            let theirs_claimed = other.plans.is_some_and(|plans| claims(plans, theirs.segments()));
            let ours_claimed = own.plans.is_some_and(|plans| claims(plans, ours.segments()));
            let beside = below(hub.root(), &place).is_none() && below(hub.root(), ours.segments()).is_none();
            let kinds = below(union, &place).zip(below(own.schema.root(), ours.segments()));
            let fits = kinds.is_some_and(|(joined, ours)| meets(joined, ours));
            if beside && fits && !theirs_claimed && !ours_claimed && place != ours.segments() {
                self.homes.0.push((ours.segments().to_vec(), place.clone()));
                self.moves(ours.segments(), &place);
            }
        }
    }
}

/// Returns the paths of a rule that only moves or copies one value, also one of each item.
fn plain_move(rule: &Rule) -> Option<(Path, Path)> {
    let Source::Field(from) = &rule.source else { return None };
    let indexed = |path: &Path| {
        let odd = |segment: &Segment| matches!(segment, Segment::Index(_) | Segment::Key(_));
        path.segments().iter().any(odd)
    };
    let is_plain = rule.transformation.is_none()
        && rule.item_rules.is_empty()
        && !rule.only_if_absent
        && !indexed(from)
        && !indexed(&rule.destination);
    // The name of a loop's variable does not matter.
    let unnamed = |path: &Path| {
        let step = |segment: &Segment| match segment {
            Segment::Each(_) => Segment::Each(String::new()),
            other => other.clone(),
        };
        Path::from_segments(path.segments().iter().map(step).collect())
    };
    is_plain.then(|| (unnamed(from), unnamed(&rule.destination)))
}

/// Returns true if the rules between a version and the hub use up a path.
fn claims((up, down): (&Plan, &Plan), path: &[Segment]) -> bool {
    up.except.covers(path) || down.except.covers(path)
}
