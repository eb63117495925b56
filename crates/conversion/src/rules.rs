//! Rule sets as data: the normal form of every notation that authors may use.
//!
//! ```text
//! APIConversion            conversions[].{from, to, rules[].{field, destination, transformation}}
//!   mixed freely with      conversions[].{from, to, rules[].{from, to}}
//! APIConversionRules (1)   hub, conversions[].{version, fromHub[], toHub[]} of {field, rule}
//! option 2                 hubVersion, versions[].conversion.{fromHub[], toHub[]}
//! per-rule list            conversions[].{from, rule, to, field}, one rule an entry
//! ```
//!
//! Parsing needs no schema: `plan` checks that paths exist and expressions compile.

use crate::path::Path;
use insula_api::{FieldError, FieldPath, Json};
use serde_json::Map;
use std::collections::BTreeMap;

mod fingerprint;
mod parse;

pub use parse::{parse_rules, rules_in_schema};

/// Maximum number of directions in one rule set.
pub const DIRECTIONS_MAX: usize = 64;
/// Maximum number of rules in one direction, nested ones included.
pub const RULES_MAX: usize = 512;
/// Greatest depth of `itemRules` within `itemRules`.
pub const ITEM_RULES_DEPTH_MAX: usize = 8;

/// All conversion rules of one API.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleSet {
    /// The version that rules are written around; the storage version when absent.
    pub hub: Option<String>,
    /// Treatment of values that another version's schema refuses.
    pub validation: Validation,
    /// One entry for each pair of versions that has rules.
    pub conversions: Vec<Direction>,
    /// True if malformed rules are left out, so that nothing follows from the absence of a rule.
    pub(crate) is_partial: bool,
}

impl RuleSet {
    /// Returns the versions that the rules name, each once, in their order.
    pub fn named_versions(&self) -> Vec<&str> {
        let pairs = self
            .conversions
            .iter()
            .flat_map(|direction| [&direction.from, &direction.to]);
        let mut named = Vec::new();
        for version in self.hub.iter().chain(pairs).map(String::as_str) {
            if !named.contains(&version) {
                named.push(version);
            }
        }
        named
    }
}

/// A rule set with malformed fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// An error for each malformed field.
    pub errors: Vec<FieldError>,
    /// The rules that are well-formed.
    rest: RuleSet,
}

impl Malformed {
    /// Returns the errors, and those that compiling the well-formed rules finds: an author sees all
    /// at once.
    #[must_use]
    pub fn with_errors_of<T>(self, compile: impl FnOnce(&RuleSet) -> Result<T, Vec<FieldError>>) -> Vec<FieldError> {
        let mut errors = self.errors;
        errors.extend(compile(&self.rest).err().into_iter().flatten());
        errors
    }
}

impl From<Malformed> for Vec<FieldError> {
    fn from(malformed: Malformed) -> Self {
        malformed.errors
    }
}

/// Treatment of values that rules, or their absence, bring into a version whose schema refuses
/// them: `spec.validation` of an APIConversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Validation {
    /// Readers see the value as it is, and the author is told.
    #[default]
    Show,
    /// Such rules are refused, and so is a write that another served version would refuse.
    Refuse,
}

/// The rules from one version to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Direction {
    /// The version converted from.
    pub from: String,
    /// The version converted to.
    pub to: String,
    /// The rules, in the author's order.
    pub rules: Vec<Rule>,
    /// Paths of `from` that must survive the round trip.
    pub preserve: Vec<Path>,
    /// Paths of `from` that may be lost.
    pub drop: Vec<Path>,
    /// Path for errors about the whole direction.
    pub at: FieldPath,
}

impl Direction {
    /// Returns true if its author says anything about any field. An empty list of rules says
    /// nothing.
    pub(crate) fn decides(&self) -> bool {
        !self.rules.is_empty() || !self.preserve.is_empty() || !self.drop.is_empty()
    }
}

/// One rule, in the normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The source that it reads.
    pub source: Source,
    /// The path that it writes.
    pub destination: Path,
    /// The computation between the two; `None` for a move.
    pub transformation: Option<Template>,
    /// Rules for each item, if source and destination are lists or maps.
    pub item_rules: Vec<Rule>,
    /// Name of the item rules, by which one of them may use them again.
    pub set: Option<String>,
    /// Name of the item rules around, which convert the items of this list, too.
    pub uses: Option<String>,
    /// Write only if nothing else wrote the destination.
    pub only_if_absent: bool,
    /// The author expects the rule to fail for some valid objects (`mayFail`).
    pub may_fail: bool,
    /// Paths for errors.
    pub at: RuleAt,
}

/// Position of a rule in its object, with the author's field names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleAt {
    /// Path of the rule.
    pub path: FieldPath,
    /// The name of the field that holds the source: `field`, `from` or `rule`.
    pub source: &'static str,
    /// The name of the field that holds the destination: `destination`, `to` or `field`.
    pub destination: &'static str,
}

/// Source of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A path: its value is moved, or given to the transformation as `self`.
    Field(Path),
    /// A CEL expression over `self` and the version's name.
    Expression(String),
}

/// A value computed by CEL: one expression, or a map or list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Template {
    /// A CEL expression.
    Expression(String),
    /// An object; a field whose expression is absent is left out.
    Fields(BTreeMap<String, Template>),
    /// A list; an absent element is left out.
    Items(Vec<Template>),
    /// A number or boolean literal.
    Constant(Json),
}

impl Rule {
    /// Returns the path that the rule moves away from the source's version. `None` for a rule that
    /// only reads: one with a transformation, or one whose source is an expression.
    pub(crate) fn moved(&self) -> Option<&Path> {
        match &self.source {
            Source::Field(path) if self.at.source == "field" && self.transformation.is_none() => Some(path),
            _ => None,
        }
    }

    /// Returns true if the rule may read or write metadata. Any mention counts: a false positive
    /// costs a conversion, a false negative an edit.
    pub(crate) fn sees_metadata(&self) -> bool {
        let mentions = |text: &str| text.contains("metadata");
        let source = match &self.source {
            Source::Field(path) => mentions(&path.to_string()),
            Source::Expression(text) => mentions(text),
        };
        source
            || mentions(&self.destination.to_string())
            || self.transformation.as_ref().is_some_and(Template::mentions_metadata)
            || self.item_rules.iter().any(Rule::sees_metadata)
    }
}

impl Template {
    fn mentions_metadata(&self) -> bool {
        match self {
            Template::Expression(text) => text.contains("metadata"),
            Template::Fields(fields) => fields.values().any(Template::mentions_metadata),
            Template::Items(items) => items.iter().any(Template::mentions_metadata),
            Template::Constant(_) => false,
        }
    }
}
