//! TLS of tools, and the cryptography of the process.

use std::sync::Arc;

use insula_edge::port::tls::{Tls, builder, protocols};
use rustls::crypto::aws_lc_rs;

use crate::rotating::Rotating;

/// Makes aws-lc-rs the cryptography provider of the process. Libraries panic when two providers are
/// linked and none is installed.
pub fn install_provider() {
    // An error means that a provider is installed already, which is as good.
    drop(aws_lc_rs::default_provider().install_default());
}

/// Returns the configuration of a server whose certificate may change, and which asks for no client
/// certificate.
pub(crate) fn plain_config(shown: Arc<Rotating>) -> Result<Tls, rustls::Error> {
    let mut config = builder()?.with_no_client_auth().with_cert_resolver(shown);
    config.alpn_protocols = protocols();
    Ok(Tls {
        config: Arc::new(config),
        proxies: None,
    })
}
