//! Compiled expressions: the shared, immutable values that other crates evaluate.

use crate::activation::Activation;
use crate::check::{check, fallible};
use crate::constant;
use crate::cost::Budget;
use crate::decl::Decl;
use crate::env::Env;
use crate::error::{CompileError, EvalError, Issue};
use crate::estimate::{Range, estimate};
use crate::eval::{self, Code, Numbers, Variable};
use crate::json;
use crate::lower::{Lowered, lower};
use crate::parse::parse;
use crate::scan::scan;
use crate::typed;
use crate::types::Type;
use serde_json::Value;

/// Meaning of reading an absent field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AbsenceMode {
    /// The expression has no value. Used by version conversion, which converts partial objects.
    #[default]
    Absent,
    /// The error `no such key`. Used by Kubernetes' validation rules.
    Error,
}

/// Result of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A JSON value.
    Value(Value),
    /// No value: an absent field was selected, or the result is `optional.none()`.
    Absent,
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

/// Bounds of an evaluation's cost from the declared bounds alone, in the units of [`Budget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Lower bound.
    pub min: u64,
    /// Upper bound; `u64::MAX` if there is none.
    pub max: u64,
}

/// A compiled expression. Immutable and shareable between threads.
#[derive(Debug)]
pub struct Program {
    source: Box<str>,
    mode: AbsenceMode,
    result: Type,
    estimate: Estimate,
    variables: Vec<Variable>,
    numbers: Numbers,
    fallible: Option<Issue>,
    lowered: Lowered,
}

impl Program {
    /// Compiles an expression in which absence is a result. `variables` are the names it may use.
    ///
    /// # Errors
    ///
    /// Returns all issues of a source that does not parse or type-check or exceeds a limit.
    pub fn compile(source: &str, variables: &[&str]) -> Result<Program, CompileError> {
        Self::compile_with(source, variables, AbsenceMode::Absent)
    }

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

    /// Compiles an expression over variables of any type, with the given meaning of absence.
    ///
    /// # Errors
    ///
    /// As [`Program::compile`].
    pub fn compile_with(source: &str, variables: &[&str], mode: AbsenceMode) -> Result<Program, CompileError> {
        let env = variables
            .iter()
            .fold(Env::new(mode), |env, name| env.with(name, Decl::dynamic()));
        let mut program = Self::compile_in(source, &env)?;
        program.numbers = Numbers::Json;
        Ok(program)
    }

    /// Compiles and type-checks an expression in an environment.
    ///
    /// # Errors
    ///
    /// As [`Program::compile`].
    pub fn compile_in(source: &str, env: &Env) -> Result<Program, CompileError> {
        scan(source)?;
        let parsed = parse(source)?;
        let checked = check(&parsed, env)?;
        let Range { min, max } = estimate(&parsed, &checked, env);
        let mut lowered = lower(&parsed, &checked, env)?;
        constant::fold(&mut lowered.node).map_err(|failure| CompileError::constant(&failure))?;
        let used = std::mem::take(&mut lowered.variables).into_iter();
        let variables = used.map(|name| {
            let declared = env.variables.iter().find(|v| *v.name == *name);
            let declared = declared.and_then(|v| typed::known(&v.decl).cloned());
            Variable { name, declared }
        });
        Ok(Program {
            source: source.into(),
            mode: env.mode,
            fallible: fallible(&parsed, &checked, env),
            result: checked.result,
            estimate: Estimate { min, max },
            variables: variables.collect(),
            numbers: Numbers::Typed,
            lowered,
        })
    }

    pub(crate) fn code(&self) -> Code<'_> {
        Code {
            node: &self.lowered.node,
            variables: &self.variables,
            mode: self.mode,
            numbers: self.numbers,
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

    /// Evaluates the expression over borrowed values and charges `budget`. The same inputs give the
    /// same outcome and the same cost.
    ///
    /// # Errors
    ///
    /// Fails if the expression has no value for these inputs, or if a limit of `budget` is reached.
    pub fn eval<'a>(&'a self, activation: &Activation<'a>, budget: &mut Budget) -> Result<Outcome, EvalError> {
        budget.begin();
        match eval::run(self.code(), activation, budget, 0) {
            Ok(ref value) => json::outcome(value, budget),
            Err(EvalError::Absent) => Ok(Outcome::Absent),
            Err(error) => Err(error),
        }
    }
}
