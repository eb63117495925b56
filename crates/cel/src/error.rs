//! Compile errors with their positions in the source, and run-time errors with cel-go's messages.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A source text that does not compile, with all its issues. Displayed as cel-go does: position,
/// line and caret of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// The issues in order of position: at least one, at most the first hundred.
    pub issues: Vec<Issue>,
    /// Number of issues beyond those listed.
    more: usize,
    phase: CompilePhase,
}

/// Phase of compilation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CompilePhase {
    /// Parsing or type checking.
    Compilation,
    /// Constant folding: a constant part always fails.
    Instantiation,
}

/// One problem of a source text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The message without the position.
    pub message: String,
    /// Line, from 1; 0 without a position.
    pub line: u32,
    /// Column in code points, from 1; 0 without a position.
    pub column: u32,
    /// Text of the line, shared by the issues of one line.
    pub snippet: Arc<str>,
}

/// Maximum number of issues listed; a source of 2,000 tokens could have as many.
const ISSUES_MAX: usize = 100;

impl CompileError {
    /// Collects issues in order of position.
    pub(crate) fn collect(mut issues: Vec<Issue>) -> Self {
        issues.sort_by_key(|i| (i.line, i.column));
        let more = issues.len().saturating_sub(ISSUES_MAX);
        issues.truncate(ISSUES_MAX);
        Self {
            issues,
            more,
            phase: CompilePhase::Compilation,
        }
    }

    /// Returns the error of a constant part that always fails. Kubernetes finds those when it plans
    /// a program, and gives no position.
    pub(crate) fn constant(failure: &EvalError) -> Self {
        Self::planning(failure.to_string())
    }

    /// Returns an error that Kubernetes finds when it plans a program.
    pub(crate) fn planning(message: String) -> Self {
        Self {
            phase: CompilePhase::Instantiation,
            ..Self::whole(message)
        }
    }

    /// Returns Kubernetes' message for the refusal: the phase and the issues.
    pub fn refusal(&self) -> String {
        let what = match self.phase {
            CompilePhase::Compilation => "compilation",
            CompilePhase::Instantiation => "program instantiation",
        };
        format!("{what} failed: {self}")
    }

    /// Returns an error without a position: a limit, or a property of the whole expression.
    pub(crate) fn whole(message: impl Into<String>) -> Self {
        Self::collect(vec![Issue::whole(message)])
    }

    /// Returns an error at a byte offset of `source`.
    pub(crate) fn at_offset(source: &str, offset: usize, message: impl Into<String>) -> Self {
        Self::collect(vec![Lines::new(source).issue(offset, message)])
    }
}

impl Issue {
    /// Returns an issue without a position.
    pub(crate) fn whole(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            line: 0,
            column: 0,
            snippet: Arc::default(),
        }
    }
}

/// The lines of a source, for positions of issues.
#[derive(Debug)]
pub(crate) struct Lines(Vec<(usize, Arc<str>)>);

impl Lines {
    pub(crate) fn new(source: &str) -> Self {
        let mut start = 0;
        let mut line = |text: &str| {
            let here = start;
            start += text.len() + 1;
            (here, text.into())
        };
        Self(source.split('\n').map(&mut line).collect())
    }

    /// Returns an issue at a byte offset.
    pub(crate) fn issue(&self, offset: usize, message: impl Into<String>) -> Issue {
        let line = self.0.partition_point(|(start, _)| *start <= offset);
        let column = line
            .checked_sub(1)
            .and_then(|i| self.0.get(i))
            .map_or(0, |(start, text)| {
                let before = text.get(..offset - start).unwrap_or(text);
                before.chars().count() + 1
            });
        self.on(saturate(line), saturate(column), message)
    }

    /// Returns an issue at a line and a column, both from 1.
    pub(crate) fn on(&self, line: u32, column: u32, message: impl Into<String>) -> Issue {
        let at = (line as usize).checked_sub(1).and_then(|i| self.0.get(i));
        Issue {
            message: message.into(),
            line,
            column,
            snippet: at.map(|(_, text)| text.clone()).unwrap_or_default(),
        }
    }

    /// Returns the byte offset of a line and a column.
    pub(crate) fn offset(&self, line: u32, column: u32) -> Option<usize> {
        let (start, text) = self.0.get((line as usize).checked_sub(1)?)?;
        let before = (column as usize).checked_sub(1)?;
        let within = text.char_indices().nth(before).map_or(text.len(), |(i, _)| i);
        Some(start + within)
    }
}

