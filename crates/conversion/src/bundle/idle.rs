//! Rules that convert no object. An object of a version is made from the union of all versions, so
//! rules between two versions beside the hub count where they say that two fields are one value.

use super::{Bundle, LossPolicy};
use crate::path::{Path, Segment};
use crate::plan::RuleFacts;
use crate::rules::{Direction, Rule, Source};

/// A rule beside the hub that relates no two fields of the union.
#[derive(Debug)]
pub(super) struct Idle {
    ways: (String, String),
    facts: RuleFacts,
}

/// The rules of a version to the union: the author's to the hub, and those beside them, to the
/// union and back.
pub(super) struct Ways<'a> {
    pub(super) name: &'a str,
    pub(super) to_hub: &'a [Rule],
    pub(super) moves: Option<&'a (Vec<Rule>, Vec<Rule>)>,
}

impl Ways<'_> {
    /// Returns the path in the union that holds the value at a path of the version.
    fn home(&self, path: &Path) -> Path {
        let beside = self.moves.map(|(up, _)| up.as_slice()).unwrap_or_default();
        let moved = beside.iter().chain(self.to_hub).filter_map(|rule| {
            let Source::Field(from) = &rule.source else { return None };
            let is_around = path.segments().len() >= from.segments().len() && alike(from, path);
            (is_around && rule.transformation.is_none()).then_some((from, rule))
        });
        match moved.max_by_key(|(from, _)| from.segments().len()) {
            Some((from, rule)) => {
                let rest = &path.segments()[from.segments().len()..];
                Path::from_segments(rule.destination.segments().iter().chain(rest).cloned().collect())
            }
            None => path.clone(),
        }
    }

    /// Returns true if the author's rule is one of those beside the rules to the hub.
    fn uses(&self, rule: &Rule) -> bool {
        let (up, down) = self
            .moves
            .map(|(up, down)| (up.as_slice(), down.as_slice()))
            .unwrap_or_default();
        up.iter().chain(down).any(|used| used.at.path == rule.at.path)
    }
}

/// Returns true if a path begins like another, whatever the variables of its loops are called.
fn alike(from: &Path, path: &Path) -> bool {
    from.segments().iter().zip(path.segments()).all(|pair| match pair {
        (Segment::Each(_), Segment::Each(_)) => true,
        (a, b) => a == b,
    })
}

/// Finds the idle rules between versions of which neither is the hub.
pub(super) fn find(hub: &str, versions: &[Ways<'_>], directions: &[Direction]) -> Vec<Idle> {
    let named = |name: &str| versions.iter().find(|version| version.name == name);
    let mut found = Vec::new();
    for way in directions.iter().filter(|way| way.from != hub && way.to != hub) {
        let (Some(from), Some(to)) = (named(&way.from), named(&way.to)) else {
            continue;
        };
        for rule in &way.rules {
            let is_one = |path: &Path| {
                let (ours, theirs) = (from.home(path), to.home(&rule.destination));
                ours.segments().len() == theirs.segments().len() && alike(&ours, &theirs)
            };
            let relates = match &rule.source {
                Source::Field(path) if rule.transformation.is_none() && rule.item_rules.is_empty() => is_one(path),
                _ => false,
            };
            // A computed field of one version is made from the home of the other's: one of the two
            // versions uses the rule, the other one the way back.
            if !relates && !from.uses(rule) && !to.uses(rule) {
                found.push(Idle {
                    ways: (way.from.clone(), way.to.clone()),
                    facts: RuleFacts::from_rule(rule),
                });
            }
        }
    }
    found
}

impl Bundle {
    /// Describes each rule that converts no stored object, for its author.
    pub fn idle_rules(&self) -> Vec<String> {
        if self.loss_policy == LossPolicy::None {
            return Vec::new();
        }
        let hub = &self.versions[self.hub].name;
        let index = |name: &str| self.versions.iter().position(|version| version.name == *name);
        let is_idle = |idle: &&Idle| {
            let (Some(a), Some(b)) = (index(&idle.ways.0), index(&idle.ways.1)) else {
                return false;
            };
            self.parent(self.storage, a) != Some(b) && self.parent(self.storage, b) != Some(a)
        };
        let text = |idle: &Idle| {
            let RuleFacts {
                path,
                source,
                destination,
                ..
            } = &idle.facts;
            let to = &idle.ways.1;
            format!(
                "{path} ({source} → {destination}) converts no object: {to} is made from the hub {hub}; beside it a \
                 rule counts that moves a field which the hub lacks, or computes one from it and back: write this one \
                 between {to} and {hub}"
            )
        };
        self.idle.iter().filter(is_idle).map(text).collect()
    }
}
