//! What an expression may use: variables with their declarations, and what a missing field means.

use crate::decl::Decl;
use crate::program::AbsenceMode;

/// The environment of an expression. Everything of Kubernetes' library is in it; [`Env::authorizer`] and
/// [`Env::json_patch`] add what only admission policies have.
#[derive(Debug, Clone)]
pub struct Env {
    pub(crate) variables: Vec<Variable>,
    pub(crate) mode: AbsenceMode,
    pub(crate) authorizer: bool,
    pub(crate) json_patch: bool,
}

/// A declared variable.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) name: Box<str>,
    pub(crate) decl: Decl,
    /// Its type is `optional_type(T)`.
    pub(crate) optional: bool,
}

impl Env {
    /// An environment without variables.
    pub fn new(mode: AbsenceMode) -> Env {
        Env {
            variables: Vec::new(),
            mode,
            authorizer: false,
            json_patch: false,
        }
    }

    /// Declares a variable; one of the same name is replaced.
    #[must_use]
    pub fn with(mut self, name: &str, decl: Decl) -> Env {
        self.declare(name, decl, false);
        self
    }

    /// Declares a variable of type `optional_type(T)`.
    #[must_use]
    pub fn with_optional(mut self, name: &str, decl: Decl) -> Env {
        self.declare(name, decl, true);
        self
    }

    /// Adds the library of authorisation checks (`authorizer.path('/x').check('get').allowed()`).
    #[must_use]
    pub fn authorizer(mut self) -> Env {
        self.authorizer = true;
        self
    }

    /// Adds `JSONPatch{}`, `Object{}` and `jsonpatch.escapeKey`, which mutating policies have.
    #[must_use]
    pub fn json_patch(mut self) -> Env {
        self.json_patch = true;
        self
    }

    fn declare(&mut self, name: &str, decl: Decl, optional: bool) {
        self.variables.retain(|v| *v.name != *name);
        self.variables.push(Variable {
            name: name.into(),
            decl,
            optional,
        });
    }
}
