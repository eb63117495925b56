//! Sessions: the token of a viewer in a cookie, sealed by a key that all servers of an installation
//! derive from the same secret. No server keeps a list of sessions, nor of sign-ins under way.
//!
//! A session gives no right: the token in it is authenticated with every request, so that a token
//! that is revoked or expires ends its sessions at once.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey},
    hkdf::{HKDF_SHA256, Salt},
};
use axum::body::Body;
use data_encoding::BASE64URL_NOPAD;
use http::{
    HeaderMap, HeaderValue, Response,
    header::{CACHE_CONTROL, COOKIE, SET_COOKIE},
};
use insula_api::Timestamp;

/// Seconds of a session at most, a working day.
pub(crate) const LIFETIME_SECONDS: i64 = 12 * 3600;
/// Bytes of a token at most: browsers keep 4,096 bytes of a cookie.
pub(crate) const TOKEN_BYTES_MAX: usize = 3_000;
/// Characters of a cookie at most: those of the longest token.
const COOKIE_CHARS_MAX: usize = 4_096;

const NONCE_BYTES: usize = 12;
const EXPIRY_BYTES: usize = 8;
/// Binds the key to its purpose.
const PURPOSE: &[u8] = b"insula console session 1";

/// Attributes of the cookies: no script reads them, and no other site sends them.
const ATTRIBUTES: &str = "Path=/; HttpOnly; Secure; SameSite=Strict";

/// A cookie of the console, with a text that is sealed for it alone. Its name begins with
/// `__Host-`: browsers take such a cookie from this host and a secure connection only, and for all
/// its paths. A server of a neighbouring name could set another one, and have a viewer work in its
/// session.
#[derive(Debug)]
pub(crate) struct Kind {
    name: &'static str,
    /// Binds what is sealed to the cookie.
    purpose: &'static [u8],
}

/// The token of a viewer.
pub(crate) const SESSION: Kind = Kind {
    name: "__Host-insula-console",
    purpose: PURPOSE,
};

/// A sign-in at the provider that is under way.
pub(crate) const LOGIN: Kind = Kind {
    name: "__Host-insula-console-login",
    purpose: b"insula console login 1",
};

/// The means to get another token from the provider.
pub(crate) const RENEWAL: Kind = Kind {
    name: "__Host-insula-console-renewal",
    purpose: b"insula console renewal 1",
};

impl Kind {
    /// Returns the value of `Set-Cookie` that removes the cookie.
    pub(crate) fn end(&self) -> String {
        format!("{}=; Max-Age=0; {ATTRIBUTES}", self.name)
    }
}

/// Key that seals cookies.
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

    /// Returns the value of `Set-Cookie` that begins a cookie, which ends at `expires`.
    pub(crate) fn begin(&self, kind: &Kind, text: &str, now: Timestamp, expires: Timestamp) -> String {
        let sealed = self.seal(kind, text, expires);
        let seconds = expires.0.saturating_sub(now.0).max(0);
        format!("{}={sealed}; Max-Age={seconds}; {ATTRIBUTES}", kind.name)
    }

    fn seal(&self, kind: &Kind, text: &str, expires: Timestamp) -> String {
        let mut sealed = [&expires.0.to_be_bytes(), text.as_bytes()].concat();
        let nonce = self.0.seal_in_place_append_tag(Aad::from(kind.purpose), &mut sealed);
        let nonce = nonce.expect("a token is shorter than what the cipher takes");
        BASE64URL_NOPAD.encode(&[nonce.as_ref().as_slice(), &sealed].concat())
    }

    /// Returns the text of a cookie that has not ended, and when it ends.
    pub(crate) fn open(&self, kind: &Kind, value: &str, now: Timestamp) -> Option<(String, Timestamp)> {
        if value.len() > COOKIE_CHARS_MAX {
            return None;
        }
        let bytes = BASE64URL_NOPAD.decode(value.as_bytes()).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_BYTES)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let opened = self.0.open_in_place(nonce, Aad::from(kind.purpose), &mut sealed).ok()?;
        let (expires, text) = opened.split_first_chunk::<EXPIRY_BYTES>()?;
        let expires = Timestamp(i64::from_be_bytes(*expires));
        if expires <= now {
            return None;
        }
        Some((String::from_utf8(text.to_vec()).ok()?, expires))
    }
}

