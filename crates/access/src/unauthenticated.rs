//! The refusal of a credential.

/// A credential was shown that is no good. What was wrong with it is for the log, not for the
/// client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unauthenticated(pub String);
