//! Identity of the server and of its first administrators: a CA that the first start creates, and
//! the certificates that it signs.
//!
//! The CA is valid for ten years, every other certificate for a year at most. A start renews a
//! certificate that expires within 30 days, that has other names than the server, or that does not
//! fit its key or its CA (after a crash between two files). A key is written before its
//! certificate, so that a certificate on disk always had its key.

mod front_proxy;

pub(crate) use front_proxy::FrontProxies;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    time::Duration,
};

use insula_api::Timestamp;
use insula_auth::service_account::key_name;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};

use crate::{
    StartError,
    files::{IDENTITY_DIR, read, read_secret, write_private},
};

const DAY_SECONDS: i64 = 24 * 3600;
const CA_DAYS: i64 = 3650;
const LEAF_DAYS: i64 = 365;
const RENEW_DAYS: i64 = 30;
/// Seconds by which certificates are backdated: the clock of a client may be slow.
const BACKDATE_SECONDS: i64 = 300;

/// The administrator of kcp's contexts `root` and `base`.
pub(crate) const KCP_ADMIN: (&str, &str) = ("kcp-admin", "system:kcp:admin");
/// The administrator of kcp's context `system:admin`.
pub(crate) const SHARD_ADMIN: (&str, &str) = ("shard-admin", "system:masters");

/// This server as a client of the servers that workspaces are mounted from. No user of this server.
const FRONT: (&str, &str) = ("front", "system:insula:front");

/// A certificate and its key, on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    /// The certificate, PEM.
    pub(crate) certificate: PathBuf,
    /// The private key, PEM, mode 0600.
    pub(crate) key: PathBuf,
}

/// Certificates and keys of the server, checked and current.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// PEM file of the CA that signed the certificates.
    pub(crate) ca: PathBuf,
    /// The certificate of the server.
    pub(crate) server: Pair,
    /// The client certificate of [`KCP_ADMIN`].
    pub(crate) kcp_admin: Pair,
    /// The client certificate of [`SHARD_ADMIN`].
    pub(crate) shard_admin: Pair,
    /// The client certificate of [`FRONT`].
    pub(crate) front: Pair,
}

/// Required subject of a certificate.
enum Subject {
    Server { names: Vec<String>, addresses: Vec<IpAddr> },
    Client { name: &'static str, group: &'static str },
}

/// A CA that signs.
pub(crate) struct Authority {
    pub(crate) issuer: Issuer<'static, KeyPair>,
    key_identifier: Vec<u8>,
    /// Last second in which it is valid.
    pub(crate) not_after: i64,
}

/// Reads the certificates in the data directory, and creates those that are missing or out of date.
pub(crate) fn ensure(data_dir: &Path, names: &[String], now: Timestamp) -> Result<Identity, StartError> {
    let dir = data_dir.join(IDENTITY_DIR);
    crate::files::private_dir(&dir)?;
    let ca = Pair::in_dir(&dir, "ca");
    let authority = authority(&ca, now)?;
    let server = Pair::in_dir(&dir, "server");
    leaf(&server, &server_subject(names), &authority, now)?;
    let client = |(name, group): (&'static str, &'static str)| {
        let pair = Pair::in_dir(&dir, name);
        leaf(&pair, &Subject::Client { name, group }, &authority, now).map(|()| pair)
    };
    Ok(Identity {
        ca: ca.certificate,
        server,
        kcp_admin: client(KCP_ADMIN)?,
        shard_admin: client(SHARD_ADMIN)?,
        front: client(FRONT)?,
    })
}

/// Returns the key of the CA, PEM; `None` where the server does not have it. Several servers of one
/// installation have the same.
pub(crate) fn ca_key(data_dir: &Path) -> Result<Option<String>, StartError> {
    read_secret(&ca_key_path(data_dir))
}

fn ca_key_path(data_dir: &Path) -> PathBuf {
    Pair::in_dir(&data_dir.join(IDENTITY_DIR), "ca").key
}

/// Returns the name of the CA's public key; `None` where the server does not have its key.
pub(crate) fn ca_key_name(data_dir: &Path) -> Result<Option<String>, StartError> {
    let Some(pem) = ca_key(data_dir)? else { return Ok(None) };
    let key = KeyPair::from_pem(&pem).map_err(|error| StartError::Identity {
        path: ca_key_path(data_dir),
        cause: format!("is not a private key: {error}"),
    })?;
    Ok(Some(key_name(key.public_key_raw())))
}

