//! Structural schemas: compilation, and the walks over objects.
//!
//! An `openAPIV3Schema` is compiled once ([`Structural`]) and shared. Each walk is one recursion
//! over an object and the schema tree side by side: [`prune`], [`drop_nulls`], [`default`],
//! [`validate`], [`validate_update`]. Messages and kinds of errors are Kubernetes'. Definitions
//! (`CustomResourceDefinition`) are validated here too.
//!
//! Pure: no clock, no randomness, no IO. Not here: metadata of whole objects (the registry's), CEL
//! itself (`cel`).
#![warn(missing_docs)]

mod admit;
mod columns;
mod compose;
mod declare;
mod decode;
mod default;
mod definition;
mod diff;
mod embedded;
mod formats;
mod jsonpath;
mod keyword;
mod lint;
mod list_type;
mod names;
mod node;
mod number;
mod openapi;
mod parse;
mod prune;
mod ratchet;
mod regexp;
mod rule;
pub mod rules;
mod structs;
mod structural;
mod validate;
mod value_path;

pub use crate::decode::{decode_error, quoted as quoted_time};
pub use crate::default::{default, lacks_defaults};
pub use crate::definition::{
    ca_bundle_is_unusable, default_definition, definition_warnings, structural_violations, undecodable_definition,
    undecodable_schema, unknown_keywords, validate_client_config, validate_definition, validate_definition_status,
    validate_definition_update,
};
pub use crate::diff::{Change, ChangeKind, NULL_REFUSED, diff};
pub use crate::embedded::{check_embedded, metadata_type_error};
pub use crate::jsonpath::{JSON_PATH_BYTES_MAX, JSON_PATH_DEPTH_MAX, JsonPath, PathBudget, PathError, PathTooCostly};
pub use crate::lint::{Lint, LintKind, lint, lint_between};
pub use crate::names::label_1035;
pub use crate::node::{Children, ListType, MapType, Node, Type};
pub use crate::openapi::{openapi_v2, openapi_v3};
pub use crate::parse::{SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX, SCHEMA_NODES_MAX};
pub use crate::prune::{drop_nulls, prune, prune_report};
pub use crate::ratchet::{
    Outcome, is_consequence, judge, place, validate, validate_schema, validate_status, validate_update,
    validate_write_back,
};
pub use crate::structs::encode_struct;
pub use crate::structural::Structural;
