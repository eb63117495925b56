//! Private keys on elliptic curves, in the form of RFC 5915 (SEC 1) for kubeconfigs.
//!
//! Clients in Java take a key that begins with `BEGIN PRIVATE KEY` (PKCS #8) for an RSA key, and do
//! not start. Every client reads `BEGIN EC PRIVATE KEY`, which names the curve inside of the key.
//!
//! ```text
//! PKCS #8  SEQUENCE { 0, SEQUENCE { ecPublicKey, curve }, OCTET STRING { SEC 1 } }
//! SEC 1    SEQUENCE { 1, OCTET STRING, [0] { curve }, [1] { public key } }
//! ```

use base64::{Engine, engine::general_purpose::STANDARD};
use std::borrow::Cow;
use x509_parser::pem::Pem;

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const CURVE: u8 = 0xa0;
const PUBLIC_KEY: u8 = 0xa1;
/// Object identifier 1.2.840.10045.2.1, with its tag and length.
const EC_PUBLIC_KEY: [u8; 9] = [OBJECT_IDENTIFIER, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// Characters of a line of PEM.
const LINE_CHARS: usize = 64;

/// Returns a private key as PEM text that every client of a kubeconfig reads: a key on an elliptic
/// curve in SEC 1's form, and any other text as it is.
pub fn for_kubeconfig(pem: &str) -> Cow<'_, str> {
    let mut blocks = Pem::iter_from_buffer(pem.as_bytes()).map_while(Result::ok);
    let key = blocks.find(|block| block.label == "PRIVATE KEY");
    match key.and_then(|key| sec1(&key.contents)) {
        Some(der) => Cow::Owned(to_pem("EC PRIVATE KEY", &der)),
        None => Cow::Borrowed(pem),
    }
}

/// Returns the PKCS #8 form of a key in SEC 1's form, in DER. The key's `SubjectPublicKeyInfo`
/// names the curve.
pub fn to_pkcs8(sec1: &[u8], public_key_info: &[u8]) -> Vec<u8> {
    let algorithm = content(public_key_info, SEQUENCE).and_then(split).unwrap_or_default().0;
    let parts = [&*value(INTEGER, &[0]), algorithm, &value(OCTET_STRING, sec1)];
    value(SEQUENCE, &parts.concat())
}

/// Returns the SEC 1 form of a key in PKCS #8; `None` for keys of other kinds.
fn sec1(pkcs8: &[u8]) -> Option<Vec<u8>> {
    let fields = content(pkcs8, SEQUENCE)?;
    let (_version, rest) = split(fields)?;
    let (algorithm, rest) = split(rest)?;
    let (wrapped, _) = split(rest)?;
    let curve = content(algorithm, SEQUENCE)?.strip_prefix(&EC_PUBLIC_KEY)?;
    content(curve, OBJECT_IDENTIFIER)?;
    let mut fields = content(content(wrapped, OCTET_STRING)?, SEQUENCE)?;
    let (mut parts, mut public_key) = (Vec::new(), &[][..]);
    while !fields.is_empty() {
        let (field, rest) = split(fields)?;
        match *field.first()? {
            // It is named below, before the public key.
            CURVE => {}
            PUBLIC_KEY => public_key = field,
            _ => parts.extend_from_slice(field),
        }
        fields = rest;
    }
    Some(value(SEQUENCE, &[&*parts, &value(CURVE, curve), public_key].concat()))
}

/// Returns PEM text.
pub fn to_pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE_CHARS));
        pem.extend([line, "\n"]);
        rest = after;
    }
    pem + &format!("-----END {label}-----\n")
}

/// Returns a value of DER.
fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let length = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut out = vec![tag];
    match length {
        [] => out.push(0),
        [short] if *short < 0x80 => out.push(*short),
        // A length has at most eight bytes.
        long => out.extend([&[0x80 | long.len() as u8], long].concat()),
    }
    out.extend_from_slice(content);
    out
}

/// Returns the bytes of the first value of DER, and those after it.
fn split(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (header, length) = lengths(der)?;
    der.split_at_checked(header.checked_add(length)?)
}

/// Returns the content of a value of DER with a tag, which is first.
fn content(der: &[u8], tag: u8) -> Option<&[u8]> {
    let (header, length) = lengths(der).filter(|_| der.first() == Some(&tag))?;
    der.get(header..header.checked_add(length)?)
}

/// Returns the number of bytes of tag and length of a value, and that of its content.
fn lengths(der: &[u8]) -> Option<(usize, usize)> {
    let first = usize::from(*der.get(1)?);
    if first < 0x80 {
        return Some((2, first));
    }
    let bytes = first & 0x7f;
    let length = der.get(2..2 + bytes)?.iter();
    let fits = bytes <= size_of::<u32>();
    fits.then(|| {
        (
            2 + bytes,
            length.fold(0, |length, byte| length << 8 | usize::from(*byte)),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData};

    fn contents(pem: &str) -> (String, Vec<u8>) {
        let block = Pem::iter_from_buffer(pem.as_bytes())
            .next()
            .expect("a block")
            .expect("PEM");
        (block.label, block.contents)
    }

    #[test]
    fn keys_on_curves_are_the_same_in_both_forms() {
        for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384] {
            let key = KeyPair::generate_for(algorithm).expect("a key");
            let written = for_kubeconfig(&key.serialize_pem()).into_owned();
            let (label, der) = contents(&written);
            assert_eq!(label, "EC PRIVATE KEY");
            let read = KeyPair::from_pem(&written).expect("a key in SEC 1's form");
            assert_eq!(read.subject_public_key_info(), key.subject_public_key_info());
            assert_eq!(for_kubeconfig(&written), written, "it is converted once");
            let spki = key.subject_public_key_info();
            let back = KeyPair::try_from(to_pkcs8(&der, &spki)).expect("a key in PKCS #8");
            assert_eq!(back.subject_public_key_info(), spki);
        }
    }

    #[test]
    fn other_keys_and_texts_stay() {
        let other = KeyPair::generate_for(&PKCS_ED25519).expect("a key").serialize_pem();
        let cut = {
            let whole = KeyPair::generate().expect("a key").serialize_der();
            to_pem("PRIVATE KEY", &whole[..whole.len() / 2])
        };
        for text in [
            other.as_str(),
            &cut,
            "",
            "no PEM",
            "-----BEGIN PRIVATE KEY-----\nMA==\n",
        ] {
            assert_eq!(for_kubeconfig(text), text);
        }
    }
}
