//! The CA of the front proxies, which signs nothing else: a certificate for each cluster whose
//! requests are proxied to extension servers. Their keys stay in memory.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use insula_api::{ClusterName, Timestamp, front_proxy_name};
use insula_registry::ExtensionTrust;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::{Authority, DAY_SECONDS, Pair, authority, distinguished_name, validity};
use crate::{
    StartError,
    files::{IDENTITY_DIR, private_dir, read},
};

/// Days for which a certificate is valid. A new one is made long before.
const VALID_DAYS: i64 = 7;

/// The CA of the front proxies.
pub(crate) struct FrontProxies {
    authority: Authority,
    /// Its certificate and those of users' CAs, which extension servers trust.
    pub(crate) trust: Arc<ExtensionTrust>,
}

/// A certificate with its key.
pub(crate) struct Shown {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl FrontProxies {
    /// Name of the files of the CA in `pki`.
    pub(crate) const NAME: &str = "front-proxy-ca";

    /// Reads the CA in the data directory, or makes it, and the files of users' CAs.
    ///
    /// # Errors
    /// The files cannot be read, made or used.
    pub(crate) fn open<'a>(
        data_dir: &Path,
        users: impl Iterator<Item = &'a PathBuf>,
        now: Timestamp,
    ) -> Result<Self, StartError> {
        let dir: PathBuf = data_dir.join(IDENTITY_DIR);
        private_dir(&dir)?;
        let pair = Pair::in_dir(&dir, Self::NAME);
        let authority = authority(&pair, now)?;
        let mut trust = ExtensionTrust {
            front_proxy: read(&pair.certificate)?.unwrap_or_default(),
            clients: String::new(),
        };
        for ca in users {
            trust.clients.push_str(&read(ca)?.unwrap_or_default());
        }
        Ok(FrontProxies {
            authority,
            trust: Arc::new(trust),
        })
    }

    /// Returns a certificate under which the requests of a cluster are proxied.
    ///
    /// # Errors
    /// The key or the certificate cannot be made.
    pub(crate) fn certificate(&self, cluster: &ClusterName, now: Timestamp) -> Result<Shown, String> {
        let failed = |error: rcgen::Error| error.to_string();
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name = distinguished_name(&front_proxy_name(cluster.as_str()), None);
        let end = self.authority.not_after.min(now.0 + VALID_DAYS * DAY_SECONDS);
        validity(&mut params, now, end);
        let certificate = params.signed_by(&key, &self.authority.issuer).map_err(failed)?;
        Ok(Shown {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).map_err(str::to_owned)?,
        })
    }
}
