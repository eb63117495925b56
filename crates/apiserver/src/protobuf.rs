//! Kubernetes' protobuf, as far as clients insist on sending it: kubectl creates namespaces, config maps and secrets this
//! way. A body is read into the same JSON as any other; answers are JSON, which all those clients take too.
//!
//! A body is `k8s\0` and a `runtime.Unknown`: type (apiVersion, kind) and the object's own bytes. Field numbers are those
//! of Kubernetes' `generated.proto` files.

use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::{Json, Timestamp};
use serde_json::{Map, json};

const MAGIC: &[u8] = b"k8s\0";
/// Messages in messages: the types below need four.
const DEPTH_MAX: usize = 8;

/// Why bytes are no object of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// Not `k8s\0` and an envelope, or cut short.
    #[error("the body is not Kubernetes' protobuf: {0}")]
    Malformed(&'static str),
    /// A kind that is read as JSON or YAML only.
    #[error("{api_version} {kind} is not read as protobuf; send application/json")]
    UnknownKind {
        /// As sent.
        api_version: String,
        /// As sent.
        kind: String,
    },
}

/// What a field holds.
#[derive(Clone, Copy)]
enum Type {
    Text,
    Integer,
    Bool,
    Time,
    Message(&'static [Field]),
    /// Entries of a map: key 1, value 2.
    TextMap,
    BytesMap,
}

/// Number, JSON name, type, and whether it repeats.
type Field = (u32, &'static str, Type, bool);

const OWNER: &[Field] = &[
    (1, "kind", Type::Text, false),
    (3, "name", Type::Text, false),
    (4, "uid", Type::Text, false),
    (5, "apiVersion", Type::Text, false),
    (6, "controller", Type::Bool, false),
    (7, "blockOwnerDeletion", Type::Bool, false),
];
const META: &[Field] = &[
    (1, "name", Type::Text, false),
    (2, "generateName", Type::Text, false),
    (3, "namespace", Type::Text, false),
    (5, "uid", Type::Text, false),
    (6, "resourceVersion", Type::Text, false),
    (7, "generation", Type::Integer, false),
    (8, "creationTimestamp", Type::Time, false),
    (9, "deletionTimestamp", Type::Time, false),
    (10, "deletionGracePeriodSeconds", Type::Integer, false),
    (11, "labels", Type::TextMap, false),
    (12, "annotations", Type::TextMap, false),
    (13, "ownerReferences", Type::Message(OWNER), true),
    (14, "finalizers", Type::Text, true),
];
const NAMESPACE: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (2, "spec", Type::Message(&[(1, "finalizers", Type::Text, true)]), false),
    (3, "status", Type::Message(&[(1, "phase", Type::Text, false)]), false),
];
const CONFIG_MAP: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (2, "data", Type::TextMap, false),
    (3, "binaryData", Type::BytesMap, false),
    (4, "immutable", Type::Bool, false),
];
const SECRET: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (2, "data", Type::BytesMap, false),
    (3, "type", Type::Text, false),
    (4, "stringData", Type::TextMap, false),
    (5, "immutable", Type::Bool, false),
];
const PRECONDITIONS: &[Field] = &[(1, "uid", Type::Text, false), (2, "resourceVersion", Type::Text, false)];
const DELETE_OPTIONS: &[Field] = &[
    (1, "gracePeriodSeconds", Type::Integer, false),
    (2, "preconditions", Type::Message(PRECONDITIONS), false),
    (3, "orphanDependents", Type::Bool, false),
    (4, "propagationPolicy", Type::Text, false),
    (5, "dryRun", Type::Text, true),
];

