//! Sign-in by a provider of OpenID Connect: the code flow with PKCE (RFC 7636).
//!
//! ```text
//! GET    /console/session          the provider, if there is one
//! POST   /console/session/begin    the address at the provider; a cookie keeps the sign-in
//! GET    /console/login?code=…     the page again, whose script sends what the provider answered
//! POST   /console/session/code     the code becomes an ID token, and this an ordinary sign-in
//! POST   /console/session/renewal  the same, with the refresh token of the session
//! DELETE /console/session          the cookies go; the provider revokes the refresh token
//! ```
//! Nothing happens when a provider, or anybody else, sends a browser to `/console/login`. A code
//! takes effect by a request that only a script of the same origin can make, with the cookie of the
//! sign-in that this browser began. The ID token is the viewer's credential like any other token:
//! the claims that belong to the sign-in (nonce, audience, subject) are checked here, before the
//! request that authenticates it, signature included.

use std::sync::Arc;

use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    digest::{SHA256, digest},
    rand,
};
use axum::body::Body;
use data_encoding::BASE64URL_NOPAD;
use futures_util::future::BoxFuture;
use http::{
    HeaderMap, HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use insula_api::{Json, Timestamp};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::json;

use crate::{
    refusal::Refusal,
    session::{Cookie, LIFETIME_SECONDS, LOGIN, RENEWAL, SessionKey, TOKEN_BYTES_MAX},
};

/// Path to which the provider sends browsers back.
const REDIRECT_PATH: &str = "/console/login";
/// Seconds for the viewer at the provider.
const LOGIN_SECONDS: i64 = 600;
/// Bytes of state, nonce and verifier; RFC 7636 recommends as many.
const SECRET_BYTES: usize = 32;
/// Letters that stand for themselves in a query (RFC 3986).
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Sign-in by a provider, as the settings have it.
pub struct Login {
    /// The provider: the claim `iss` of its tokens.
    pub issuer: String,
    /// Identifier of the console at the provider, and the audience of its tokens.
    pub client_id: String,
    /// Scopes that the console asks for, with spaces between.
    pub scopes: String,
    /// URL of the server without a path, where the provider sends browsers back.
    pub url: String,
    /// Calls to the provider.
    pub provider: Arc<dyn Provider>,
}

/// Addresses of a provider, all of them `https`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// Page at which viewers sign in.
    pub authorization: String,
    /// Takes codes and gives tokens.
    pub token: String,
    /// Revokes tokens.
    pub revocation: Option<String>,
    /// True for a provider that always names itself in its answers (RFC 9207).
    pub names_itself: bool,
}

/// A form as it is posted.
pub type Form = Vec<(&'static str, String)>;

/// Calls to the provider, within time, size and number. An absent result has its reason in the log.
pub trait Provider: Send + Sync {
    /// Returns the addresses that the provider announces.
    fn endpoints(&self) -> BoxFuture<'_, Option<Arc<Endpoints>>>;

    /// Posts a form to one of the addresses, as the client, and returns the answer.
    fn post<'a>(&'a self, url: &'a str, form: Form) -> BoxFuture<'a, Option<Json>>;
}

/// The answer of a provider, as the browser brings it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Returned {
    code: Option<String>,
    state: Option<String>,
    issuer: Option<String>,
}

impl Returned {
    /// Reads a query. A parameter that comes twice counts as absent.
    pub(crate) fn read(query: &str) -> Self {
        let one = |name: &str| {
            let mut values = query.split('&').filter_map(|pair| pair.split_once('='));
            let mut values = values.by_ref().filter(|(key, _)| *key == name).map(|(_, value)| value);
            let value = values.next().filter(|_| values.next().is_none())?;
            let text = percent_decode_str(value).decode_utf8().ok()?;
            (!text.is_empty()).then(|| text.into_owned())
        };
        Returned {
            code: one("code"),
            state: one("state"),
            issuer: one("iss"),
        }
    }
}

/// Tokens of a viewer, and how long their session lasts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Vouched {
    /// The ID token.
    pub(crate) token: String,
    /// End of the session.
    pub(crate) expires: Timestamp,
    /// Text of the cookie by which the session is renewed.
    pub(crate) renewal: Option<String>,
}

