//! Sessions: the token of a viewer in a cookie, sealed by a key that all servers of an installation
//! derive from the same secret. No server keeps a list of sessions.
//!
//! A session gives no right: the token in it is authenticated with every request, so that a token
//! that is revoked or expires ends its sessions at once.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey},
    hkdf::{HKDF_SHA256, Salt},
};
use data_encoding::BASE64URL_NOPAD;
use http::{HeaderMap, header::COOKIE};
use insula_api::Timestamp;

/// Name of the cookie. Browsers take the prefix from secure origins only.
const COOKIE_NAME: &str = "__Secure-insula-console";
/// Attributes of the cookie: no script reads it, no other site sends it.
const ATTRIBUTES: &str = "Path=/console; HttpOnly; Secure; SameSite=Strict";
/// Seconds of a session at most, a working day.
const LIFETIME_SECONDS: i64 = 12 * 3600;
/// Bytes of a token at most: browsers keep 4,096 bytes of a cookie.
pub(crate) const TOKEN_BYTES_MAX: usize = 3_000;
/// Characters of a cookie at most: those of the longest token.
const COOKIE_CHARS_MAX: usize = 4_096;

const NONCE_BYTES: usize = 12;
const EXPIRY_BYTES: usize = 8;
/// Binds keys and cookies to their purpose.
const PURPOSE: &[u8] = b"insula console session 1";

/// Key that seals sessions.
pub(crate) struct SessionKey(RandomizedNonceKey);

impl SessionKey {
    /// Derives the key from a secret of the installation.
    pub(crate) fn derive(secret: &[u8]) -> Self {
        let mut key = [0; 32];
        let derived = Salt::new(HKDF_SHA256, &[]).extract(secret);
        derived
            .expand(&[PURPOSE], HKDF_SHA256)
            .and_then(|derived| derived.fill(&mut key))
            .expect("the key has the length of the hash");
        SessionKey(RandomizedNonceKey::new(&AES_256_GCM, &key).expect("the key has 256 bits"))
    }

    /// Returns the value of `Set-Cookie` that begins a session.
    pub(crate) fn begin(&self, token: &str, now: Timestamp) -> String {
        let sealed = self.seal(token, Timestamp(now.0 + LIFETIME_SECONDS));
        format!("{COOKIE_NAME}={sealed}; Max-Age={LIFETIME_SECONDS}; {ATTRIBUTES}")
    }

    fn seal(&self, token: &str, expires: Timestamp) -> String {
        let mut sealed = [&expires.0.to_be_bytes(), token.as_bytes()].concat();
        let nonce = self.0.seal_in_place_append_tag(Aad::from(PURPOSE), &mut sealed);
        let nonce = nonce.expect("a token is shorter than what the cipher takes");
        BASE64URL_NOPAD.encode(&[nonce.as_ref().as_slice(), &sealed].concat())
    }

    /// Returns the token of a session that has not ended.
    pub(crate) fn open(&self, value: &str, now: Timestamp) -> Option<String> {
        if value.len() > COOKIE_CHARS_MAX {
            return None;
        }
        let bytes = BASE64URL_NOPAD.decode(value.as_bytes()).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_BYTES)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let opened = self.0.open_in_place(nonce, Aad::from(PURPOSE), &mut sealed).ok()?;
        let (expires, token) = opened.split_first_chunk::<EXPIRY_BYTES>()?;
        if i64::from_be_bytes(*expires) <= now.0 {
            return None;
        }
        String::from_utf8(token.to_vec()).ok()
    }
}

/// Returns the value of `Set-Cookie` that removes the cookie.
pub(crate) fn end() -> String {
    format!("{COOKIE_NAME}=; Max-Age=0; {ATTRIBUTES}")
}

/// The cookies of a request that have the name of a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cookie<'a> {
    /// None.
    Absent,
    /// One.
    Value(&'a str),
    /// Several, or one that is no text: somebody else set one of them.
    Ambiguous,
}

