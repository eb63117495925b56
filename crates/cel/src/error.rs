//! What can go wrong: at compile time with a place in the source, at run time with cel-go's words.

use std::fmt;

/// A source text that is not a program. Shown as cel-go shows it: position, line, caret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// What is wrong, without the position.
    pub message: String,
    /// Line, from 1; 0 when the place is not known.
    pub line: u32,
    /// Column in code points, from 1; 0 when the place is not known.
    pub column: u32,
    snippet: String,
}

impl CompileError {
    /// An error without a place: a limit, or a property of the whole expression.
    pub(crate) fn whole(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            line: 0,
            column: 0,
            snippet: String::new(),
        }
    }

    /// An error at a byte offset of `source`.
    pub(crate) fn at(source: &str, offset: usize, message: impl Into<String>) -> Self {
        let before = source.get(..offset).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        let line = before.matches('\n').count() + 1;
        let column = before.get(line_start..).map_or(0, |s| s.chars().count()) + 1;
        let snippet = source
            .get(line_start..)
            .and_then(|s| s.lines().next())
            .unwrap_or_default();
        Self {
            message: message.into(),
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
            snippet: snippet.to_owned(),
        }
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return write!(f, "ERROR: <input>: {}", self.message);
        }
        write!(f, "ERROR: <input>:{}:{}: {}", self.line, self.column, self.message)?;
        let dots = ".".repeat(self.column.saturating_sub(1) as usize);
        write!(f, "\n | {}\n | {dots}^", self.snippet)
    }
}

impl std::error::Error for CompileError {}

/// Why an evaluation has no value. Texts are cel-go's; none of them holds a tenant's data but for the key of a
/// failed lookup, which comes from the expression or from the object being evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// A field or key that the value lacks was read.
    #[error("no such key: {0}")]
    NoSuchKey(String),
    /// A variable that the program uses was not given by the caller.
    #[error("no such attribute(s): {0}")]
    NoSuchAttribute(String),
    /// No meaning of the function or operator fits the types of its arguments.
    #[error("no such overload: {function}")]
    NoSuchOverload {
        /// The function, or the operator as cel-go names it (`_+_`).
        function: &'static str,
    },
    /// `x / 0`.
    #[error("division by zero")]
    DivisionByZero,
    /// `x % 0`.
    #[error("modulus by zero")]
    ModulusByZero,
    /// A result does not fit its type.
    #[error("{0} overflow")]
    Overflow(&'static str),
    /// A list has no such element.
    #[error("index out of bounds: {0}")]
    IndexOutOfBounds(i64),
    /// An argument of the right type with an unusable value.
    #[error("{0}")]
    InvalidArgument(String),
    /// The budget's cost units are used up.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostExceeded,
    /// The values made by this evaluation need more memory than allowed.
    #[error("operation cancelled: memory limit exceeded")]
    MemoryExceeded,
    /// Values nested too deeply to walk.
    #[error("operation cancelled: nesting limit exceeded")]
    DepthExceeded,
    /// An absent field was read. Travels like an error inside an expression; callers of `eval` get
    /// `Outcome::Absent` instead.
    #[error("no value")]
    Absent,
}

impl EvalError {
    /// Exhausted resources end the evaluation; `||`, `&&`, `exists` and `all` may absorb every other error.
    pub(crate) fn is_fatal(&self) -> bool {
        matches!(self, Self::CostExceeded | Self::MemoryExceeded | Self::DepthExceeded)
    }
}

pub(crate) fn no_overload(function: &'static str) -> EvalError {
    EvalError::NoSuchOverload { function }
}

pub(crate) fn invalid(message: impl Into<String>) -> EvalError {
    EvalError::InvalidArgument(message.into())
}