fn server_subject(extra: &[String]) -> Subject {
    let mut names = vec!["localhost".to_owned()];
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    for name in extra {
        match name.parse::<IpAddr>() {
            // 0.0.0.0 and :: are addresses to listen on, not to connect to.
            Ok(address) if address.is_unspecified() => {}
            Ok(address) => addresses.push(address),
            Err(_) => names.push(name.to_lowercase()),
        }
    }
    names.sort_unstable();
    names.dedup();
    addresses.sort_unstable();
    addresses.dedup();
    Subject::Server { names, addresses }
}

impl Pair {
    /// Returns the files of a name in a directory.
    pub(crate) fn in_dir(dir: &Path, name: &str) -> Self {
        Self {
            certificate: dir.join(format!("{name}.crt")),
            key: dir.join(format!("{name}.key")),
        }
    }

    fn write(&self, certificate: &str, key: &str) -> Result<(), StartError> {
        write_private(&self.key, key.as_bytes()).map_err(|cause| StartError::write(&self.key, cause))?;
        write_private(&self.certificate, certificate.as_bytes())
            .map_err(|cause| StartError::write(&self.certificate, cause))
    }
}

fn authority(pair: &Pair, now: Timestamp) -> Result<Authority, StartError> {
    let (certificate, key) = match (read(&pair.certificate)?, read_secret(&pair.key)?) {
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => {
            let cause = "missing, but the certificate next to it exists; restore it, or remove both to start with \
             a new CA (every kubeconfig handed out then has to be handed out again)";
            return Err(wrong(&pair.key, cause.to_owned()));
        }
        // A crash during the first start leaves a key alone. It has signed nothing.
        (None, _) => new_authority(pair, now)?,
    };
    Authority::read(pair, &certificate, &key, now)
}

fn wrong(path: &Path, cause: String) -> StartError {
    StartError::Identity {
        path: path.to_owned(),
        cause,
    }
}

impl Authority {
    /// Reads a CA from the PEM text of its certificate and its key.
    ///
    /// # Errors
    /// They do not belong together, or the CA cannot sign now.
    pub(crate) fn read(pair: &Pair, certificate: &str, key: &str, now: Timestamp) -> Result<Self, StartError> {
        let der = der(certificate).map_err(|cause| wrong(&pair.certificate, cause))?;
        let key = KeyPair::from_pem(key).map_err(|error| wrong(&pair.key, format!("is not a private key: {error}")))?;
        let (_, parsed) = X509Certificate::from_der(&der)
            .map_err(|error| wrong(&pair.certificate, format!("is not a certificate: {error}")))?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(wrong(
                &pair.key,
                format!(
                    "does not belong to {}; restore the right one",
                    pair.certificate.display()
                ),
            ));
        }
        let not_after = parsed.validity().not_after.timestamp();
        if not_after <= now.0 {
            let cause = format!(
                "ran out at {}; move it and its key away to start with a new CA",
                Timestamp(not_after)
            );
            return Err(wrong(&pair.certificate, cause));
        }
        let key_identifier = subject_key_identifier(&parsed).ok_or_else(|| {
            wrong(
                &pair.certificate,
                "has no subject key identifier, so it was not made here".to_owned(),
            )
        })?;
        let issuer = Issuer::from_ca_cert_der(&der, key)
            .map_err(|error| wrong(&pair.certificate, format!("cannot sign with it: {error}")))?;
        Ok(Authority {
            issuer,
            key_identifier,
            not_after,
        })
    }
}

fn new_authority(pair: &Pair, now: Timestamp) -> Result<(String, String), StartError> {
    let failed = |error: rcgen::Error| identity_error(pair, &error);
    // P-256: the fastest handshakes, and every client supports it.
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::default();
    // Names differ between CAs, so that no chain is looked for under the wrong one.
    let stem = pair.certificate.file_stem().unwrap_or_default().to_string_lossy();
    params.distinguished_name = distinguished_name(&format!("insula-{stem}-{}", now.0), None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    validity(&mut params, now, now.0 + CA_DAYS * DAY_SECONDS);
    let certificate = params.self_signed(&key).map_err(failed)?.pem();
    let key = key.serialize_pem();
    pair.write(&certificate, &key)?;
    Ok((certificate, key))
}

/// Keeps a current certificate, and creates a new one otherwise.
fn leaf(pair: &Pair, subject: &Subject, authority: &Authority, now: Timestamp) -> Result<(), StartError> {
    let stale = match (read(&pair.certificate)?, read_secret(&pair.key)?) {
        (Some(certificate), Some(key)) => stale(&certificate, &key, subject, authority, now),
        _ => Some("it is not there yet"),
    };
    let Some(reason) = stale else { return Ok(()) };
    tracing::debug!(certificate = %pair.certificate.display(), reason, "issuing a certificate");
    let failed = |error: rcgen::Error| identity_error(pair, &error);
    let key = KeyPair::generate().map_err(failed)?;
    let not_after = authority.not_after.min(now.0 + LEAF_DAYS * DAY_SECONDS);
    let params = match subject {
        Subject::Server { names, addresses } => {
            let name = distinguished_name("insula", None);
            let mut params = leaf_params(name, ExtendedKeyUsagePurpose::ServerAuth, now, not_after);
            for name in names {
                params
                    .subject_alt_names
                    .push(SanType::DnsName(name.as_str().try_into().map_err(failed)?));
            }
            params
                .subject_alt_names
                .extend(addresses.iter().copied().map(SanType::IpAddress));
            params
        }
        Subject::Client { name, group } => client_params(distinguished_name(name, Some(group)), now, not_after),
    };
    let certificate = params.signed_by(&key, &authority.issuer).map_err(failed)?;
    pair.write(&certificate.pem(), &key.serialize_pem())
}

/// Returns the parameters of a client certificate.
pub(crate) fn client_params(name: DistinguishedName, now: Timestamp, not_after: i64) -> CertificateParams {
    leaf_params(name, ExtendedKeyUsagePurpose::ClientAuth, now, not_after)
}

fn leaf_params(
    name: DistinguishedName,
    usage: ExtendedKeyUsagePurpose,
    now: Timestamp,
    not_after: i64,
) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    validity(&mut params, now, not_after);
    params
}

