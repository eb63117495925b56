//! TLS of a port: version 1.2 or newer, HTTP/2 before HTTP/1.1, an optional client certificate. The
//! configuration can be replaced while the port is open; connections keep the one they began with.

use std::sync::{Arc, PoisonError, RwLock};

use axum::body::Bytes;
use insula_access::{PeerCertificate, PeerRoles};
use rustls::{ConfigBuilder, ServerConfig, WantsVerifier, crypto::aws_lc_rs, server::danger::ClientCertVerifier};
use rustls_pki_types::{CertificateDer, UnixTime};

/// The TLS configuration of new connections.
pub struct CurrentTls(RwLock<Arc<Tls>>);

/// TLS configuration, and the roles of its peers.
pub struct Tls {
    /// The configuration of handshakes.
    pub config: Arc<ServerConfig>,
    /// Set where front proxies are configured.
    pub proxies: Option<Proxies>,
}

/// Verification of front proxies.
pub struct Proxies {
    /// Verifies certificates that name users.
    pub users: Arc<dyn ClientCertVerifier>,
    /// Verifies certificates of proxies.
    pub proxies: Arc<dyn ClientCertVerifier>,
    /// Common names of the proxies.
    pub names: Vec<String>,
}

impl CurrentTls {
    /// Returns the first configuration.
    pub fn new(tls: Tls) -> Self {
        CurrentTls(RwLock::new(Arc::new(tls)))
    }

    /// Returns the configuration for the next connection.
    pub fn get(&self) -> Arc<Tls> {
        // The value is consistent even after a panic.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the configuration for the connections to come.
    pub fn set(&self, tls: Tls) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tls);
    }
}

impl Tls {
    /// Returns the certificate of a peer with its roles. The handshake has verified the chain.
    pub fn peer(&self, chain: &[CertificateDer<'_>]) -> Option<PeerCertificate> {
        let (leaf, above) = chain.split_first()?;
        let der = Bytes::copy_from_slice(leaf);
        let Some(Proxies { users, proxies, names }) = &self.proxies else {
            return Some(PeerCertificate::new(der));
        };
        // The handshake accepts the authorities of both, so each is asked again for itself.
        let now = UnixTime::now();
        let verified = |by: &Arc<dyn ClientCertVerifier>| by.verify_client_cert(leaf, above, now).is_ok();
        let roles = PeerRoles {
            user: verified(users),
            proxy: verified(proxies),
        };
        Some(PeerCertificate::with_roles(der, roles, names))
    }

    /// Returns true if what `X-Forwarded-For` says of a peer's request is to be forgotten.
    pub fn distrusts_forwarded(&self, peer: Option<&PeerCertificate>) -> bool {
        self.proxies.is_some() && !peer.is_some_and(PeerCertificate::is_front_proxy)
    }
}

/// Returns the beginning of a server's configuration.
///
/// # Errors
/// The provider does not know the versions.
pub fn builder() -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, rustls::Error> {
    ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
}

/// Returns the protocols of a port, the preferred one first.
pub fn protocols() -> Vec<Vec<u8>> {
    vec![b"h2".to_vec(), b"http/1.1".to_vec()]
}
