//! A certificate and key that are reloaded when their files change: cert-manager and kubelet
//! replace them long before they expire, without a restart.
//!
//! The files are read and compared, not watched: a mounted Secret changes by a symbolic link above
//! them, which a watch of the files does not notice. A certificate that does not fit its key means
//! that the change is half done; the previous pair stays in use.

use std::{
    convert::Infallible,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rustls::{
    crypto::aws_lc_rs,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::StartError;

/// Period of reading the files. A mount changes within a minute or two of its Secret.
const PERIOD: Duration = Duration::from_secs(5);

/// The certificate of new connections.
#[derive(Debug)]
pub(crate) struct Rotating(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Rotating {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // The value is consistent even after a panic.
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Rotating {
    fn show(&self, pair: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pair);
    }
}

/// The two files, and their contents when they were last read.
pub(crate) struct Files {
    certificate: PathBuf,
    key: PathBuf,
    read: Option<Content>,
}

type Content = [Vec<u8>; 2];

impl Files {
    /// Reads the files.
    ///
    /// # Errors
    /// Fails when the files cannot be read, or do not fit together.
    pub(crate) fn open(certificate: PathBuf, key: PathBuf) -> Result<(Files, Arc<Rotating>), StartError> {
        let mut files = Files {
            certificate,
            key,
            read: None,
        };
        let content = files.content()?;
        let pair = files.pair(&content)?;
        files.read = Some(content);
        Ok((files, Arc::new(Rotating(RwLock::new(Arc::new(pair))))))
    }

    /// Follows the files for as long as it runs. Calls `changed` for each change of the files, with
    /// an error if the old pair stays in use.
    pub(crate) async fn follow(mut self, shown: &Rotating, changed: impl Fn(Result<(), StartError>)) -> Infallible {
        loop {
            tokio::time::sleep(PERIOD).await;
            // Two small files: not worth a thread.
            if let Some(news) = self.changed() {
                changed(news.map(|pair| shown.show(pair)));
            }
        }
    }

    /// Returns the pair if the files have changed since the last call.
    fn changed(&mut self) -> Option<Result<CertifiedKey, StartError>> {
        let content = match self.content() {
            Ok(content) if self.read.as_ref() == Some(&content) => return None,
            Ok(content) => content,
            // Reported once.
            Err(error) => return self.read.take().map(|_| Err(error)),
        };
        let pair = self.pair(&content);
        self.read = Some(content);
        Some(pair)
    }

    fn content(&self) -> Result<Content, StartError> {
        let read = |path: &Path| fs::read(path).map_err(|error| wrong(path, &error));
        Ok([read(&self.certificate)?, read(&self.key)?])
    }

    fn pair(&self, [certificate, key]: &Content) -> Result<CertifiedKey, StartError> {
        let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let chain = chain.map_err(|error| wrong(&self.certificate, &error))?;
        let private = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong(&self.key, &error))?;
        CertifiedKey::from_der(chain, private, &aws_lc_rs::default_provider())
            .map_err(|error| wrong(&self.certificate, &error))
    }
}

/// Returns the error of a certificate or key that TLS cannot use.
pub(crate) fn wrong(path: &Path, error: &dyn std::fmt::Display) -> StartError {
    StartError::Identity {
        path: path.to_owned(),
        cause: format!("cannot be used for TLS: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, names: [&str; 2]) -> Vec<u8> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        for (name, text) in names.iter().zip([made.cert.pem(), made.signing_key.serialize_pem()]) {
            fs::write(folder.join(name), text).unwrap();
        }
        made.cert.der().to_vec()
    }

    #[test]
    fn a_pair_changes_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let first = write(folder.path(), ["tls.crt", "tls.key"]);
        let (mut files, shown) = Files::open(path("tls.crt"), path("tls.key")).unwrap();
        let shows = |pair: &CertifiedKey| pair.cert[0].to_vec();
        assert_eq!(shows(&shown.0.read().unwrap()), first);
        assert!(files.changed().is_none());

        // The certificate is written before its key.
        let second = write(folder.path(), ["tls.crt", "later.key"]);
        assert!(files.changed().unwrap().is_err());
        assert!(files.changed().is_none(), "told once");
        fs::rename(path("later.key"), path("tls.key")).unwrap();
        assert_eq!(shows(&files.changed().unwrap().unwrap()), second);

        fs::remove_file(path("tls.key")).unwrap();
        assert!(files.changed().unwrap().is_err());
        assert!(files.changed().is_none(), "told once");
        let third = write(folder.path(), ["tls.crt", "tls.key"]);
        assert_eq!(shows(&files.changed().unwrap().unwrap()), third);
    }
}
