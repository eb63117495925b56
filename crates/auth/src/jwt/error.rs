//! Errors of tokens.

/// Reason why a token is refused, for the log and for token reviews.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// Not a token, or one with invalid parts.
    #[error("it is no well-formed token")]
    Malformed,
    /// Signed with an unknown key; the issuer may have published it since the last fetch.
    #[error("it is signed with a key that its issuer does not publish")]
    UnknownKey,
    /// Signed by another key, or with another algorithm.
    #[error("its signature is not its issuer's")]
    Signature,
    /// From another issuer.
    #[error("it is of another issuer")]
    Issuer,
    /// Expired, or without an expiry.
    #[error("it has expired")]
    Expired,
    /// Not valid yet.
    #[error("it is not valid yet")]
    Early,
    /// For other audiences.
    #[error("it is for other audiences")]
    Audience,
    /// A claim violates a rule or cannot be mapped.
    #[error("{0}")]
    Claims(String),
}
