//! What can be wrong with a patch, by what the caller tells the client.

use crate::PATCH_DEPTH_MAX;
use crate::json::JSON_PATCH_OPERATIONS_MAX;

/// The patch was not applied; the target is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// It is no patch at all: 400, with this text.
    #[error("{0}")]
    Malformed(String),
    /// It is a patch, but does not fit the object: 422. Clients of Kubernetes read a fixed text
    /// there ([`PatchError::MESSAGE_FAILED`]); this one says which operation and why.
    #[error("{0}")]
    Failed(String),
    /// Too many operations: 413, with this text.
    #[error(
        "Request entity too large: The allowed maximum operations in a JSON patch is {JSON_PATCH_OPERATIONS_MAX}, got {got}"
    )]
    TooMany {
        /// How many there were.
        got: usize,
    },
}

impl PatchError {
    /// What a client reads when operations fail.
    pub const MESSAGE_FAILED: &str = "the server rejected our request due to an error in our request";

    pub(crate) fn malformed(text: impl Into<String>) -> Self {
        PatchError::Malformed(text.into())
    }

    pub(crate) fn too_deep() -> Self {
        PatchError::Failed(format!("the result would be nested more than {PATCH_DEPTH_MAX} deep"))
    }
}
