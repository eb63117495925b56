//! The variables of one evaluation. Values are borrowed and converted only when they are read.

use crate::authorizer::{Authorize, ResourceCheck};
use crate::error::EvalError;
use crate::program::Program;
use crate::value::Val;
use serde_json::Value;
use smallvec::SmallVec;
use std::cell::RefCell;

/// Names and values for one or more evaluations. Results of the expressions of
/// [`Activation::with_programs`] are kept between them.
#[derive(Debug, Default)]
pub struct Activation<'a> {
    bindings: SmallVec<[(&'a str, Binding<'a>); 3]>,
}

/// The value of one variable. Small in every variant: each evaluation makes and moves activations.
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

/// Expressions that are fields of a variable. Each is evaluated when it is first read.
#[derive(Debug)]
pub(crate) struct Programs<'a> {
    pub(crate) named: &'a [(String, Program)],
    /// One state for each expression of `named`.
    pub(crate) found: RefCell<Vec<Found<'a>>>,
}

/// State of an expression that is a field of a variable.
#[derive(Debug, Clone)]
pub(crate) enum Found<'a> {
    NotYet,
    /// Being evaluated. Reading it now would be a cycle.
    Running,
    Done(Result<Val<'a>, EvalError>),
}

impl<'a> Activation<'a> {
    /// Returns an activation without variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable that borrows its value. A later binding of the same name wins.
    #[must_use]
    pub fn with(self, name: &'a str, value: &'a Value) -> Self {
        self.bind(name, Binding::Borrowed(value))
    }

    /// Adds a variable that owns its value, such as the key of an entry.
    #[must_use]
    pub fn with_owned(self, name: &'a str, value: Value) -> Self {
        self.bind(name, Binding::Owned(Box::new(value)))
    }

    /// Adds a variable without a value. Reading it gives absence under
    /// [`crate::AbsenceMode::Absent`] and `optional.none()` under [`crate::AbsenceMode::Error`].
    #[must_use]
    pub fn with_absent(self, name: &'a str) -> Self {
        self.bind(name, Binding::Absent)
    }

    /// Adds a variable of type `optional`.
    #[must_use]
    pub fn with_optional(self, name: &'a str, value: Option<&'a Value>) -> Self {
        self.bind(name, Binding::Optional(value))
    }

    /// Adds a variable that answers authorization checks.
    #[must_use]
    pub fn with_authorizer(self, name: &'a str, authorizer: &'a dyn Authorize) -> Self {
        self.bind(name, Binding::Authorizer(authorizer))
    }

    /// Adds a variable that is an authorization check with its resource set:
    /// `authorizer.requestResource`.
    #[must_use]
    pub fn with_resource_check(self, name: &'a str, authorizer: &'a dyn Authorize, check: ResourceCheck) -> Self {
        self.bind(name, Binding::ResourceCheck(Box::new((authorizer, check))))
    }

    /// Adds a variable whose fields are expressions over the same activation (`variables.x` of a
    /// policy). An expression is evaluated at most once, on the first read, and that reader is
    /// charged. An expression may read those before it.
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
