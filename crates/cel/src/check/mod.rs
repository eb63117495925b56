//! The type checker: what each part of an expression is, or everything that is wrong with it.
//!
//! The rules, the texts of mistakes and their order are those of cel-go as Kubernetes configures
//! it, down to the places where it is lenient: what is not known is `dyn`, and `dyn` passes
//! everywhere. [`unify`] decides which types fit, [`walk`] goes through the tree, [`literals`]
//! looks at constants afterwards, [`total`] says what may still fail when it runs.

mod calls;
mod format;
mod literals;
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
    /// The type of the whole.
    pub(crate) result: Type,
}

impl Checked {
    /// The type of a node; `dyn` for one that has none, as a name that is part of a function's.
    pub(crate) fn ty(&self, id: u64) -> &Type {
        self.types.get(&id).unwrap_or(&Type::Dyn)
    }

    /// The overloads that a call may come to, by their ids (`add_int64`): several where an argument
    /// is `dyn`.
    pub(crate) fn overloads(&self, id: u64) -> &[&'static str] {
        self.overloads.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The full name of what a node refers to: of a variable or type, also where it is written as a
    /// selection (`google.protobuf.Timestamp`), and of the function of a call whose target is part
    /// of the name (`sets.contains`). None for other nodes.
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
        // Conversions make objects of literals, whose fields are of all types.
        AbsenceMode::Absent => literals::Mixtures::Allowed,
    };
    match literals::validate(&parsed.tree, &checked, mixtures) {
        wrong if wrong.is_empty() => Ok(checked),
        wrong => Err(refused(parsed, wrong)),
    }
}

/// Something wrong with a node.
#[derive(Debug)]
struct Wrong {
    node: u64,
    message: String,
}

/// What can still fail when an expression runs on values that are as declared: the first part of
/// it, and how.
pub(crate) fn fallible(parsed: &Parsed, checked: &Checked, env: &Env) -> Option<Issue> {
    let risk = total::risk(&parsed.tree, checked, env.mode)?;
    Some(parsed.issue(risk.node, risk.message))
}

fn refused(parsed: &Parsed, wrong: Vec<Wrong>) -> CompileError {
    let issues: Vec<Issue> = wrong.into_iter().map(|w| parsed.issue(w.node, w.message)).collect();
    CompileError::collect(issues)
}
