//! The nouns of Insula: names, keys, objects and their metadata, field errors, selectors,
//! conditions.
//!
//! Nothing here reads a clock, does IO or knows a protocol. Every other crate speaks in these
//! words.

mod cluster;
mod condition;
mod error;
mod heads;
pub mod kinds;
mod meta;
pub mod names;
mod object;
mod path;
mod resource;
mod selector;
mod time;

pub use cluster::{ClusterName, ClusterPath, InvalidCluster};
pub use condition::{Condition, ConditionStatus, condition, set_condition};
pub use error::{FieldError, FieldErrorKind, aggregate};
pub use meta::{Labels, Meta, OwnerReference, Uid};
pub use object::{Object, ObjectError};
pub use path::FieldPath;
pub use resource::{GroupVersionResource, ObjectKey, ResourceId, Revision, Scope};
pub use selector::{FieldSelector, LabelSelector, Requirement, SelectorError};
pub use time::{Clock, Rng, Timestamp};

/// JSON as the write path sees it. Reads of stored versions never make one.
pub type Json = serde_json::Value;
