//! Rules of a pair of versions beside the hub: what they move, or compute in both directions, is
//! one value of both.

use super::{Growth, Homes, Member, below, meets};
use crate::path::{Path, Segment};
use crate::plan::Plan;
use crate::rules::{Direction, Rule, Source};
use insula_schema::{Node, Structural};

/// A field of a version whose value is computed from the home of another version's field.
///
/// ```text
/// hub v1 {}      v2 {duration: "90s"}      v3 {seconds: 90}      union {duration: "90s"}
/// ```
#[derive(Clone)]
pub(super) struct Computed {
    /// Path in the version.
    own: Path,
    /// Rules to the union, and back.
    rules: (Rule, Rule),
}

/// The schemas of the hub and of the union so far, and the rules of all pairs.
#[derive(Clone, Copy)]
pub(super) struct Joining<'a> {
    pub(super) hub: &'a Structural,
    pub(super) union: &'a Node,
    pub(super) directions: &'a [Direction],
}

impl<'a> Joining<'a> {
    fn rules(&self, from: &str, to: &str) -> &'a [Rule] {
        let found = self.directions.iter().find(|d| d.from == from && d.to == to);
        found.map(|d| d.rules.as_slice()).unwrap_or_default()
    }

    fn is_of_hub(&self, path: &[Segment]) -> bool {
        below(self.hub.root(), path).is_some()
    }
}

impl Growth<'_> {
    /// Adds moves for rules between the version and another one, about fields that the hub lacks.
    pub(super) fn of_pair(&mut self, (other, homes): (&Member<'_>, &Homes), own: &Member<'_>, joining: Joining<'_>) {
        let (there, back) = (joining.rules(other.name, own.name), joining.rules(own.name, other.name));
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
            let theirs_claimed = is_claimed(other, &theirs);
            let ours_claimed = is_claimed(own, &ours);
            let beside = !joining.is_of_hub(&place) && !joining.is_of_hub(ours.segments());
            let kinds = below(joining.union, &place).zip(below(own.schema.root(), ours.segments()));
            let fits = kinds.is_some_and(|(joined, ours)| meets(joined, ours));
            if beside && fits && !theirs_claimed && !ours_claimed && place != ours.segments() {
                self.homes.places.push((ours.segments().to_vec(), place.clone()));
                self.moves(ours.segments(), &place);
            }
        }
        self.computed(other, homes, own, joining);
    }

    /// Adds the rules that compute a field of the version from one of another version and back, and
    /// those of fields that the version has in common with the other.
    fn computed(&mut self, other: &Member<'_>, homes: &Homes, own: &Member<'_>, joining: Joining<'_>) {
        let (there, back) = (joining.rules(other.name, own.name), joining.rules(own.name, other.name));
        for rule in there {
            let Some((theirs, ours)) = one_to_one(rule) else {
                continue;
            };
            let place = homes.find(theirs.segments());
            // No other rule has to do with either field.
            let alone = |rules: &[Rule], (from, to): (&Path, &Path)| {
                let mut touching = rules.iter().filter(|rule| rule.destination.overlaps(to));
                let found = touching.next().filter(|_| touching.next().is_none())?;
                (one_to_one(found)? == (from, to)).then(|| found.clone())
            };
            let (Some(there), Some(back)) = (alone(there, (theirs, ours)), alone(back, (ours, theirs))) else {
                continue;
            };
            let is_moved = there.transformation.is_none() && back.transformation.is_none();
            let beside = !joining.is_of_hub(&place) && !joining.is_of_hub(ours.segments());
            // The union has a place for the other field, and none for this one.
            let places = (below(joining.union, &place), below(joining.union, ours.segments()));
            let free = below(own.schema.root(), &place).is_none();
            let claimed = is_claimed(other, theirs) || is_claimed(own, ours);
            if is_moved || !beside || !matches!(places, (Some(_), None)) || !free || claimed {
                continue;
            }
            let place = Path::from_segments(place);
            let computed = Computed {
                own: ours.clone(),
                rules: (
                    Rule {
                        destination: place.clone(),
                        ..back
                    },
                    Rule {
                        source: Source::Field(place),
                        ..there
                    },
                ),
            };
            self.compute(computed);
        }
        for known in &homes.computed {
            let (ours, theirs) = [own, other]
                .map(|member| below(member.schema.root(), known.own.segments()))
                .into();
            let same = ours.zip(theirs).is_some_and(|(ours, theirs)| meets(ours, theirs));
            let free = below(own.schema.root(), known.rules.0.destination.segments()).is_none();
            if same && free && !is_claimed(own, &known.own) {
                self.compute(known.clone());
            }
        }
    }

    fn compute(&mut self, computed: Computed) {
        let known = self.moves.0.iter().chain(&self.moves.1);
        let overlaps = |rule: &Rule| {
            let source = match &rule.source {
                Source::Field(path) => path.overlaps(&computed.own),
                Source::Expression(_) => false,
            };
            source || rule.destination.overlaps(&computed.own)
        };
        if known.into_iter().any(overlaps) {
            return;
        }
        self.moves.0.push(computed.rules.0.clone());
        self.moves.1.push(computed.rules.1.clone());
        self.homes.computed.push(computed);
    }
}

/// Returns the fields of a rule that gives one field for another: a path of fields each.
fn one_to_one(rule: &Rule) -> Option<(&Path, &Path)> {
    let Source::Field(from) = &rule.source else { return None };
    let fields = |path: &Path| path.segments().iter().all(|step| matches!(step, Segment::Field(_)));
    let plain = rule.item_rules.is_empty() && !rule.only_if_absent && rule.at.source == "field";
    (plain && fields(from) && fields(&rule.destination)).then_some((from, &rule.destination))
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
fn is_claimed(member: &Member<'_>, path: &Path) -> bool {
    let claims = |plan: &Plan| plan.except.covers(path.segments());
    member.plans.is_some_and(|(up, down)| claims(up) || claims(down))
}
