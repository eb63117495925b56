//! Authorisation of a running watch. A watch outlives the decision that allowed it, so its request
//! passes the stages again at each bookmark: a deleted account, an expired credential and a revoked
//! right end it.

use crate::{
    request::Parsed,
    status::{self, Refused, StatusReply},
    websocket,
};
use axum::body::Body;
use http::{HeaderMap, Method, Request, Uri, header};
use insula_access::{Authenticator, PeerCertificate};
use insula_catalog::Error;
use insula_edge::port::Arrival;
use insula_pipeline::Destination;
use insula_pipeline::Refusal;
use insula_registry::Deps;
use std::time::Duration;

/// Time of one check. A check that takes longer decides nothing: the store or an issuer does not
/// answer, and the next check comes with the next bookmark.
const TIME_MAX: Duration = Duration::from_secs(5);

/// The parts of a request that authentication and authorisation need.
pub(crate) struct Credentials {
    method: Method,
    uri: Uri,
    /// Credentials, and headers that name a user.
    headers: HeaderMap,
    peer: Option<PeerCertificate>,
}

/// Returns the credentials among headers, and the headers that name a user.
pub(crate) fn credentials(headers: &HeaderMap) -> HeaderMap {
    let names_user = |name: &str| name.starts_with("impersonate-") || name.starts_with("x-remote-");
    let is_credential = |name: &header::HeaderName| *name == header::AUTHORIZATION || names_user(name.as_str());
    let mut found = HeaderMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| is_credential(name)) {
        found.append(name.clone(), value.clone());
    }
    found
}

impl Credentials {
    /// Copies the credentials of a request without a body.
    ///
    /// # Errors
    /// 401 for a credential among subprotocols that is malformed: the check must not go on without
    /// it.
    pub(crate) fn from_request(parsed: &Parsed) -> Result<Self, Refusal> {
        let mut headers = credentials(&parsed.headers);
        if parsed.upgrade.is_some() {
            let credential = websocket::credential(&parsed.headers).map_err(|_| Refusal::Unauthenticated)?;
            if let Some(credential) = credential {
                headers.append(header::AUTHORIZATION, credential);
            }
        }
        Ok(Credentials {
            method: parsed.method.clone(),
            uri: parsed.uri.clone(),
            headers,
            peer: parsed.peer.clone(),
        })
    }

    /// Returns the refusal that the same request gets now, if it concerns the user: 401, 403, 404
    /// or
    /// 410. A server that cannot decide refuses nothing here.
    pub(crate) async fn refusal(&self, authenticator: &Authenticator, registry: &Deps) -> Option<StatusReply> {
        let checked = tokio::time::timeout(TIME_MAX, self.check(authenticator, registry)).await;
        let status = match status::refused(&checked.ok()?.err()?) {
            Refused::Status(status) => *status,
            Refused::Page(page) if page.code == 404 => status::status(&Error::UnknownResource),
            Refused::Page(_) => return None,
        };
        status.denies_access().then_some(status)
    }

    async fn check(&self, authenticator: &Authenticator, registry: &Deps) -> Result<(), Refusal> {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let arrival = Arrival {
            certificate: self.peer.clone(),
            ..Arrival::default()
        };
        let authenticated = Parsed::new(request, arrival)?
            .authenticate(authenticator, registry)
            .await?;
        let (parsed, destination) = authenticated.locate(registry).await?;
        match destination {
            Destination::Here(located) => {
                let delegate = authenticator.delegate.as_deref();
                located.authorize(delegate, &parsed.record).await.map(drop)
            }
            Destination::Mounted(_) => {
                let message = "the workspace is served elsewhere now".to_owned();
                Err(Refusal::from(Error::Expired { message, next: None }))
            }
        }
    }
}
