//! HTTP/2 client with the certificate of the administrator, on a fixed number of TLS connections.

use anyhow::{Context, Result, anyhow, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use serde_json::Value;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Size of the HTTP/2 windows: as large as a list, so that the measurement shows the server and not
/// the window.
const STREAM_WINDOW_BYTES: u32 = 32 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// Streams that one connection carries; servers commonly allow a few hundred.
const STREAMS_PER_CONNECTION: usize = 100;

/// A client that distributes requests over its connections in turn.
pub(crate) struct Client {
    /// Connections with the authority of their server.
    connections: Vec<(String, SendRequest<Full<Bytes>>)>,
    next: AtomicUsize,
    refused: AtomicUsize,
    addresses: Vec<Address>,
}

#[derive(Clone)]
struct Address {
    host: String,
    port: u16,
    tls: Arc<ClientConfig>,
}

impl Client {
    /// Connects as the user of the kubeconfigs' context `base`, to their servers in turn.
    pub(crate) async fn connect<P: AsRef<Path>>(kubeconfigs: &[P], connections: usize) -> Result<Self> {
        let read = |path: &P| Address::read(path.as_ref()).with_context(|| path.as_ref().display().to_string());
        let addresses = kubeconfigs.iter().map(read).collect::<Result<Vec<_>>>()?;
        Self::open(addresses, connections).await
    }

    async fn open(addresses: Vec<Address>, count: usize) -> Result<Self> {
        let mut connections = Vec::new();
        for address in addresses.iter().cycle().take(count.max(addresses.len())) {
            let authority = format!("{}:{}", address.host, address.port);
            connections.push((authority, address.connect().await?));
        }
        Ok(Client {
            connections,
            next: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            addresses,
        })
    }

    /// Returns a client of the same user on separate connections, enough for this number of endless
    /// streams.
    pub(crate) async fn for_streams(&self, streams: usize) -> Result<Self> {
        Self::open(self.addresses.clone(), streams.div_ceil(STREAMS_PER_CONNECTION)).await
    }

    /// Returns the number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Returns the number of requests that were refused by a limit.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Sends a request and reads the whole answer, whatever its code. After a 429 it retries when
    /// `Retry-After` says, as Kubernetes' clients do.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<Bytes>) -> Result<(StatusCode, Bytes)> {
        let mut response = self.begin(method.clone(), path, body.clone()).await?;
        while let Some(seconds) = retry_after(&response) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            response = self.begin(method.clone(), path, body.clone()).await?;
        }
        let code = response.status();
        let body = response
            .into_body()
            .collect()
            .await
            .with_context(|| path.to_owned())?
            .to_bytes();
        Ok((code, body))
    }

    /// Sends a request that has to succeed.
    pub(crate) async fn must(&self, method: Method, path: &str, body: Option<Bytes>) -> Result<Bytes> {
        let (code, answer) = self.send(method.clone(), path, body).await?;
        if !code.is_success() {
            let text = String::from_utf8_lossy(&answer);
            bail!("{method} {path}: {code} {}", text.chars().take(600).collect::<String>());
        }
        Ok(answer)
    }

    /// Creates an object.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<Bytes> {
        self.must(Method::POST, path, Some(Bytes::from(object.to_string())))
            .await
    }

    /// Creates an object from its bytes.
    pub(crate) async fn post(&self, path: &str, object: Bytes) -> Result<Bytes> {
        self.must(Method::POST, path, Some(object)).await
    }

    /// Reads JSON.
    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        let body = self.must(Method::GET, path, None).await?;
        serde_json::from_slice(&body).with_context(|| path.to_owned())
    }

    /// Opens a stream, such as a watch.
    pub(crate) async fn stream(&self, path: &str) -> Result<Incoming> {
        let response = self.begin(Method::GET, path, None).await?;
        if !response.status().is_success() {
            bail!("GET {path}: {}", response.status());
        }
        Ok(response.into_body())
    }

    async fn begin(&self, method: Method, path: &str, body: Option<Bytes>) -> Result<http::Response<Incoming>> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let (authority, mut connection) = self.connections[index].clone();
        let uri = format!("https://{authority}{path}");
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.unwrap_or_default()))?;
        connection.ready().await.context("the connection is gone")?;
        connection.send_request(request).await.with_context(|| path.to_owned())
    }
}

/// Returns the seconds of `Retry-After` in a refusal.
fn retry_after(response: &http::Response<Incoming>) -> Option<u64> {
    let seconds = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    (response.status() == StatusCode::TOO_MANY_REQUESTS)
        .then(|| seconds.parse().ok())
        .flatten()
}

impl Address {
    fn read(kubeconfig: &Path) -> Result<Self> {
        let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig)?)?;
        let named = |list: &str, name: &Value, section: &str| -> Result<Value> {
            let entries = config[list].as_array().into_iter().flatten();
            let found = entries.into_iter().find(|entry| &entry["name"] == name);
            found
                .map(|entry| entry[section].clone())
                .ok_or_else(|| anyhow!("no {section} {name}"))
        };
        let context = named("contexts", &Value::from("base"), "context")?;
        let cluster = named("clusters", &context["cluster"], "cluster")?;
        let user = named("users", &context["user"], "user")?;
        let text = |value: &Value, field: &str| -> Result<String> {
            value[field]
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| anyhow!("no {field}"))
        };
        let data = |value: &Value, field: &str| Ok::<_, anyhow::Error>(STANDARD.decode(text(value, field)?)?);
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&data(&cluster, "certificate-authority-data")?) {
            roots.add(certificate?)?;
        }
        let chain = data(&user, "client-certificate-data")?;
        let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&data(&user, "client-key-data")?)?;
        let mut tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let server = text(&cluster, "server")?;
        let authority = server
            .strip_prefix("https://")
            .ok_or_else(|| anyhow!("{server} is no https URL"))?;
        let authority = authority.split('/').next().unwrap_or(authority);
        let (host, port) = authority
            .rsplit_once(':')
            .ok_or_else(|| anyhow!("{server} has no port"))?;
        Ok(Address {
            host: host.to_owned(),
            port: port.parse()?,
            tls: Arc::new(tls),
        })
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(self.host.clone())?;
        let tls = TlsConnector::from(self.tls.clone()).connect(name, tcp).await?;
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .handshake(TokioIo::new(tls))
            .await?;
        tokio::spawn(async move {
            // A broken connection shows in its requests.
            drop(connection.await);
        });
        Ok(sender)
    }
}
