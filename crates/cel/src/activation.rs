//! The variables of one evaluation. Values are borrowed: nothing is converted before it is read.

use crate::error::EvalError;
use crate::functions::{Authorize, ResourceCheck};
use crate::program::Program;
use crate::value::Val;
use serde_json::Value;
use smallvec::SmallVec;
use std::cell::RefCell;

/// Names and values for one evaluation, or for several: what [`Activation::with_programs`] found
/// out is kept.
#[derive(Debug, Default)]
pub struct Activation<'a> {
    bindings: SmallVec<[(&'a str, Binding<'a>); 3]>,
}

/// Small, whatever it is: activations are made for every evaluation, and moved.
#[derive(Debug)]
pub(crate) enum Binding<'a> {
    Borrowed(&'a Value),
    Owned(Box<Value>),
    /// An `optional` variable: `oldSelf` under `optionalOldSelf`.
    Optional(Option<&'a Value>),
    Absent,
    Authorizer(&'a dyn Authorize),
    ResourceCheck(Box<(&'a dyn Authorize, ResourceCheck)>),
    Programs(Box<Programs<'a>>),
}

/// Expressions that are fields of a variable, each evaluated when it is first read.
#[derive(Debug)]
pub(crate) struct Programs<'a> {
    pub(crate) named: &'a [(String, Program)],
    /// One for each of `named`.
    pub(crate) found: RefCell<Vec<Found<'a>>>,
}

/// How far an expression is.
#[derive(Debug, Clone)]
pub(crate) enum Found<'a> {
    NotYet,
    /// Being evaluated: to read it now would go round in a circle.
    Running,
    Done(Result<Val<'a>, EvalError>),
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
        self.bind(name, Binding::Owned(Box::new(value)))
    }

    /// A variable without a value: absent where absence is a result, `optional.none()` where it is
    /// an error.
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
        self.bind(name, Binding::ResourceCheck(Box::new((authorizer, check))))
    }

    /// A variable whose fields are expressions over the same activation (`variables.x` of a
    /// policy). Each is evaluated at most once, when it is first read; whoever reads it first pays
    /// for it. One may read those before it.
    #[must_use]
    pub fn with_programs(self, name: &'a str, programs: &'a [(String, Program)]) -> Self {
        let programs = Programs {
            named: programs,
            found: RefCell::new(vec![Found::NotYet; programs.len()]),
        };
        self.bind(name, Binding::Programs(Box::new(programs)))
    }

    fn bind(mut self, name: &'a str, binding: Binding<'a>) -> Self {
        self.bindings.push((name, binding));
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Binding<'a>> {
        self.bindings.iter().rev().find(|(n, _)| *n == name).map(|(_, b)| b)
    }
}
