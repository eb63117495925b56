//! What an expression may use: variables with their declarations, and what a missing field means.

use crate::decl::{Decl, Field};
use crate::program::AbsenceMode;
use crate::types::Type;

/// The environment of an expression. Everything of Kubernetes' library is in it;
/// [`Env::authorizer`] and [`Env::json_patch`] add what only admission policies have.
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

    /// A type that literals may be made of (`Object.spec{replicas: 3}`): those of patches, where
    /// the environment has them. Objects take any field, as the schema of what is patched is not
    /// known here.
    pub(crate) fn literal(&self, name: &str) -> Option<Decl> {
        let known = self.json_patch && (name == JSON_PATCH || name == OBJECT || is_part_of_object(name));
        known.then(|| {
            let fields = if name == JSON_PATCH {
                json_patch_fields()
            } else {
                Vec::new()
            };
            Decl::object(name, fields)
        })
    }

    /// The type of a declared field, by its name in expressions. A word that CEL reserves needs no
    /// escape after a dot.
    pub(crate) fn field(&self, decl: &Decl, name: &str) -> Option<Type> {
        if self.json_patch && (decl.name() == OBJECT || is_part_of_object(decl.name())) {
            return Some(Type::Dyn);
        }
        let reserved = || decl.written(&format!("__{name}__")).filter(|f| *f.name == *name);
        let field = decl.written(name).or_else(reserved)?;
        Some(field.decl.ty())
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

const JSON_PATCH: &str = "JSONPatch";
const OBJECT: &str = "Object";

fn is_part_of_object(name: &str) -> bool {
    name.strip_prefix(OBJECT).is_some_and(|rest| rest.starts_with('.'))
}

fn json_patch_fields() -> Vec<Field> {
    let types = [
        ("from", Type::String),
        ("op", Type::String),
        ("path", Type::String),
        ("value", Type::Dyn),
    ];
    types
        .into_iter()
        .map(|(name, ty)| Field {
            name: name.into(),
            written: name.into(),
            decl: Decl::scalar(ty),
        })
        .collect()
}
