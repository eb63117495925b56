//! Basic types of Insula: names, keys, objects and their metadata, typed views of our own kinds,
//! field errors, selectors and conditions.
//!
//! This crate reads no clock, does no IO and knows no protocol. Every other crate builds on it.
#![warn(missing_docs)]

mod cluster;
mod condition;
mod error;
mod freeze;
mod go_value;
mod heads;
pub mod kinds;
pub mod measure;
mod meta;
pub mod names;
mod object;
mod path;
mod resource;
mod selector;
mod shown_label;
mod text;
mod time;
mod verb;

pub use cluster::{ClusterName, ClusterPath, InvalidCluster};
pub use condition::{Condition, ConditionStatus, condition, set_condition};
pub use error::{FieldError, FieldErrorKind, Finding, aggregate, go_quoted, is_printable};
pub use freeze::Freeze;
pub use go_value::{go_float, go_shown};
pub use meta::{Labels, Meta, OwnerReference, Uid};
pub use names::front_proxy_name;
pub use object::{Object, ObjectError};
pub use path::FieldPath;
pub use resource::{GroupVersionResource, ObjectKey, ResourceId, Resources, Revision, Scope};
pub use selector::{FieldSelector, LabelSelector, Requirement, SelectorError};
pub use shown_label::ShownLabel;
pub use text::{counted, distinct};
pub use time::{Clock, Rng, Timestamp};
pub use verb::Verb;

/// JSON value of the write path. Reads in the storage version never build one.
pub type Json = serde_json::Value;
