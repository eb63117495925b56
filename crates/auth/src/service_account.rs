//! Tokens of service accounts: what they say, and whether that counts. Who signs them, and whether
//! the account still exists, is the caller's matter.

use crate::user::{EXTRA_CLUSTER, EXTRA_CREDENTIAL, EXTRA_SCOPES, UserInfo};
use insula_api::{ClusterName, Timestamp};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// Who issues the tokens, and for whom they are unless they say otherwise: kcp's name for itself.
/// It has to be the same on every server and after every start, which no address is.
pub const ISSUER: &str = "https://kcp.default.svc";
/// The one algorithm. What a token's header says is compared with it, and never chosen by.
pub const ALGORITHM: Algorithm = Algorithm::ES256;
/// Seconds that the clocks of two servers may be apart.
const LEEWAY: i64 = 10;
/// Longer tokens are refused unread.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// What a token says, as Kubernetes writes it down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// For whom it is.
    pub aud: Vec<String>,
    /// When it ends, in seconds since 1970.
    pub exp: i64,
    /// When it was made.
    pub iat: i64,
    /// Who made it.
    pub iss: String,
    /// Which token it is.
    pub jti: String,
    /// Whose it is.
    #[serde(rename = "kubernetes.io")]
    pub account: ServiceAccount,
    /// From when on it counts.
    pub nbf: i64,
    /// Whose it is, as the name of a user.
    pub sub: String,
}

/// The account of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceAccount {
    /// The logical cluster, as kcp says it.
    #[serde(rename = "clusterName")]
    pub cluster: String,
    /// The namespace.
    pub namespace: String,
    /// The Secret with which the token ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    /// The ServiceAccount.
    #[serde(rename = "serviceaccount")]
    pub account: Reference,
}

/// An object that must still be the same one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl ServiceAccount {
    /// The account as a user.
    pub fn user_name(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account.name)
    }
}

impl Claims {
    /// What a token of this server says that is made now and counts for so many seconds.
    pub fn new(account: ServiceAccount, aud: Vec<String>, jti: String, now: Timestamp, seconds: i64) -> Self {
        Claims {
            aud,
            exp: now.0 + seconds,
            iat: now.0,
            iss: ISSUER.to_owned(),
            jti,
            nbf: now.0,
            sub: account.user_name(),
            account,
        }
    }

    /// The user that the token stands for. They count in the account's cluster alone.
    pub fn user(&self, cluster: &ClusterName) -> UserInfo {
        let account = &self.account;
        let groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", account.namespace),
        ];
        let mut user = UserInfo::authenticated(account.user_name(), account.account.uid.clone(), groups);
        for (key, value) in [
            (EXTRA_CLUSTER, cluster.to_string()),
            (EXTRA_SCOPES, format!("cluster:{cluster}")),
            (EXTRA_CREDENTIAL, format!("JTI={}", self.jti)),
        ] {
            user.extra.insert(key.to_owned(), vec![value]);
        }
        user
    }
}

/// Why a token does not count. For the log, and for who reviews a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not one of ours.
    #[error("it is no token of a service account of this server")]
    Foreign,
    /// Too late.
    #[error("service account token has expired")]
    Expired,
    /// Too early.
    #[error("service account token is not valid yet")]
    Early,
    /// For somebody else.
    #[error("token audiences {token:?} is invalid for the target audiences {wanted:?}")]
    Audience {
        /// For whom it is.
        token: Vec<String>,
        /// For whom it should be.
        wanted: Vec<String>,
    },
}

/// The public keys that tokens may be signed with.
#[derive(Clone, Default)]
pub struct Verifier {
    keys: Vec<(String, DecodingKey)>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.keys.iter().map(|(name, _)| name).collect();
        f.debug_tuple("Verifier").field(&names).finish()
    }
}

/// The name of a public key in headers of tokens.
pub fn key_name(public_key: &[u8]) -> String {
    let digest = Sha256::digest(public_key);
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Verifier {
    /// A verifier with these public keys: points on P-256, uncompressed.
    pub fn new<'a>(public_keys: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let named = |key: &[u8]| (key_name(key), DecodingKey::from_ec_der(key));
        Verifier {
            keys: public_keys.into_iter().map(named).collect(),
        }
    }

    /// Reads a token that is for one of `audiences` now. Whether its account exists is not looked
    /// at.
    ///
    /// # Errors
    /// It is not ours, or does not count now or for these.
    pub fn verify(&self, token: &str, audiences: &[String], now: Timestamp) -> Result<Claims, TokenError> {
        let claims = self.signed(token).ok_or(TokenError::Foreign)?;
        if claims.iss != ISSUER || claims.sub != claims.account.user_name() {
            return Err(TokenError::Foreign);
        }
        if claims.exp <= now.0 {
            return Err(TokenError::Expired);
        }
        if claims.nbf.max(claims.iat) > now.0.saturating_add(LEEWAY) {
            return Err(TokenError::Early);
        }
        if !claims.aud.iter().any(|audience| audiences.contains(audience)) {
            return Err(TokenError::Audience {
                token: claims.aud,
                wanted: audiences.to_vec(),
            });
        }
        Ok(claims)
    }

    /// What a token says that one of the keys signed.
    fn signed(&self, token: &str) -> Option<Claims> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let named = decode_header(token).ok()?.kid?;
        let (_, key) = self.keys.iter().find(|(name, _)| *name == named)?;
        // The library reads the system's clock; times and audiences are looked at above.
        let mut validation = Validation::new(ALGORITHM);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        decode(token, key, &validation).ok().map(|read| read.claims)
    }
}

#[cfg(test)]
mod tests;
