//! Keys of service account tokens: one that signs, and the previous one, which may still verify.
//!
//! The first start creates `service-accounts.key` beside the other keys. To rotate it, rename it to
//! `service-accounts-previous.key` and restart: tokens that it signed stay valid until they expire
//! or the file is removed.

use std::{path::Path, sync::Arc};

use insula_access::accounts::{Accounts, Sign};
use insula_auth::{
    ec_key::to_pkcs8,
    service_account::{ALGORITHM, Claims, Verifier, key_name},
};
use insula_store::Store;
use jsonwebtoken::{EncodingKey, Header, encode};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use rustls_pki_types::{PrivateKeyDer, pem::PemObject};

use crate::{
    Env, StartError,
    files::{IDENTITY_DIR, read_secret, write_private},
};

/// File of the key that signs.
const KEY: &str = "service-accounts.key";
/// File of the previous key.
const PREVIOUS: &str = "service-accounts-previous.key";

/// Opens the keys, and creates the signing key if it is missing.
pub(crate) fn open(data_dir: &Path, env: &Env, store: &Arc<dyn Store>) -> Result<Accounts, StartError> {
    let dir = data_dir.join(IDENTITY_DIR);
    let path = dir.join(KEY);
    let key = match read(&path)? {
        Some(key) => key,
        None => make(&path)?,
    };
    let previous = read(&dir.join(PREVIOUS))?;
    let keys = std::iter::once(&key).chain(&previous);
    Ok(Accounts {
        verifier: Verifier::new(keys.map(KeyPair::public_key_raw)),
        sign: signer(&key),
        store: Arc::clone(store),
        clock: env.clock.clone(),
    })
}

/// Returns the names of the keys in a data directory: of the one that signs, and of the previous
/// one.
///
/// # Errors
/// A key cannot be read, is readable by others, or is none.
pub(crate) fn key_names(data_dir: &Path) -> Result<(String, Option<String>), StartError> {
    let dir = data_dir.join(IDENTITY_DIR);
    let name = |file: &str| read(&dir.join(file)).map(|key| key.map(|key| key_name(key.public_key_raw())));
    Ok((name(KEY)?.unwrap_or_default(), name(PREVIOUS)?))
}

/// Checks the keys of a directory, without making any.
///
/// # Errors
/// A key cannot be read, is readable by others, or is none.
pub(crate) fn check(dir: &Path) -> Result<(), StartError> {
    read(&dir.join(KEY))?;
    read(&dir.join(PREVIOUS)).map(drop)
}

fn read(path: &Path) -> Result<Option<KeyPair>, StartError> {
    let Some(pem) = read_secret(path)? else { return Ok(None) };
    let unusable = |error: &dyn std::fmt::Display| wrong(path, format!("is not a private key on P-256: {error}"));
    let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| unusable(&error))?;
    let read = |der: &PrivateKeyDer<'_>| KeyPair::from_der_and_sign_algo(der, &PKCS_ECDSA_P256_SHA256);
    let key = read(&der).map_err(|error| unusable(&error))?;
    let PrivateKeyDer::Sec1(sec1) = &der else {
        return Ok(Some(key));
    };
    // Tokens are signed with the key as PKCS #8.
    let pkcs8 = to_pkcs8(sec1.secret_sec1_der(), &key.subject_public_key_info());
    read(&PrivateKeyDer::Pkcs8(pkcs8.into()))
        .map(Some)
        .map_err(|error| unusable(&error))
}

fn make(path: &Path) -> Result<KeyPair, StartError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
    let key = key.map_err(|error| wrong(path, format!("cannot be made: {error}")))?;
    write_private(path, key.serialize_pem().as_bytes()).map_err(|cause| StartError::write(path, cause))?;
    Ok(key)
}

fn wrong(path: &Path, cause: String) -> StartError {
    StartError::Identity {
        path: path.to_owned(),
        cause,
    }
}

fn signer(key: &KeyPair) -> Sign {
    let header = Header {
        kid: Some(key_name(key.public_key_raw())),
        typ: None,
        ..Header::new(ALGORITHM)
    };
    let key = EncodingKey::from_ec_der(key.serialized_der());
    Arc::new(move |claims: &Claims| encode(&header, claims, &key).map_err(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use insula_auth::service_account::{ISSUER, Reference, ServiceAccount};
    use insula_store::MemoryStore;

    use super::*;

    fn opened(dir: &Path) -> Accounts {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        open(dir, &Env::real(), &store).expect("it opens")
    }

    fn token(accounts: &Accounts) -> String {
        let now = accounts.clock.now();
        let account = ServiceAccount {
            cluster: "abc".into(),
            namespace: "default".into(),
            secret: None,
            account: Reference {
                name: "robot".into(),
                uid: "u".into(),
            },
        };
        let claims = Claims::new(account, vec![ISSUER.into()], "j".into(), now, 600);
        (accounts.sign)(&claims).expect("it can be signed")
    }

    fn believes(accounts: &Accounts, token: &str) -> bool {
        let audiences = [ISSUER.to_owned()];
        accounts
            .verifier
            .verify(token, &audiences, accounts.clock.now())
            .is_ok()
    }

    #[test]
    fn tokens_outlive_a_start_and_a_change_of_keys() {
        let data = tempfile::tempdir().expect("a folder");
        let dir = data.path().join(IDENTITY_DIR);
        crate::files::private_dir(&dir).expect("a folder");
        let first = opened(data.path());
        let old = token(&first);
        assert!(believes(&first, &old));
        assert!(believes(&opened(data.path()), &old), "the key stays");
        std::fs::rename(dir.join(KEY), dir.join(PREVIOUS)).expect("it is there");
        let second = opened(data.path());
        let new = token(&second);
        assert!(believes(&second, &old) && believes(&second, &new));
        assert!(!believes(&first, &new));
        std::fs::remove_file(dir.join(PREVIOUS)).expect("it is there");
        let third = opened(data.path());
        assert!(!believes(&third, &old) && believes(&third, &new));
    }

    #[test]
    fn a_key_of_another_kind_is_refused() {
        let data = tempfile::tempdir().expect("a folder");
        let dir = data.path().join(IDENTITY_DIR);
        crate::files::private_dir(&dir).expect("a folder");
        write_private(&dir.join(KEY), b"no key").expect("it is written");
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        assert!(open(data.path(), &Env::real(), &store).is_err());
    }
}
