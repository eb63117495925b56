//! The variables of one evaluation. Values are borrowed: nothing is converted before it is read.

use crate::functions::{Authorize, ResourceCheck};
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
    Authorizer(&'a dyn Authorize),
    ResourceCheck(&'a dyn Authorize, ResourceCheck),
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

    /// A variable that answers authorisation checks.
    #[must_use]
    pub fn with_authorizer(self, name: &'a str, authorizer: &'a dyn Authorize) -> Self {
        self.bind(name, Binding::Authorizer(authorizer))
    }

    /// A variable that is a check already narrowed down: `authorizer.requestResource`.
    #[must_use]
    pub fn with_resource_check(self, name: &'a str, authorizer: &'a dyn Authorize, check: ResourceCheck) -> Self {
        self.bind(name, Binding::ResourceCheck(authorizer, check))
    }

    fn bind(mut self, name: &'a str, binding: Binding<'a>) -> Self {
        self.bindings.push((name, binding));
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Binding<'a>> {
        self.bindings.iter().rev().find(|(n, _)| *n == name).map(|(_, b)| b)
    }
}
