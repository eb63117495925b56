//! What can go wrong: at compile time with a place in the source, at run time with cel-go's words.

use std::fmt;

/// A source text that is not a program: everything that is wrong with it. Shown as cel-go shows it: position, line
/// and caret of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// What is wrong, by place; never empty.
    pub issues: Vec<Issue>,
}

/// One thing that is wrong with a source text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// What is wrong, without the position.
    pub message: String,
    /// Line, from 1; 0 when the place is not known.
    pub line: u32,
    /// Column in code points, from 1; 0 when the place is not known.
    pub column: u32,
    /// The line's text.
    pub snippet: String,
}

impl CompileError {
    /// Several issues, put in order of their places.
    pub(crate) fn collect(mut issues: Vec<Issue>) -> Self {
        issues.sort_by_key(|i| (i.line, i.column));
        Self { issues }
    }

    /// An error without a place: a limit, or a property of the whole expression.
    pub(crate) fn whole(message: impl Into<String>) -> Self {
        Self::collect(vec![Issue::whole(message)])
    }

    /// An error at a byte offset of `source`.
    pub(crate) fn at(source: &str, offset: usize, message: impl Into<String>) -> Self {
        Self::collect(vec![Issue::at(source, offset, message)])
    }
}

impl Issue {
    /// An issue without a place.
    pub(crate) fn whole(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            line: 0,
            column: 0,
            snippet: String::new(),
        }
    }

    /// An issue at a byte offset of `source`.
    pub(crate) fn at(source: &str, offset: usize, message: impl Into<String>) -> Self {
        let before = source.get(..offset).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        let line = before.matches('\n').count() + 1;
        let column = before.get(line_start..).map_or(0, |s| s.chars().count()) + 1;
        Self::on(source, saturate(line), saturate(column), message)
    }

    /// An issue at a line and a column of `source`, both from 1.
    pub(crate) fn on(source: &str, line: u32, column: u32, message: impl Into<String>) -> Self {
        let snippet = source
            .split('\n')
            .nth(line.saturating_sub(1) as usize)
            .unwrap_or_default();
        Self {
            message: message.into(),
            line,
            column,
            snippet: snippet.to_owned(),
        }
    }
}

fn saturate(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Issues shown; a source of 2,000 tokens could have as many.
const SHOWN_MAX: usize = 100;

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, issue) in self.issues.iter().take(SHOWN_MAX).enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            write!(f, "{separator}{issue}")?;
        }
        match self.issues.len().checked_sub(SHOWN_MAX) {
            Some(more @ 1..) => write!(f, "\n{more} more errors were truncated"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Issue {
    /// Tabs count as one column, and a character of several bytes is marked by a wide dot, as it may be wide itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return write!(f, "ERROR: <input>: {}", self.message);
        }
        write!(f, "ERROR: <input>:{}:{}: {}", self.line, self.column, self.message)?;
        write!(f, "\n | {}\n | ", self.snippet.replace('\t', " "))?;
        let mut line = self.snippet.chars();
        for c in line.by_ref().take(self.column.saturating_sub(1) as usize) {
            f.write_str(if c.len_utf8() > 1 { "．" } else { "." })?;
        }
        f.write_str(match line.next() {
            Some(c) if c.len_utf8() > 1 => "＾",
            _ => "^",
        })
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
