//! Compiled validation rules (`x-kubernetes-validations`).

use insula_api::FieldErrorKind;
use insula_cel::Program;
use std::sync::Arc;

/// A compiled rule.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(crate) source: Box<str>,
    /// The program, or the error of a rule that does not compile. Such a rule fails for every
    /// value, so that nothing passes unchecked.
    pub(crate) program: Result<Arc<Program>, Box<str>>,
    pub(crate) message: Box<str>,
    pub(crate) message_program: Option<Arc<Program>>,
    pub(crate) reason: FieldErrorKind,
    pub(crate) field_path: Vec<Segment>,
    pub(crate) reads_old: bool,
    pub(crate) optional_old: bool,
}

/// One step of a rule's `fieldPath`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    Field(String),
    Key(String),
}

impl Rule {
    /// Returns the expression.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the fields that the rule reads, relative to its node. It may also read everything
    /// below them.
    pub(crate) fn reads(&self) -> impl Iterator<Item = &[String]> {
        let references = self.program.iter().flat_map(|program| program.references());
        references
            .filter(|reference| matches!(reference.variable.as_str(), "self" | "oldSelf"))
            .map(|reference| reference.path.as_slice())
    }

    /// Returns the most cost units for one value, by the bounds of the schema. `None` if the rule
    /// does not compile.
    pub fn estimate(&self) -> Option<u64> {
        self.program.as_ref().ok().map(|program| program.estimate().max)
    }

    /// Returns true for a transition rule, which reads `oldSelf`.
    pub fn reads_old(&self) -> bool {
        self.reads_old
    }

    /// Returns the text for a run-time error: the message, if there is one.
    pub(crate) fn shown(&self) -> &str {
        match &*self.message {
            "" => self.source.trim(),
            message => message.trim(),
        }
    }
}
