//! Rule sets as data, and the one normal form of every spelling that authors may use.
//!
//! | spelling | where |
//! |---|---|
//! | `conversions[].{from, to, rules[].{field, destination, transformation}}` | APIConversion |
//! | `conversions[].{from, to, rules[].{from, to}}`, mixed freely with the first | APIConversion |
//! | `hub`, `conversions[].{version, fromHub[], toHub[]}` of `{field, rule}` | APIConversionRules, option 1 |
//! | `hubVersion`, `versions[].conversion.{fromHub[], toHub[]}` | option 2 |
//! | `conversions[].{from, rule, to, field}`, one rule an entry | the per-rule list |
//!
//! Parsing knows no schema: that a path exists and an expression compiles is `plan`'s to say.

use crate::path::Path;
use insula_api::{FieldError, FieldPath, Json};
use serde_json::Map;
use std::collections::BTreeMap;

mod parse;

pub use parse::{parse_rules, rules_in_schema};

/// Rule sets between versions in one object.
pub const DIRECTIONS_MAX: usize = 64;
/// Rules in one direction, nested ones included.
pub const RULES_MAX: usize = 512;
/// Depth of `itemRules` within `itemRules`.
pub const ITEM_RULES_DEPTH_MAX: usize = 8;

/// All that an author says about converting one API.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleSet {
    /// The version that rules are written around; the storage version when absent.
    pub hub: Option<String>,
    /// One entry for each pair of versions that has rules.
    pub conversions: Vec<Direction>,
}

/// The rules from one version to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Direction {
    /// The version converted from.
    pub from: String,
    /// The version converted to.
    pub to: String,
    /// What is written, in order.
    pub rules: Vec<Rule>,
    /// Paths of `from` that must survive the round trip.
    pub preserve: Vec<Path>,
    /// Paths of `from` that may be lost.
    pub drop: Vec<Path>,
    /// Where errors about the whole direction point.
    pub at: FieldPath,
}

/// One rule, spelling removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What is read.
    pub source: Source,
    /// What is written.
    pub destination: Path,
    /// What is done to the value on the way.
    pub transformation: Option<Template>,
    /// Rules for each element, when source and destination are lists or maps.
    pub item_rules: Vec<Rule>,
    /// Write only where nothing else did.
    pub only_if_absent: bool,
    /// The author knows that the rule fails for some valid objects.
    pub may_fail: bool,
    /// Where errors point.
    pub at: RuleAt,
}

/// Where a rule stands in its object, and how its author spelled the two sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleAt {
    /// The rule.
    pub path: FieldPath,
    /// The name of the field that holds the source: `field`, `from` or `rule`.
    pub source: &'static str,
    /// The name of the field that holds the destination: `destination`, `to` or `field`.
    pub destination: &'static str,
}

/// The source of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A value, moved as it is or given to the transformation as `self`.
    Field(Path),
    /// A CEL expression over `self` and the version's name.
    Expression(String),
}

/// A value built by CEL: one expression, or a map or list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Template {
    /// A CEL expression.
    Expression(String),
    /// An object; a field whose expression is absent is left out.
    Fields(BTreeMap<String, Template>),
    /// A list; an absent element is left out.
    Items(Vec<Template>),
    /// A number or boolean written as such.
    Constant(Json),
}

impl Rule {
    /// Whether it may read or write metadata. Any mention counts: a false yes costs a conversion, a
    /// false no an edit.
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
