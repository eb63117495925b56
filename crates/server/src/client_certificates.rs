//! Client certificates for users, signed by the server's own CA.
//!
//! rcgen's names hold one value of each type, and a user is in many groups. So the certificate is
//! made without a subject, gets the subject in its DER form, and is signed again.

use std::path::Path;

use insula_admin::host::{CertificateEnd, ClientCertificate};
use insula_api::Timestamp;
use insula_auth::{certificate::MARK, ec_key::for_kubeconfig};
use rcgen::{CustomExtension, DistinguishedName, KeyPair, SigningKey};

use crate::{
    StartError,
    files::{IDENTITY_DIR, read, read_secret},
    identity::{self, Pair},
};

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;
/// Object identifiers of a common name and of an organization: 2.5.4.3 and 2.5.4.10.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];

/// Signs a certificate of a user and their groups with the CA in the data directory. It ends no
/// later than the CA. Blocks.
///
/// # Errors
/// The reason why this server cannot sign: its CA has no key here, or cannot be used.
pub(crate) fn sign(
    data_dir: &Path,
    (user, groups): (&str, &[String]),
    end: CertificateEnd,
    now: Timestamp,
) -> Result<ClientCertificate, String> {
    let text = |error: StartError| error.to_string();
    let ca = Pair::in_dir(&data_dir.join(IDENTITY_DIR), "ca");
    let (Some(certificate), Some(key)) = (
        read(&ca.certificate).map_err(text)?,
        read_secret(&ca.key).map_err(text)?,
    ) else {
        return Err("this server does not hold the key of its CA".to_owned());
    };
    let authority = identity::Authority::read(&ca, &certificate, &key, now).map_err(text)?;
    let not_after = end.at.0.min(authority.not_after);
    let own = KeyPair::generate().map_err(|error| error.to_string())?;
    let mut params = identity::client_params(DistinguishedName::new(), now, not_after);
    let mark = end.mark.map(|mark| CustomExtension::from_oid_content(MARK, mark.der()));
    params.custom_extensions.extend(mark);
    let unnamed = params
        .signed_by(&own, &authority.issuer)
        .map_err(|error| error.to_string())?;
    let ca_key = KeyPair::from_pem(&key).map_err(|error| error.to_string())?;
    let named = with_subject(unnamed.der(), &subject(user, groups), &ca_key);
    let named = named.ok_or("the certificate cannot be signed")?;
    Ok(ClientCertificate {
        certificate: crate::certificates::pem(&named.into()),
        key: for_kubeconfig(&own.serialize_pem()).into_owned(),
        not_after: Timestamp(not_after),
    })
}

/// Returns a value of DER.
fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let bytes = length.to_be_bytes();
    let bytes = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    let mut out = vec![tag];
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            // A length has at most eight bytes.
            out.push(0x80 | bytes.len() as u8);
            out.extend_from_slice(bytes);
        }
    }
    out.extend_from_slice(content);
    out
}

/// Returns the name of a user: an organization for each group, and the common name.
fn subject(user: &str, groups: &[String]) -> Vec<u8> {
    let attribute = |kind: &[u8], text: &str| {
        let pair = [value(OBJECT_IDENTIFIER, kind), value(UTF8_STRING, text.as_bytes())].concat();
        value(SET, &value(SEQUENCE, &pair))
    };
    let mut parts: Vec<u8> = groups
        .iter()
        .flat_map(|group| attribute(&ORGANIZATION, group))
        .collect();
    parts.extend(attribute(&COMMON_NAME, user));
    value(SEQUENCE, &parts)
}

/// Replaces the subject of a certificate, and signs it again with the key that signed it.
fn with_subject(der: &[u8], subject: &[u8], key: &impl SigningKey) -> Option<Vec<u8>> {
    let (unsigned, rest) = split(content(der)?)?;
    let (algorithm, _) = split(rest)?;
    let mut fields = content(unsigned)?;
    let mut parts = Vec::new();
    // Version, serial number, algorithm, issuer and validity come first.
    for _ in 0..5 {
        let (field, rest) = split(fields)?;
        parts.extend_from_slice(field);
        fields = rest;
    }
    let (_, after) = split(fields)?;
    parts.extend_from_slice(subject);
    parts.extend_from_slice(after);
    let unsigned = value(SEQUENCE, &parts);
    let signature = key.sign(&unsigned).ok()?;
    let signature = value(BIT_STRING, &[&[0], signature.as_slice()].concat());
    Some(value(SEQUENCE, &[unsigned.as_slice(), algorithm, &signature].concat()))
}

/// Returns the bytes of the first value of DER, and those after it.
fn split(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (header, length) = lengths(der)?;
    der.split_at_checked(header + length)
}

/// Returns the content of the first value of DER.
fn content(der: &[u8]) -> Option<&[u8]> {
    let (header, length) = lengths(der)?;
    der.get(header..header + length)
}

/// Returns the number of bytes of tag and length of a value, and that of its content.
fn lengths(der: &[u8]) -> Option<(usize, usize)> {
    let first = usize::from(*der.get(1)?);
    if first < 0x80 {
        return Some((2, first));
    }
    let header = 2 + (first & 0x7f);
    let length = der.get(2..header)?.iter();
    Some((header, length.fold(0, |length, byte| length << 8 | usize::from(*byte))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_auth::certificate::Mark;

    #[test]
    fn a_certificate_names_its_user_and_all_groups() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp(1_800_000_000);
        identity::ensure(dir.path(), &[], now).unwrap();
        let groups: Vec<String> = (0..40).map(|n| format!("group-{n}")).collect();
        let long = "ü".repeat(200);
        for user in ["alice", &long] {
            let mark = (user == "alice").then_some(Mark([7; 32]));
            let at = Timestamp(now.0 + 600);
            let signed = sign(dir.path(), (user, &groups), CertificateEnd { at, mark }, now).unwrap();
            let (_, pem) = x509_parser::pem::parse_x509_pem(signed.certificate.as_bytes()).unwrap();
            let read = insula_auth::certificate::user(&pem.contents).unwrap();
            assert_eq!((&*read.0.name, &read.0.groups[..40]), (user, &groups[..]));
            assert_eq!(read.1, Timestamp(now.0 + 600));
            assert_eq!(insula_auth::certificate::mark(&pem.contents), Ok(mark));
            let ca = read_ca(dir.path());
            let (_, ca) = x509_parser::pem::parse_x509_pem(ca.as_bytes()).unwrap();
            let ca = ca.parse_x509().unwrap();
            let parsed = pem.parse_x509().unwrap();
            assert_eq!(parsed.issuer(), ca.subject());
            assert_eq!(signed.not_after, Timestamp(now.0 + 600));
        }
        let late = Timestamp(now.0 + 100 * 365 * 24 * 3600);
        let end = CertificateEnd { at: late, mark: None };
        let bounded = sign(dir.path(), ("alice", &[]), end, now).unwrap();
        assert!(bounded.not_after < late, "no certificate outlives its CA");
        std::fs::remove_file(dir.path().join("pki/ca.key")).unwrap();
        let refused = sign(dir.path(), ("alice", &[]), end, now).unwrap_err();
        assert!(refused.contains("does not hold the key"), "{refused}");
    }

    fn read_ca(dir: &Path) -> String {
        std::fs::read_to_string(dir.join("pki/ca.crt")).unwrap()
    }
}
