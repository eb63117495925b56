//! Compiled expressions: the shared, immutable values that other crates evaluate.

use crate::decl::Decl;
use crate::error::Issue;
use crate::ir::Node;
use crate::lookups::Lookup;
use crate::regex::Pattern;
use crate::types::Type;

/// Meaning of reading an absent field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AbsenceMode {
    /// The expression has no value. Used by version conversion, which converts partial objects.
    #[default]
    Absent,
    /// The error `no such key`. Used by Kubernetes' validation rules.
    Error,
}

/// A path that an expression reads. It may read everything beneath the path too, such as a list's
/// items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Name of the variable.
    pub variable: String,
    /// Stored names of the fields (escapes decoded), up to the first index that is not constant.
    pub path: Vec<String>,
    /// True if every read provides for absence: under `has()`, `.?`, `orValue`.
    pub tested: bool,
}

/// Bounds of an evaluation's cost from the declared bounds alone, in the units of
/// [`crate::Budget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Lower bound.
    pub min: u64,
    /// Upper bound; `u64::MAX` if there is none.
    pub max: u64,
}

/// Result of lowering.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(crate) node: Node,
    /// Variables in use; a `Node::Variable` is an index here.
    pub(crate) variables: Vec<String>,
    pub(crate) references: Vec<Reference>,
    pub(crate) lookups: Vec<Lookup>,
    /// Constant patterns of `find` and `findAll`.
    pub(crate) patterns: Vec<Pattern>,
}

/// A variable of a program.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    /// The declaration; `None` for a value of any type.
    pub(crate) declared: Option<Decl>,
}

/// Parts of a program that an evaluation needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Code<'v> {
    pub(crate) node: &'v Node,
    /// Variables in the order of the tree's slots.
    pub(crate) variables: &'v [Variable],
    pub(crate) mode: AbsenceMode,
    pub(crate) numbers: Numbers,
    /// Constant patterns of `find` and `findAll`.
    pub(crate) patterns: &'v [Pattern],
}

/// Treatment of an integer beside a double.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// Different types: the operator has no such overload.
    Typed,
    /// Numbers read from JSON, where both are one type.
    Json,
}

/// A compiled expression. Immutable and shareable between threads.
#[derive(Debug)]
pub struct Program {
    pub(crate) source: Box<str>,
    pub(crate) mode: AbsenceMode,
    pub(crate) result: Type,
    pub(crate) estimate: Estimate,
    pub(crate) variables: Vec<Variable>,
    pub(crate) numbers: Numbers,
    pub(crate) fallible: Option<Issue>,
    pub(crate) lowered: Lowered,
}

impl Program {
    /// Returns the type of the expression's value.
    pub fn result(&self) -> &Type {
        &self.result
    }

    /// Returns the bounds of the cost of one evaluation.
    pub fn estimate(&self) -> Estimate {
        self.estimate
    }

    /// Returns true if the evaluation may fail for values as declared: some part of it is not
    /// total.
    pub fn can_fail(&self) -> bool {
        self.fallible.is_some()
    }

    /// Returns the first part that may fail for values as declared, with the reason.
    pub fn fallible(&self) -> Option<&Issue> {
        self.fallible.as_ref()
    }

    pub(crate) fn code(&self) -> Code<'_> {
        Code {
            node: &self.lowered.node,
            variables: &self.variables,
            mode: self.mode,
            numbers: self.numbers,
            patterns: &self.lowered.patterns,
        }
    }

    /// Returns the source text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the meaning of absence.
    pub fn absence_mode(&self) -> AbsenceMode {
        self.mode
    }

    /// Returns the inputs of the expression: every path read from a variable, once, in order of
    /// first appearance.
    pub fn references(&self) -> &[Reference] {
        &self.lowered.references
    }

    /// Returns the look-ups in map literals that every evaluation makes.
    pub fn lookups(&self) -> &[Lookup] {
        &self.lowered.lookups
    }
}
