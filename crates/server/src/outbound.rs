//! Outbound calls over HTTPS: webhooks and token issuers that tenants configure, within the targets
//! that the operator allows. Targets that the operator configures are called without this check.
//!
//! A tenant chooses the URL, so that everything else is limited: addresses, time, bytes of the
//! answer, and concurrent calls of a workspace. Redirects are not followed, no proxy is used, and
//! errors do not show the response.

mod connect;
mod extensions;
mod keys;
mod login;
mod measured;
mod mounts;
mod targets;
mod trust;

pub(crate) use connect::Shown;
pub(crate) use extensions::Extensions;
pub(crate) use keys::IssuerKeys;
pub(crate) use login::LoginProvider;
pub(crate) use mounts::Mounts;
pub use targets::Targets;
pub use trust::AnyServer;

use std::{
    collections::HashMap,
    error::Error as _,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use connect::{Connector, NoConnection};
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::{
    client::legacy::{Client, Error as ClientError},
    rt::{TokioExecutor, TokioTimer},
};
use insula_api::ClusterName;
use insula_catalog::{Call, Outbound};
use tokio::{sync::Semaphore, time::timeout};

use crate::{
    config::Webhooks,
    metrics::{Metrics, Purpose},
};
use measured::measured;

/// CA bundles whose connections are pooled. More are rare, and only have to connect again.
const CLIENTS_MAX: usize = 256;
/// Time after which an idle connection is closed.
const IDLE: Duration = Duration::from_secs(30);
const IDLE_PER_HOST_MAX: usize = 4;

type Pooled = Client<Connector, Full<Bytes>>;

/// Client of webhooks.
pub(crate) struct Webhook {
    targets: Arc<Targets>,
    settings: Webhooks,
    /// Clients by CA bundle: bundles share no connections.
    clients: Mutex<HashMap<Option<Arc<[u8]>>, Pooled>>,
    /// Permits of concurrent calls, for each workspace with calls in flight.
    permits: Mutex<HashMap<ClusterName, Weak<Semaphore>>>,
    metrics: Arc<Metrics>,
}

impl Webhook {
    pub(crate) fn new(settings: &Webhooks, metrics: Arc<Metrics>) -> Self {
        Webhook {
            targets: Arc::new(settings.allow.clone()),
            settings: settings.clone(),
            clients: Mutex::default(),
            permits: Mutex::default(),
            metrics,
        }
    }

    fn client(&self, ca_bundle: Option<&Arc<[u8]>>) -> Result<Pooled, String> {
        let lock = || self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let key = ca_bundle.cloned();
        if let Some(client) = lock().get(&key) {
            return Ok(client.clone());
        }
        let connector = Connector::new(Arc::clone(&self.targets), ca_bundle.map(|bundle| &**bundle))?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
            .build(connector);
        let mut clients = lock();
        if clients.len() >= CLIENTS_MAX {
            clients.clear();
        }
        clients.insert(key, client.clone());
        Ok(client)
    }

    fn permits(&self, cluster: &ClusterName) -> Arc<Semaphore> {
        let mut permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = permits.get(cluster).and_then(Weak::upgrade) {
            return known;
        }
        permits.retain(|_, permits| permits.strong_count() > 0);
        let fresh = Arc::new(Semaphore::new(self.settings.calls_per_workspace));
        permits.insert(cluster.clone(), Arc::downgrade(&fresh));
        fresh
    }

    async fn call(&self, call: Call, uri: &Uri) -> Result<Vec<u8>, String> {
        let request = Request::post(uri)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(call.body)))
            .map_err(|error| error.to_string())?;
        let ca_bundle = call.endpoint.ca_bundle.as_ref();
        let sent = self.send(&call.cluster, ca_bundle, request, call.answer_bytes_max);
        sent.await
    }

    /// Sends a request on behalf of a workspace, once it gets a permit.
    async fn send(
        &self,
        cluster: &ClusterName,
        ca_bundle: Option<&Arc<[u8]>>,
        mut request: Request<Full<Bytes>>,
        answer_bytes_max: usize,
    ) -> Result<Vec<u8>, String> {
        const AGENT: &str = concat!("insula/", env!("CARGO_PKG_VERSION"));
        let permits = self.permits(cluster);
        let Ok(_permit) = permits.acquire().await else {
            return Err("the server is stopping".to_owned());
        };
        let client = self.client(ca_bundle)?;
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, */*"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(AGENT));
        measured::continue_trace(headers);
        let response = client.request(request).await.map_err(|error| cause(&error))?;
        measured::answered(response.status());
        check_status(response.status())?;
        match Limited::new(response.into_body(), answer_bytes_max).collect().await {
            Ok(body) => Ok(body.to_bytes().to_vec()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(format!("the answer is larger than {answer_bytes_max} bytes"))
            }
            Err(_) => Err("unexpected EOF".to_owned()),
        }
    }
}

impl Outbound for Webhook {
    fn post(&self, call: Call) -> BoxFuture<'_, Result<Vec<u8>, String>> {
        Box::pin(async move {
            let seconds = call.timeout_seconds.unwrap_or(self.settings.timeout_seconds);
            let url = format!("{}?timeout={seconds}s", call.endpoint.url);
            let failed = |why: &str| format!("Post {url:?}: {why}");
            let uri: Uri = match url.parse() {
                Ok(uri) => uri,
                Err(_) => return Err(failed("the URL cannot be understood")),
            };
            if uri.scheme_str() != Some("https") {
                return Err(failed("https is the only scheme that is spoken"));
            }
            let time = Duration::from_secs(seconds.into());
            let called = async {
                match timeout(time, self.call(call, &uri)).await {
                    Ok(answered) => answered,
                    Err(_) => Err("context deadline exceeded".to_owned()),
                }
            };
            let called = measured(&self.metrics, Purpose::Webhook, &http::Method::POST, &uri, called).await;
            called.map_err(|why| failed(&why))
        })
    }
}

/// Refuses every status but 200, redirects included. The error does not show the body: a tenant
/// could read documents in it that only this server can reach.
/// The texts are those of Kubernetes' client.
fn check_status(status: StatusCode) -> Result<(), String> {
    let why = match status.as_u16() {
        200 => return Ok(()),
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 415 => "unknown",
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        406 => "the server was unable to respond with a content type that the client supports",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => "an error on the server (\"unknown\") has prevented the request from succeeding",
        code => {
            return Err(format!(
                "the server responded with the status code {code} but did not return more information"
            ));
        }
    };
    Err(why.to_owned())
}

/// Returns the reason why there was no response.
fn cause(error: &ClientError) -> String {
    find_cause(error).map_or_else(|| "EOF".to_owned(), NoConnection::to_string)
}

/// Returns the reason why there was no connection, if there was none.
fn find_cause(error: &ClientError) -> Option<&NoConnection> {
    let mut at = error.source();
    while let Some(cause) = at {
        if let Some(no_connection) = cause.downcast_ref::<NoConnection>() {
            return Some(no_connection);
        }
        at = cause.source();
    }
    None
}
