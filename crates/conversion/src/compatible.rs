//! Compatibility of versions without rules: a field of one version that the other one lacks, or has
//! with another type, is a break that rules should mend.
//!
//! A version that only adds optional fields is compatible. If each of two versions has fields that
//! the other one lacks, some were most likely renamed or moved, and all of them are listed.

use crate::bundle::Bundle;
use crate::passthrough::{Kind, Scalar, known_kind, takes_anything};
use insula_schema::Node;
use std::collections::BTreeSet;
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
    /// order of their paths. An API with rules has none: its author decided about every field.
    pub fn breaks(&self) -> Vec<Break> {
        if self.has_rules() {
            return Vec::new();
        }
        let storage = self.storage();
        let Some(stored) = self.schema(storage) else {
            return Vec::new();
        };
        let others = self.served().filter(|version| *version != storage);
        let breaks = others.filter_map(|version| {
            let mut comparison = Comparison {
                names: (storage, version),
                breaks: Vec::new(),
                only: (Vec::new(), Vec::new()),
            };
            comparison.fields(stored.root(), self.schema(version)?.root(), "");
            Some(comparison.finish())
        });
        let mut all: Vec<Break> = breaks.flatten().collect();
        all.sort_by(|a, b| (&a.path, &a.difference).cmp(&(&b.path, &b.difference)));
        all.dedup();
        all
    }
}

struct Comparison<'a> {
    names: (&'a str, &'a str),
    breaks: Vec<Break>,
    /// Fields that only one of the versions has.
    only: (Vec<String>, Vec<String>),
}

impl Comparison<'_> {
    fn fields(&mut self, a: &Node, b: &Node, at: &str) {
        if takes_anything(a) || takes_anything(b) {
            return;
        }
        let names: BTreeSet<&str> = a.properties().chain(b.properties()).map(|(name, _)| name).collect();
        for name in names {
            if at.is_empty() && matches!(name, "apiVersion" | "kind" | "metadata") {
                continue;
            }
            let path = format!("{at}.{name}");
            match (a.child(name), b.child(name)) {
                (Some(a), Some(b)) => self.values(a, b, &path),
                (Some(_), None) if !b.preserves_unknown() => {
                    self.alone(a, name, &path, false);
                }
                (None, Some(_)) if !a.preserves_unknown() => {
                    self.alone(b, name, &path, true);
                }
                _ => {}
            }
        }
    }

    /// Records a field that only one version has.
    fn alone(&mut self, parent: &Node, name: &str, path: &str, is_second: bool) {
        let (has, lacks) = match is_second {
            true => (self.names.1, self.names.0),
            false => self.names,
        };
        let has_default = parent.child(name).is_some_and(|child| child.default().is_some());
        if parent.required().iter().any(|required| required == name) && !has_default {
            return self.add(path, format!("required by {has}, and {lacks} does not have it"));
        }
        match is_second {
            true => self.only.1.push(path.to_owned()),
            false => self.only.0.push(path.to_owned()),
        }
    }

    fn values(&mut self, a: &Node, b: &Node, path: &str) {
        let (Some(of_a), Some(of_b)) = (known_kind(a), known_kind(b)) else {
            return;
        };
        match (of_a, of_b) {
            (Kind::Object, Kind::Object) => {
                self.fields(a, b, path);
                if let (Some(a), Some(b)) = (a.additional(), b.additional()) {
                    self.values(a, b, &format!("{path}[]"));
                }
            }
            (Kind::List, Kind::List) => {
                if let (Some(a), Some(b)) = (a.items(), b.items()) {
                    self.values(a, b, &format!("{path}[]"));
                }
            }
            (Kind::Scalar(a), Kind::Scalar(b)) if a == b => {}
            _ => {
                let (first, second) = self.names;
                let difference = format!("{} in {first}, {} in {second}", described(of_a), described(of_b));
                self.add(path, difference);
            }
        }
    }

    fn add(&mut self, path: &str, difference: String) {
        self.breaks.push(Break {
            path: path.to_owned(),
            difference,
        });
    }

    fn finish(mut self) -> Vec<Break> {
        let (first, second) = std::mem::take(&mut self.only);
        let required = |has: &str| format!("required by {has},");
        // A field that one version requires and the other lacks is one that only it has.
        let of = |version: &str| {
            self.breaks
                .iter()
                .any(|one| one.difference.starts_with(&required(version)))
        };
        let (a, b) = self.names;
        if (!first.is_empty() || of(a)) && (!second.is_empty() || of(b)) {
            for path in first {
                self.add(&path, format!("in {a}, and not in {b}"));
            }
            for path in second {
                self.add(&path, format!("in {b}, and not in {a}"));
            }
        }
        self.breaks
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
