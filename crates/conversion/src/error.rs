//! What goes wrong with one object. Facts about rules and versions, never about the object's
//! values.

use insula_cel::EvalError;
use std::fmt;

/// One object that cannot be converted. Nobody else's request is affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertError {
    /// The API's group.
    pub group: String,
    /// The version converted from.
    pub from: String,
    /// The version converted to.
    pub to: String,
    /// The rule; `None` when it is not one rule's fault.
    pub rule: Option<Box<FailedRule>>,
    /// Why.
    pub cause: Cause,
}

/// The rule that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRule {
    /// Its position among the rules of its direction, `itemRules` counted with their rule.
    pub index: usize,
    /// Where it stands: `conversions[0].rules[2]`.
    pub path: String,
    /// What it reads, as a path or an expression.
    pub source: String,
    /// What it writes.
    pub destination: String,
}

/// Why a conversion failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// An expression failed.
    Expression(String),
    /// The expressions of this object cost too much, in units or memory.
    Budget(String),
    /// An expression's result is not what the destination takes.
    Type {
        /// JSON's word for the result.
        got: &'static str,
        /// The schema's word for the destination.
        want: String,
    },
    /// Two items of a list have the same key of a map.
    DuplicateKey {
        /// The index of the first.
        first: usize,
        /// The index of the second.
        second: usize,
    },
    /// A version that the bundle does not know.
    UnknownVersion(String),
    /// The stored residual is not one of ours.
    Residual(String),
}

impl Cause {
    pub(crate) fn from_eval(error: &EvalError) -> Cause {
        let text = match error {
            // Keys and arguments may be the object's.
            EvalError::NoSuchKey(_) => "no such key".to_owned(),
            EvalError::InvalidArgument(text) => without_values(text),
            other => other.to_string(),
        };
        match error {
            EvalError::CostExceeded | EvalError::MemoryExceeded | EvalError::DepthExceeded => Cause::Budget(text),
            _ => Cause::Expression(text),
        }
    }
}

/// A message up to the first quoted text or backquote: what follows may be the object's.
fn without_values(text: &str) -> String {
    let kept = text.split(['"', '`', '\'']).next().unwrap_or_default();
    let kept = kept.trim_end_matches([' ', ':', '(']);
    if kept.is_empty() {
        "invalid argument".to_owned()
    } else {
        kept.to_owned()
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Expression(text) | Cause::Budget(text) => f.write_str(text),
            Cause::Type { got, want } => write!(f, "the result is of type {got}, the destination of type {want}"),
            Cause::DuplicateKey { first, second } => {
                write!(
                    f,
                    "items {first} and {second} have the same key, and a map holds a key once"
                )
            }
            Cause::UnknownVersion(version) => write!(f, "there is no version {version}"),
            Cause::Residual(text) => write!(f, "the stored residual cannot be read: {text}"),
        }
    }
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "converting {}/{} to {}: ", self.group, self.from, self.to)?;
        if let Some(rule) = &self.rule {
            write!(f, "{} ({} → {}): ", rule.path, rule.source, rule.destination)?;
        }
        write!(f, "{}", self.cause)
    }
}

impl std::error::Error for ConvertError {}
