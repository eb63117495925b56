//! The refusal of a credential.

/// A credential was shown that is no good. What was wrong with it is for the log, not for the
/// client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// The credential does not count.
    #[error("{0}")]
    Refused(String),
    /// The headers in which a proxy names the user are no text. The message is for the client.
    #[error("{0}")]
    Malformed(String),
    /// The server that may know the credential does not answer. The text is for the client.
    #[error("{0}")]
    Unavailable(String),
}
