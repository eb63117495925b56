//! Paths of several versions that hold one value, beside the hub: by their names, and by rules of
//! any pair of versions that move one to the other.
//!
//! ```text
//! v2 .spec.group.n ──rule── v3 .spec.n ──path── v5 .spec.n        one class, one home
//! ```
//! No version has two paths in a class: what would make it so is left out, of paths of one name the
//! rule.

use super::{Member, below, meets};
use crate::carried::Claims;
use crate::path::{Path, Segment};
use crate::plan::Plan;
use crate::rules::{Direction, RULES_MAX, Rule, Source};
use insula_schema::{Node, Structural};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of pairs of paths that rules beside the hub relate; admission refuses more. An
/// author has some dozens; the cost grows with their number and with the square of the number of
/// versions.
pub(crate) const PAIRS_MAX: usize = RULES_MAX;

/// Returns the number of pairs of paths that rules between two versions beside the hub relate.
pub(crate) fn pairs_beside(hub: &str, directions: &[Direction]) -> usize {
    let beside = directions.iter().filter(|way| way.from != hub && way.to != hub);
    let pairs = beside.flat_map(|way| way.rules.iter().map(move |rule| (way, rule)));
    let pairs = pairs.filter_map(|(way, rule)| {
        let Source::Field(from) = &rule.source else { return None };
        let mut ends = [(&way.from, unnamed(from)), (&way.to, unnamed(&rule.destination))];
        ends.sort();
        Some(ends)
    });
    pairs.collect::<BTreeSet<_>>().len()
}

/// A path of a version, by the version's number.
type VersionPath = (usize, Path);

/// The classes: the path of each version that has one.
pub(super) struct Classes(Vec<BTreeMap<usize, Path>>);

impl Classes {
    /// Finds the classes of all versions.
    pub(super) fn find(versions: &Versions<'_>) -> Classes {
        let mut classes = Growing::default();
        let pairs = versions.moves();
        let dropped: Vec<Claims> = versions.each(Claims::dropped);
        let paths: BTreeSet<&Path> = pairs.iter().flat_map(|(a, b)| [&a.1, &b.1]).collect();
        for path in paths {
            let has =
                |member: &usize| versions.free(*member, path).is_some() && !dropped[*member].cover(path.segments());
            let members: Vec<usize> = (0..versions.members.len()).filter(has).collect();
            for (at, b) in members.iter().enumerate() {
                for a in members[..at].iter().filter(|a| versions.share(**a, *b, path)) {
                    classes.join((*a, path.clone()), (*b, path.clone()));
                }
            }
        }
        for (a, b) in pairs {
            classes.join(a, b);
        }
        Classes(classes.all)
    }

    /// Returns the paths of a version that have a home already, with a place that has it.
    pub(super) fn for_version(
        &self,
        member: usize,
        is_seen: impl Fn(usize) -> bool,
    ) -> impl Iterator<Item = (&Path, (usize, &Path))> {
        self.0.iter().filter_map(move |class| {
            let own = class.get(&member)?;
            let (seen, theirs) = class.iter().find(|(version, _)| is_seen(**version))?;
            Some((own, (*seen, theirs)))
        })
    }
}

/// Classes in the making.
#[derive(Default)]
struct Growing {
    /// Empty where a class was joined to another.
    all: Vec<BTreeMap<usize, Path>>,
    /// The class of each path.
    homes: BTreeMap<VersionPath, usize>,
}

impl Growing {
    fn class(&mut self, (version, path): VersionPath) -> usize {
        let next = self.all.len();
        let class = *self.homes.entry((version, path.clone())).or_insert(next);
        if class == next {
            self.all.push(BTreeMap::from([(version, path)]));
        }
        class
    }

    /// Makes one class of two, unless a version has a path in both.
    fn join(&mut self, a: VersionPath, b: VersionPath) {
        let (a, b) = (self.class(a), self.class(b));
        if a == b || self.all[a].keys().any(|version| self.all[b].contains_key(version)) {
            return;
        }
        for (version, path) in std::mem::take(&mut self.all[b]) {
            self.homes.insert((version, path.clone()), a);
            self.all[a].insert(version, path);
        }
    }
}

/// The versions and their rules, by the numbers of the versions.
pub(super) struct Versions<'a> {
    hub: &'a Structural,
    pub(super) members: &'a [Member<'a>],
    directions: &'a [Direction],
    /// The rules between versions of which neither is the hub.
    pub(super) rules: BTreeMap<(usize, usize), &'a [Rule]>,
    /// Claims of those rules; the lesser number first.
    claims: BTreeMap<(usize, usize), Claims>,
}

