//! Trust in the servers that a CA bundle names.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    server::ParsedCertificate,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Verification of a server by a CA bundle. As in Go, a server may also show a certificate of the
/// bundle itself, although it is a certificate authority: `openssl req -x509` makes such ones, and
/// rustls refuses them.
#[derive(Debug)]
pub(super) struct BundleVerifier {
    by_issuer: Arc<WebPkiServerVerifier>,
    bundle: Vec<CertificateDer<'static>>,
}

impl BundleVerifier {
    /// Creates a verifier for the certificates of a bundle.
    ///
    /// # Errors
    /// No certificate of the bundle can be read.
    pub(super) fn new(bundle: Vec<CertificateDer<'static>>, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        let (good, _) = roots.add_parsable_certificates(bundle.iter().cloned());
        if good == 0 {
            return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
        }
        let by_issuer = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(BundleVerifier {
            by_issuer: by_issuer.build().map_err(|error| error.to_string())?,
            bundle,
        })
    }
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.bundle.iter().any(|listed| listed == shown) {
            verify_listed(shown, name, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.by_issuer.verify_server_cert(shown, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_issuer.verify_tls12_signature(message, shown, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_issuer.verify_tls13_signature(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_issuer.supported_verify_schemes()
    }
}

/// Verifier that takes any certificate, and checks signatures, as `insecureSkipTLSVerify` and
/// `--insecure-skip-tls-verify` want it.
#[derive(Debug)]
pub struct AnyServer(pub Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, shown, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, shown, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Checks what remains to check of a certificate that is trusted by itself: its name, its time and
/// its purpose. The handshake proves that the server has the key.
fn verify_listed(shown: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
    let refused = |error| Err(Error::InvalidCertificate(error));
    let Ok((_, parsed)) = X509Certificate::from_der(shown) else {
        return refused(CertificateError::BadEncoding);
    };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < parsed.validity().not_before.timestamp() {
        return refused(CertificateError::NotValidYet);
    }
    if now > parsed.validity().not_after.timestamp() {
        return refused(CertificateError::Expired);
    }
    let usage = parsed.extended_key_usage().ok().flatten();
    if usage.is_some_and(|usage| !usage.value.any && !usage.value.server_auth) {
        return refused(CertificateError::InvalidPurpose);
    }
    verify_server_name(&ParsedCertificate::try_from(shown)?, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};
    use std::time::Duration;

    /// Seconds from 1970 to a day within the validity of the certificates here.
    const TODAY: u64 = 1_800_000_000;

    fn certificate(edit: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(["hook.example.com".to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2028, 1, 1);
        edit(&mut params);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().clone()
    }

    #[test]
    fn a_server_may_show_a_certificate_of_the_bundle() {
        let plain = || certificate(|_| ());
        let for_clients = certificate(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
        let listed = plain();
        let year = 366 * 24 * 3600;
        let table = [
            (&listed, &listed, "hook.example.com", TODAY, None),
            (&listed, &listed, "other.example.com", TODAY, Some("NotValidForName")),
            (&listed, &listed, "hook.example.com", TODAY + 2 * year, Some("Expired")),
            (
                &listed,
                &listed,
                "hook.example.com",
                TODAY - 2 * year,
                Some("NotValidYet"),
            ),
            (
                &for_clients,
                &for_clients,
                "hook.example.com",
                TODAY,
                Some("InvalidPurpose"),
            ),
            (&listed, &plain(), "hook.example.com", TODAY, Some("")),
        ];
        for (listed, shown, name, now, refusal) in table {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let verifier = BundleVerifier::new(vec![listed.clone()], provider).expect("a bundle");
            let server = ServerName::try_from(name).expect("a name");
            let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
            let verified = verifier.verify_server_cert(shown, &[], &server, &[], now);
            match refusal {
                None => assert!(verified.is_ok(), "{name}: {verified:?}"),
                Some(part) => assert!(format!("{:?}", verified.expect_err(name)).contains(part), "{name}"),
            }
        }
    }
}
