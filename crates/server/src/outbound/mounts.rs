//! Requests to servers that workspaces are mounted from: only to targets that the operator allows,
//! over HTTPS, with the client certificate of this server.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use insula_apiserver::Forward;
use tokio::time::timeout;

use super::{
    IDLE, IDLE_PER_HOST_MAX, Targets, cause,
    connect::{Connector, Shown},
};

/// Time until the other server begins to answer.
const ANSWER: Duration = Duration::from_secs(30);

/// Client of mounted servers.
pub(crate) struct Mounts(Client<Connector, Body>);

impl Mounts {
    /// Creates a client for these targets. It trusts the certificates of the machine and our own
    /// CA.
    pub(crate) fn new(targets: &Targets, shown: &Shown) -> Result<Self, String> {
        let connector = Connector::showing(Arc::new(targets.clone()), shown)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
            .build(connector);
        Ok(Mounts(client))
    }
}

impl Forward for Mounts {
    fn forward(&self, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, String>> {
        Box::pin(async move {
            if request.uri().scheme_str() != Some("https") {
                return Err("https is the only scheme that is spoken".to_owned());
            }
            match timeout(ANSWER, self.0.request(request)).await {
                Ok(Ok(response)) => Ok(response.map(Body::new)),
                Ok(Err(error)) => Err(cause(&error)),
                Err(_) => Err("its server does not answer".to_owned()),
            }
        })
    }
}
