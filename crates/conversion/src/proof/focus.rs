//! The fields of a version that rules read or write, as a tree.
//!
//! Rules fail and lose values near the fields that they touch. In large schemas, objects that are
//! filled at random seldom have these fields and those beside them.

use crate::bundle::Bundle;
use crate::field_coverage::touched;
use crate::path::Segment;
use std::collections::BTreeMap;

/// A node of the tree: fields or items on the way to a field that a rule touches.
#[derive(Debug, Default)]
pub(super) struct Focus {
    fields: BTreeMap<String, Focus>,
    items: Option<Box<Focus>>,
}

/// The position of a field relative to the fields that rules touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distance {
    /// On the way to one, or one of them.
    On,
    /// In an object that holds one.
    Beside,
    /// Elsewhere.
    Far,
}

impl Focus {
    /// Collects the fields of a version that rules read or write, in all directions.
    pub(super) fn for_version(bundle: &Bundle, version: &str) -> Focus {
        let mut focus = Focus::default();
        for converter in bundle.converters.values().filter(|converter| converter.ruled) {
            for (read, written) in touched(converter) {
                if converter.from == version {
                    focus.add(&read);
                }
                if converter.to == version {
                    focus.add(&written);
                }
            }
        }
        focus
    }

    fn add(&mut self, path: &[Segment]) {
        let mut here = self;
        for segment in path {
            here = match segment {
                Segment::Field(name) => here.fields.entry(name.clone()).or_default(),
                Segment::Index(_) | Segment::Each(_) | Segment::Key(_) => here.items.get_or_insert_default(),
            };
        }
    }

    pub(super) fn field(&self, name: &str) -> Option<&Focus> {
        self.fields.get(name)
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &Focus)> {
        self.fields.iter().map(|(name, below)| (name.as_str(), below))
    }

    pub(super) fn items(&self) -> Option<&Focus> {
        self.items.as_deref()
    }

    /// Returns the distance of a field of the object at `focus`.
    pub(super) fn distance(focus: Option<&Focus>, name: &str) -> Distance {
        match focus {
            None => Distance::Far,
            Some(focus) if focus.fields.contains_key(name) => Distance::On,
            Some(_) => Distance::Beside,
        }
    }
}
