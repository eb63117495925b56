//! An issuer of tokens (OpenID Connect). Serves its keys over HTTPS, signs tokens for tests, and
//! rotates its keys.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::{SystemTime, UNIX_EPOCH},
};

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, jwk::Jwk};
use serde_json::{Value, json};

use crate::{Hook, Reply, Server};

/// Audience of its tokens, unless a test sets another one.
const AUDIENCE: &str = "insula";

/// A running issuer; it ends with the program.
pub struct Issuer {
    hook: Hook,
    signer: Arc<Mutex<Signer>>,
}

/// A key pair of an issuer.
pub struct Signer {
    key: EncodingKey,
    id: String,
}

impl Signer {
    /// Creates a key pair of this name.
    pub fn new(id: &str) -> Self {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        Self {
            key: EncodingKey::from_ec_der(pair.serialized_der()),
            id: id.to_owned(),
        }
    }

    fn public(&self) -> Value {
        let mut key = serde_json::to_value(Jwk::from_encoding_key(&self.key, Algorithm::ES256).unwrap()).unwrap();
        key["kid"] = json!(self.id);
        key
    }

    fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(self.id.clone());
        encode(&header, claims, &self.key).unwrap()
    }
}

impl Issuer {
    /// Starts an issuer with a certificate of the server's own CA.
    pub fn start(server: &Server) -> Self {
        let signer = Arc::new(Mutex::new(Signer::new("first")));
        let (known, place) = (Arc::clone(&signer), Arc::new(OnceLock::<String>::new()));
        let own = Arc::clone(&place);
        let hook = Hook::start(server, move |path, _| match (path, own.get()) {
            ("/.well-known/openid-configuration", Some(url)) => {
                Reply::Json(json!({"issuer": url, "jwks_uri": format!("{url}/keys")}))
            }
            ("/keys", _) => Reply::Json(json!({"keys": [known.lock().unwrap().public()]})),
            _ => Reply::Elsewhere(404, String::new()),
        });
        place.set(hook.url().to_owned()).unwrap();
        Self { hook, signer }
    }

    /// Returns the issuer's entry in an AuthenticationConfiguration, with these claim mappings.
    pub fn configuration(&self, server: &Server, mappings: &Value) -> Value {
        let authority = std::fs::read_to_string(server.data_dir().join("pki/ca.crt")).unwrap();
        json!({
            "issuer": {"url": self.hook.url(), "audiences": [AUDIENCE], "certificateAuthority": authority},
            "claimMappings": mappings,
        })
    }

    /// Returns a token with these claims and the required ones, valid for ten minutes.
    pub fn token(&self, claims: &Value) -> String {
        self.token_by(&self.signer.lock().unwrap(), claims)
    }

    /// Returns the same token, signed by another signer.
    pub fn token_by(&self, signer: &Signer, claims: &Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut all = json!({"iss": self.hook.url(), "aud": AUDIENCE, "exp": now + 600, "iat": now, "sub": "ada"});
        for (claim, value) in claims.as_object().unwrap() {
            all[claim] = value.clone();
        }
        signer.sign(&all)
    }

    /// Replaces the signing key by a new one, which alone is published. Returns the previous one.
    pub fn rotate(&self, id: &str) -> Signer {
        std::mem::replace(&mut *self.signer.lock().unwrap(), Signer::new(id))
    }

    /// Returns the number of fetches of its keys since the last call.
    pub fn fetches(&self) -> usize {
        self.hook.take("/keys").len()
    }
}
