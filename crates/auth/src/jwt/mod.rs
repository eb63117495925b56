//! Tokens of other issuers (OpenID Connect), as Kubernetes' structured authentication configures
//! them: who may issue, for whom tokens have to be, what they have to say, and which user their
//! claims make.
//!
//! ```text
//! JwtAuthenticator (YAML, or an object of a workspace) ── compile ──> Issuer
//! issuer_of(token) finds the Issuer; its Keys are fetched by others; Issuer::user(token, keys, now) ──> UserInfo
//! ```
//! The algorithm is chosen by the key and never by the token. Claims that are kept elsewhere
//! (distributed claims) are not followed: nothing in a token makes this server call somebody.

mod compile;
mod config;
mod expression;
mod keys;
mod user;

#[cfg(test)]
mod tests;

pub use compile::{Giver, ISSUERS_MAX, Issuer, compile};
pub use config::{
    ClaimMappings, ClaimRule, ExtraMapping, IssuerConfig, JwtAuthenticator, Mapping, PrefixedMapping, UserRule,
};
pub use keys::Keys;
pub use user::{JwtError, issuer_of};
