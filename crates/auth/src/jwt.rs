//! Tokens of external issuers (OpenID Connect), configured as in Kubernetes' structured
//! authentication: issuers, audiences, rules for claims, and the mapping of claims to users.
//!
//! ```text
//! JwtAuthenticator (YAML, or an object of a workspace) ── compile ──> Issuer
//! issuer_of(token) ── selects ──> Issuer, whose Keys the caller fetches
//! Issuer::user(token, keys, now) ──> UserInfo
//! ```
//! The key determines the algorithm, never the token. Distributed claims are not followed: nothing
//! in a token makes this server call another one.

mod compile;
mod config;
mod error;
mod expression;
mod keys;
mod user;

#[cfg(test)]
mod tests;

pub use compile::{Giver, ISSUERS_MAX, Issuer, compile};
pub use config::{
    ClaimMappings, ClaimRule, ExtraMapping, IssuerConfig, JwtAuthenticator, Mapping, PrefixedMapping, UserRule,
};
pub use error::JwtError;
pub use keys::Keys;
pub use user::issuer_of;
