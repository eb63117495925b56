//! Origins of values in the declared variables, which carry the bounds.

use super::Range;
use crate::decl::{Decl, Shape};
use crate::env::Env;

/// The origin of a value.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// Computed by the expression, not read from a variable.
    Computed,
    /// Read from a variable, below an undeclared part.
    Undeclared,
    /// Read from a declared part of a variable.
    Declared(Decl),
}

/// One step down from a value to its parts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step<'a> {
    Field(&'a str),
    Keys,
    Indexes,
    Values,
}

impl Origin {
    pub(super) fn variable(env: &Env, name: &str) -> Origin {
        match env.variables.iter().find(|v| *v.name == *name) {
            Some(variable) => Origin::Declared(variable.decl.clone()),
            None => Origin::first(env),
        }
    }

    /// Returns the first variable. Kubernetes resolves every path from the validated value,
    /// whatever its root name: a part of a computed value gets the bounds of that value itself.
    fn first(env: &Env) -> Origin {
        match env.variables.first() {
            Some(variable) => Origin::Declared(variable.decl.clone()),
            None => Origin::Undeclared,
        }
    }

    pub(super) fn step(&self, env: &Env, step: Step<'_>) -> Origin {
        let decl = match self {
            Origin::Computed => return Origin::first(env),
            Origin::Undeclared => return Origin::Undeclared,
            Origin::Declared(decl) => decl,
        };
        match (step, decl.shape()) {
            (Step::Field(name), Shape::Object { .. }) => match decl.written(name) {
                Some(field) => Origin::Declared(field.decl.clone()),
                None => Origin::Undeclared,
            },
            (Step::Values, Shape::List { items: values, .. } | Shape::Map { values }) => {
                Origin::Declared(values.clone())
            }
            // Kubernetes does not bound keys; it counts them as empty.
            (Step::Keys, Shape::Map { .. }) => {
                Origin::Declared(Decl::scalar(crate::types::Type::String).bounded(Some(0), 2))
            }
            _ => Origin::Undeclared,
        }
    }

    /// Returns the declared size, if there is a bound.
    pub(super) fn size(&self) -> Option<Range> {
        match self {
            Origin::Declared(decl) => decl.max_elements().map(Range::up_to),
            Origin::Computed | Origin::Undeclared => None,
        }
    }
}
