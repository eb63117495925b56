//! Requests to the console: from the head of a browser's request to the head of the ordinary one.

use std::sync::Arc;

use axum::body::Body;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, ORIGIN, SET_COOKIE, UPGRADE},
    uri::{Authority, PathAndQuery},
};
use insula_api::{Clock, ClusterPath};
use insula_edge::port::Arrival;

use crate::{
    assets,
    refusal::Refusal,
    session::{self, Cookie, SessionKey, TOKEN_BYTES_MAX},
};

const ROOT: &str = "/console";
const SESSION: &str = "/console/session";
const API: &str = "/console/api";
/// Header of requests to sessions and the API. A script of another origin cannot set it without
/// asking first, and the server never allows it.
const OWN: HeaderName = HeaderName::from_static("insula-console");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Beginnings of the names of headers that name a user.
const NAMES_USER: [&str; 2] = ["impersonate-", "x-remote-"];

const REVIEW: &str = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
const REVIEW_PATH: &str = "apis/authentication.k8s.io/v1/selfsubjectreviews";

/// The console of a server.
pub struct Console {
    key: SessionKey,
    clock: Arc<dyn Clock>,
}

/// The way of a request.
pub enum Route {
    /// On, as an ordinary request.
    Ordinary,
    /// On, as the ordinary request of a sign-in. [`Console::signed_in`] completes its answer.
    SignIn(SignIn),
    /// Back, with this answer. A refusal has its reason, for the audit log.
    Answered(Response<Body>, Option<&'static str>),
}

/// A sign-in that is being checked.
pub struct SignIn {
    token: String,
}

impl Console {
    /// Creates the console of an installation. Servers with the same secret open each other's
    /// sessions.
    pub fn new(secret: &[u8], clock: Arc<dyn Clock>) -> Self {
        let key = SessionKey::derive(secret);
        Console { key, clock }
    }

    /// Finds the way of a request, whose head is that of an ordinary request from here on.
    pub fn route(&self, request: &mut Request<Body>, arrival: &mut Arrival) -> Route {
        let path = request.uri().path();
        let is_below = |root: &str| {
            path.strip_prefix(root)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let routed = if !is_below(ROOT) {
            return Route::Ordinary;
        } else if is_below(API) {
            self.pass_on(request, arrival).map(|()| Route::Ordinary)
        } else if path == SESSION {
            session_request(request)
        } else {
            assets::answer(request.method(), path, request.headers()).map(|response| Route::Answered(response, None))
        };
        routed.unwrap_or_else(|refusal| Route::Answered(refused(refusal), Some(refusal.reason())))
    }

    /// Makes an ordinary request of one below `/console/api`.
    fn pass_on(&self, request: &mut Request<Body>, arrival: &mut Arrival) -> Result<(), Refusal> {
        check_origin(request)?;
        let headers = request.headers_mut();
        if headers.contains_key(AUTHORIZATION) || names_user(headers) {
            return Err(Refusal::OwnCredential);
        }
        if headers.contains_key(UPGRADE) || arrival.upgrade.take().is_some() {
            return Err(Refusal::Upgrade);
        }
        let token = match Cookie::read(headers) {
            Cookie::Absent => None,
            Cookie::Value(value) => Some(self.key.open(value, self.clock.now()).ok_or(Refusal::NoSession)?),
            Cookie::Ambiguous => return Err(Refusal::NoSession),
        };
        // Nothing behind the console sees the cookies of this origin, servers of tenants included.
        headers.remove(COOKIE);
        headers.remove(OWN);
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, bearer(&token)?);
        }
        let uri = request.uri();
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let path = &uri.path()[API.len()..];
        let path = if path.is_empty() { "/" } else { path };
        *request.uri_mut() = with_path(uri, &format!("{path}{query}")).ok_or(Refusal::NotFound)?;
        Ok(())
    }

    /// Completes the answer to a sign-in: a token that was accepted begins a session.
    pub fn signed_in(&self, sign_in: &SignIn, response: &mut Response<Body>) {
        if response.status() != StatusCode::CREATED {
            return;
        }
        let cookie = self.key.begin(&sign_in.token, self.clock.now());
        set_cookie(response, &cookie);
    }
}

/// Makes the ordinary request of a sign-in, a SelfSubjectReview, or answers a sign-out.
fn session_request(request: &mut Request<Body>) -> Result<Route, Refusal> {
    check_origin(request)?;
    if request.method() == Method::DELETE {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        set_cookie(&mut response, &session::end());
        return Ok(Route::Answered(response, None));
    }
    if request.method() != Method::POST {
        return Err(Refusal::Method);
    }
    let headers = request.headers();
    if names_user(headers) {
        return Err(Refusal::OwnCredential);
    }
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
    let token = token.filter(|token| !token.is_empty()).ok_or(Refusal::NoToken)?;
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Refusal::LongToken);
    }
    let token = token.to_owned();
    let workspace = request.uri().query().and_then(|query| query.strip_prefix("workspace="));
    let workspace = ClusterPath::parse(workspace.unwrap_or("root")).map_err(|_| Refusal::BadWorkspace)?;
    let path = format!("/clusters/{workspace}/{REVIEW_PATH}");
    *request.uri_mut() = with_path(request.uri(), &path).ok_or(Refusal::BadWorkspace)?;
    *request.body_mut() = Body::from(REVIEW);
    let headers = request.headers_mut();
    headers.remove(COOKIE);
    headers.remove(OWN);
    headers.insert(AUTHORIZATION, bearer(&token)?);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, REVIEW.len().into());
    Ok(Route::SignIn(SignIn { token }))
}

/// Refuses what a page of another origin can make a browser send.
fn check_origin(request: &Request<Body>) -> Result<(), Refusal> {
    let headers = request.headers();
    if !headers.contains_key(OWN) {
        return Err(Refusal::NoHeader);
    }
    if let Some(site) = headers.get(FETCH_SITE)
        && site != "same-origin"
    {
        return Err(Refusal::OtherOrigin);
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return Ok(());
    };
    let host = request.uri().authority().map(Authority::as_str);
    let host = host.or_else(|| headers.get(HOST).and_then(|host| host.to_str().ok()));
    let same = origin.to_str().ok().and_then(|origin| origin.strip_prefix("https://"));
    match same
        .zip(host)
        .is_some_and(|(origin, host)| origin.eq_ignore_ascii_case(host))
    {
        true => Ok(()),
        false => Err(Refusal::OtherOrigin),
    }
}

/// Returns true for headers that name a user besides the credential.
fn names_user(headers: &HeaderMap) -> bool {
    headers
        .keys()
        .any(|name| NAMES_USER.iter().any(|prefix| name.as_str().starts_with(prefix)))
}

fn bearer(token: &str) -> Result<HeaderValue, Refusal> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Refusal::NoToken)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns a URI with another path and query.
fn with_path(uri: &Uri, path_and_query: &str) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path_and_query.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

fn refused(refusal: Refusal) -> Response<Body> {
    let mut response = refusal.response();
    if refusal == Refusal::NoSession {
        set_cookie(&mut response, &session::end());
    }
    response
}

fn set_cookie(response: &mut Response<Body>, cookie: &str) {
    let value = HeaderValue::from_str(cookie).expect("a cookie is text");
    let headers = response.headers_mut();
    headers.insert(SET_COOKIE, value);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests;
