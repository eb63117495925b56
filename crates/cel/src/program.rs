//! A compiled expression: what others hold, share and evaluate.

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

/// What reading a field that is not there means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AbsenceMode {
    /// The expression has no value: version conversion, where partial objects are converted.
    #[default]
    Absent,
    /// `no such key`: Kubernetes' validation rules.
    Error,
}

/// The result of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A value.
    Value(Value),
    /// An absent field was selected, or the result is `optional.none()`.
    Absent,
}

/// A path that an expression reads. Everything beneath the path may be read too (a list's items,
/// say).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The variable.
    pub variable: String,
    /// Fields from there, as stored (escapes undone); ends before the first index that is not
    /// constant.
    pub path: Vec<String>,
    /// Read only where its absence is provided for: under `has()`, `.?`, `orValue`.
    pub tested: bool,
}

/// What an evaluation may cost, from the declared bounds alone. Units are those of [`Budget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// At least.
    pub min: u64,
    /// At most; `u64::MAX` when nothing bounds it.
    pub max: u64,
}

/// An expression, compiled. Immutable and shareable between threads.
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
    pub fn compile(source: &str, variables: &[&str]) -> Result<Program, CompileError> {
        Self::compile_with(source, variables, AbsenceMode::Absent)
    }

    /// The type of its value.
    pub fn result(&self) -> &Type {
        &self.result
    }

    /// What one evaluation may cost.
    pub fn estimate(&self) -> Estimate {
        self.estimate
    }

    /// Whether it can fail for values that are as declared: not so when every part of it is total.
    pub fn can_fail(&self) -> bool {
        self.fallible.is_some()
    }

    /// The first part that can fail for values that are as declared, and how.
    pub fn fallible(&self) -> Option<&Issue> {
        self.fallible.as_ref()
    }

    /// Compiles an expression over variables of any type, saying what absence means in it.
    pub fn compile_with(source: &str, variables: &[&str], mode: AbsenceMode) -> Result<Program, CompileError> {
        let env = variables
            .iter()
            .fold(Env::new(mode), |env, name| env.with(name, Decl::dynamic()));
        let mut program = Self::compile_in(source, &env)?;
        program.numbers = Numbers::Json;
        Ok(program)
    }

    /// Compiles and type-checks an expression in an environment.
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

    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What absence means in it.
    pub fn absence_mode(&self) -> AbsenceMode {
        self.mode
    }

    /// Every path read from a variable, in order of first appearance, each once: a rule's inputs.
    pub fn references(&self) -> &[Reference] {
        &self.lowered.references
    }

    /// Evaluates over borrowed values, charging `budget`. The same inputs give the same outcome and
    /// the same cost.
    pub fn eval<'a>(&'a self, activation: &Activation<'a>, budget: &mut Budget) -> Result<Outcome, EvalError> {
        budget.begin();
        match eval::run(self.code(), activation, budget, 0) {
            Ok(ref value) => json::outcome(value, budget),
            Err(EvalError::Absent) => Ok(Outcome::Absent),
            Err(error) => Err(error),
        }
    }
}