impl<'a> Versions<'a> {
    pub(super) fn new(hub: &'a Structural, members: &'a [Member<'a>], directions: &'a [Direction]) -> Self {
        let number = |name: &str| {
            members
                .iter()
                .position(|member| member.name == name && member.plans.is_some())
        };
        let numbered = |direction: &'a Direction| {
            let pair = (number(&direction.from)?, number(&direction.to)?);
            Some((pair, direction.rules.as_slice()))
        };
        let rules: BTreeMap<_, _> = directions.iter().filter_map(numbered).collect();
        let pairs = rules.keys().map(|(a, b)| (*a.min(b), *a.max(b)));
        let claims = |(a, b): (usize, usize)| Claims::of_rules(members[a].name, members[b].name, directions);
        Versions {
            hub,
            members,
            directions,
            claims: pairs.map(|pair| (pair, claims(pair))).collect(),
            rules,
        }
    }

    fn each<T>(&self, make: impl Fn(&str, &[Direction]) -> T) -> Vec<T> {
        let members = self.members.iter();
        members.map(|member| make(member.name, self.directions)).collect()
    }

    pub(super) fn between(&self, from: usize, to: usize) -> &'a [Rule] {
        self.rules.get(&(from, to)).copied().unwrap_or_default()
    }

    /// Returns the node of a path that a version has, that the hub lacks, and that no rule between
    /// the two uses up.
    pub(super) fn free(&self, member: usize, path: &Path) -> Option<&'a Node> {
        let member = &self.members[member];
        let (up, down) = member.plans?;
        let node = below(member.schema.root(), path.segments())?;
        let claims = |plan: &Plan| plan.except.covers(path.segments());
        let lacks = below(self.hub.root(), path.segments()).is_none();
        (lacks && !claims(up) && !claims(down)).then_some(node)
    }

    /// Returns true if a path that two versions have is one value: no rule between them is about
    /// it.
    fn share(&self, a: usize, b: usize, path: &Path) -> bool {
        let claimed = self
            .claims
            .get(&(a, b))
            .is_some_and(|claims| claims.cover(path.segments()));
        !claimed && self.meet((a, path), (b, path))
    }

    fn meet(&self, (a, theirs): (usize, &Path), (b, ours): (usize, &Path)) -> bool {
        let nodes = self.free(a, theirs).zip(self.free(b, ours));
        nodes.is_some_and(|(one, other)| meets(one, other))
    }

    /// Returns the pairs of paths that rules beside the hub move to each other.
    fn moves(&self) -> Vec<(VersionPath, VersionPath)> {
        let mut moves = Vec::new();
        for (a, b) in self.claims.keys() {
            let more = self.moves_between(*a, *b).into_iter();
            moves.extend(more.map(|(theirs, ours)| ((*a, theirs), (*b, ours))));
            if moves.len() >= PAIRS_MAX {
                break;
            }
        }
        moves.truncate(PAIRS_MAX);
        moves
    }

    fn moves_between(&self, a: usize, b: usize) -> Vec<(Path, Path)> {
        let plain = |rules: &'a [Rule]| rules.iter().map(|rule| (rule, plain_move(rule))).collect::<Vec<_>>();
        let (there, back) = (plain(self.between(a, b)), plain(self.between(b, a)));
        let mut pairs: Vec<(Path, Path)> = there.iter().filter_map(|(_, pair)| pair.clone()).collect();
        let reverse = back
            .iter()
            .filter_map(|(_, pair)| pair.clone())
            .map(|(from, to)| (to, from));
        let more: Vec<(Path, Path)> = reverse.filter(|pair| !pairs.contains(pair)).collect();
        pairs.extend(more);
        // Another rule of the pair says something else about either field.
        let contradicts = |rules: &[(&Rule, Option<(Path, Path)>)], (from, to): (&Path, &Path)| {
            rules.iter().any(|(rule, pair)| match pair {
                Some((source, place)) => (source == from || place.overlaps(to)) && (source, place) != (from, to),
                None => rule.destination.overlaps(to),
            })
        };
        pairs.retain(|(theirs, ours)| {
            self.meet((a, theirs), (b, ours))
                && loops(theirs) == loops(ours)
                && !contradicts(&there, (theirs, ours))
                && !contradicts(&back, (ours, theirs))
        });
        pairs
    }
}

fn loops(path: &Path) -> usize {
    let each = |segment: &&Segment| matches!(segment, Segment::Each(_));
    path.segments().iter().filter(each).count()
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
    is_plain.then(|| (unnamed(from), unnamed(&rule.destination)))
}

/// Returns the path without the names of loops' variables, which do not matter.
fn unnamed(path: &Path) -> Path {
    let step = |segment: &Segment| match segment {
        Segment::Each(_) => Segment::Each(String::new()),
        other => other.clone(),
    };
    Path::from_segments(path.segments().iter().map(step).collect())
}
