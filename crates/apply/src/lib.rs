//! Patches and field ownership: compute the object that a client's patch or configuration yields,
//! and the owners of its fields. Pure functions over JSON.
//!
//! ```text
//! json_patch        RFC 6902   a list of operations; the target changes only if all succeed
//! merge_patch       RFC 7396   an object; null removes, lists are replaced
//! strategic_merge   Kubernetes an object; lists of known kinds merge by key, directives say more
//! apply             Kubernetes an object; the applier owns its fields, others are kept or conflict
//! update            Kubernetes what any other write does to the owners of fields
//! ```
//! Results are not validated: the registry validates them like an update.
#![warn(missing_docs)]

mod decode;
mod error;
mod fields;
mod json;
mod merge;
mod owners;
mod strategic;
mod typed;

pub use decode::decode;
pub use error::{JSON_PATCH_OPERATIONS_MAX, PatchError};
pub use fields::{Element, FieldSet, Path};
pub use json::{COPY_BYTES_MAX, json_patch};
pub use merge::merge_patch;
pub use owners::{
    Applied, ApplyError, Conflict, Conflicts, Entry, Manager, Managers, OnConflict, Operation, Retirement,
    UPDATE_MANAGERS_MAX, Versions, Writer, apply, retire, update,
};
pub use strategic::{ListMerge, MergeKeys, strategic_merge};
pub use typed::Shape;

/// Greatest depth of results: walks are recursive, and stored objects must be readable again. JSON
/// readers stop at 128.
pub const PATCH_DEPTH_MAX: usize = 120;
