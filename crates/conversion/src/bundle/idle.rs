//! Rules that convert no object. An object of a version is made from the union of all versions, so
//! rules between two versions beside the hub count where they say that two fields are one value.

use super::{Bundle, LossPolicy};
use crate::plan::RuleFacts;
use crate::rules::{Direction, Rule, Source};
use crate::union::{Homes, alike};

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
    /// Returns the homes in the union of what plain rules move.
    fn homes(&self) -> Homes {
        let beside = self.moves.map(|(up, _)| up.as_slice()).unwrap_or_default();
        Homes::moved(beside.iter().chain(self.to_hub))
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

/// Finds the idle rules between versions of which neither is the hub.
pub(super) fn find(hub: &str, versions: &[Ways<'_>], directions: &[Direction]) -> Vec<Idle> {
    let named = |name: &str| versions.iter().find(|version| version.name == name);
    let mut found = Vec::new();
    for way in directions.iter().filter(|way| way.from != hub && way.to != hub) {
        let (Some(from), Some(to)) = (named(&way.from), named(&way.to)) else {
            continue;
        };
        let (ours, theirs) = (from.homes(), to.homes());
        for rule in &way.rules {
            let relates = match &rule.source {
                Source::Field(path) if rule.transformation.is_none() && rule.item_rules.is_empty() => {
                    alike(&ours.find(path.segments()), &theirs.find(rule.destination.segments()))
                }
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
