//! Requests to the console: from the head of a browser's request to the head of the ordinary one.

use std::sync::Arc;

use axum::body::Body;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, ORIGIN, UPGRADE},
    uri::{Authority, PathAndQuery},
};
use insula_api::{Clock, ClusterPath, Timestamp};
use insula_edge::port::{Arrival, ClientKind};
use serde_json::json;

use crate::{
    assets,
    login::{self, Login, Returned, Vouched},
    refusal::Refusal,
    session::{Cookie, LIFETIME_SECONDS, LOGIN, RENEWAL, SESSION, SessionKey, TOKEN_BYTES_MAX, add_cookie},
};

const ROOT: &str = "/console";
const SESSIONS: &str = "/console/session";
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
    login: Option<Login>,
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
    /// End of the session.
    expires: Timestamp,
    /// Text of the cookie by which the session is renewed.
    renewal: Option<String>,
}

/// The way of a request by its head alone.
enum Found {
    Route(Route),
    /// To the provider of sign-ins, for a viewer of a workspace.
    Provider(Action, ClusterPath),
}

/// A step of a sign-in for which the provider is called.
enum Action {
    Begin,
    Exchange(Returned),
    Renew,
    End,
}

impl Found {
    fn answered(response: Response<Body>) -> Self {
        Found::Route(Route::Answered(response, None))
    }
}

impl Console {
    /// Creates the console of an installation. Servers with the same secret open each other's
    /// sessions.
    pub fn new(secret: &[u8], login: Option<Login>, clock: Arc<dyn Clock>) -> Self {
        let key = SessionKey::derive(secret);
        Console { key, login, clock }
    }

    /// Finds the way of a request, whose head is that of an ordinary request from here on.
    pub async fn route(&self, request: &mut Request<Body>, arrival: &mut Arrival) -> Route {
        match self.find(request, arrival) {
            Ok(Found::Route(route)) => route,
            Ok(Found::Provider(action, workspace)) => {
                let taken = Box::pin(self.ask_provider(action, &workspace, request)).await;
                taken.unwrap_or_else(refused)
            }
            Err(refusal) => refused(refusal),
        }
    }

    fn find(&self, request: &mut Request<Body>, arrival: &mut Arrival) -> Result<Found, Refusal> {
        let path = request.uri().path();
        if !serves(path) {
            return Ok(Found::Route(Route::Ordinary));
        }
        if is_below(API, path) {
            self.pass_on(request, arrival)?;
            return Ok(Found::Route(Route::Ordinary));
        }
        let is_session = is_below(SESSIONS, path);
        // A page's query is for its script. What a provider answered is in one, and in no log.
        let query = take_query(request);
        if is_session {
            return self.session_request(request, &query);
        }
        let response = assets::answer(request.method(), request.uri().path(), request.headers())?;
        Ok(Found::answered(response))
    }

    /// Routes what begins, renews or ends a session.
    fn session_request(&self, request: &mut Request<Body>, query: &str) -> Result<Found, Refusal> {
        check_origin(request)?;
        let headers = request.headers();
        if names_user(headers) {
            return Err(Refusal::OwnCredential);
        }
        let step = &request.uri().path()[SESSIONS.len()..];
        let renewed = self.login.is_some() && Cookie::read(headers, &RENEWAL) != Cookie::Absent;
        let action = match (step, request.method()) {
            ("", &Method::POST) => return with_token(request, &workspace(query)?),
            ("", &Method::GET) => {
                let issuer = self.login.as_ref().map(|login| &login.issuer);
                return Ok(Found::answered(login::answer(&json!({"issuer": issuer}))));
            }
            ("", &Method::DELETE) if renewed => Action::End,
            ("", &Method::DELETE) => return Ok(Found::answered(signed_out())),
            ("/begin", &Method::POST) => Action::Begin,
            ("/code", &Method::POST) => Action::Exchange(Returned::read(query)),
            ("/renewal", &Method::POST) => Action::Renew,
            ("" | "/begin" | "/code" | "/renewal", _) => return Err(Refusal::Method),
            _ => return Err(Refusal::NotFound),
        };
        Ok(Found::Provider(action, workspace(query)?))
    }

