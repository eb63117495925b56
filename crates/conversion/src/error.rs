//! Errors of converting one object. They name rules and versions, never values of the object.

use insula_cel::EvalError;
use std::fmt;

/// Failure to convert one object. Conversions of other objects are not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertError {
    /// The API's group.
    pub group: String,
    /// The version converted from.
    pub from: String,
    /// The version converted to.
    pub to: String,
    /// The rule that failed; `None` when the cause is not a single rule.
    pub rule: Option<Box<FailedRule>>,
    /// The cause.
    pub cause: Cause,
}

/// The rule that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRule {
    /// Its position among the rules of its direction, `itemRules` counted with their rule.
    pub index: usize,
    /// Path of the rule: `conversions[0].rules[2]`.
    pub path: String,
    /// The rule's source, as a path or an expression.
    pub source: String,
    /// The rule's destination.
    pub destination: String,
}

/// Cause of a failed conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// An expression failed.
    Expression(String),
    /// The expressions of this object exceed the budget, in cost units or memory.
    Budget(String),
    /// An expression's result does not fit the destination's type.
    Type {
        /// JSON type of the result.
        got: &'static str,
        /// Schema type of the destination.
        want: String,
    },
    /// Two items of a list map to the same key of a map.
    DuplicateKey {
        /// The index of the first.
        first: usize,
        /// The index of the second.
        second: usize,
    },
    /// The bundle has no such version.
    UnknownVersion(String),
    /// The stored residual is malformed.
    Residual(String),
    /// A function of the program failed.
    Code(String),
}

impl Cause {
    pub(crate) fn from_eval(error: &EvalError) -> Cause {
        let text = match error {
            // Keys and arguments may be values of the object.
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

/// Cuts a message at the first quoted text that is no name of a type: it may be a value of the
/// object. Names of types lose their quotes.
fn without_values(text: &str) -> String {
    let mut kept = String::new();
    for (number, part) in text.split(['"', '`', '\'']).enumerate() {
        let is_quoted = number % 2 == 1;
        if is_quoted && !insula_cel::is_type_name(part) && !part.starts_with("types.") {
            break;
        }
        kept.push_str(part);
    }
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
            Cause::Expression(text) | Cause::Budget(text) | Cause::Code(text) => f.write_str(text),
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

#[cfg(test)]
mod tests {
    use super::{Cause, without_values};
    use insula_cel::{Activation, Budget, Program};
    use insula_meter::Meter;
    use serde_json::json;

    #[test]
    fn messages_name_types_and_no_values() {
        for (text, kept) in [
            (
                "a value of type 'type' has no JSON form",
                "a value of type type has no JSON form",
            ),
            (
                "got 'string', expected iterable type",
                "got string, expected iterable type",
            ),
            (
                "strconv.Atoi: parsing \"secret\": invalid syntax",
                "strconv.Atoi: parsing",
            ),
            (
                "type conversion error from 'int' to 'hidden'",
                "type conversion error from int to",
            ),
            ("'hidden'", "invalid argument"),
        ] {
            assert_eq!(without_values(text), kept);
        }
    }

    #[test]
    fn an_expression_without_a_json_form_names_its_type() {
        let program = Program::compile("dyn(type(self))", &["self"]).expect("it compiles");
        let value = json!("secret");
        let failed = program.eval(
            &Activation::new().with("self", &value),
            &mut Budget::new(1_000, &Meter::unbounded()),
        );
        let cause = Cause::from_eval(&failed.expect_err("a type is no JSON"));
        assert_eq!(cause.to_string(), "a value of type type has no JSON form");
    }
}
