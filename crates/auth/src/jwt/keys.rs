//! The public keys of an issuer, as it publishes them (JSON Web Key Set, RFC 7517).

use super::user::JwtError;
use insula_api::Json;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::Map;

/// Keys of one issuer. Those in use have two or three; each may be tried for a token that names
/// none.
const KEYS_MAX: usize = 32;
/// Longer names of keys are nobody's.
const KEY_ID_BYTES_MAX: usize = 1024;

const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// The keys with which an issuer signs.
#[derive(Debug, Default)]
pub struct Keys(Vec<Key>);

#[derive(Debug)]
struct Key {
    id: Option<String>,
    /// What it may be used with.
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

impl Keys {
    /// Reads a key set. Keys that are for something else, or of a kind that is not known here, are
    /// passed over; symmetric ones always: what everybody can read signs nothing.
    ///
    /// # Errors
    /// It is no key set, or has no key that signs.
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

    /// What a token says that one of the keys signed.
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
            // One of the key's own algorithms, or the token is none of its.
            let algorithm = key.algorithms.iter().find(|own| **own == header.alg)?;
            // The library reads the system's clock; times, issuer and audience are looked at by the
            // caller.
            let mut validation = Validation::new(*algorithm);
            validation.required_spec_claims.clear();
            validation.validate_exp = false;
            validation.validate_aud = false;
            decode(token, &key.key, &validation).ok().map(|read| read.claims)
        });
        // A token that names no key may be signed by one that came since.
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
