//! What can go wrong: at compile time with a place in the source, at run time with cel-go's words.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A source text that is not a program: everything that is wrong with it. Shown as cel-go shows it:
/// position, line and caret of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// What is wrong, by place; never empty, and at most the first hundred.
    pub issues: Vec<Issue>,
    /// How many more there are.
    more: usize,
    stage: Stage,
}

/// How far a source text got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is no well-typed expression.
    Compilation,
    /// It is one, but holds a constant part that can only fail.
    Instantiation,
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
    /// The line's text, shared by the issues of one line.
    pub snippet: Arc<str>,
}

/// Issues told; a source of 2,000 tokens could have as many.
const ISSUES_MAX: usize = 100;

impl CompileError {
    /// Several issues, put in order of their places.
    pub(crate) fn collect(mut issues: Vec<Issue>) -> Self {
        issues.sort_by_key(|i| (i.line, i.column));
        let more = issues.len().saturating_sub(ISSUES_MAX);
        issues.truncate(ISSUES_MAX);
        Self {
            issues,
            more,
            stage: Stage::Compilation,
        }
    }

    /// A part without variables that fails whenever it is evaluated. Kubernetes finds those when it
    /// plans a program, and names no place.
    pub(crate) fn constant(failure: &EvalError) -> Self {
        Self {
            stage: Stage::Instantiation,
            ..Self::whole(failure.to_string())
        }
    }

    /// How Kubernetes refuses the text: what failed, and why.
    pub fn refusal(&self) -> String {
        let what = match self.stage {
            Stage::Compilation => "compilation",
            Stage::Instantiation => "program instantiation",
        };
        format!("{what} failed: {self}")
    }

    /// An error without a place: a limit, or a property of the whole expression.
    pub(crate) fn whole(message: impl Into<String>) -> Self {
        Self::collect(vec![Issue::whole(message)])
    }

    /// An error at a byte offset of `source`.
    pub(crate) fn at(source: &str, offset: usize, message: impl Into<String>) -> Self {
        Self::collect(vec![Lines::new(source).issue(offset, message)])
    }
}

impl Issue {
    /// An issue without a place.
    pub(crate) fn whole(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            line: 0,
            column: 0,
            snippet: Arc::default(),
        }
    }
}

/// The lines of a source, to place issues in.
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

    /// An issue at a byte offset.
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

    /// An issue at a line and a column, both from 1.
    pub(crate) fn on(&self, line: u32, column: u32, message: impl Into<String>) -> Issue {
        let at = (line as usize).checked_sub(1).and_then(|i| self.0.get(i));
        Issue {
            message: message.into(),
            line,
            column,
            snippet: at.map(|(_, text)| text.clone()).unwrap_or_default(),
        }
    }

    /// The byte offset of a line and a column.
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
            match self.stage {
                Stage::Compilation => write!(f, "{separator}{issue}")?,
                Stage::Instantiation => write!(f, "{separator}{}", issue.message)?,
            }
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\n{more} more errors were truncated"),
        }
    }
}

impl fmt::Display for Issue {
    /// Tabs count as one column, and a character of several bytes is marked by a wide dot, as it
    /// may be wide itself.
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

/// The words of an error. One pointer, none for no words: an error is no larger than a value, so
/// that a result takes the place of its value.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Words(Option<Box<Cow<'static, str>>>);

impl Deref for Words {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.as_deref().map_or("", |words| words)
    }
}

impl From<&'static str> for Words {
    fn from(words: &'static str) -> Self {
        Self(Some(Box::new(words.into())))
    }
}

impl From<String> for Words {
    fn from(words: String) -> Self {
        Self(Some(Box::new(words.into())))
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// What a text may be read as.
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

/// What a result may be too large for.
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

/// Why an evaluation has no value. Texts are cel-go's; none of them holds a tenant's data but for
/// the key of a failed lookup, which comes from the expression or from the object being evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
// A tag of a word, as values have, for the same reason.
#[repr(u64)]
pub enum EvalError {
    /// A field or key that the value lacks was read.
    #[error("no such key: {0}")]
    NoSuchKey(Words),
    /// A variable that the program uses was not given by the caller.
    #[error("no such attribute(s): {0}")]
    NoSuchAttribute(Words),
    /// No meaning of the function or operator fits the types of its arguments.
    #[error("no such overload{}{call}", if call.is_empty() { "" } else { ": " })]
    NoSuchOverload {
        /// The function with the types of its arguments, or the operator as cel-go names it
        /// (`_+_`); empty where it names none.
        call: Words,
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
    /// A text is none of these. Most such errors are absorbed, so the message is made where it is
    /// shown.
    #[error("type conversion error from 'string' to '{0}'")]
    Unreadable(Readable),
    /// An argument of the right type with an unusable value.
    #[error("{0}")]
    InvalidArgument(Words),
    /// The budget's cost units are used up.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostExceeded,
    /// The values made by this evaluation need more memory than allowed.
    #[error("operation cancelled: memory limit exceeded")]
    MemoryExceeded,
    /// Values nested too deeply to walk.
    #[error("operation cancelled: nesting limit exceeded")]
    DepthExceeded,
    /// Whoever asked no longer waits: see `Budget::with_interrupt`.
    #[error("operation interrupted")]
    Interrupted,
    /// An absent field was read. Travels like an error inside an expression; callers of `eval` get
    /// `Outcome::Absent` instead.
    #[error("no value")]
    Absent,
}

impl EvalError {
    /// Exhausted resources end the evaluation; `||`, `&&`, `exists` and `all` may absorb every
    /// other error.
    #[inline]
    pub(crate) fn is_fatal(&self) -> bool {
        matches!(
            self,
            Self::CostExceeded | Self::MemoryExceeded | Self::DepthExceeded | Self::Interrupted
        )
    }
}

pub(crate) fn no_overload(function: &'static str) -> EvalError {
    EvalError::NoSuchOverload {
        call: match function {
            "" => Words::default(),
            function => function.into(),
        },
    }
}

pub(crate) fn invalid(message: impl Into<Words>) -> EvalError {
    EvalError::InvalidArgument(message.into())
}