impl<'a> Cookie<'a> {
    pub(crate) fn read(headers: &'a HeaderMap) -> Self {
        let mut found = Cookie::Absent;
        // A name without its value counts, too.
        let value_of = |pair: &'a str| match pair.split_once('=') {
            Some((name, value)) => (name == COOKIE_NAME).then_some(value),
            None => (pair == COOKIE_NAME).then_some(""),
        };
        for header in headers.get_all(COOKIE) {
            let Ok(text) = header.to_str() else {
                return Cookie::Ambiguous;
            };
            for value in text.split(';').map(str::trim).filter_map(value_of) {
                found = match found {
                    Cookie::Absent => Cookie::Value(value),
                    _ => return Cookie::Ambiguous,
                };
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn value(set_cookie: &str) -> &str {
        let value = set_cookie.split(';').next().expect("a pair");
        value.split_once('=').expect("a value").1
    }

    #[test]
    fn a_session_opens_until_it_ends() {
        let key = SessionKey::derive(b"secret");
        let cookie = key.begin("token", NOW);
        assert!(cookie.ends_with("; Max-Age=43200; Path=/console; HttpOnly; Secure; SameSite=Strict"));
        let opened = |now| key.open(value(&cookie), Timestamp(now));
        assert_eq!(opened(NOW.0).as_deref(), Some("token"));
        assert_eq!(opened(NOW.0 + LIFETIME_SECONDS - 1).as_deref(), Some("token"));
        assert_eq!(opened(NOW.0 + LIFETIME_SECONDS), None);
        assert_eq!(value(&end()), "");
    }

    #[test]
    fn servers_with_one_secret_open_each_other_s_sessions() {
        let cookie = SessionKey::derive(b"secret").begin("token", NOW);
        assert!(SessionKey::derive(b"secret").open(value(&cookie), NOW).is_some());
        assert_eq!(SessionKey::derive(b"other").open(value(&cookie), NOW), None);
    }

    #[test]
    fn sealing_twice_gives_different_cookies() {
        let key = SessionKey::derive(b"secret");
        assert_ne!(key.begin("token", NOW), key.begin("token", NOW));
    }

    #[test]
    fn forged_cookies_do_not_open() {
        let key = SessionKey::derive(b"secret");
        let sealed = key.seal("token", Timestamp(NOW.0 + 60));
        for end in 0..sealed.len() {
            assert_eq!(key.open(&sealed[..end], NOW), None, "cut after {end}");
        }
        for at in 0..sealed.len() {
            let mut forged = sealed.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).expect("letters");
            assert_eq!(key.open(&forged, NOW), None, "changed at {at}");
        }
        for other in ["", "token", "====", &"A".repeat(4_096), &"A".repeat(70_000)] {
            assert_eq!(key.open(other, NOW), None);
        }
    }

    #[test]
    fn the_longest_token_fits_into_a_cookie() {
        let key = SessionKey::derive(b"secret");
        let token = "t".repeat(TOKEN_BYTES_MAX);
        let cookie = key.begin(&token, NOW);
        let pair = cookie.split(';').next().expect("a pair");
        assert!(pair.len() <= COOKIE_CHARS_MAX, "{}", pair.len());
        assert_eq!(key.open(value(&cookie), NOW), Some(token));
    }

    #[test]
    fn one_cookie_of_the_name_counts() {
        for (given, want) in [
            (&[][..], Cookie::Absent),
            (&["a=b; c=d"], Cookie::Absent),
            (&["a=b; __Secure-insula-console=v; c=d"], Cookie::Value("v")),
            (&["__Secure-insula-console=v="], Cookie::Value("v=")),
            (&["__Secure-insula-console"], Cookie::Value("")),
            (
                &["__Secure-insula-console=v; __Secure-insula-console=w"],
                Cookie::Ambiguous,
            ),
            (
                &["__Secure-insula-console=v", "__Secure-insula-console=w"],
                Cookie::Ambiguous,
            ),
            (&["a=\u{e9}; __Secure-insula-console=v"], Cookie::Ambiguous),
        ] {
            let mut headers = HeaderMap::new();
            for text in given {
                headers.append(COOKIE, HeaderValue::from_bytes(text.as_bytes()).expect("a value"));
            }
            assert_eq!(Cookie::read(&headers), want, "{given:?}");
        }
    }
}
