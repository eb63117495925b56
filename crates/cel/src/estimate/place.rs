//! Where a value lies in the declared variables, which is what knows its bounds.

use super::Range;
use crate::decl::{Decl, Shape};
use crate::env::Env;

/// The place of a value.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// Not in a variable: it was made by the expression.
    Nowhere,
    /// Reached from a variable, over something that is not declared.
    Undeclared,
    /// Declared.
    At(Decl),
}

/// One step down.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step<'a> {
    Field(&'a str),
    Keys,
    Indexes,
    Values,
}

impl Place {
    pub(super) fn variable(env: &Env, name: &str) -> Place {
        match env.variables.iter().find(|v| *v.name == *name) {
            Some(variable) => Place::At(variable.decl.clone()),
            None => Place::first(env),
        }
    }

    /// Kubernetes takes every path for one from the validated value, whatever name it begins with:
    /// a part of a made value is as large as that value itself may be.
    fn first(env: &Env) -> Place {
        match env.variables.first() {
            Some(variable) => Place::At(variable.decl.clone()),
            None => Place::Undeclared,
        }
    }

    pub(super) fn step(&self, env: &Env, step: Step<'_>) -> Place {
        let decl = match self {
            Place::Nowhere => return Place::first(env),
            Place::Undeclared => return Place::Undeclared,
            Place::At(decl) => decl,
        };
        match (step, decl.shape()) {
            (Step::Field(name), Shape::Object { .. }) => match decl.written(name) {
                Some(field) => Place::At(field.decl.clone()),
                None => Place::Undeclared,
            },
            (Step::Values, Shape::List { items: values, .. } | Shape::Map { values }) => Place::At(values.clone()),
            // Kubernetes does not bound keys; it takes them for empty.
            (Step::Keys, Shape::Map { .. }) => Place::At(Decl::scalar(crate::types::Type::String).bounded(Some(0), 2)),
            _ => Place::Undeclared,
        }
    }

    /// What is declared of the size.
    pub(super) fn size(&self) -> Option<Range> {
        match self {
            Place::At(decl) => decl.max_elements().map(Range::up_to),
            Place::Nowhere | Place::Undeclared => None,
        }
    }
}
