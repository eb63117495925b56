//! Environments of expressions: variables with their declarations, and the meaning of a missing
//! field.

use crate::decl::{Decl, Field};
use crate::program::AbsenceMode;
use crate::types::Type;

/// Environment of an expression. Kubernetes' library is always available; [`Env::authorizer`] and
/// [`Env::json_patch`] add the functions that only admission policies have, [`Env::conversion`]
/// those that only conversion rules have.
#[derive(Debug, Clone)]
pub struct Env {
    pub(crate) variables: Vec<Variable>,
    pub(crate) mode: AbsenceMode,
    pub(crate) authorizer: bool,
    pub(crate) json_patch: bool,
    pub(crate) conversion: bool,
    /// Most elements of a value whose size nothing else bounds.
    pub(crate) largest: Option<u64>,
}

/// A declared variable.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) name: Box<str>,
    pub(crate) decl: Decl,
    /// True for a variable of type `optional_type(T)`.
    pub(crate) optional: bool,
}

impl Env {
    /// Returns an environment without variables.
    pub fn new(mode: AbsenceMode) -> Env {
        Env {
            variables: Vec::new(),
            mode,
            authorizer: false,
            json_patch: false,
            conversion: false,
            largest: None,
        }
    }

    /// Declares a variable and replaces one of the same name.
    #[must_use]
    pub fn with(mut self, name: &str, decl: Decl) -> Env {
        self.declare(name, decl, false);
        self
    }

    /// Bounds the values whose size neither a declaration nor a function determines, in bytes of a
    /// text and elements of a list or map. A computed value is as large as its operands.
    #[must_use]
    pub fn with_largest(mut self, elements: u64) -> Env {
        self.largest = Some(elements);
        self
    }

    /// Declares a variable of type `optional_type(T)`.
    #[must_use]
    pub fn with_optional(mut self, name: &str, decl: Decl) -> Env {
        self.declare(name, decl, true);
        self
    }

    /// Adds the library of authorization checks (`authorizer.path('/x').check('get').allowed()`).
    #[must_use]
    pub fn authorizer(mut self) -> Env {
        self.authorizer = true;
        self
    }

    /// Adds `JSONPatch{}`, `Object{}` and `jsonpatch.escapeKey` for mutating policies.
    #[must_use]
    pub fn json_patch(mut self) -> Env {
        self.json_patch = true;
        self
    }

    /// Adds the library of conversion rules: `math.*` as in cel-go's extension, `json.encode` and
    /// `json.decode`, the same of `yaml`, `durations.format` and `durations.fromSeconds`.
    #[must_use]
    pub fn conversion(mut self) -> Env {
        self.conversion = true;
        self
    }

    /// Returns the type of an object literal (`Object.spec{replicas: 3}`), if the environment has
    /// patches. Objects accept any field, since the schema of the patched object is unknown here.
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

    /// Returns the type of a declared field by its name in expressions. A reserved word needs no
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
