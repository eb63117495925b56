//! Certificates by the name that a client asks for in its handshake (SNI).

use std::{path::PathBuf, sync::Arc};

use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

/// Files of a certificate and its key, and the names that it is for.
#[derive(Debug, Clone)]
pub(super) struct PairFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    /// Names, some of which begin with `*.`; those of the certificate if there are none here.
    pub(super) names: Vec<String>,
}

/// A pair that can be used.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    pub(super) key: Arc<CertifiedKey>,
    /// Names that it is shown for, in lower case.
    pub(super) names: Vec<String>,
}

/// The certificates of a port.
#[derive(Debug)]
pub(super) struct ByName {
    /// For clients that ask for no name, or for one that no other certificate is for.
    pub(super) default: Arc<CertifiedKey>,
    pub(super) others: Vec<Pair>,
}

impl ByName {
    /// Returns the index among the others of the certificate for a name. Names in full come before
    /// `*.`, which stands for one label, and earlier certificates before later ones.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let name = name.to_lowercase();
        let wide = name.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        let of = |wanted: &String| self.others.iter().position(|pair| pair.names.contains(wanted));
        of(&name).or_else(|| wide.as_ref().and_then(of))
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let other = hello.server_name().and_then(|name| self.find(name));
        let key = other.and_then(|index| self.others.get(index)).map(|pair| &pair.key);
        Some(Arc::clone(key.unwrap_or(&self.default)))
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs;
    use rustls_pki_types::PrivateKeyDer;

    use super::*;

    #[test]
    fn full_names_come_before_wildcards_and_earlier_certificates_before_later_ones() {
        let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let der = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let key = CertifiedKey::from_der(vec![made.cert.der().clone()], der, &aws_lc_rs::default_provider()).unwrap();
        let key = Arc::new(key);
        let pair = |names: &[&str]| Pair {
            key: Arc::clone(&key),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let shown = ByName {
            default: Arc::clone(&key),
            others: vec![pair(&["*.a.test", "x.test"]), pair(&["b.a.test", "x.test"])],
        };
        for (name, want) in [
            ("b.a.test", Some(1)),
            ("B.A.test", Some(1)),
            ("c.a.test", Some(0)),
            ("d.c.a.test", None),
            ("a.test", None),
            ("x.test", Some(0)),
            ("127.0.0.1", None),
            ("localhost", None),
        ] {
            assert_eq!(shown.find(name), want, "{name}");
        }
    }
}
