//! Patches: from an object and what a client sent to the object that the client means. Pure functions over JSON.
//!
//! ```text
//! json_patch        RFC 6902   a list of operations; the target changes only if all succeed
//! merge_patch       RFC 7396   an object; null removes, lists are replaced
//! strategic_merge   Kubernetes an object; lists of known kinds merge by key, directives say more
//! ```
//! What comes out is not yet valid: the registry validates it as it would an update. Server-side apply will stand here too.

mod decode;
mod error;
mod json;
mod merge;
mod strategic;

pub use decode::decode;
pub use error::PatchError;
pub use json::{COPY_BYTES_MAX, JSON_PATCH_OPERATIONS_MAX, json_patch};
pub use merge::merge_patch;
pub use strategic::{ListMerge, MergeKeys, strategic_merge};

/// Deeper results are refused: walks recurse, and what is stored must be readable again. JSON readers stop at 128.
pub const PATCH_DEPTH_MAX: usize = 120;
