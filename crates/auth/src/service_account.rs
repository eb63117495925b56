//! Tokens of service accounts: their claims and their verification. The caller signs them and
//! checks that the account still exists.

use crate::user::{EXTRA_CLUSTER, EXTRA_CREDENTIAL, EXTRA_SCOPES, UserInfo};
use insula_api::{ClusterName, Timestamp};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// Issuer of the tokens, and their default audience: kcp's name for itself. It must be the same on
/// every server and after every restart, unlike an address.
pub const ISSUER: &str = "https://kcp.default.svc";
/// Algorithm of all tokens. A token's header is compared with it and never selects one.
pub const ALGORITHM: Algorithm = Algorithm::ES256;
/// Allowed clock difference between two servers, in seconds.
const LEEWAY: i64 = 10;
/// Maximum number of bytes of a token; longer ones are refused without parsing.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Claims of a token, in Kubernetes' format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Audiences of the token.
    pub aud: Vec<String>,
    /// Expiry, in seconds since 1970.
    pub exp: i64,
    /// Time of issue, in seconds since 1970.
    pub iat: i64,
    /// The issuer.
    pub iss: String,
    /// Unique id of the token.
    pub jti: String,
    /// The service account.
    #[serde(rename = "kubernetes.io")]
    pub account: ServiceAccount,
    /// Start of validity, in seconds since 1970.
    pub nbf: i64,
    /// The service account, as a user name.
    pub sub: String,
}

/// The service account of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceAccount {
    /// The logical cluster, in kcp's notation.
    #[serde(rename = "clusterName")]
    pub cluster: String,
    /// The namespace.
    pub namespace: String,
    /// The Secret whose deletion ends the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    /// Name and UID of the ServiceAccount object.
    #[serde(rename = "serviceaccount")]
    pub account: Reference,
}

/// A reference to one object: a new object with the same name has another UID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl ServiceAccount {
    /// Returns the account's user name: `system:serviceaccount:<namespace>:<name>`.
    pub fn user_name(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account.name)
    }
}

impl Claims {
    /// Makes the claims of a new token of this server. `seconds` is its lifetime.
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

    /// Returns the user of the token, scoped to the account's cluster.
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

/// Reason why a token is refused, for the log and for token reviews.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not a token of this server.
    #[error("it is no token of a service account of this server")]
    Foreign,
    /// Expired.
    #[error("service account token has expired")]
    Expired,
    /// Not valid yet.
    #[error("service account token is not valid yet")]
    Early,
    /// Issued for other audiences.
    #[error("token audiences {token:?} is invalid for the target audiences {wanted:?}")]
    Audience {
        /// Audiences of the token.
        token: Vec<String>,
        /// Accepted audiences.
        wanted: Vec<String>,
    },
}

/// Public keys for verifying tokens.
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

/// Returns the key id in token headers for a public key.
pub fn key_name(public_key: &[u8]) -> String {
    let digest = Sha256::digest(public_key);
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Verifier {
    /// Makes a verifier with these public keys: uncompressed points on P-256.
    pub fn new<'a>(public_keys: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let named = |key: &[u8]| (key_name(key), DecodingKey::from_ec_der(key));
        Verifier {
            keys: public_keys.into_iter().map(named).collect(),
        }
    }

    /// Verifies a token for one of `audiences` at the time `now`. Does not check that its account
    /// exists.
    ///
    /// # Errors
    /// Fails if the token is not from this server, not valid now, or for other audiences.
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

    /// Returns the claims of a token if one of the keys signed it.
    fn signed(&self, token: &str) -> Option<Claims> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let named = decode_header(token).ok()?.kid?;
        let (_, key) = self.keys.iter().find(|(name, _)| *name == named)?;
        // The library reads the system's clock; the caller checks times and audiences.
        let mut validation = Validation::new(ALGORITHM);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        decode(token, key, &validation).ok().map(|read| read.claims)
    }
}

#[cfg(test)]
mod tests;
