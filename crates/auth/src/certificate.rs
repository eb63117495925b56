//! Users from client certificates: the common name is the user, organizations are groups.
//!
//! TLS has verified the chain, and the validity when the connection began. This module checks the
//! properties that Kubernetes and TLS libraries leave open, so that no certificate made for another
//! purpose identifies a user.

use crate::user::{EXTRA_CREDENTIAL, UserInfo};
use insula_api::Timestamp;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use x509_parser::{
    certification_request::X509CertificationRequest,
    der_parser::Oid,
    pem::parse_x509_pem,
    prelude::{FromDer, X509Certificate, X509Name},
};

/// Refusal of a certificate: 401.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// Not exactly one DER certificate, or one with unreadable or repeated extensions.
    #[error("malformed client certificate")]
    Malformed,
    /// A certificate authority.
    #[error("the client certificate is a certificate authority (CA:TRUE); use a leaf certificate")]
    Authority,
    /// A certificate for another purpose.
    #[error("the client certificate is not for client authentication; issue it with extended key usage clientAuth")]
    Usage,
    /// No common name, or several.
    #[error("the client certificate must have exactly one common name (CN), which is the user's name")]
    Name,
}

/// Returns the user that a DER certificate names, and the end of its validity.
///
/// # Errors
/// Fails if the certificate is malformed, an authority, not for clients, or without exactly one
/// name.
pub fn user(der: &[u8]) -> Result<(UserInfo, Timestamp), CertificateError> {
    let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| CertificateError::Malformed)?;
    if !rest.is_empty() {
        return Err(CertificateError::Malformed);
    }
    let constraints = certificate
        .basic_constraints()
        .map_err(|_| CertificateError::Malformed)?;
    if constraints.is_some_and(|constraints| constraints.value.ca) {
        return Err(CertificateError::Authority);
    }
    let usage = certificate
        .extended_key_usage()
        .map_err(|_| CertificateError::Malformed)?;
    if !usage.is_some_and(|usage| usage.value.client_auth) {
        return Err(CertificateError::Usage);
    }
    let (name, groups) = subject(certificate.subject())?;
    let mut user = UserInfo::authenticated(name, "", groups);
    user.extra.insert(EXTRA_CREDENTIAL.to_owned(), vec![fingerprint(der)]);
    Ok((user, Timestamp(certificate.validity().not_after.timestamp())))
}

/// Error of an unreadable certificate request, in Kubernetes' words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not PEM, or PEM of another type.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Pem,
    /// Not PKCS#10 in DER.
    #[error("asn1: structure error: not a certificate request")]
    Malformed,
}

/// Returns the organizations in the subject of a request: the groups of the future certificate's
/// user. The signer verifies the signature.
///
/// # Errors
/// Fails if the text is not a certificate request in PEM.
pub fn requested_groups(pem: &[u8]) -> Result<Vec<String>, RequestError> {
    let (_, block) = parse_x509_pem(pem).map_err(|_| RequestError::Pem)?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err(RequestError::Pem);
    }
    let (rest, request) = X509CertificationRequest::from_der(&block.contents).map_err(|_| RequestError::Malformed)?;
    if !rest.is_empty() {
        return Err(RequestError::Malformed);
    }
    let subject = &request.certification_request_info.subject;
    let organizations = subject.iter_organization().map(|name| name.as_str().map(str::to_owned));
    organizations
        .collect::<Result<_, _>>()
        .map_err(|_| RequestError::Malformed)
}

fn subject(subject: &X509Name<'_>) -> Result<(String, Vec<String>), CertificateError> {
    let mut names = subject.iter_common_name();
    let (Some(name), None) = (names.next(), names.next()) else {
        return Err(CertificateError::Name);
    };
    let name = name.as_str().map_err(|_| CertificateError::Malformed)?;
    if name.is_empty() {
        return Err(CertificateError::Name);
    }
    let mut groups: Vec<String> = Vec::new();
    for organization in subject.iter_organization() {
        let group = organization.as_str().map_err(|_| CertificateError::Malformed)?;
        if !group.is_empty() && !groups.iter().any(|known| known == group) {
            groups.push(group.to_owned());
        }
    }
    // A line break in a name would let its owner forge log lines.
    if groups
        .iter()
        .map(String::as_str)
        .chain([name])
        .any(|text| text.chars().any(char::is_control))
    {
        return Err(CertificateError::Malformed);
    }
    Ok((name.to_owned(), groups))
}

