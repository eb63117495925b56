//! HTTPS client with the identity of a kubeconfig, for commands that talk to a server.

mod call;
pub(crate) mod certificate;
pub(crate) mod credentials;
mod upload;

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::{
    HeaderMap, Method, Request, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, DATE, WARNING},
};
use http_body_util::{BodyExt, Full, Limited, combinators::BoxBody};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector};
use hyper_util::{
    client::legacy::{Client as Legacy, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::pki_types::ServerName;
use serde_json::Value;

pub(crate) use call::is_failed_precondition;
use certificate::{Shown, Tls};
use credentials::Credentials;

use crate::{
    connection::{Resolved, ServerFlags},
    kubeconfig::Entry,
};

/// Maximum number of bytes of an answer. Our servers send no larger ones.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Form of discovery that has all resources.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Wait of `--request-timeout 0`: a year.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The body of a request: one piece of memory, or a stream.
type RequestBody = BoxBody<Bytes, std::io::Error>;

/// Returns the body of a request that is in memory.
fn whole(bytes: Bytes) -> RequestBody {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// Client of one user at one server. Clones share connections.
#[derive(Clone)]
pub(crate) struct Client {
    http: Legacy<HttpsConnector<HttpConnector>, RequestBody>,
    server: String,
    /// The token, and the user to act as.
    identity: HeaderMap,
    /// Longest wait for an answer, and for the next piece of a stream.
    timeout: Duration,
    /// The client certificate, and the settings to ask for the reason of a refusal.
    shown: Option<Arc<(Shown, Tls)>>,
    writes: Writes,
}

/// Effect of the writes of a client over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes {
    /// They are made.
    Made,
    /// They are checked, and change nothing.
    DryRun,
}

impl Client {
    /// Creates a client for a context of a kubeconfig, by default its current one. The user has a
    /// client certificate or a token.
    pub(crate) fn from_kubeconfig<'a>(path: &Path, context: impl Into<Option<&'a str>>) -> anyhow::Result<Self> {
        let flags = ServerFlags {
            kubeconfig: Some(path.to_owned()),
            context: context.into().map(str::to_owned),
            ..ServerFlags::default()
        };
        flags.client()
    }

    /// Creates a client of the server and the identity that were found.
    pub(crate) fn new(resolved: &Resolved) -> anyhow::Result<Self> {
        Self::for_entries(&resolved.cluster, &resolved.user, resolved.timeout)
    }

    /// Creates a client of a cluster and a user of a kubeconfig; without a time limit it waits for
    /// ever.
    pub(crate) fn for_entries(cluster: &Entry, user: &Entry, timeout: Option<Duration>) -> anyhow::Result<Self> {
        let server = cluster.text("server").unwrap_or_default();
        if !server.starts_with("https://") {
            bail!("the server {server:?} has no TLS: its URL must begin with https://");
        }
        if cluster.text("proxy-url").is_some() {
            eprintln!("warning: proxy-url of the kubeconfig is not supported: connecting without a proxy");
        }
        let Credentials {
            tls,
            headers: identity,
            shown,
        } = credentials::tls(cluster, user)?;
        let name = cluster
            .text("tls-server-name")
            .map(|name| ServerName::try_from(name.to_owned()));
        let name = name.transpose().context("tls-server-name is no name")?;
        let asking = Tls {
            config: Arc::new(tls.clone()),
            name: name.clone(),
        };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // A body is sent together with its headers: waiting for the acknowledgement of the headers
        // costs 40 ms a write.
        tcp.set_nodelay(true);
        let mut connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only();
        if let Some(name) = name {
            connector = connector.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        let connector = connector.enable_http2().wrap_connector(tcp);
        Ok(Self {
            http: Legacy::builder(TokioExecutor::new()).http2_only(true).build(connector),
            server: server.trim_end_matches('/').to_owned(),
            identity,
            timeout: timeout.unwrap_or(FOR_EVER),
            shown: shown.map(|shown| Arc::new((shown, asking))),
            writes: Writes::Made,
        })
    }

    /// Returns a client whose writes have this effect.
    pub(crate) fn with_writes(&self, writes: Writes) -> Self {
        Self { writes, ..self.clone() }
    }

    /// Returns a client that waits for an answer no longer than this.
    pub(crate) fn within(&self, timeout: Duration) -> Self {
        Self {
            timeout: self.timeout.min(timeout),
            ..self.clone()
        }
    }

    /// Returns a client that waits for an answer at least this long.
    pub(crate) fn patient(&self, timeout: Duration) -> Self {
        Self {
            timeout: self.timeout.max(timeout),
            ..self.clone()
        }
    }

    /// Returns a client of the same user at another URL.
    pub(crate) fn at_url(&self, url: &str) -> Self {
        Self {
            server: url.to_owned(),
            ..self.clone()
        }
    }

    /// Returns a client of the same user at another base path of the server: `/clusters/root:a`.
    pub(crate) fn at_path(&self, path: &str) -> Self {
        // `https://host:port` has two slashes before the third begins the path.
        let end = self
            .server
            .match_indices('/')
            .nth(2)
            .map_or(self.server.len(), |(index, _)| index);
        self.at_url(&format!("{}{path}", &self.server[..end]))
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<(StatusCode, Value)> {
        self.send(Method::GET, path, None).await
    }

    /// Reads the resources of `/api` or `/apis` in one document, from servers that have one.
    pub(crate) async fn discovery(&self, path: &str) -> anyhow::Result<(StatusCode, Value)> {
        self.send_for(DISCOVERY, Method::GET, path, None).await
    }

    /// Returns the time of the server, in seconds since 1970; `None` if it does not tell it.
    pub(crate) async fn date(&self, path: &str) -> anyhow::Result<Option<i64>> {
        let mut request = Request::get(self.at_path(path).server).body(whole(Bytes::new()))?;
        request.headers_mut().extend(self.identity.clone());
        let response = tokio::time::timeout(self.timeout, self.http.request(request)).await??;
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
        Ok(date.and_then(seconds))
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<(StatusCode, Value)> {
        self.send(Method::POST, path, Some(("application/json", body))).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> anyhow::Result<(StatusCode, Value)> {
        self.send(Method::PUT, path, Some(("application/json", body))).await
    }

    /// Deletes an object. The body is a DeleteOptions.
    pub(crate) async fn delete(&self, path: &str, options: &Value) -> anyhow::Result<(StatusCode, Value)> {
        self.send(Method::DELETE, path, Some(("application/json", options)))
            .await
    }

    /// Sends a merge patch (RFC 7396).
    pub(crate) async fn patch(&self, path: &str, body: &Value) -> anyhow::Result<(StatusCode, Value)> {
        self.send(Method::PATCH, path, Some(("application/merge-patch+json", body)))
            .await
    }

    /// Streams the body of an answer to a writer. Fails for any answer but 200, and for a server
    /// that stops sending.
    pub(crate) async fn download(&self, path: &str, out: &mut impl std::io::Write) -> anyhow::Result<()> {
        let url = format!("{}{path}", self.server);
        let mut request = Request::get(&url).body(whole(Bytes::new()))?;
        request.headers_mut().extend(self.identity.clone());
        let silent = || format!("GET {url}: nothing for {} s", self.timeout.as_secs());
        let sent = tokio::time::timeout(self.timeout, self.http.request(request)).await;
        let response = match sent.with_context(silent)? {
            Ok(response) => response,
            Err(error) => return Err(self.unanswered(error.into(), "GET", &url).await),
        };
        let code = response.status();
        let mut body = response.into_body();
        if code != StatusCode::OK {
            let text = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let text = text.map_err(|error| anyhow!("{error}"))?.to_bytes();
            let status: Value = serde_json::from_slice(&text).unwrap_or_default();
            let message = status["message"].as_str().unwrap_or_default();
            bail!("GET {url}: {code}: {message}");
        }
        loop {
            let frame = tokio::time::timeout(self.timeout, body.frame())
                .await
                .with_context(silent)?;
            let Some(frame) = frame else { return Ok(()) };
            if let Ok(data) = frame.with_context(|| format!("GET {url}"))?.into_data() {
                out.write_all(&data).context("cannot write")?;
            }
        }
    }

    /// Sends a request and returns code and body of the answer, in JSON.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        self.send_for("application/json", method, path, body).await
    }

    /// Sends a request for a form of answers. Fails only without an answer. A body that is not JSON
    /// is returned as a string.
    async fn send_for(
        &self,
        accept: &str,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let query = match self.writes {
            Writes::DryRun if method != Method::GET => "?dryRun=All",
            Writes::DryRun | Writes::Made => "",
        };
        let url = format!("{}{path}{query}", self.server);
        let mut request = Request::builder()
            .method(method.clone())
            .uri(&url)
            .header(ACCEPT, accept);
        let mut bytes = Bytes::new();
        if let Some((content_type, value)) = body {
            request = request.header(CONTENT_TYPE, content_type);
            bytes = Bytes::from(value.to_string());
        }
        let mut request = request
            .body(whole(bytes))
            .with_context(|| format!("{url} is not a URL"))?;
        request.headers_mut().extend(self.identity.clone());
        let exchange = async {
            let response = self.http.request(request).await?;
            let code = response.status();
            warn(response.headers());
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| anyhow!("{error}"))?.to_bytes();
            anyhow::Ok((code, body))
        };
        let answered = tokio::time::timeout(self.timeout, exchange).await;
        let (code, body) = match answered {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(self.unanswered(error, method.as_str(), &url).await),
            Err(_) => bail!("{method} {url}: no answer within {} s", self.timeout.as_secs()),
        };
        let value = serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into());
        Ok((code, value))
    }

    /// Returns the error of a request without an answer: the fault of the client certificate if it
    /// has one, and the fix where there was no connection.
    async fn unanswered(&self, error: anyhow::Error, method: &str, url: &str) -> anyhow::Error {
        let connect = error.downcast_ref::<hyper_util::client::legacy::Error>();
        let is_connect = connect.is_some_and(hyper_util::client::legacy::Error::is_connect);
        let cause = format!("{error:#}");
        if is_connect && !cause.contains("fatal alert") {
            let fix = match cause.contains("certificate") {
                true => "--certificate-authority names the authority of its certificate",
                false => "check that the server runs there, or name another with --server or --kubeconfig",
            };
            return anyhow!("{method} {url}: {cause}; {fix}");
        }
        if let Some((shown, tls)) = self.shown.as_deref() {
            let fault = match shown.fault(crate::now().0) {
                Some(fault) => Some(fault),
                None => shown.refusal(tls, url).await,
            };
            if let Some(fault) = fault {
                return anyhow!("{method} {url}: {fault} ({cause})");
            }
        }
        error.context(format!("{method} {url}"))
    }
}

/// Reads a `Date` header. Returns seconds since 1970.
pub(crate) fn seconds(date: &str) -> Option<i64> {
    let parsed = jiff::fmt::rfc2822::parse(date).ok()?;
    Some(parsed.timestamp().as_second())
}

/// Prints the server's warnings, `299 - "text"`, as kubectl does.
fn warn(headers: &HeaderMap) {
    for value in headers.get_all(WARNING).iter().filter_map(|value| value.to_str().ok()) {
        let quoted = value.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"'));
        if let Some((text, _)) = quoted {
            eprintln!("Warning: {}", text.replace("\\\"", "\""));
        }
    }
}

/// Returns the message of a refusal, or the whole answer where it has none.
pub(crate) fn message(answer: &Value) -> String {
    match answer["message"].as_str() {
        Some(message) => message.to_owned(),
        None => answer.to_string(),
    }
}
