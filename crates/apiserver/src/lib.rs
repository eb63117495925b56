//! HTTP in, registry out: paths, typed stages, negotiation, discovery, OpenAPI, tables, streams,
//! Status.
//!
//! A request walks `Parsed → Authenticated → Located → Authorized` ([`stage`]) and then [`handle`]
//! calls one verb of the registry. Nothing here decides about objects.

mod apply;
pub mod body;
pub mod call;
pub mod discovery;
mod documents;
mod edge;
pub mod fair_share;
#[cfg(test)]
mod fixtures;
mod frames;
mod gzip;
pub mod handle;
mod home;
mod impersonate;
mod lifecycle;
pub mod limits;
mod mounts;
pub mod negotiate;
pub mod openapi;
pub mod path;
pub mod protobuf;
pub mod query;
mod reauthorize;
mod recorded;
mod render;
pub mod reply;
mod scale;
pub mod stage;
pub mod status;
mod stream;
pub mod table;
mod unlocated;
mod views;
pub mod websocket;
mod writes;

pub use impersonate::{NotActing, acting};
pub use mounts::{Forward, Nowhere};

use axum::body::Body;
use http::{HeaderValue, Request, Response, header};
use insula_auth::audit::Record;
use insula_registry::{Registry, access::Authenticator};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

/// This program's version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The HTTP face of a registry.
pub struct ApiServer {
    /// What is served.
    pub registry: Arc<Registry>,
    /// Reaches the servers that workspaces are mounted from.
    pub mounts: Arc<dyn Forward>,
    /// Who is who.
    pub authenticator: Arc<Authenticator>,
    /// What one user, and one workspace, may have open.
    pub limits: limits::Limits,
    /// Who goes first.
    pub fair_share: fair_share::FairShare,
    /// OpenAPI documents, made when asked for.
    pub openapi: openapi::Cache,
    /// Turns true when the server drains: watches end.
    pub closing: watch::Receiver<bool>,
    /// Pause between the bookmarks of a watch, at each of which the user's right to it is checked
    /// again.
    pub bookmark_period: Duration,
}

impl ApiServer {
    /// Serves one request over HTTP.
    pub async fn serve(&self, request: Request<Body>) -> Response<Body> {
        let headers = request.headers().clone();
        let record = request.extensions().get::<Record>().cloned().unwrap_or_default();
        let mut kind = handle::Kind::default();
        let time = self.limits.settings.request_time;
        let served = handle::serve(self, request, &mut kind);
        let response = match self.guarded(time, &record, served).await {
            Ok(response) => response,
            Err(refusal) => refusal.respond(&headers),
        };
        let response = recorded::response(&record, response).await;
        let mut response = gzip::compress(response, &headers);
        let no_cache = HeaderValue::from_static("no-cache, private");
        response.headers_mut().entry(header::CACHE_CONTROL).or_insert(no_cache);
        response.extensions_mut().insert(kind);
        response
    }
}
