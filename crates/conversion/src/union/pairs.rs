//! Rules of a pair of versions beside the hub: what they move, or compute in both directions, is
//! one value of both.

use super::classes::{Classes, PAIRS_MAX, Versions};
use super::{At, Growth, Homes, Member, Scope, below, below_mut, meets};
use crate::passthrough::Except;
use crate::path::{Path, Segment};
use crate::rules::{Rule, Source};
use insula_schema::Node;

/// Two values of which rules compute each from the other, or of which one is an item of a list that
/// they move. The field that only its version has is made from the home of the other value.
///
/// ```text
/// hub v1 {}      v2 {duration: "90s"}      v3, v4 {seconds: 90}      union {seconds: 90}
/// hub v1 {}      v2 {name: a}              v3, v4 {names: [a, b]}    union {names: [a, b]}
/// ```
struct Computed<'a> {
    /// The field that is computed: number of the version, and path.
    own: (usize, &'a Path),
    /// The other field, or an item.
    from: (usize, &'a Path),
    /// The rule that computes it, and the way back.
    rules: (&'a Rule, &'a Rule),
}

/// All computed fields.
pub(super) struct AllComputed<'a>(Vec<Computed<'a>>);

impl<'a> AllComputed<'a> {
    pub(super) fn find(versions: &Versions<'a>) -> Self {
        let has = |member: &&Member<'_>, path: &Path| below(member.schema.root(), path.segments()).is_some();
        let is_shared = |path: &Path| versions.members.iter().filter(|member| has(member, path)).count() > 1;
        let mut all: Vec<Computed<'a>> = Vec::new();
        for ((a, b), there) in &versions.rules {
            let back = versions.between(*b, *a);
            for (theirs, ours) in there.iter().filter_map(one_to_one) {
                let rules = alone(there, (theirs, ours)).zip(alone(back, (ours, theirs)));
                let Some((there, back)) = rules else { continue };
                let is_item = !theirs.segments().iter().all(is_field);
                let is_moved = there.transformation.is_none() && back.transformation.is_none() && !is_item;
                let is_known = all.iter().any(|known| known.from == (*b, ours));
                let are_free = versions.free(*a, theirs).is_some() && versions.free(*b, ours).is_some();
                let is_field = ours.segments().iter().all(is_field);
                if !is_field || is_moved || is_known || is_shared(ours) || !are_free || all.len() == PAIRS_MAX {
                    continue;
                }
                all.push(Computed {
                    own: (*b, ours),
                    from: (*a, theirs),
                    rules: (there, back),
                });
            }
        }
        AllComputed(all)
    }

    /// Returns true if fields of a version are computed: the others have their homes before.
    pub(super) fn is_late(&self, member: usize) -> bool {
        self.0.iter().any(|computed| computed.own.0 == member)
    }
}

