//! Refusals of the console, before a request is an ordinary one.

use axum::body::Body;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use serde_json::json;

/// The reason why a request to the console is not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The header that only a script of the same origin can set is missing.
    NoHeader,
    /// A script of another origin sent it.
    OtherOrigin,
    /// It has a credential, or names a user, by itself.
    OwnCredential,
    /// It asks for another protocol.
    Upgrade,
    /// Its cookie is no session, or one that has ended.
    NoSession,
    /// A sign-in without a token.
    NoToken,
    /// A token that does not fit into a cookie.
    LongToken,
    /// The workspace of a sign-in is no path.
    BadWorkspace,
    /// A method that the path does not have.
    Method,
    /// No such asset.
    NotFound,
}

impl Refusal {
    fn describe(self) -> (StatusCode, &'static str, &'static str) {
        let (forbidden, bad) = (StatusCode::FORBIDDEN, StatusCode::BAD_REQUEST);
        match self {
            Refusal::NoHeader => (
                forbidden,
                "Forbidden",
                "requests of the console have the header Insula-Console",
            ),
            Refusal::OtherOrigin => (forbidden, "Forbidden", "the request comes from another origin"),
            Refusal::OwnCredential => (
                forbidden,
                "Forbidden",
                "requests below /console/api name no user: the session does, or the client certificate",
            ),
            Refusal::Upgrade => (bad, "BadRequest", "requests below /console/api keep their protocol"),
            Refusal::NoSession => (
                StatusCode::UNAUTHORIZED,
                "Unauthorized",
                "the session has ended: sign in again",
            ),
            Refusal::NoToken => (StatusCode::UNAUTHORIZED, "Unauthorized", "sign in with a bearer token"),
            Refusal::LongToken => (
                bad,
                "BadRequest",
                "the token has more than 3000 bytes, and does not fit into a cookie",
            ),
            Refusal::BadWorkspace => (bad, "BadRequest", "workspace: write a path such as root:org:team"),
            Refusal::Method => (
                StatusCode::METHOD_NOT_ALLOWED,
                "MethodNotAllowed",
                "the path has no such method",
            ),
            Refusal::NotFound => (StatusCode::NOT_FOUND, "NotFound", "the console has no such file"),
        }
    }

    /// Returns the reason, for the sender and the audit log.
    pub(crate) fn reason(self) -> &'static str {
        self.describe().2
    }

    /// Returns the answer, as a Status of Kubernetes.
    pub(crate) fn response(self) -> Response<Body> {
        let (code, reason, message) = self.describe();
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "code": code.as_u16(), "reason": reason, "message": message,
        });
        let mut response = Response::new(Body::from(status.to_string()));
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}
