//! Connections to webhooks. The host is resolved here, its addresses are checked, and the
//! connection goes to the checked address, so that a name that resolves differently the second time
//! (DNS rebinding) gains nothing.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier, crypto::CryptoProvider};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tower::Service;

use super::{targets::Targets, trust::BundleVerifier};

const HTTPS: u16 = 443;

/// Connector that trusts one CA bundle.
#[derive(Clone)]
pub(super) struct Connector {
    targets: Arc<Targets>,
    tls: TlsConnector,
}

/// Reason why there is no connection. The text does not reveal the addresses of a name.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoConnection {
    /// The host has no address that may be called.
    #[error("{0}")]
    NoTarget(String),
    /// Its addresses do not answer, or not with a trusted certificate.
    #[error("{0}")]
    Failed(String),
}

impl Connector {
    /// Creates a connector with a client certificate, which trusts a CA and the certificates that
    /// the machine trusts.
    pub(super) fn showing(targets: Arc<Targets>, shown: &Shown) -> Result<Self, String> {
        let mut trusted = machine_roots();
        let ca = CertificateDer::pem_slice_iter(&shown.ca).filter_map(Result::ok);
        trusted.add_parsable_certificates(ca);
        let chain = CertificateDer::pem_slice_iter(&shown.certificate).filter_map(Result::ok);
        let key = PrivateKeyDer::from_pem_slice(&shown.key).map_err(|error| error.to_string())?;
        let config = config()?
            .with_root_certificates(trusted)
            .with_client_auth_cert(chain.collect(), key)
            .map_err(|error| error.to_string())?;
        Ok(Self::with(targets, config))
    }

    pub(super) fn with(targets: Arc<Targets>, mut config: ClientConfig) -> Self {
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Connector {
            targets,
            tls: TlsConnector::from(Arc::new(config)),
        }
    }

    /// Creates a connector that trusts the bundle, or without one the certificates that the machine
    /// trusts.
    pub(super) fn new(targets: Arc<Targets>, ca_bundle: Option<&[u8]>) -> Result<Self, String> {
        let config = match ca_bundle {
            None => config()?.with_root_certificates(machine_roots()),
            Some(pem) => {
                let bundle = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
                let verifier = BundleVerifier::new(bundle, provider())?;
                // rustls calls every verifier but its own dangerous.
                config()?
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        Ok(Self::with(targets, config.with_no_client_auth()))
    }

    async fn connect(self, uri: Uri) -> Result<Stream, NoConnection> {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(HTTPS);
        let tcp = self.reach(&host, port).await?;
        let name = ServerName::try_from(host.clone())
            .map_err(|_| NoConnection::Failed(format!("{host:?} is not the name of a host")))?;
        // Small requests and answers gain nothing from Nagle's algorithm.
        drop(tcp.set_nodelay(true));
        let tls = self.tls.connect(name, tcp).await.map_err(|error| tls_error(&error))?;
        Ok(Stream(TokioIo::new(tls)))
    }

    async fn reach(&self, host: &str, port: u16) -> Result<TcpStream, NoConnection> {
        let addresses = self.addresses(host, port).await;
        let place = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        if addresses.is_empty() {
            return Err(NoConnection::NoTarget(not_allowed(host, &place)));
        }
        let mut last = "";
        for address in addresses {
            match TcpStream::connect((address, port)).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = reason(&error),
            }
        }
        Err(NoConnection::Failed(format!("dial tcp {place}: connect: {last}")))
    }

    /// Returns the allowed addresses of a host. The reason for an empty result goes to the log of
    /// the operator only: a tenant must not find out whether a name resolves to an internal
    /// address.
    async fn addresses(&self, host: &str, port: u16) -> Vec<IpAddr> {
        let found: Vec<IpAddr> = match host.parse() {
            Ok(address) => vec![address],
            Err(_) => match lookup_host((host, port)).await {
                Ok(found) => found.map(|found| found.ip()).collect(),
                Err(error) => {
                    tracing::info!(host, port, %error, "a name that is to be called cannot be resolved");
                    return Vec::new();
                }
            },
        };
        let is_allowed = |address: &IpAddr| self.targets.allow(host, *address, port);
        let (allowed, refused): (Vec<IpAddr>, Vec<IpAddr>) = found.into_iter().partition(is_allowed);
        if allowed.is_empty() {
            tracing::info!(host, port, addresses = ?refused, "a name that is to be called leads to no allowed address");
        }
        allowed
    }
}

/// Client certificate of this server, and a CA that it trusts besides those of the machine, as PEM.
pub(crate) struct Shown {
    pub(crate) ca: Vec<u8>,
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

pub(super) fn config() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, String> {
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| error.to_string())
}

/// Returns the refusal of a host without an allowed address: the same text for a name that does not
/// resolve and for one with a forbidden address. Names of Services get a hint, since they resolve
/// in other clusters.
fn not_allowed(host: &str, place: &str) -> String {
    let hint = match host.ends_with(".svc") {
        true => "; services have no pods here: use clientConfig.url, or have the operator give the name an address",
        false => "",
    };
    format!(
        "dial tcp: {place} is not among the targets that this server may call; its operator sets webhooks.allow{hint}"
    )
}

/// Returns the description of a failed connection that a client may see.
fn reason(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::TimedOut => "i/o timeout",
        _ => "no route to host",
    }
}

fn tls_error(error: &io::Error) -> NoConnection {
    use rustls::{CertificateError, Error};
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    NoConnection::Failed(match inner {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned()
        }
        Some(Error::InvalidCertificate(cause)) => format!("tls: failed to verify certificate: x509: {cause}"),
        Some(error) => format!("tls: {error}"),
        None => "tls: the handshake failed".to_owned(),
    })
}

/// Returns the certificates that the machine trusts.
pub(super) fn machine_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = NoConnection;
    type Future = BoxFuture<'static, Result<Stream, NoConnection>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoConnection>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

/// A connection in the form that the connection pool needs.
pub(super) struct Stream(TokioIo<TlsStream<TcpStream>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