    /// Calls the provider for a step of a sign-in, and finds the way of its request.
    async fn ask_provider(
        &self,
        action: Action,
        workspace: &ClusterPath,
        request: &mut Request<Body>,
    ) -> Result<Route, Refusal> {
        let login = self.login.as_ref().ok_or(Refusal::NoLogins)?;
        let (key, now) = (&self.key, self.clock.now());
        let vouched = match action {
            Action::Begin => {
                let host = host(request).unwrap_or_default().to_owned();
                let (mut response, cookie) = login.begin(key, now, &host).await?;
                add_cookie(&mut response, &cookie);
                return Ok(Route::Answered(response, None));
            }
            Action::End => {
                login.revoke(key, now, request.headers()).await;
                return Ok(Route::Answered(signed_out(), None));
            }
            Action::Exchange(returned) => login.exchange(key, now, request.headers(), returned).await?,
            Action::Renew => login.renew(key, now, request.headers()).await?,
        };
        let Vouched {
            token,
            expires,
            renewal,
        } = vouched;
        review(request, &token, workspace)?;
        Ok(Route::SignIn(SignIn {
            token,
            expires,
            renewal,
        }))
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
        let token = match Cookie::read(headers, &SESSION) {
            Cookie::Absent => None,
            Cookie::Value(value) => {
                let opened = self.key.open(&SESSION, value, self.clock.now());
                Some(opened.ok_or(Refusal::NoSession)?.0)
            }
            Cookie::Ambiguous => return Err(Refusal::NoSession),
        };
        // Nothing behind the console sees the cookies of this origin, servers of tenants included.
        headers.remove(COOKIE);
        headers.remove(OWN);
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, bearer(&token)?);
            arrival.client = ClientKind::Session;
        }
        let uri = request.uri();
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let path = &uri.path()[API.len()..];
        let path = if path.is_empty() { "/" } else { path };
        *request.uri_mut() = with_path(uri, &format!("{path}{query}")).ok_or(Refusal::NotFound)?;
        Ok(())
    }

    /// Completes the answer to a sign-in: a token that was accepted begins a session.
    pub fn signed_in(&self, sign_in: SignIn, response: &mut Response<Body>) {
        let now = self.clock.now();
        let SignIn {
            token,
            expires,
            renewal,
        } = sign_in;
        if response.status() == StatusCode::CREATED {
            let expires = expires.min(Timestamp(now.0 + LIFETIME_SECONDS));
            add_cookie(response, &self.key.begin(&SESSION, &token, now, expires));
            if self.login.is_some() {
                let renewal = renewal.map(|text| self.key.begin(&RENEWAL, &text, now, expires));
                add_cookie(response, &renewal.unwrap_or_else(|| RENEWAL.end()));
            }
        }
        if self.login.is_some() {
            add_cookie(response, &LOGIN.end());
        }
    }
}

/// Returns true for the paths of the console.
pub fn serves(path: &str) -> bool {
    is_below(ROOT, path)
}

fn is_below(root: &str, path: &str) -> bool {
    path.strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Makes the ordinary request of a sign-in of one with a token.
fn with_token(request: &mut Request<Body>, workspace: &ClusterPath) -> Result<Found, Refusal> {
    let token = request
        .headers()
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
    let token = token.filter(|token| !token.is_empty()).ok_or(Refusal::NoToken)?;
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Refusal::LongToken);
    }
    let token = token.to_owned();
    review(request, &token, workspace)?;
    Ok(Found::Route(Route::SignIn(SignIn {
        token,
        expires: Timestamp(i64::MAX),
        renewal: None,
    })))
}

/// Makes the ordinary request of a sign-in, a SelfSubjectReview with a token.
fn review(request: &mut Request<Body>, token: &str, workspace: &ClusterPath) -> Result<(), Refusal> {
    let path = format!("/clusters/{workspace}/{REVIEW_PATH}");
    *request.uri_mut() = with_path(request.uri(), &path).ok_or(Refusal::BadWorkspace)?;
    *request.body_mut() = Body::from(REVIEW);
    let headers = request.headers_mut();
    headers.remove(COOKIE);
    headers.remove(OWN);
    headers.insert(AUTHORIZATION, bearer(token)?);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, REVIEW.len().into());
    Ok(())
}

/// Returns the workspace that a query names, or the root.
fn workspace(query: &str) -> Result<ClusterPath, Refusal> {
    let named = query.split('&').find_map(|pair| pair.strip_prefix("workspace="));
    ClusterPath::parse(named.unwrap_or("root")).map_err(|_| Refusal::BadWorkspace)
}

/// Takes the query out of the address of a request.
fn take_query(request: &mut Request<Body>) -> String {
    let uri = request.uri();
    let query = uri.query().unwrap_or_default().to_owned();
    if let Some(without) = with_path(uri, uri.path()) {
        *request.uri_mut() = without;
    }
    query
}

/// Returns the host and port by which the client calls the server.
fn host(request: &Request<Body>) -> Option<&str> {
    let named = request.uri().authority().map(Authority::as_str);
    named.or_else(|| request.headers().get(HOST).and_then(|host| host.to_str().ok()))
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
    let host = host(request);
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

fn refused(refusal: Refusal) -> Route {
    Route::Answered(refusal.response(), Some(refusal.reason()))
}

/// Returns the answer to a sign-out.
fn signed_out() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    for kind in [&SESSION, &RENEWAL] {
        add_cookie(&mut response, &kind.end());
    }
    response
}

#[cfg(test)]
mod tests;