impl Login {
    /// Begins a sign-in. Returns where the browser goes, and the cookie that it keeps.
    pub(crate) async fn begin(
        &self,
        key: &SessionKey,
        now: Timestamp,
        host: &str,
    ) -> Result<(Response<Body>, String), Refusal> {
        // The provider sends browsers back to this address alone: elsewhere is another cookie.
        if !self.url.eq_ignore_ascii_case(&format!("https://{host}")) {
            return Err(Refusal::OtherAddress);
        }
        let endpoints = self.provider.endpoints().await.ok_or(Refusal::NoProvider)?;
        let [state, nonce, verifier] = [(); 3].map(|()| secret());
        let challenge = BASE64URL_NOPAD.encode(digest(&SHA256, verifier.as_bytes()).as_ref());
        let query = encoded(&[
            ("response_type", "code"),
            ("client_id", &self.client_id),
            ("redirect_uri", &self.redirect_uri()),
            ("scope", &self.scopes),
            ("state", &state),
            ("nonce", &nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let address = &endpoints.authorization;
        let mark = if address.contains('?') { '&' } else { '?' };
        let begun = json!({"issuer": self.issuer, "state": state, "nonce": nonce, "verifier": verifier});
        let cookie = key.begin(&LOGIN, &begun.to_string(), now, Timestamp(now.0 + LOGIN_SECONDS));
        Ok((answer(&json!({"location": format!("{address}{mark}{query}")})), cookie))
    }

    /// Ends a sign-in: gets the tokens for the code that the provider gave this browser.
    pub(crate) async fn exchange(
        &self,
        key: &SessionKey,
        now: Timestamp,
        headers: &HeaderMap,
        returned: Returned,
    ) -> Result<Vouched, Refusal> {
        let Cookie::Value(value) = Cookie::read(headers, &LOGIN) else {
            return Err(Refusal::NoLogin);
        };
        let (begun, _) = key.open(&LOGIN, value, now).ok_or(Refusal::NoLogin)?;
        let begun: Json = serde_json::from_str(&begun).map_err(|_| Refusal::NoLogin)?;
        let kept = |name: &str| begun[name].as_str().unwrap_or_default();
        let state = returned.state.unwrap_or_default();
        verify_slices_are_equal(state.as_bytes(), kept("state").as_bytes()).map_err(|_| Refusal::OtherLogin)?;
        let endpoints = self.provider.endpoints().await.ok_or(Refusal::NoProvider)?;
        // A code of one provider is not shown to another one, whose settings are those of now.
        let named = returned.issuer.as_deref();
        let is_named = named.map_or(!endpoints.names_itself, |issuer| issuer == self.issuer);
        if kept("issuer") != self.issuer || !is_named {
            return Err(Refusal::OtherProvider);
        }
        let code = returned.code.ok_or(Refusal::NotVouched)?;
        let form = vec![
            ("grant_type", "authorization_code".to_owned()),
            ("code", code),
            ("redirect_uri", self.redirect_uri()),
            ("code_verifier", kept("verifier").to_owned()),
        ];
        let tokens = self.provider.post(&endpoints.token, form).await;
        let tokens = tokens.ok_or(Refusal::NotVouched)?;
        let (token, subject) = self.id_token(&tokens, Some(kept("nonce")))?;
        let refresh = tokens["refresh_token"].as_str();
        Ok(Vouched {
            renewal: refresh.and_then(|refresh| renewal(refresh, &subject)),
            expires: Timestamp(now.0 + LIFETIME_SECONDS),
            token,
        })
    }

    /// Gets the next tokens of a session, which ends when it would have.
    pub(crate) async fn renew(
        &self,
        key: &SessionKey,
        now: Timestamp,
        headers: &HeaderMap,
    ) -> Result<Vouched, Refusal> {
        let (refresh, subject, expires) = kept_renewal(key, now, headers).ok_or(Refusal::NotRenewed)?;
        let endpoints = self.provider.endpoints().await.ok_or(Refusal::NoProvider)?;
        let form = vec![
            ("grant_type", "refresh_token".to_owned()),
            ("refresh_token", refresh.clone()),
        ];
        let tokens = self.provider.post(&endpoints.token, form).await;
        let tokens = tokens.ok_or(Refusal::NotRenewed)?;
        let (token, vouched) = self.id_token(&tokens, None)?;
        if vouched != subject {
            return Err(Refusal::WrongToken);
        }
        // A provider that changes refresh tokens sends the next one.
        let refresh = tokens["refresh_token"].as_str().unwrap_or(&refresh);
        Ok(Vouched {
            renewal: renewal(refresh, &subject),
            expires,
            token,
        })
    }

    /// Has the refresh token of a session revoked, where the provider can.
    pub(crate) async fn revoke(&self, key: &SessionKey, now: Timestamp, headers: &HeaderMap) {
        let Some((refresh, ..)) = kept_renewal(key, now, headers) else {
            return;
        };
        let endpoints = self.provider.endpoints().await;
        if let Some(address) = endpoints.as_ref().and_then(|known| known.revocation.as_deref()) {
            let form = vec![("token", refresh), ("token_type_hint", "refresh_token".to_owned())];
            self.provider.post(address, form).await;
        }
    }

    fn redirect_uri(&self) -> String {
        format!("{}{REDIRECT_PATH}", self.url)
    }

    /// Returns the ID token of an answer and its subject, if it is for this client and sign-in.
    /// Its signature is checked by the request that it authenticates.
    fn id_token(&self, tokens: &Json, nonce: Option<&str>) -> Result<(String, String), Refusal> {
        let token = tokens["id_token"].as_str().ok_or(Refusal::WrongToken)?;
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refusal::LongToken);
        }
        let claims = claims(token).ok_or(Refusal::WrongToken)?;
        let (own, is_own) = (self.client_id.as_str(), |claim: &Json| *claim == *self.client_id);
        // Other audiences have the token as well: it must say that it was made for this client.
        let is_audience = match &claims["aud"] {
            Json::Array(all) => all.iter().any(is_own) && (all.len() == 1 || claims["azp"] == own),
            one => is_own(one),
        };
        let is_authorized = claims["azp"].is_null() || claims["azp"] == own;
        let is_of_login = nonce.is_none_or(|nonce| claims["nonce"] == nonce);
        let subject = claims["sub"].as_str().filter(|subject| !subject.is_empty());
        match subject {
            Some(subject) if claims["iss"] == *self.issuer && is_audience && is_authorized && is_of_login => {
                Ok((token.to_owned(), subject.to_owned()))
            }
            _ => Err(Refusal::WrongToken),
        }
    }
}

/// Returns the answer with a JSON document of the console's own.
pub(crate) fn answer(document: &Json) -> Response<Body> {
    let mut response = Response::new(Body::from(document.to_string()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns the claims of a token, whose signature is not verified.
fn claims(token: &str) -> Option<Json> {
    let payload = token.split('.').nth(1)?;
    serde_json::from_slice(&BASE64URL_NOPAD.decode(payload.as_bytes()).ok()?).ok()
}

/// Returns the text of the cookie for renewals. There is none for a token that does not fit: the
/// session then lasts as long as its token.
fn renewal(refresh: &str, subject: &str) -> Option<String> {
    let text = json!({"refresh": refresh, "subject": subject}).to_string();
    (text.len() <= TOKEN_BYTES_MAX).then_some(text)
}

/// Returns the refresh token of a session, its subject, and the end of the session.
fn kept_renewal(key: &SessionKey, now: Timestamp, headers: &HeaderMap) -> Option<(String, String, Timestamp)> {
    let Cookie::Value(value) = Cookie::read(headers, &RENEWAL) else {
        return None;
    };
    let (text, expires) = key.open(&RENEWAL, value, now)?;
    let kept: Json = serde_json::from_str(&text).ok()?;
    let text = |name: &str| kept[name].as_str().map(str::to_owned);
    Some((text("refresh")?, text("subject")?, expires))
}

fn secret() -> String {
    let mut bytes = [0; SECRET_BYTES];
    rand::fill(&mut bytes).expect("the system has random numbers");
    BASE64URL_NOPAD.encode(&bytes)
}

/// Encodes a query or a form.
pub fn encoded(pairs: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| format!("{name}={}", escaped(value));
    pairs.iter().map(pair).collect::<Vec<_>>().join("&")
}

/// Escapes a text, for a query or a form.
pub fn escaped(text: &str) -> String {
    utf8_percent_encode(text, QUERY).to_string()
}

#[cfg(test)]
mod tests;
