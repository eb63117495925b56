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

use crate::metrics::{Metrics, Purpose};

use super::{
    IDLE, IDLE_PER_HOST_MAX, Targets, cause,
    connect::{Connector, Shown},
    measured::{self, measured},
};

/// Time until the other server begins to answer.
const ANSWER: Duration = Duration::from_secs(30);

/// Client of mounted servers.
pub(crate) struct Mounts {
    client: Client<Connector, Body>,
    metrics: Arc<Metrics>,
}

impl Mounts {
    /// Creates a client for these targets. It trusts the certificates of the machine and our own
    /// CA.
    pub(crate) fn new(targets: &Targets, shown: &Shown, metrics: Arc<Metrics>) -> Result<Self, String> {
        let connector = Connector::showing(Arc::new(targets.clone()), shown)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
            .build(connector);
        Ok(Mounts { client, metrics })
    }
}

impl Forward for Mounts {
    fn forward(&self, mut request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, String>> {
        Box::pin(async move {
            if request.uri().scheme_str() != Some("https") {
                return Err("https is the only scheme that is spoken".to_owned());
            }
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let called = async {
                measured::continue_trace(request.headers_mut());
                let response = match timeout(ANSWER, self.client.request(request)).await {
                    Ok(Ok(response)) => response,
                    Ok(Err(error)) => return Err(cause(&error)),
                    Err(_) => return Err("its server does not answer".to_owned()),
                };
                measured::answered(response.status());
                Ok(response.map(Body::new))
            };
            measured(&self.metrics, Purpose::Mount, &method, &uri, called).await
        })
    }
}
