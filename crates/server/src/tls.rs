//! TLS configuration of the server: version 1.2 or newer, HTTP/2 before HTTP/1.1, an optional
//! client certificate of our CA.

use std::{path::Path, sync::Arc};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    server::WebPkiClientVerifier,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::{
    StartError,
    identity::Identity,
    rotating::{Rotating, wrong},
};

/// Makes aws-lc-rs the cryptography provider of the process. Libraries panic when two providers are
/// linked and none is installed.
pub fn install_provider() {
    // An error means that a provider is installed already, which is as good.
    drop(aws_lc_rs::default_provider().install_default());
}

/// Returns the configuration of the listener. Certificates are read once: a renewal needs a
/// restart.
pub(crate) fn server_config(identity: &Identity) -> Result<Arc<ServerConfig>, StartError> {
    let provider: Arc<CryptoProvider> = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&identity.ca)? {
        roots.add(certificate).map_err(|error| wrong(&identity.ca, &error))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        // A client with a token has no certificate; a client without both is anonymous, and
        // authentication decides.
        .allow_unauthenticated()
        .build()
        .map_err(|error| wrong(&identity.ca, &error))?;
    let key =
        PrivateKeyDer::from_pem_file(&identity.server.key).map_err(|error| wrong(&identity.server.key, &error))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| wrong(&identity.server.certificate, &error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates(&identity.server.certificate)?, key)
        .map_err(|error| wrong(&identity.server.certificate, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Returns the configuration of a server whose certificate may change, and which asks for no client
/// certificate.
pub(crate) fn plain_config(shown: Arc<Rotating>) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(shown);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, StartError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(path, &error))
}
