//! Public keys of an issuer, from its JSON Web Key Set (RFC 7517).

use super::error::JwtError;
use insula_api::Json;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::Map;

/// Maximum number of keys of one issuer. Issuers in use have two or three; a token without a key id
/// is tried with each.
const KEYS_MAX: usize = 32;
/// Maximum number of bytes of a key id; longer ones match no key.
const KEY_ID_BYTES_MAX: usize = 1024;

const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// Public keys that verify an issuer's tokens.
#[derive(Debug, Default)]
pub struct Keys(Vec<Key>);

#[derive(Debug)]
struct Key {
    id: Option<String>,
    /// Algorithms that it may be used with.
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

impl Keys {
    /// Parses a key set. Skips keys for other purposes and of unknown types. Always skips symmetric
    /// keys: a published key signs nothing.
    ///
    /// # Errors
    /// Fails if the text is not a key set, or has no usable key.
    pub fn read(text: &[u8]) -> Result<Keys, String> {
        let set: Json = serde_json::from_slice(text).map_err(|_| "the key set is not JSON".to_owned())?;
        let listed = set["keys"].as_array().ok_or("the key set has no list called keys")?;
        if listed.len() > KEYS_MAX {
            return Err(format!("the key set has more than {KEYS_MAX} keys"));
        }
        let keys: Vec<Key> = listed.iter().filter_map(read_one).collect();
        match keys.is_empty() {
            true => Err("the key set has no key that signs with RSA, ECDSA or EdDSA".to_owned()),
            false => Ok(Keys(keys)),
        }
    }

    /// Returns the claims of a token if one of the keys signed it.
    pub(super) fn signed(&self, token: &str) -> Result<Map<String, Json>, JwtError> {
        let header = decode_header(token).map_err(|_| JwtError::Malformed)?;
        let named = header.kid.as_deref().filter(|id| !id.is_empty());
        if named.is_some_and(|id| id.len() > KEY_ID_BYTES_MAX) {
            return Err(JwtError::Malformed);
        }
        let mut fitting = self
            .0
            .iter()
            .filter(|key| named.is_none() || key.id.as_deref() == named)
            .peekable();
        if fitting.peek().is_none() {
            return Err(JwtError::UnknownKey);
        }
        let claims = fitting.find_map(|key| {
            // The algorithm must be one of the key's own.
            let algorithm = key.algorithms.iter().find(|own| **own == header.alg)?;
            // The library reads the system's clock; the caller checks times, issuer and audience.
            let mut validation = Validation::new(*algorithm);
            validation.required_spec_claims.clear();
            validation.validate_exp = false;
            validation.validate_aud = false;
            decode(token, &key.key, &validation).ok().map(|read| read.claims)
        });
        // A token without a key id may be signed by a key published since.
        claims.ok_or(match named {
            Some(_) => JwtError::Signature,
            None => JwtError::UnknownKey,
        })
    }
}

fn read_one(value: &Json) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
    if !matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature)) {
        return None;
    }
    let family: &[Algorithm] = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => &RSA,
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(_) => &[Algorithm::EdDSA],
        _ => return None,
    };
    let algorithms = match jwk.common.key_algorithm {
        None => family.to_vec(),
        Some(own_algorithm) => family
            .iter()
            .copied()
            .filter(|own| KeyAlgorithm::from(*own) == own_algorithm)
            .collect(),
    };
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    (!algorithms.is_empty()).then_some(Key {
        id: jwk.common.key_id,
        algorithms,
        key,
    })
}