/// Returns the reason to renew a certificate, if there is one.
fn stale(pem: &str, key: &str, subject: &Subject, authority: &Authority, now: Timestamp) -> Option<&'static str> {
    let (Ok(der), Ok(key)) = (der(pem), KeyPair::from_pem(key)) else {
        return Some("it cannot be read");
    };
    let Ok((_, parsed)) = X509Certificate::from_der(&der) else {
        return Some("it cannot be read");
    };
    if parsed.public_key().raw != key.subject_public_key_info() {
        return Some("it does not fit its key");
    }
    if authority_key_identifier(&parsed).as_deref() != Some(authority.key_identifier.as_slice()) {
        return Some("another CA signed it");
    }
    let validity = parsed.validity();
    let runs_out = validity.not_after.timestamp() - now.0 < RENEW_DAYS * DAY_SECONDS;
    // Near the end of the CA a new certificate would be valid no longer than this one.
    if validity.not_before.timestamp() > now.0 || (runs_out && validity.not_after.timestamp() < authority.not_after) {
        return Some("it runs out soon");
    }
    (!says(&parsed, subject)).then_some("it says something else")
}

fn says(certificate: &X509Certificate<'_>, subject: &Subject) -> bool {
    let first = |mut names: Vec<String>| if names.len() == 1 { names.pop() } else { None };
    let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().unwrap_or_default().to_owned();
    match subject {
        Subject::Server { names, addresses } => {
            let Ok(Some(extension)) = certificate.subject_alternative_name() else {
                return false;
            };
            let (mut got_names, mut got_addresses) = (Vec::new(), Vec::new());
            for name in &extension.value.general_names {
                match name {
                    GeneralName::DNSName(name) => got_names.push((*name).to_owned()),
                    GeneralName::IPAddress(bytes) => got_addresses.extend(address(bytes)),
                    _ => return false,
                }
            }
            got_names.sort_unstable();
            got_addresses.sort_unstable();
            got_names == *names && got_addresses == *addresses
        }
        Subject::Client { name, group } => {
            let got = certificate.subject();
            first(got.iter_common_name().map(text).collect()).as_deref() == Some(*name)
                && first(got.iter_organization().map(text).collect()).as_deref() == Some(*group)
        }
    }
}

/// Returns the address in a subject alternative name.
pub(crate) fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn subject_key_identifier(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate
        .extensions()
        .iter()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        })
}

fn authority_key_identifier(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate
        .extensions()
        .iter()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0.to_vec()),
            _ => None,
        })
}

fn der(pem: &str) -> Result<CertificateDer<'static>, String> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| format!("is not a PEM certificate: {error}"))
}

fn distinguished_name(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut whole = DistinguishedName::new();
    if let Some(group) = group {
        whole.push(DnType::OrganizationName, group);
    }
    whole.push(DnType::CommonName, name);
    whole
}

fn validity(params: &mut CertificateParams, now: Timestamp, not_after: i64) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |seconds: i64| epoch + Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    params.not_before = at(now.0 - BACKDATE_SECONDS);
    params.not_after = at(not_after);
}

fn identity_error(pair: &Pair, error: &rcgen::Error) -> StartError {
    StartError::Identity {
        path: pair.certificate.clone(),
        cause: format!("cannot be made: {error}"),
    }
}

#[cfg(test)]
mod tests;
