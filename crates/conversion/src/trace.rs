//! Traces: hashes of the inputs of computed values.
//!
//! A trace is a tree beside a converted object: each path that a rule computed has a hash of that
//! rule's inputs. If the traces of two conversions differ at a path, the inputs differed, even if
//! the results are equal. That is how a later edit wins over a value derived from the edited one.

use crate::path::Segment;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// One segment of a concrete path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seg {
    Field(Box<str>),
    Index(usize),
}

impl Seg {
    /// Converts a path that names at most one value.
    pub(crate) fn single(segments: &[Segment]) -> Box<[Seg]> {
        let step = |segment: &Segment| match segment {
            Segment::Field(name) => Some(Seg::Field(name.as_str().into())),
            Segment::Index(index) => Some(Seg::Index(*index)),
            Segment::Each(_) | Segment::Key(_) => None,
        };
        segments.iter().filter_map(step).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Trace {
    hash: Option<u64>,
    children: BTreeMap<Seg, Trace>,
}

impl Trace {
    pub(crate) fn hash(&self) -> Option<u64> {
        self.hash
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hash.is_none() && self.children.is_empty()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&Trace> {
        // A lookup by borrowed key would need `Seg: Borrow<str>`; traces exist only for objects
        // with residuals.
        if self.children.is_empty() {
            None
        } else {
            self.children.get(&Seg::Field(name.into()))
        }
    }

    pub(crate) fn index(&self, index: usize) -> Option<&Trace> {
        self.children.get(&Seg::Index(index))
    }

    /// Returns the trace at a path; creates it if it is missing.
    pub(crate) fn entry(&mut self, path: &[Seg]) -> &mut Trace {
        let mut here = self;
        for seg in path {
            here = here.children.entry(seg.clone()).or_default();
        }
        here
    }

    pub(crate) fn set(&mut self, hash: u64) {
        self.hash = Some(hash);
    }

    pub(crate) fn attach(&mut self, path: &[Seg], below: Trace) {
        if !below.is_empty() {
            *self.entry(path) = below;
        }
    }

    /// Returns one hash of everything at and below this path.
    pub(crate) fn digest(&self) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        let mut hasher = Inputs::default();
        self.feed(&mut hasher);
        Some(hasher.finish())
    }

    fn feed(&self, into: &mut Inputs) {
        if let Some(hash) = self.hash {
            into.word(hash);
        }
        for child in self.children.values() {
            child.feed(into);
        }
    }
}

/// A hash of inputs. Must never change: guards store it.
#[derive(Debug, Default)]
pub(crate) struct Inputs(Sha256);

impl Inputs {
    pub(crate) fn word(&mut self, word: u64) {
        self.0.update(word.to_be_bytes());
    }

    /// Adds one input; an absent one differs from every value.
    pub(crate) fn value(&mut self, value: Option<&Json>) {
        let Some(value) = value else {
            self.0.update([0]);
            return;
        };
        // Maps are sorted, so that equal values have equal texts.
        let text = value.to_string();
        self.0.update([1]);
        self.word(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    pub(crate) fn finish(self) -> u64 {
        let digest = self.0.finalize();
        digest
            .iter()
            .take(8)
            .fold(0, |word, byte| (word << 8) | u64::from(*byte))
    }
}
