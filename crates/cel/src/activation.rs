//! The variables of one evaluation. Values are borrowed: nothing is converted before it is read.

use serde_json::Value;
use smallvec::SmallVec;

/// Names and values for one evaluation.
#[derive(Debug, Default)]
pub struct Activation<'a> {
    bindings: SmallVec<[(&'a str, Binding<'a>); 4]>,
}

#[derive(Debug)]
pub(crate) enum Binding<'a> {
    Borrowed(&'a Value),
    Owned(Value),
    /// An `optional` variable: `oldSelf` under `optionalOldSelf`.
    Optional(Option<&'a Value>),
    Absent,
}

impl<'a> Activation<'a> {
    /// No variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// A variable that borrows its value. A later binding of the same name wins.
    #[must_use]
    pub fn with(self, name: &'a str, value: &'a Value) -> Self {
        self.bind(name, Binding::Borrowed(value))
    }

    /// A variable that owns its value (the key of an entry, say).
    #[must_use]
    pub fn with_owned(self, name: &'a str, value: Value) -> Self {
        self.bind(name, Binding::Owned(value))
    }

    /// A variable without a value: absent where absence is a result, `optional.none()` where it is an error.
    #[must_use]
    pub fn with_absent(self, name: &'a str) -> Self {
        self.bind(name, Binding::Absent)
    }

    /// A variable of type `optional`.
    #[must_use]
    pub fn with_optional(self, name: &'a str, value: Option<&'a Value>) -> Self {
        self.bind(name, Binding::Optional(value))
    }

    fn bind(mut self, name: &'a str, binding: Binding<'a>) -> Self {
        self.bindings.push((name, binding));
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Binding<'a>> {
        self.bindings.iter().rev().find(|(n, _)| *n == name).map(|(_, b)| b)
    }
}
