//! Conversion between the versions of one API, by rules, without loss.
#![warn(missing_docs)]

mod align;
mod bundle;
mod carry;
mod convert;
mod error;
pub mod laws;
mod merge;
mod path;
mod plan;
mod residual;
mod rules;
mod scope;
mod trace;

pub use crate::bundle::{Bundle, Owned, Stored, Strategy, VERSIONS_MAX, VersionSchema};
pub use crate::error::{Cause, ConvertError, FailedRule};
pub use crate::path::{PATH_BYTES_MAX, PATH_SEGMENTS_MAX, Path, Segment};
pub use crate::rules::{
    DIRECTIONS_MAX, Direction, ITEM_RULES_DEPTH_MAX, RULES_MAX, Rule, RuleAt, RuleSet, Source, Template, parse_rules,
    rules_in_schema,
};
pub use insula_cel::Budget;

/// The budget of one object: what its conversions may cost together.
pub fn object_budget() -> Budget {
    Budget::new(insula_cel::OBJECT_COST_MAX)
}