/// Identifier of the extension with the mark, in the arc of UUIDs (2.25): the certificate was made
/// with a credential, and ends with it.
pub const MARK: &[u64] = &[2, 25, 190_846_315, 74_519_280];

/// Mark of the credential with which a certificate was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark(pub [u8; 32]);

/// Head of an octet string of 32 bytes in DER.
const OCTETS: [u8; 2] = [0x04, 32];

/// Secret from which marks are made: a certificate is shown to others, and a weak token could be
/// guessed by its digest.
#[derive(Clone, Copy)]
pub struct MarkKey([u8; 32]);

impl MarkKey {
    /// Derives the secret from the private key of the CA: who signs a certificate has it.
    pub fn from_ca_key(pem: &str) -> Self {
        let hash = Sha256::new().chain_update("mark of a credential\n").chain_update(pem);
        MarkKey(hash.finalize().into())
    }
}

impl Mark {
    /// Returns the mark of a token with a digest.
    pub fn of_token(key: MarkKey, digest: &[u8; 32]) -> Self {
        // Both have a fixed length.
        Mark(Sha256::new().chain_update(key.0).chain_update(digest).finalize().into())
    }

    /// Returns the content of the extension.
    pub fn der(&self) -> Vec<u8> {
        [OCTETS.as_slice(), &self.0].concat()
    }
}

/// Returns the mark of a DER certificate; `None` if it has none.
///
/// # Errors
/// Fails if the certificate or its mark is malformed.
pub fn mark(der: &[u8]) -> Result<Option<Mark>, CertificateError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| CertificateError::Malformed)?;
    let oid = Oid::from(MARK).map_err(|_| CertificateError::Malformed)?;
    let extension = certificate
        .get_extension_unique(&oid)
        .map_err(|_| CertificateError::Malformed)?;
    let mark = extension.map(|extension| {
        let content = extension.value.strip_prefix(&OCTETS)?;
        content.try_into().map(Mark).ok()
    });
    mark.map(|mark| mark.ok_or(CertificateError::Malformed)).transpose()
}

fn fingerprint(der: &[u8]) -> String {
    let mut out = String::from("X509SHA256=");
    for byte in Sha256::digest(der) {
        write!(out, "{byte:02x}").expect("a String takes everything");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // Self-signed, made once with `openssl req -x509`; the tests depend on neither dates nor
    // signatures.
    const ADMIN: &[u8] = include_bytes!("../tests/data/admin.pem");

    fn der(pem: &[u8]) -> Vec<u8> {
        parse_x509_pem(pem).expect("a PEM").1.contents
    }

    #[test]
    fn only_leaf_certificates_for_clients_with_one_name_are_users() {
        macro_rules! file {
            ($name:literal) => {
                (
                    $name,
                    include_bytes!(concat!("../tests/data/", $name, ".pem")).as_slice(),
                )
            };
        }
        let good = [
            (
                file!("admin"),
                "kcp-admin",
                vec!["system:kcp:admin", "ops", "system:authenticated"],
            ),
            (file!("no-basic-constraints"), "ada", vec!["system:authenticated"]),
            (file!("authenticated-group"), "ada", vec!["system:authenticated"]),
            (file!("utf8"), "zoë", vec!["a", "system:authenticated"]),
        ];
        for ((file, pem), name, groups) in good {
            let (user, _) = user(&der(pem)).expect(file);
            assert_eq!((user.name.as_str(), user.uid.as_str()), (name, ""), "{file}");
            assert_eq!(user.groups, groups, "{file}");
        }
        let bad = [
            (file!("ca-leaf"), CertificateError::Authority),
            (file!("server-only"), CertificateError::Usage),
            (file!("no-usage"), CertificateError::Usage),
            (file!("any-usage"), CertificateError::Usage),
            (file!("no-name"), CertificateError::Name),
            (file!("two-names"), CertificateError::Name),
        ];
        for ((file, pem), want) in bad {
            assert_eq!(user(&der(pem)), Err(want), "{file}");
        }
    }

    #[test]
    fn damaged_certificates_are_refused_and_never_panic() {
        let whole = der(ADMIN);
        let longer = [whole.as_slice(), b"x"].concat();
        assert_eq!(user(&longer), Err(CertificateError::Malformed));
        for length in 0..whole.len() {
            assert_eq!(
                user(&whole[..length]),
                Err(CertificateError::Malformed),
                "cut at {length}"
            );
        }
        for index in 0..whole.len() {
            let mut changed = whole.clone();
            changed[index] ^= 0xff;
            // Some bytes have no effect here (the signature); but none may cause a panic.
            let _ = user(&changed);
        }
    }
}
