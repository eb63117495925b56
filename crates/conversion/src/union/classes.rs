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
use crate::rules::{Direction, Rule, Source};
use insula_schema::{Node, Structural};

/// A path of a version, by the version's number.
type VersionPath = (usize, Path);

/// The classes that have paths of different names.
pub(super) struct Classes(Vec<Vec<VersionPath>>);

impl Classes {
    /// Finds the classes of all versions.
    pub(super) fn find(hub: &Structural, members: &[Member<'_>], directions: &[Direction]) -> Classes {
        let mut classes = Classes(Vec::new());
        let named = Named {
            hub,
            members,
            directions,
        };
        let mut pairs = Vec::new();
        for b in 0..members.len() {
            for a in 0..b {
                pairs.extend(
                    named
                        .moves(a, b)
                        .into_iter()
                        .map(|(theirs, ours)| ((a, theirs), (b, ours))),
                );
            }
        }
        let paths: Vec<Path> = pairs.iter().flat_map(|(a, b)| [a.1.clone(), b.1.clone()]).collect();
        for path in &paths {
            for b in 0..members.len() {
                for a in (0..b).filter(|a| named.shares(*a, b, path)) {
                    classes.join((a, path.clone()), (b, path.clone()));
                }
            }
        }
        for (a, b) in pairs {
            classes.join(a, b);
        }
        classes
    }

    /// Returns the paths of a version that have a home already, with a place that has it.
    pub(super) fn for_version(
        &self,
        member: usize,
        is_seen: impl Fn(usize) -> bool,
    ) -> impl Iterator<Item = (&Path, &VersionPath)> {
        self.0.iter().filter_map(move |class| {
            let own = class.iter().find(|(version, _)| *version == member)?;
            let seen = class.iter().find(|(version, _)| is_seen(*version))?;
            Some((&own.1, seen))
        })
    }

    fn join(&mut self, a: VersionPath, b: VersionPath) {
        let place =
            |classes: &[Vec<VersionPath>], of: &VersionPath| classes.iter().position(|class| class.contains(of));
        let mut take = |of: VersionPath| match place(&self.0, &of) {
            Some(at) => self.0.swap_remove(at),
            None => vec![of],
        };
        let one = take(a);
        if one.contains(&b) {
            return self.0.push(one);
        }
        let other = take(b);
        let clash = one
            .iter()
            .any(|(version, _)| other.iter().any(|(other, _)| version == other));
        match clash {
            true => self.0.extend([one, other]),
            false => self.0.push(one.into_iter().chain(other).collect()),
        }
    }
}

/// The versions and their rules.
struct Named<'a> {
    hub: &'a Structural,
    members: &'a [Member<'a>],
    directions: &'a [Direction],
}

impl<'a> Named<'a> {
    /// Returns the node of a path that a version has, that the hub lacks, and that no rule between
    /// the two uses up.
    fn node(&self, member: usize, path: &Path) -> Option<&'a Node> {
        let member = &self.members[member];
        let is_free = member.plans.is_some() && !is_claimed(member, path);
        let lacks = below(self.hub.root(), path.segments()).is_none();
        below(member.schema.root(), path.segments()).filter(|_| is_free && lacks)
    }

    /// Returns true if two versions have a path, and no rule between them is about it.
    fn shares(&self, a: usize, b: usize, path: &Path) -> bool {
        let nodes = self.node(a, path).zip(self.node(b, path));
        let claims = || Claims::between(self.members[a].name, self.members[b].name, self.directions);
        nodes.is_some_and(|(one, other)| meets(one, other)) && !claims().cover(path.segments())
    }

    /// Returns the pairs of paths that rules between two versions move to each other.
    fn moves(&self, a: usize, b: usize) -> Vec<(Path, Path)> {
        let (one, other) = (self.members[a].name, self.members[b].name);
        let (there, back) = (
            between(self.directions, one, other),
            between(self.directions, other, one),
        );
        let mut pairs: Vec<(Path, Path)> = there.iter().filter_map(plain_move).collect();
        let reverse = back.iter().filter_map(plain_move).map(|(from, to)| (to, from));
        let more: Vec<(Path, Path)> = reverse.filter(|pair| !pairs.contains(pair)).collect();
        pairs.extend(more);
        // Another rule of the pair says something else about either field.
        let contradicts = |rules: &[Rule], (from, to): (&Path, &Path)| {
            rules.iter().any(|rule| match plain_move(rule) {
                Some((source, place)) => (source == *from || place.overlaps(to)) && (&source, &place) != (from, to),
                None => rule.destination.overlaps(to),
            })
        };
        pairs.retain(|(theirs, ours)| {
            let nodes = self.node(a, theirs).zip(self.node(b, ours));
            nodes.is_some_and(|(one, other)| meets(one, other))
                && loops(theirs) == loops(ours)
                && !contradicts(there, (theirs, ours))
                && !contradicts(back, (ours, theirs))
        });
        pairs
    }
}

fn loops(path: &Path) -> usize {
    let each = |segment: &&Segment| matches!(segment, Segment::Each(_));
    path.segments().iter().filter(each).count()
}

/// Returns the rules from one version to another.
pub(super) fn between<'a>(directions: &'a [Direction], from: &str, to: &str) -> &'a [Rule] {
    let found = directions.iter().find(|d| d.from == from && d.to == to);
    found.map(|d| d.rules.as_slice()).unwrap_or_default()
}

/// Returns true if the rules between a version and the hub use up a path.
pub(super) fn is_claimed(member: &Member<'_>, path: &Path) -> bool {
    let claims = |plan: &Plan| plan.except.covers(path.segments());
    member.plans.is_some_and(|(up, down)| claims(up) || claims(down))
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
