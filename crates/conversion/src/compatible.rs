//! Compatibility of versions without rules: a field of one version that the other one lacks, or has
//! with another type, is a break that rules should mend.
//!
//! A version that only adds optional fields is compatible. If each of two versions has fields that
//! the other one lacks, some were most likely renamed or moved, and all of them are listed.

use crate::bundle::Bundle;
use crate::passthrough::{Kind, Scalar, known_kind, takes_anything};
use insula_schema::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A field that breaks between two versions without rules. Prints as
/// `.spec.size: a string in v1, an integer in v2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    /// Path of the field; `[]` stands for the items of a list and the values of a map.
    pub path: String,
    /// The difference, with the names of both versions.
    pub difference: String,
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.difference)
    }
}

impl Bundle {
    /// Returns the fields that break between the storage version and each other served one, in the
    /// order of their paths. Versions with rules between them have none: the author decided about
    /// every field.
    pub fn breaks(&self) -> Vec<Break> {
        let storage = self.storage();
        let Some(stored) = self.schema(storage) else {
            return Vec::new();
        };
        let others = self
            .served()
            .filter(|version| *version != storage && !self.are_decided(storage, version));
        let differences = others.filter_map(|version| {
            let mut comparison = Comparison {
                names: (storage, version),
                found: Vec::new(),
            };
            comparison.fields(stored.root(), self.schema(version)?.root(), "");
            Some(comparison.finish())
        });
        merged(differences.flatten())
    }
}

/// A difference of one field between two versions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Difference<'a> {
    /// One version has the field, and the other lacks it.
    Alone { has: &'a str, lacks: &'a str },
    /// One version requires the field, and the other lacks it.
    Required { has: &'a str, lacks: &'a str },
    /// Types differ.
    Typed(String),
}

/// Merges what is equal for several versions: `in v1, and not in v1alpha1, v1beta1`.
fn merged<'a>(differences: impl Iterator<Item = (String, Difference<'a>)>) -> Vec<Break> {
    // By field and difference: the versions that have it, with those that lack it.
    let mut sides: BTreeMap<(String, bool), BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    let mut breaks = Vec::new();
    for (path, difference) in differences {
        let (required, has, lacks) = match difference {
            Difference::Alone { has, lacks } => (false, has, lacks),
            Difference::Required { has, lacks } => (true, has, lacks),
            Difference::Typed(difference) => {
                breaks.push(Break { path, difference });
                continue;
            }
        };
        let side = sides.entry((path, required)).or_default();
        side.entry(has).or_default().insert(lacks);
    }
    let list = |versions: &BTreeSet<&str>| versions.iter().copied().collect::<Vec<_>>().join(", ");
    for ((path, required), side) in sides {
        let mut by_lacks: BTreeMap<BTreeSet<&str>, BTreeSet<&str>> = BTreeMap::new();
        for (has, lacks) in side {
            by_lacks.entry(lacks).or_default().insert(has);
        }
        for (lacks, has) in by_lacks {
            let (has, lacks) = (list(&has), list(&lacks));
            let difference = match required {
                true => format!("required by {has}, and not in {lacks}"),
                false => format!("in {has}, and not in {lacks}"),
            };
            let path = path.clone();
            breaks.push(Break { path, difference });
        }
    }
    breaks.sort_unstable_by(|a, b| (&a.path, &a.difference).cmp(&(&b.path, &b.difference)));
    breaks
}

struct Comparison<'a> {
    names: (&'a str, &'a str),
    found: Vec<(String, Difference<'a>)>,
}

impl<'a> Comparison<'a> {
    fn fields(&mut self, a: &Node, b: &Node, at: &str) {
        if takes_anything(a) || takes_anything(b) {
            return;
        }
        let names: BTreeSet<&str> = a.properties().chain(b.properties()).map(|(name, _)| name).collect();
        let (first, second) = self.names;
        for name in names {
            if at.is_empty() && matches!(name, "apiVersion" | "kind" | "metadata") {
                continue;
            }
            let path = format!("{at}.{name}");
            match (a.child(name), b.child(name)) {
                (Some(a), Some(b)) => self.values(a, b, path),
                (Some(_), None) if !b.preserves_unknown() => {
                    self.found.push((path, alone(a, name, first, second)));
                }
                (None, Some(_)) if !a.preserves_unknown() => {
                    self.found.push((path, alone(b, name, second, first)));
                }
                _ => {}
            }
        }
    }

    fn values(&mut self, a: &Node, b: &Node, path: String) {
        let (Some(of_a), Some(of_b)) = (known_kind(a), known_kind(b)) else {
            return;
        };
        match (of_a, of_b) {
            (Kind::Object, Kind::Object) => {
                self.fields(a, b, &path);
                if let (Some(a), Some(b)) = (a.additional(), b.additional()) {
                    self.values(a, b, format!("{path}[]"));
                }
            }
            (Kind::List, Kind::List) => {
                if let (Some(a), Some(b)) = (a.items(), b.items()) {
                    self.values(a, b, format!("{path}[]"));
                }
            }
            (Kind::Scalar(a), Kind::Scalar(b)) if a == b => {}
            _ => {
                let (first, second) = self.names;
                let difference = format!("{} in {first}, {} in {second}", described(of_a), described(of_b));
                self.found.push((path, Difference::Typed(difference)));
            }
        }
    }

    /// Returns the differences. Optional fields of one version are none, if the other version has
    /// no fields of its own.
    fn finish(self) -> Vec<(String, Difference<'a>)> {
        let has_own = |version: &str| {
            self.found.iter().any(|(_, difference)| match difference {
                Difference::Alone { has, .. } | Difference::Required { has, .. } => *has == version,
                Difference::Typed(_) => false,
            })
        };
        let both = has_own(self.names.0) && has_own(self.names.1);
        let mut found = self.found;
        found.retain(|(_, difference)| both || !matches!(difference, Difference::Alone { .. }));
        found
    }
}

/// Returns the difference of a field that only one version has.
fn alone<'a>(parent: &Node, name: &str, has: &'a str, lacks: &'a str) -> Difference<'a> {
    let has_default = parent.child(name).is_some_and(|child| child.default().is_some());
    if parent.required().iter().any(|required| required == name) && !has_default {
        Difference::Required { has, lacks }
    } else {
        Difference::Alone { has, lacks }
    }
}

fn described(kind: Kind) -> &'static str {
    match kind {
        Kind::Object => "an object",
        Kind::List => "a list",
        Kind::Scalar(Scalar::String) => "a string",
        Kind::Scalar(Scalar::Integer) => "an integer",
        Kind::Scalar(Scalar::Number) => "a number",
        Kind::Scalar(Scalar::Boolean) => "a boolean",
        Kind::Scalar(Scalar::IntOrString) => "an integer or string",
    }
}
