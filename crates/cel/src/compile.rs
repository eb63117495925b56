//! Compilation of expressions: scan, parse, check, estimate, lower, fold constants.

use crate::check::{check, fallible};
use crate::constant;
use crate::decl::Decl;
use crate::env::Env;
use crate::error::CompileError;
use crate::estimate::{Range, estimate};
use crate::lower::lower;
use crate::parse::parse;
use crate::program::{AbsenceMode, Estimate, Numbers, Program, Variable};
use crate::scan::scan;
use crate::typed;

impl Program {
    /// Compiles an expression in which absence is a result. `variables` are the names it may use.
    ///
    /// # Errors
    ///
    /// Returns all issues of a source that does not parse or type-check or exceeds a limit.
    pub fn compile(source: &str, variables: &[&str]) -> Result<Program, CompileError> {
        Self::compile_with(source, variables, AbsenceMode::Absent)
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

    /// Estimates the cost of an expression in an environment without compiling it.
    ///
    /// # Errors
    ///
    /// As [`Program::compile`].
    pub fn estimate_in(source: &str, env: &Env) -> Result<Estimate, CompileError> {
        scan(source)?;
        let parsed = parse(source, env.conversion)?;
        let checked = check(&parsed, env)?;
        let Range { min, max } = estimate(&parsed, &checked, env);
        Ok(Estimate { min, max })
    }

    /// Compiles and type-checks an expression in an environment.
    ///
    /// # Errors
    ///
    /// As [`Program::compile`].
    pub fn compile_in(source: &str, env: &Env) -> Result<Program, CompileError> {
        scan(source)?;
        let parsed = parse(source, env.conversion)?;
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
}
