//! Paths of values during a walk, kept on the stack and rendered only for errors.

use insula_api::FieldPath;
use std::fmt::Write;

/// One step from a value to a part of it.
#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Key(&'a str),
    Index(usize),
}

/// A path as a linked list of stack frames.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValuePath<'a> {
    parent: Option<&'a ValuePath<'a>>,
    step: Step<'a>,
}

/// Notation of map entries: `spec.sizes.x` in schema errors, `spec.sizes[x]` elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    Dotted,
    Bracketed,
}

impl<'a> ValuePath<'a> {
    pub(crate) const ROOT: ValuePath<'static> = ValuePath {
        parent: None,
        step: Step::Root,
    };

    pub(crate) fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }

    pub(crate) fn field(&'a self, name: &'a str) -> ValuePath<'a> {
        ValuePath {
            parent: Some(self),
            step: Step::Field(name),
        }
    }

    pub(crate) fn key(&'a self, key: &'a str) -> ValuePath<'a> {
        ValuePath {
            parent: Some(self),
            step: Step::Key(key),
        }
    }

    pub(crate) fn index(&'a self, index: usize) -> ValuePath<'a> {
        ValuePath {
            parent: Some(self),
            step: Step::Index(index),
        }
    }

    pub(crate) fn text(&self, keys: Keys) -> String {
        let mut steps = Vec::new();
        let mut at = Some(self);
        while let Some(here) = at {
            steps.push(here.step);
            at = here.parent;
        }
        let mut out = String::new();
        for step in steps.iter().rev() {
            match step {
                Step::Root => {}
                Step::Key(key) if keys == Keys::Bracketed => {
                    let _ = write!(out, "[{key}]");
                }
                Step::Field(name) | Step::Key(name) => {
                    if !out.is_empty() {
                        out.push('.');
                    }
                    out.push_str(name);
                }
                Step::Index(index) => {
                    let _ = write!(out, "[{index}]");
                }
            }
        }
        out
    }

    pub(crate) fn path(&self, keys: Keys) -> FieldPath {
        let text = self.text(keys);
        if text.is_empty() {
            FieldPath::root()
        } else {
            FieldPath::new(&text)
        }
    }
}

/// Joins `base` and `below`, which may be empty or start with an index.
pub(crate) fn join(base: &FieldPath, below: &FieldPath) -> FieldPath {
    if below.is_root() {
        base.clone()
    } else if base.is_root() {
        below.clone()
    } else if below.as_str().starts_with('[') {
        FieldPath::new(&format!("{base}{below}"))
    } else {
        FieldPath::new(&format!("{base}.{below}"))
    }
}