impl Growth<'_> {
    /// Adds moves for the paths of a version that are one value with other paths of earlier
    /// versions.
    pub(super) fn classes(
        &mut self,
        classes: &Classes,
        (number, own): (usize, &Member<'_>),
        seen: &[(usize, Homes)],
        union: &mut Node,
    ) {
        let is_seen = |member: usize| homes_of(seen, member).is_some();
        for (ours, (first, theirs)) in classes.for_version(number, is_seen) {
            let Some(homes) = homes_of(seen, first) else { continue };
            let place = homes.find(theirs.segments());
            let kinds = below(union, &place).zip(below(own.schema.root(), ours.segments()));
            if kinds.is_some_and(|(joined, ours)| meets(joined, ours)) && place != ours.segments() {
                self.homes.0.push((ours.segments().to_vec(), place.clone()));
                self.moves(ours.segments(), &place);
                self.contents(own.schema.root(), ours.segments(), &place, union);
            }
        }
        self.items(own.schema.root(), union);
    }

    /// Joins what is in a list, a map or an object that is moved as a whole.
    fn contents(&mut self, own: &Node, ours: &[Segment], place: &[Segment], union: &mut Node) {
        let (Some(joined), Some(part)) = (below_mut(union, place), below(own, ours)) else {
            return;
        };
        let mut at = At {
            scope: Vec::new(),
            own: ours.to_vec(),
            union: place.to_vec(),
        };
        let scope = Scope {
            except: Vec::new(),
            ops: (&[], &[]),
        };
        self.value(joined, part, &scope, &mut at);
    }

    /// Joins the rest of the items of which moves take a part.
    fn items(&mut self, own: &Node, union: &mut Node) {
        let moved: Vec<(Vec<Segment>, Vec<Segment>)> = self.homes.0.clone();
        let mut levels: Vec<(&[Segment], &[Segment])> = Vec::new();
        for (ours, place) in &moved {
            for level in ends(ours).zip(ends(place)).map(|(a, b)| (&ours[..a], &place[..b])) {
                if !levels.contains(&level) {
                    levels.push(level);
                }
            }
        }
        for (ours, place) in levels {
            let mut except = Except::default();
            let inside = moved
                .iter()
                .filter(|(own, there)| own.starts_with(ours) && there.starts_with(place));
            for (own, there) in inside {
                for rest in [&own[ours.len()..], &there[place.len()..]] {
                    let end = ends(rest).next().map_or(rest.len(), |end| end - 1);
                    except.path(Path::from_segments(rest[..end].to_vec()));
                }
            }
            let (Some(joined), Some(part)) = (below_mut(union, place), below(own, ours)) else {
                continue;
            };
            let mut at = At {
                scope: Vec::new(),
                own: ours.to_vec(),
                union: place.to_vec(),
            };
            let scope = Scope {
                except: vec![&except],
                ops: (&[], &[]),
            };
            self.homes.0.push((ours.to_vec(), place.to_vec()));
            if meets(joined, part) {
                self.value(joined, part, &scope, &mut at);
            }
        }
    }

    /// Adds the rules of the version's computed fields.
    pub(super) fn computed(
        &mut self,
        all: &AllComputed<'_>,
        (number, own): (usize, &Member<'_>),
        seen: &[(usize, Homes)],
        union: &Node,
    ) {
        for Computed { own: at, from, rules } in all.0.iter().filter(|computed| computed.own.0 == number) {
            let Some(homes) = homes_of(seen, from.0) else { continue };
            let place = homes.find(from.1.segments());
            let known = self.moves.0.iter().chain(&self.moves.1);
            let overlaps = |rule: &Rule| {
                let source = matches!(&rule.source, Source::Field(path) if path.overlaps(at.1));
                source || rule.destination.overlaps(at.1)
            };
            let is_taken = below(own.schema.root(), &place).is_some() || known.into_iter().any(overlaps);
            if below(union, &place).is_none() || is_taken {
                continue;
            }
            let place = Path::from_segments(place);
            self.moves.0.push(Rule {
                destination: place.clone(),
                ..using_up(rules.1)
            });
            self.moves.1.push(Rule {
                source: Source::Field(place),
                ..using_up(rules.0)
            });
        }
    }
}

/// Returns a rule that uses up what it reads, whatever its spelling: the field has no other home.
fn using_up(rule: &Rule) -> Rule {
    let mut rule = rule.clone();
    rule.at.source = "field";
    rule
}

/// Returns the homes of the contents of a version that was joined before.
fn homes_of(seen: &[(usize, Homes)], member: usize) -> Option<&Homes> {
    seen.iter()
        .find(|(number, _)| *number == member)
        .map(|(_, homes)| homes)
}

/// Returns the rule that gives one field for another, if no other rule has to do with the latter.
fn alone<'r>(rules: &'r [Rule], (from, to): (&Path, &Path)) -> Option<&'r Rule> {
    let mut touching = rules.iter().filter(|rule| rule.destination.overlaps(to));
    let found = touching.next().filter(|_| touching.next().is_none())?;
    (one_to_one(found)? == (from, to)).then_some(found)
}

/// Returns the lengths of the parts of a path that end in an item.
fn ends(path: &[Segment]) -> impl Iterator<Item = usize> {
    let each = |(at, segment): (usize, &Segment)| matches!(segment, Segment::Each(_)).then_some(at + 1);
    path.iter().enumerate().filter_map(each)
}

/// Returns the paths of a rule that gives one value for another: a field or a numbered item each.
fn one_to_one(rule: &Rule) -> Option<(&Path, &Path)> {
    let Source::Field(from) = &rule.source else { return None };
    let is_a_value = rule.at.source == "field" || rule.transformation.is_none();
    let plain = rule.item_rules.is_empty() && !rule.only_if_absent && is_a_value;
    (plain && from.is_single() && rule.destination.is_single()).then_some((from, &rule.destination))
}

fn is_field(segment: &Segment) -> bool {
    matches!(segment, Segment::Field(_))
}