fn saturate(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, issue) in self.issues.iter().enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            match self.phase {
                CompilePhase::Compilation => write!(f, "{separator}{issue}")?,
                CompilePhase::Instantiation => write!(f, "{separator}{}", issue.message)?,
            }
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\n{more} more errors were truncated"),
        }
    }
}

impl fmt::Display for Issue {
    /// Counts tabs as one column, and marks a character of several bytes by a wide dot, as it may
    /// be wide itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return write!(f, "ERROR: <input>: {}", self.message);
        }
        write!(f, "ERROR: <input>:{}:{}: {}", self.line, self.column, self.message)?;
        if self.column == 0 {
            return Ok(());
        }
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

/// Message of an error. One pointer, null for an empty message, so that an error is no larger than
/// a value and a result no larger than its value.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Message(Option<Box<Cow<'static, str>>>);

impl Deref for Message {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.as_deref().map_or("", |words| words)
    }
}

impl From<&'static str> for Message {
    fn from(words: &'static str) -> Self {
        Self(Some(Box::new(words.into())))
    }
}

impl From<String> for Message {
    fn from(words: String) -> Self {
        Self(Some(Box::new(words.into())))
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Target type of a conversion from text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readable {
    /// `bool('true')`
    Bool,
    /// `int('1')`
    Int,
    /// `uint('1')`
    Uint,
    /// `double('1.5')`
    Double,
    /// `timestamp('2026-01-01T00:00:00Z')`
    Timestamp,
    /// `duration('1s')`
    Duration,
}

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
        })
    }
}

/// Type whose range a result exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflowing {
    /// `int`, and durations.
    Int,
    /// `uint`.
    Uint,
    /// The years 1 to 9999.
    Timestamp,
}

impl fmt::Display for Overflowing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Int => "integer",
            Self::Uint => "unsigned integer",
            Self::Timestamp => "timestamp",
        })
    }
}

/// Reason why an evaluation has no value. Messages are cel-go's. None holds a tenant's data but the
/// key of a failed lookup, which comes from the expression or from the evaluated object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
// An eight-byte tag, as in values, for the same reason.
#[repr(u64)]
pub enum EvalError {
    /// The expression reads a field or key that the value lacks.
    #[error("no such key: {0}")]
    NoSuchKey(Message),
    /// The caller gave no value for a variable of the program.
    #[error("no such attribute(s): {0}")]
    NoSuchAttribute(Message),
    /// No overload of the function or operator fits the types of its arguments.
    #[error("no such overload{}{call}", if call.is_empty() { "" } else { ": " })]
    NoSuchOverload {
        /// The function with the types of its arguments, or the operator as cel-go names it
        /// (`_+_`); empty where cel-go names none.
        call: Message,
    },
    /// `x / 0`.
    #[error("division by zero")]
    DivisionByZero,
    /// `x % 0`.
    #[error("modulus by zero")]
    ModulusByZero,
    /// A result does not fit its type.
    #[error("{0} overflow")]
    Overflow(Overflowing),
    /// A list has no such element.
    #[error("index out of bounds: {0}")]
    IndexOutOfBounds(i64),
    /// A text is not of this type's syntax. Most such errors are absorbed, so the message is made
    /// only when it is shown.
    #[error("type conversion error from 'string' to '{0}'")]
    Unreadable(Readable),
    /// An argument of the right type with an unusable value.
    #[error("{0}")]
    InvalidArgument(Message),
    /// The cost units of the budget are used up.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostExceeded,
    /// The values of this evaluation need more memory than allowed.
    #[error("operation cancelled: memory limit exceeded")]
    MemoryExceeded,
    /// Values are nested too deeply to walk.
    #[error("operation cancelled: nesting limit exceeded")]
    DepthExceeded,
    /// The request that the evaluation is for has ended.
    #[error("operation interrupted")]
    Interrupted,
    /// The expression reads an absent field. Travels like an error inside an expression; callers of
    /// `eval` get `Outcome::Absent` instead.
    #[error("no value")]
    Absent,
}

impl EvalError {
    /// Returns true for exhausted resources, which end the evaluation. `||`, `&&`, `exists` and
    /// `all` may absorb every other error.
    #[inline]
    pub fn is_limit(&self) -> bool {
        matches!(
            self,
            Self::CostExceeded | Self::MemoryExceeded | Self::DepthExceeded | Self::Interrupted
        )
    }
}

pub(crate) fn no_overload(function: &'static str) -> EvalError {
    EvalError::NoSuchOverload {
        call: match function {
            "" => Message::default(),
            function => function.into(),
        },
    }
}

pub(crate) fn invalid(message: impl Into<Message>) -> EvalError {
    EvalError::InvalidArgument(message.into())
}
