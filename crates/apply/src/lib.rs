//! Patches and owners: from an object and what a client sent to the object that the client means,
//! and to who owns which of its fields. Pure functions over JSON.
//!
//! ```text
//! json_patch        RFC 6902   a list of operations; the target changes only if all succeed
//! merge_patch       RFC 7396   an object; null removes, lists are replaced
//! strategic_merge   Kubernetes an object; lists of known kinds merge by key, directives say more
//! apply             Kubernetes an object; its fields are the applier's, others' are kept or in conflict
//! update            Kubernetes what any other write does to the owners of fields
//! ```
//! What comes out is not yet valid: the registry validates it as it would an update.

mod decode;
mod error;
mod fields;
mod json;
mod merge;
mod owners;
mod strategic;
mod typed;

pub use decode::decode;
pub use error::PatchError;
pub use fields::{Element, FieldSet, Path};
pub use json::{COPY_BYTES_MAX, JSON_PATCH_OPERATIONS_MAX, json_patch};
pub use merge::merge_patch;
pub use owners::{
    Applied, ApplyError, Conflict, Conflicts, Entry, Manager, Managers, OnConflict, Operation, Retirement,
    UPDATE_MANAGERS_MAX, Versions, Writer, apply, retire, update,
};
pub use strategic::{ListMerge, MergeKeys, strategic_merge};
pub use typed::Shape;

/// Deeper results are refused: walks recurse, and what is stored must be readable again. JSON
/// readers stop at 128.
pub const PATCH_DEPTH_MAX: usize = 120;
