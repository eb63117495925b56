//! Names derived from digests, by the algorithms of kcp.

use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::{ClusterName, Json, ShownLabel, Uid, names::labels};
use serde_json::json;
use sha2::{Digest, Sha224, Sha256};

const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Writes a big-endian number in a base of up to 62, without leading zeros.
fn in_base(bytes: &[u8], base: u32) -> String {
    let mut number = bytes.to_vec();
    let mut text = Vec::new();
    while number.iter().any(|byte| *byte != 0) {
        let mut rest = 0;
        for byte in &mut number {
            let part = rest * 256 + u32::from(*byte);
            *byte = (part / base) as u8;
            rest = part % base;
        }
        text.push(DIGITS[rest as usize] as char);
    }
    text.iter().rev().collect()
}

/// Returns base62(SHA-224(text)).
pub fn base62(text: &str) -> String {
    in_base(&Sha224::digest(text.as_bytes()), 62)
}

/// Returns the UID of an object that is not stored: the same at each read. A UUID of version 8.
pub fn uid(text: &str) -> Uid {
    let digest = Sha256::digest(text.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    let bits = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62);
    Uid(bits | 0x8 << 76 | 0x2 << 62)
}

/// Returns the value of the label `internal.apis.kcp.io/export` for bindings of an export.
pub fn export_label(cluster: &ClusterName, export: &str) -> String {
    base62(&format!("{cluster}:{export}"))
}

/// Returns the label of objects that a permission claim covers, by the claimed group, resource and
/// identity. kcp hashes the claim in the form in which Go writes it, without its verbs.
pub fn claim_label(cluster: &ClusterName, export: &str, (group, resource, identity): (&str, &str, &str)) -> ShownLabel {
    let mut claim = String::from("{");
    if !group.is_empty() {
        claim += &format!("\"group\":{},", json!(group));
    }
    claim += &format!("\"resource\":{},\"verbs\":null", json!(resource));
    if !identity.is_empty() {
        claim += &format!(",\"identityHash\":{}", json!(identity));
    }
    claim.push('}');
    let key = format!("{}{}", labels::CLAIMED_PREFIX, export_label(cluster, export));
    ShownLabel::new(key, base62(&claim))
}

/// Returns a name for a new logical cluster: 16 characters of base36(SHA-224(random)).
pub fn cluster_name(random: &[u8; 32]) -> ClusterName {
    let text = in_base(&Sha224::digest(random), 36);
    let text = format!("{text:0>16}");
    ClusterName::parse(&text[..16]).expect("base 36 has lower case letters and digits only")
}

/// Returns the digest of a shard's name: the first eight characters of base36(SHA-224(name)).
pub fn shard_hash(name: &str) -> String {
    let text = in_base(&Sha224::digest(name.as_bytes()), 36);
    format!("{text:0>44}").chars().take(8).collect()
}

/// Returns the logical cluster of a user's home workspace: base36 of the first eight bytes of
/// SHA-224(name).
pub fn home_cluster(user: &str) -> ClusterName {
    let text = in_base(&Sha224::digest(user.as_bytes())[..8], 36);
    ClusterName::parse(&format!("{text:0>13}")).expect("base 36 has lower case letters and digits only")
}

/// Returns the name of the binding that a workspace type's default creates: the export's name and
/// five characters of a hash over cluster, path and export.
pub fn default_binding_name(cluster: &ClusterName, path: &str, export: &str) -> String {
    let hash = base62(&format!("{cluster}|{path}|{export}")).to_lowercase();
    format!("{}-{}", export.chars().take(250 - 6).collect::<String>(), &hash[..5])
}

/// Returns the label of a LogicalCluster with a pending initializer or terminator. The key is
/// `prefix` and the start of the SHA-224 of its name; the value is the whole digest.
pub fn lifecycle_label(prefix: &str, name: &str) -> (String, String) {
    const LABEL_MAX: usize = 63;
    let digest: String = Sha224::digest(name.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let room = LABEL_MAX.saturating_sub(prefix.len()).min(digest.len());
    (format!("{prefix}{}", &digest[..room]), digest)
}

/// Returns the identity of an export: hex SHA-256 of its secret key.
pub fn identity(key: &[u8]) -> String {
    Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the Secret with the key of a new export that names no Secret of its own.
pub fn identity_secret(name: &str, key: &[u8; 32]) -> Json {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque",
        "data": {"key": STANDARD.encode(key)},
    })
}

/// Returns the identity of a Secret's key, or None if it has no key.
pub fn identity_of_secret(secret: &Json) -> Option<String> {
    let key = STANDARD.decode(secret["data"]["key"].as_str()?).ok()?;
    (!key.is_empty()).then(|| identity(&key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_their_base() {
        assert_eq!(in_base(&[0, 0, 61], 62), "Z");
        assert_eq!(in_base(&[1, 0], 36), "74");
        assert_eq!(
            identity(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(cluster_name(&[7; 32]).as_str().len(), 16);
        // The value that kcp computes for its second shard.
        assert_eq!(shard_hash("shard-1"), "2e1tfbst");
    }

    /// The pairs are those that kcp computes.
    #[test]
    fn claims_have_the_labels_of_kcp() {
        let rows = [
            (
                ("root", "tenancy.kcp.io"),
                ("", "configmaps", ""),
                "bmCdly9xXiUpEHe3ypvDwvXMTfoVZUE92mqAQf",
                "3QVjs6pfBjMpLEVYYhysJnroYGsQGlWm05E4qe",
            ),
            (
                ("abcd1234", "my-export"),
                ("apps", "deployments", "deadbeef"),
                "phGj1BkmdNY3LKTrtFc1KGLYTBs8Nt50p8PIU",
                "4CpOMiJ5JL9ZC4cG8ne7nGNQbSOEUiwZ89KHal",
            ),
        ];
        for ((cluster, export), claim, key, value) in rows {
            let cluster = ClusterName::parse(cluster).unwrap();
            let key = format!("claimed.internal.apis.kcp.io/{key}");
            let label = ShownLabel::new(key, value.to_owned());
            assert_eq!(claim_label(&cluster, export, claim), label);
        }
    }
}