/// Adds a cookie to an answer, which nothing keeps then.
pub(crate) fn add_cookie(response: &mut Response<Body>, cookie: &str) {
    let value = HeaderValue::from_str(cookie).expect("a cookie is text");
    let headers = response.headers_mut();
    headers.append(SET_COOKIE, value);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// The cookies of a request that have the name of a kind.
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
    pub(crate) fn read(headers: &'a HeaderMap, kind: &Kind) -> Self {
        let mut found = Cookie::Absent;
        // A name without its value counts, too.
        let value_of = |pair: &'a str| match pair.split_once('=') {
            Some((name, value)) => (name == kind.name).then_some(value),
            None => (pair == kind.name).then_some(""),
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
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);
    const END: Timestamp = Timestamp(NOW.0 + LIFETIME_SECONDS);

    fn value(set_cookie: &str) -> &str {
        let value = set_cookie.split(';').next().expect("a pair");
        value.split_once('=').expect("a value").1
    }

    #[test]
    fn a_session_opens_until_it_ends() {
        let key = SessionKey::derive(b"secret");
        let cookie = key.begin(&SESSION, "token", NOW, END);
        assert!(cookie.ends_with("; Max-Age=43200; Path=/; HttpOnly; Secure; SameSite=Strict"));
        let opened = |now| key.open(&SESSION, value(&cookie), Timestamp(now));
        assert_eq!(opened(NOW.0), Some(("token".to_owned(), END)));
        assert_eq!(opened(END.0 - 1), Some(("token".to_owned(), END)));
        assert_eq!(opened(END.0), None);
        assert_eq!(value(&SESSION.end()), "");
    }

    #[test]
    fn servers_with_one_secret_open_each_other_s_sessions() {
        let cookie = SessionKey::derive(b"secret").begin(&SESSION, "token", NOW, END);
        let open = |secret: &[u8]| SessionKey::derive(secret).open(&SESSION, value(&cookie), NOW);
        assert!(open(b"secret").is_some());
        assert_eq!(open(b"other"), None);
    }

    #[test]
    fn sealing_twice_gives_different_cookies() {
        let key = SessionKey::derive(b"secret");
        let begin = || key.begin(&SESSION, "token", NOW, END);
        assert_ne!(begin(), begin());
    }

    #[test]
    fn a_cookie_is_none_of_another_kind() {
        let key = SessionKey::derive(b"secret");
        for (sealed, opened) in [(&LOGIN, &SESSION), (&RENEWAL, &SESSION), (&SESSION, &RENEWAL)] {
            let value = key.seal(sealed, "token", END);
            assert_eq!(key.open(opened, &value, NOW), None, "{opened:?}");
            assert!(key.open(sealed, &value, NOW).is_some());
        }
    }

    #[test]
    fn forged_cookies_do_not_open() {
        let key = SessionKey::derive(b"secret");
        let sealed = key.seal(&SESSION, "token", END);
        for end in 0..sealed.len() {
            assert_eq!(key.open(&SESSION, &sealed[..end], NOW), None, "cut after {end}");
        }
        for at in 0..sealed.len() {
            let mut forged = sealed.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).expect("letters");
            assert_eq!(key.open(&SESSION, &forged, NOW), None, "changed at {at}");
        }
        for other in ["", "token", "====", &"A".repeat(4_096), &"A".repeat(70_000)] {
            assert_eq!(key.open(&SESSION, other, NOW), None);
        }
    }

    #[test]
    fn the_longest_token_fits_into_a_cookie() {
        let key = SessionKey::derive(b"secret");
        let token = "t".repeat(TOKEN_BYTES_MAX);
        let cookie = key.begin(&SESSION, &token, NOW, END);
        let pair = cookie.split(';').next().expect("a pair");
        assert!(pair.len() <= COOKIE_CHARS_MAX, "{}", pair.len());
        assert_eq!(key.open(&SESSION, value(&cookie), NOW), Some((token, END)));
    }

    #[test]
    fn one_cookie_of_the_name_counts() {
        for (given, want) in [
            (&[][..], Cookie::Absent),
            (&["a=b; c=d"], Cookie::Absent),
            (&["a=b; __Host-insula-console=v; c=d"], Cookie::Value("v")),
            (&["__Host-insula-console=v="], Cookie::Value("v=")),
            (&["__Host-insula-console"], Cookie::Value("")),
            (&["__Host-insula-console=v; __Host-insula-console=w"], Cookie::Ambiguous),
            (
                &["__Host-insula-console=v", "__Host-insula-console=w"],
                Cookie::Ambiguous,
            ),
            (&["a=\u{e9}; __Host-insula-console=v"], Cookie::Ambiguous),
        ] {
            let mut headers = HeaderMap::new();
            for text in given {
                headers.append(COOKIE, HeaderValue::from_bytes(text.as_bytes()).expect("a value"));
            }
            assert_eq!(Cookie::read(&headers, &SESSION), want, "{given:?}");
        }
    }
}
