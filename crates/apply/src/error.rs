//! Errors of patches, by the answer that the client gets.

use crate::PATCH_DEPTH_MAX;

/// Maximum number of operations in one patch: Kubernetes' limit.
pub const JSON_PATCH_OPERATIONS_MAX: usize = 10_000;

/// A patch that was not applied; the target is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is malformed: 400, with this text.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object: 422. Kubernetes' clients read a fixed text there
    /// ([`PatchError::MESSAGE_FAILED`]); this one names the operation and the reason.
    #[error("operation {at}: {why}")]
    Failed {
        /// Position of the operation in the patch.
        at: usize,
        /// The reason.
        why: String,
    },
    /// The result would be nested too deep: 422.
    #[error("the result would be nested more than {PATCH_DEPTH_MAX} deep")]
    TooDeep,
    /// The patch has too many operations: 413, with this text.
    #[error(
        "Request entity too large: The allowed maximum operations in a JSON patch is {JSON_PATCH_OPERATIONS_MAX}, \
            got {got}"
    )]
    TooMany {
        /// Number of operations in the patch.
        got: usize,
    },
}

impl PatchError {
    /// Message of the answer when operations fail.
    pub const MESSAGE_FAILED: &str = "the server rejected our request due to an error in our request";

    pub(crate) fn malformed(text: impl Into<String>) -> Self {
        PatchError::Malformed(text.into())
    }
}
