//! HTTPS client with the identity of a kubeconfig, for commands that talk to a server.

mod call;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client as Legacy, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde::Deserialize;
use serde_json::Value;

/// Bytes of an answer at most. Our servers send no larger ones.
const ANSWER_BYTES_MAX: usize = 64 << 20;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Client of one user at one server. Clones share connections.
#[derive(Clone)]
pub(crate) struct Client {
    http: Legacy<HttpsConnector<HttpConnector>, Full<Bytes>>,
    server: String,
    bearer: Option<HeaderValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(default)]
    current_context: Option<String>,
    clusters: Vec<Named>,
    contexts: Vec<Named>,
    users: Vec<Named>,
}

/// An entry of a kubeconfig: `name`, and beside it `cluster`, `context` or `user`.
#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(flatten)]
    content: BTreeMap<String, BTreeMap<String, Value>>,
}

impl Client {
    /// Creates a client for a context of a kubeconfig, by default its current one. The user has a
    /// client certificate or a token.
    pub(crate) fn from_kubeconfig<'a>(path: &Path, context: impl Into<Option<&'a str>>) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let kubeconfig: Kubeconfig =
            serde_saphyr::from_str(&text).with_context(|| format!("{} is not a kubeconfig", path.display()))?;
        let current = kubeconfig.current_context.as_deref().unwrap_or_default();
        let context = context.into().unwrap_or(current);
        let context = kubeconfig
            .contexts
            .field(context, "context", "cluster")
            .and_then(|cluster| {
                let user = kubeconfig.contexts.field(context, "context", "user")?;
                Ok((cluster, user))
            });
        let (cluster, user) = context.with_context(|| path.display().to_string())?;
        let server = kubeconfig.clusters.field(cluster, "cluster", "server")?.to_owned();

        let mut roots = RootCertStore::empty();
        let folder = path.parent().unwrap_or(Path::new(""));
        let ca = pem(
            &kubeconfig.clusters,
            cluster,
            "cluster",
            "certificate-authority",
            folder,
        )?;
        for certificate in certificates(&ca)? {
            roots.add(certificate).with_context(|| format!("cluster `{cluster}`"))?;
        }
        insula_server::install_provider();
        let tls = ClientConfig::builder().with_root_certificates(roots);
        let (tls, bearer) = match kubeconfig.users.field(user, "user", "token") {
            Ok(token) => {
                let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                    .with_context(|| format!("the token of user `{user}` cannot be sent"))?;
                value.set_sensitive(true);
                (tls.with_no_client_auth(), Some(value))
            }
            Err(_) => {
                let key = pem(&kubeconfig.users, user, "user", "client-key", folder)?;
                let key = PrivateKeyDer::from_pem_slice(&key).with_context(|| format!("the key of user `{user}`"))?;
                let chain = certificates(&pem(&kubeconfig.users, user, "user", "client-certificate", folder)?)?;
                (tls.with_client_auth_cert(chain, key)?, None)
            }
        };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // A body is sent together with its headers: waiting for the acknowledgement of the headers
        // costs 40 ms a write.
        tcp.set_nodelay(true);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .enable_http2()
            .wrap_connector(tcp);
        Ok(Self {
            http: Legacy::builder(TokioExecutor::new()).http2_only(true).build(connector),
            server,
            bearer,
        })
    }

    /// Returns a client of the same user at another base path of the server: `/clusters/root:a`.
    pub(crate) fn at_path(&self, path: &str) -> Self {
        // `https://host:port` has two slashes before the third begins the path.
        let end = self
            .server
            .match_indices('/')
            .nth(2)
            .map_or(self.server.len(), |(index, _)| index);
        Self {
            http: self.http.clone(),
            server: format!("{}{path}", &self.server[..end]),
            bearer: self.bearer.clone(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<(StatusCode, Value)> {
        self.send(Method::GET, path, None).await
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
        let mut request = Request::get(&url);
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        let request = request.body(Full::new(Bytes::new()))?;
        let silent = || format!("GET {url}: nothing for {} s", ANSWER_TIMEOUT.as_secs());
        let sent = tokio::time::timeout(ANSWER_TIMEOUT, self.http.request(request)).await;
        let response = sent.with_context(silent)?.with_context(|| format!("GET {url}"))?;
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
            let frame = tokio::time::timeout(ANSWER_TIMEOUT, body.frame())
                .await
                .with_context(silent)?;
            let Some(frame) = frame else { return Ok(()) };
            if let Ok(data) = frame.with_context(|| format!("GET {url}"))?.into_data() {
                out.write_all(&data).context("cannot write")?;
            }
        }
    }

    /// Sends a request and returns code and body of the answer. Fails only without an answer. A
    /// body that is not JSON is returned as a string.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let url = format!("{}{path}", self.server);
        let mut request = Request::builder()
            .method(method.clone())
            .uri(&url)
            .header(ACCEPT, "application/json");
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        let mut bytes = Bytes::new();
        if let Some((content_type, value)) = body {
            request = request.header(CONTENT_TYPE, content_type);
            bytes = Bytes::from(value.to_string());
        }
        let request = request
            .body(Full::new(bytes))
            .with_context(|| format!("{url} is not a URL"))?;
        let exchange = async {
            let response = self.http.request(request).await?;
            let code = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| anyhow!("{error}"))?.to_bytes();
            anyhow::Ok((code, body))
        };
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, exchange).await;
        let (code, body) = match answered {
            Ok(exchanged) => exchanged.with_context(|| format!("{method} {url}"))?,
            Err(_) => bail!("{method} {url}: no answer within {} s", ANSWER_TIMEOUT.as_secs()),
        };
        let value = serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into());
        Ok((code, value))
    }
}

/// Returns the kubeconfig that kubectl would take: the first file of `KUBECONFIG`, else
/// `~/.kube/config`.
pub(crate) fn kubeconfig() -> anyhow::Result<PathBuf> {
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let mut listed = std::env::split_paths(&listed).filter(|path| path.is_file());
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".kube/config"));
    match listed.next().or_else(home) {
        Some(path) if path.is_file() => Ok(path),
        _ => bail!("there is no kubeconfig: name one with --kubeconfig or KUBECONFIG"),
    }
}

trait Lookup {
    /// Returns a field of an entry: `clusters.field("root", "cluster", "server")`.
    fn field(&self, name: &str, section: &str, key: &str) -> anyhow::Result<&str>;
}

impl Lookup for Vec<Named> {
    fn field(&self, name: &str, section: &str, key: &str) -> anyhow::Result<&str> {
        let entry = self.iter().find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| anyhow!("there is no {section} `{name}`"))?;
        let value = entry.content.get(section).and_then(|content| content.get(key));
        value
            .and_then(Value::as_str)
            .ok_or_else(|| anyhow!("{section} `{name}` has no {key}"))
    }
}

/// Returns a PEM document that a kubeconfig names as a file, or contains as `<key>-data`.
fn pem(entries: &Vec<Named>, name: &str, section: &str, key: &str, folder: &Path) -> anyhow::Result<Vec<u8>> {
    if let Ok(data) = entries.field(name, section, &format!("{key}-data")) {
        return STANDARD
            .decode(data)
            .with_context(|| format!("{key}-data of {section} `{name}` is not base64"));
    }
    let path = folder.join(entries.field(name, section, key)?);
    std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

fn certificates(pem: &[u8]) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .context("not a certificate")
}
