//! Refusals of the console, before a request is an ordinary one.

use axum::body::Body;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use serde_json::json;

use crate::session::{Kind, LOGIN, RENEWAL, SESSION, add_cookie};

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
    /// The settings name no provider of sign-ins.
    NoLogins,
    /// The provider does not answer.
    NoProvider,
    /// The console is open at another address than the provider knows.
    OtherAddress,
    /// The browser began no sign-in, or too long ago.
    NoLogin,
    /// The answer belongs to another sign-in than the one that the browser began.
    OtherLogin,
    /// The answer, or the sign-in that was begun, is that of another provider.
    OtherProvider,
    /// The provider gave no token.
    NotVouched,
    /// The provider gave no further token.
    NotRenewed,
    /// The ID token is not for this client, or not for this sign-in.
    WrongToken,
    /// A method that the path does not have.
    Method,
    /// No such asset.
    NotFound,
}

impl Refusal {
    fn describe(self) -> (StatusCode, &'static str) {
        let (forbidden, bad) = (StatusCode::FORBIDDEN, StatusCode::BAD_REQUEST);
        let unauthorized = StatusCode::UNAUTHORIZED;
        match self {
            Refusal::NoHeader => (forbidden, "requests of the console have the header Insula-Console"),
            Refusal::OtherOrigin => (forbidden, "the request comes from another origin"),
            Refusal::OwnCredential => (
                forbidden,
                "requests below /console/api name no user: the session does, or the client certificate",
            ),
            Refusal::Upgrade => (bad, "requests below /console/api keep their protocol"),
            Refusal::NoSession => (unauthorized, "the session has ended: sign in again"),
            Refusal::NoToken => (unauthorized, "sign in with a bearer token"),
            Refusal::LongToken => (
                bad,
                "the token has more than 3000 bytes, and does not fit into a cookie",
            ),
            Refusal::BadWorkspace => (bad, "workspace: write a path such as root:org:team"),
            Refusal::NoLogins => (StatusCode::NOT_FOUND, "the server has no provider of sign-ins"),
            Refusal::NoProvider => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the provider of sign-ins does not answer; the log of the server says why",
            ),
            Refusal::OtherAddress => (
                bad,
                "the provider sends you back to the address of externalUrl: open the console there",
            ),
            Refusal::NoLogin => (
                unauthorized,
                "this browser began no sign-in in the last ten minutes: sign in again",
            ),
            Refusal::OtherLogin => (
                forbidden,
                "the answer of the provider belongs to another sign-in: sign in again",
            ),
            Refusal::OtherProvider => (forbidden, "the answer comes from another provider"),
            Refusal::NotVouched => (
                unauthorized,
                "the provider gave no token for this sign-in: sign in again",
            ),
            Refusal::NotRenewed => (unauthorized, "the provider renews the session no longer: sign in again"),
            Refusal::WrongToken => (
                forbidden,
                "the token of the provider is not for this console, or not for this sign-in",
            ),
            Refusal::Method => (StatusCode::METHOD_NOT_ALLOWED, "the path has no such method"),
            Refusal::NotFound => (StatusCode::NOT_FOUND, "the console has no such file"),
        }
    }

    /// Returns the cookies that are of no use after it.
    fn spent_cookies(self) -> &'static [&'static Kind] {
        match self {
            Refusal::NoSession => &[&SESSION],
            Refusal::NoLogin | Refusal::OtherLogin | Refusal::OtherProvider | Refusal::NotVouched => &[&LOGIN],
            Refusal::NotRenewed => &[&SESSION, &RENEWAL],
            // Of a sign-in or of a renewal: neither token is one to try again.
            Refusal::WrongToken => &[&LOGIN, &RENEWAL],
            _ => &[],
        }
    }

    /// Returns the reason, for the sender and the audit log.
    pub(crate) fn reason(self) -> &'static str {
        self.describe().1
    }

    /// Returns the answer, as a Status of Kubernetes.
    pub(crate) fn response(self) -> Response<Body> {
        let (code, message) = self.describe();
        // The reasons of Kubernetes for these codes are their names without spaces.
        let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "code": code.as_u16(), "reason": reason, "message": message,
        });
        let mut response = Response::new(Body::from(status.to_string()));
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for kind in self.spent_cookies() {
            add_cookie(&mut response, &kind.end());
        }
        response
    }
}
