//! Authorisation of a request that goes on. A watch outlives the moment in which it was allowed, so
//! the stages that let it in are walked again now and then: a deleted account, an expired
//! credential and a revoked right end it.

use crate::{
    reply::Reply,
    stage::{Destination, Parsed},
    status::{self, StatusReply},
    websocket,
};
use axum::body::Body;
use http::{HeaderMap, HeaderValue, Request, Uri, header};
use insula_registry::{
    Error, Registry,
    access::{Authenticator, PeerCertificate},
};
use std::time::Duration;

/// A check that takes longer decides nothing: the store or an issuer does not answer, and the next
/// check asks again.
const TIME_MAX: Duration = Duration::from_secs(5);

/// The parts of a request that say who asks and what for.
pub(crate) struct Credentials {
    uri: Uri,
    /// Credentials, and whom their owner acts as.
    headers: HeaderMap,
    peer: Option<PeerCertificate>,
}

impl Credentials {
    /// Those of a request to read.
    pub(crate) fn of(parsed: &Parsed) -> Self {
        let decides =
            |name: &header::HeaderName| *name == header::AUTHORIZATION || name.as_str().starts_with("impersonate-");
        let given = parsed.headers.iter().filter(|(name, _)| decides(name));
        let mut headers: HeaderMap = given.map(|(name, value)| (name.clone(), value.clone())).collect();
        let hidden = parsed
            .upgrade
            .as_ref()
            .and_then(|_| websocket::credential(&parsed.headers));
        if let Some(value) = hidden.and_then(|hidden| HeaderValue::from_bytes(&hidden).ok()) {
            headers.append(header::AUTHORIZATION, value);
        }
        Credentials {
            uri: parsed.uri.clone(),
            headers,
            peer: parsed.peer.clone(),
        }
    }

    /// The refusal that the same request gets now, if it is one of the user: 401, 403, 404 or 410.
    /// A server that cannot tell refuses nothing here.
    pub(crate) async fn refusal(&self, authenticator: &Authenticator, registry: &Registry) -> Option<StatusReply> {
        let asked = tokio::time::timeout(TIME_MAX, self.ask(authenticator, registry)).await;
        let status = match asked.ok()?.err()? {
            Reply::Status(status) | Reply::Warned(status, _) => *status,
            Reply::NotFoundPage => status::status(&Error::UnknownResource),
            Reply::HomeIsComing => return None,
        };
        matches!(status.code, 401 | 403 | 404 | 410).then_some(status)
    }

    async fn ask(&self, authenticator: &Authenticator, registry: &Registry) -> Result<(), Reply> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        if let Some(peer) = &self.peer {
            request.extensions_mut().insert(peer.clone());
        }
        let authenticated = Parsed::new(request)?.authenticate(authenticator, registry).await?;
        match authenticated.locate(registry).await? {
            Destination::Here(located) => located.authorize().map(drop),
            Destination::Mounted(_) => {
                let message = "the workspace is served elsewhere now".to_owned();
                Err(Reply::error(&Error::Expired { message, next: None }))
            }
        }
    }
}
