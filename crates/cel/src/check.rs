//! The type checker: finds the type of each part of an expression, or all its type errors.
//!
//! The rules, messages and their order are those of cel-go as Kubernetes configures it, including
//! its lenient cases: an unknown type is `dyn`, and `dyn` fits everywhere. [`unify`] decides which
//! types fit, [`walk`] visits the tree, [`literals`] validates constants, [`nesting`] bounds the
//! depth of accumulated values, [`total`] finds parts that may fail at run time.

mod calls;
mod format;
mod literals;
mod nesting;
mod ranges;
mod reasons;
mod standard;
mod total;
mod unify;
mod walk;

use crate::env::Env;
use crate::error::{CompileError, Issue};
use crate::parse::Parsed;
use crate::program::AbsenceMode;
use crate::types::Type;
use std::collections::HashMap;

/// An expression that is well typed.
#[derive(Debug)]
pub(crate) struct Checked {
    types: HashMap<u64, Type>,
    overloads: HashMap<u64, Vec<&'static str>>,
    names: HashMap<u64, String>,
    /// The type of the whole expression.
    pub(crate) result: Type,
}

impl Checked {
    /// Returns the type of a node; `dyn` for a node without one, such as a part of a function's
    /// name.
    pub(crate) fn ty(&self, id: u64) -> &Type {
        self.types.get(&id).unwrap_or(&Type::Dyn)
    }

    /// Returns the ids of a call's possible overloads (`add_int64`): several where an argument is
    /// `dyn`.
    pub(crate) fn overloads(&self, id: u64) -> &[&'static str] {
        self.overloads.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Returns the full name that a node refers to: a variable or type, also where it is written as
    /// a selection (`google.protobuf.Timestamp`), or the function of a call whose target is part of
    /// the name (`sets.contains`). `None` for other nodes.
    pub(crate) fn name(&self, id: u64) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }
}

/// Checks an expression in an environment.
pub(crate) fn check(parsed: &Parsed, env: &Env) -> Result<Checked, CompileError> {
    let mut walk = walk::Walk::new(env);
    walk.check(&parsed.tree);
    let checked = walk.finish(&parsed.tree).map_err(|wrong| refused(parsed, wrong))?;
    let mixtures = match env.mode {
        AbsenceMode::Error => literals::Mixtures::Refused,
        // Conversion rules build objects with literals, whose fields are of all types.
        AbsenceMode::Absent => literals::Mixtures::Allowed,
    };
    match literals::validate(&parsed.tree, &checked, mixtures) {
        wrong if wrong.is_empty() => Ok(checked),
        wrong => Err(refused(parsed, wrong)),
    }
}

/// A problem of one node.
#[derive(Debug)]
struct Wrong {
    node: u64,
    message: String,
}

/// Returns the first part of an expression that may fail for values as declared, and the reason.
pub(crate) fn fallible(parsed: &Parsed, checked: &Checked, env: &Env) -> Option<Issue> {
    let risk = total::risk(&parsed.tree, checked, env.mode)?;
    Some(parsed.issue(risk.node, risk.message))
}

fn refused(parsed: &Parsed, wrong: Vec<Wrong>) -> CompileError {
    let issues: Vec<Issue> = wrong.into_iter().map(|w| parsed.issue(w.node, w.message)).collect();
    CompileError::collect(issues)
}
