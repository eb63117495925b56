//! Structural schemas: what a resource's objects may look like, and everything that follows from it.
//!
//! An `openAPIV3Schema` is compiled once ([`Structural`]) and shared. Each of the walks then is one recursion over an
//! object and the tree side by side: [`prune`], [`drop_nulls`], [`default`], [`validate`], [`validate_update`]. Texts
//! and kinds of errors are Kubernetes'. Definitions (`CustomResourceDefinition`) are validated here too.
//!
//! Pure: no clock, no randomness, no IO. Not here: metadata of whole objects (the registry's), CEL itself (`cel`).
#![warn(missing_docs)]

mod admit;
mod at;
mod default;
mod embedded;
mod formats;
mod list_type;
mod names;
mod node;
mod prune;
mod ratchet;
mod regexp;
pub mod rules;
mod structural;
mod validate;

pub use crate::default::default;
pub use crate::embedded::{check_embedded, metadata_type_error};
pub use crate::node::{ListType, MapType, Node, Type};
pub use crate::prune::{drop_nulls, prune, prune_report};
pub use crate::ratchet::{Outcome, validate, validate_schema, validate_status, validate_update};
pub use crate::regexp::PATTERN_BYTES_MAX;
pub use crate::structural::{SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX, SCHEMA_NODES_MAX, Structural};