/// Reads a body.
///
/// # Errors
/// It is malformed, or of a kind that is not read in this form.
pub fn decode(body: &[u8]) -> Result<Json, ProtobufError> {
    let envelope = body
        .strip_prefix(MAGIC)
        .ok_or(ProtobufError::Malformed("no k8s prefix"))?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Fields(envelope) {
        match field? {
            (1, Value::Bytes(meta)) => {
                for field in Fields(meta) {
                    match field? {
                        (1, Value::Bytes(text)) => api_version = utf8(text)?,
                        (2, Value::Bytes(text)) => kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Value::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let fields = match (&*api_version, &*kind) {
        ("v1", "Namespace") => NAMESPACE,
        ("v1", "ConfigMap") => CONFIG_MAP,
        ("v1", "Secret") => SECRET,
        (_, "DeleteOptions") => DELETE_OPTIONS,
        _ => return Err(ProtobufError::UnknownKind { api_version, kind }),
    };
    let mut object = message(raw, fields, DEPTH_MAX)?;
    object.insert("apiVersion".into(), json!(api_version));
    object.insert("kind".into(), json!(kind));
    Ok(Json::Object(object))
}

/// A message as JSON. Go writes empty strings, zeros and empty messages that its JSON leaves out, so they are left out here.
fn message(bytes: &[u8], fields: &[Field], depth: usize) -> Result<Map<String, Json>, ProtobufError> {
    let depth = depth
        .checked_sub(1)
        .ok_or(ProtobufError::Malformed("nested too deep"))?;
    let mut object = Map::new();
    for field in Fields(bytes) {
        let (number, value) = field?;
        let Some((_, name, kind, repeats)) = fields.iter().find(|field| field.0 == number) else {
            continue;
        };
        if let (Type::TextMap | Type::BytesMap, Value::Bytes(entry)) = (kind, value) {
            let (key, text) = map_entry(entry, *kind)?;
            let map = object.entry(*name).or_insert_with(|| json!({}));
            map[key] = text;
            continue;
        }
        let Some(read) = scalar(value, *kind, depth)? else {
            continue;
        };
        match (repeats, object.entry(*name).or_insert(Json::Null)) {
            (true, Json::Array(list)) => list.push(read),
            (true, slot) => *slot = json!([read]),
            (false, slot) => *slot = read,
        }
    }
    Ok(object)
}

fn scalar(value: Value<'_>, kind: Type, depth: usize) -> Result<Option<Json>, ProtobufError> {
    Ok(match (kind, value) {
        (Type::Text, Value::Bytes(bytes)) => Some(utf8(bytes)?).filter(|text| !text.is_empty()).map(Json::String),
        (Type::Integer, Value::Varint(number)) => Some(json!(number as i64)),
        (Type::Bool, Value::Varint(number)) => Some(json!(number != 0)),
        (Type::Time, Value::Bytes(bytes)) => time(bytes)?,
        (Type::Message(fields), Value::Bytes(bytes)) => Some(message(bytes, fields, depth)?)
            .filter(|object| !object.is_empty())
            .map(Json::Object),
        _ => return Err(ProtobufError::Malformed("a field of another type")),
    })
}

fn time(bytes: &[u8]) -> Result<Option<Json>, ProtobufError> {
    for field in Fields(bytes) {
        if let (1, Value::Varint(seconds)) = field? {
            return Ok(Some(json!(Timestamp(seconds as i64).to_string())));
        }
    }
    Ok(None)
}

fn map_entry(bytes: &[u8], kind: Type) -> Result<(String, Json), ProtobufError> {
    let (mut key, mut value) = (String::new(), &[][..]);
    for field in Fields(bytes) {
        match field? {
            (1, Value::Bytes(text)) => key = utf8(text)?,
            (2, Value::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    let value = match kind {
        Type::BytesMap => json!(STANDARD.encode(value)),
        _ => json!(utf8(value)?),
    };
    Ok((key, value))
}

fn utf8(bytes: &[u8]) -> Result<String, ProtobufError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Malformed("a text that is not UTF-8"))
}

/// The wire: a field's number and its value.
#[derive(Clone, Copy)]
enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Fixed-width numbers: no field of ours has one.
    Fixed,
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u32, Value<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let count = self.varint()?;
                Value::Bytes(self.take(count)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return None,
        };
        Some((u32::try_from(tag >> 3).ok()?, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field().ok_or(ProtobufError::Malformed("cut short"));
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    fn envelope(kind: &str, object: &[u8]) -> Vec<u8> {
        let meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &meta), &field(2, object)].concat()
    }

    #[test]
    fn objects_are_read() {
        let entry = [field(1, b"k"), field(2, b"v")].concat();
        // Go writes what is empty too: a generateName and a creationTimestamp.
        let meta = [field(1, b"a"), field(2, b""), field(8, b""), field(11, &entry)].concat();
        let config_map = [field(1, &meta), field(2, &entry), field(3, &entry), vec![4 << 3, 1]].concat();
        assert_eq!(
            decode(&envelope("ConfigMap", &config_map)),
            Ok(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"k": "v"}},
                "data": {"k": "v"}, "binaryData": {"k": "dg=="}, "immutable": true})
            )
        );
        let options = [vec![1 << 3, 0], field(4, b"Background"), field(5, b"All")].concat();
        assert_eq!(
            decode(&envelope("DeleteOptions", &options)),
            Ok(
                json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                "propagationPolicy": "Background", "dryRun": ["All"]})
            )
        );
    }

    #[test]
    fn other_bytes_are_refused() {
        let whole = envelope("Secret", &field(1, &field(1, b"a")));
        for cut in 0..whole.len() - 1 {
            assert!(decode(&whole[..cut]).is_err() || cut > 4, "{cut}");
        }
        assert!(matches!(
            decode(&envelope("Pod", b"")),
            Err(ProtobufError::UnknownKind { .. })
        ));
        for bytes in [
            &b""[..],
            b"k8s",
            b"k8s\0\xff",
            b"k8s\0\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"{}",
        ] {
            assert!(decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
