//! Kubernetes' protobuf, as far as clients need it: kubectl and controller-runtime send objects of
//! built-in kinds in it, and metadata informers request it. A body is decoded into the same JSON as
//! any other; metadata and `Status` alone are encoded. All those clients take JSON for whole
//! objects.
//!
//! A message is `k8s\0` and a `runtime.Unknown`: type (apiVersion, kind) and the object's own
//! bytes. [`messages`] finds the fields of both directions.

mod messages;
pub(crate) mod write;

pub use write::{encode, event};

use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::{Json, Timestamp};
use insula_catalog::kind::message::{Field, Type};
use serde_json::{Map, json};

const MAGIC: &[u8] = b"k8s\0";
/// Depth of nested messages: the tables need six.
const DEPTH_MAX: usize = 8;

/// The error of a body that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The body is not `k8s\0` and an envelope, or is truncated.
    #[error("the body is not Kubernetes' protobuf: {0}")]
    Malformed(&'static str),
    /// A kind that is read as JSON or YAML only.
    #[error("{api_version} {kind} is not read as protobuf; send application/json")]
    UnknownKind {
        /// Text of the body.
        api_version: String,
        /// Text of the body.
        kind: String,
    },
}

/// Decodes a body.
///
/// # Errors
/// It is malformed, or of a kind that is not read in this form.
pub fn decode(body: &[u8]) -> Result<Json, ProtobufError> {
    let Envelope { api_version, kind, raw } = Envelope::open(body)?;
    let Some(fields) = messages::read(&api_version, &kind) else {
        return Err(ProtobufError::UnknownKind { api_version, kind });
    };
    let mut object = message(raw, fields, DEPTH_MAX)?;
    object.insert("apiVersion".into(), json!(api_version));
    object.insert("kind".into(), json!(kind));
    Ok(Json::Object(object))
}

/// `k8s\0` and `runtime.Unknown`.
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn open(body: &'a [u8]) -> Result<Self, ProtobufError> {
        let fields = body
            .strip_prefix(MAGIC)
            .ok_or(ProtobufError::Malformed("no k8s prefix"))?;
        let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
        for field in Fields(fields) {
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
        Ok(Envelope { api_version, kind, raw })
    }
}

/// Decodes a message. Go encodes empty strings, zeros and empty messages that its JSON leaves out,
/// so they are left out here.
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
        if let (Type::TextMap | Type::BytesMap | Type::TextsMap | Type::Quantities, Value::Bytes(entry)) = (kind, value)
        {
            let (key, text) = map_entry(entry, *kind)?;
            let map = object.entry(*name).or_insert_with(|| json!({}));
            map[key] = text;
            continue;
        }
        if let (Type::Embedded(fields), Value::Bytes(bytes)) = (kind, value) {
            object.extend(message(bytes, fields, depth)?);
            continue;
        }
        let read = match (scalar(value, *kind, depth)?, repeats) {
            (Some(read), _) => read,
            // An empty item of a list counts: the core group among groups.
            (None, true) => empty(*kind),
            (None, false) => continue,
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
        (Type::Bytes, Value::Bytes(bytes)) => Some(json!(STANDARD.encode(bytes))).filter(|_| !bytes.is_empty()),
        (Type::Integer, Value::Varint(number)) => Some(json!(number as i64)),
        (Type::Bool, Value::Varint(number)) => Some(json!(number != 0)),
        (Type::Time, Value::Bytes(bytes)) => time(bytes)?.map(|(seconds, _)| json!(Timestamp(seconds).to_string())),
        (Type::MicroTime, Value::Bytes(bytes)) => time(bytes)?.map(|(seconds, nanos)| json!(micro(seconds, nanos))),
        (Type::Raw, Value::Bytes(bytes)) => raw(bytes)?,
        (Type::Message(fields), Value::Bytes(bytes)) => Some(message(bytes, fields, depth)?)
            .filter(|object| !object.is_empty())
            .map(Json::Object),
        (Type::Pointer(fields), Value::Bytes(bytes)) => Some(Json::Object(message(bytes, fields, depth)?)),
        _ => return Err(ProtobufError::Malformed("a field of another type")),
    })
}

/// Returns the zero value of a type.
fn empty(kind: Type) -> Json {
    match kind {
        Type::Text | Type::Bytes => json!(""),
        Type::Message(_)
        | Type::Pointer(_)
        | Type::Embedded(_)
        | Type::TextMap
        | Type::BytesMap
        | Type::TextsMap
        | Type::Quantities => json!({}),
        Type::Integer | Type::Bool | Type::Time | Type::MicroTime | Type::Raw => Json::Null,
    }
}

/// Decodes seconds and nanoseconds; `None` for Go's zero time.
fn time(bytes: &[u8]) -> Result<Option<(i64, u32)>, ProtobufError> {
    let (mut seconds, mut nanos) = (None, 0);
    for field in Fields(bytes) {
        match field? {
            (1, Value::Varint(number)) => seconds = Some(number as i64),
            (2, Value::Varint(number)) => nanos = u32::try_from(number).unwrap_or_default(),
            _ => {}
        }
    }
    Ok(seconds.map(|seconds| (seconds, nanos)))
}

/// `2026-11-21T09:40:00.123456Z`
fn micro(seconds: i64, nanos: u32) -> String {
    let whole = Timestamp(seconds).to_string();
    format!("{}.{:06}Z", whole.trim_end_matches('Z'), nanos / 1000 % 1_000_000)
}

fn raw(bytes: &[u8]) -> Result<Option<Json>, ProtobufError> {
    for field in Fields(bytes) {
        if let (1, Value::Bytes(text)) = field? {
            let value = serde_json::from_slice(text);
            return value
                .map(Some)
                .map_err(|_| ProtobufError::Malformed("fields that are no JSON"));
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
        Type::TextsMap | Type::Quantities => {
            let texts = Fields(value).filter_map(|field| match field {
                Ok((1, Value::Bytes(text))) => Some(utf8(text)),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            });
            let mut texts = texts.collect::<Result<Vec<String>, _>>()?;
            match kind {
                Type::Quantities => json!(texts.pop().unwrap_or_default()),
                _ => json!(texts),
            }
        }
        _ => json!(utf8(value)?),
    };
    Ok((key, value))
}

fn utf8(bytes: &[u8]) -> Result<String, ProtobufError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Malformed("a text that is not UTF-8"))
}

/// A field on the wire: its number and its value.
#[derive(Clone, Copy)]
enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Fixed-width numbers, which no field of the tables has.
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
        envelope_of("v1", kind, object)
    }

    #[test]
    fn objects_are_read() {
        let entry = [field(1, b"k"), field(2, b"v")].concat();
        // Go encodes empty fields: a generateName and a creationTimestamp.
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

    /// Decodes an encoded object, by the same tables.
    fn again(written: &[u8]) -> Json {
        let Envelope { api_version, kind, raw } = Envelope::open(written).expect("an envelope");
        let fields = messages::written(&api_version, &kind).expect("is written");
        let mut object = message(raw, fields, DEPTH_MAX).expect("a message");
        object.insert("apiVersion".into(), json!(api_version));
        object.insert("kind".into(), json!(kind));
        Json::Object(object)
    }

    #[test]
    fn encoded_objects_decode_to_themselves() {
        let metadata = json!({"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "12", "generation": 300,
            "creationTimestamp": "2026-11-21T09:40:00Z", "deletionGracePeriodSeconds": 0, "labels": {"k": "v", "l": ""},
            "annotations": {"ä": "ö"}, "finalizers": ["x/y", "z"],
            "ownerReferences": [{"kind": "K", "name": "n", "uid": "u", "apiVersion": "g/v", "controller": true}],
            "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "g/v", "fieldsType": "FieldsV1",
                "time": "2026-11-21T09:40:00Z", "fieldsV1": {"f:spec": {"f:a": {}}}, "subresource": "status"}]});
        let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
        assert_eq!(again(&encode(&partial).expect("is written")), partial);
        let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": "9", "continue": "abc", "remainingItemCount": 7},
            "items": [{"metadata": {"name": "a"}}, {"metadata": metadata}]});
        assert_eq!(again(&encode(&list).expect("is written")), list);
        let reply = crate::status::bad_request("no");
        let status = again(&encode(&reply.body).expect("is written"));
        assert_eq!((&status["code"], &status["message"]), (&json!(400), &json!("no")));
        assert_eq!(encode(&json!({"kind": "Pod", "apiVersion": "v1"})), None);
        let event = event("ADDED", &partial).expect("is written");
        let fields: Vec<_> = Fields(&event).map(|field| field.expect("a field")).collect();
        let [(1, Value::Bytes(b"ADDED")), (2, Value::Bytes(raw))] = fields[..] else {
            panic!("{event:?}");
        };
        let Some(Ok((1, Value::Bytes(object)))) = Fields(raw).next() else {
            panic!("{raw:?}");
        };
        assert_eq!(again(object), partial);
    }

    #[test]
    fn times_keep_their_fraction() {
        let seconds = [
            &[1 << 3][..],
            &[0x80, 0x92, 0xb8, 0xc3, 0x98, 0xfe, 0xff, 0xff, 0xff, 0x01],
        ]
        .concat();
        assert_eq!(time(&seconds), Ok(Some((-62135596800, 0))), "Go's zero time");
        let moment = [&[1 << 3, 1, 2 << 3][..], &[0xc0, 0xc4, 0x07]].concat();
        let spec = [field(1, b"me"), field(3, &moment)].concat();
        let meta = [field(1, b"coordination.k8s.io/v1"), field(2, b"Lease")].concat();
        let lease = [MAGIC, &field(1, &meta), &field(2, &field(2, &spec))].concat();
        let read = decode(&lease).expect("a Lease");
        assert_eq!(
            read["spec"],
            json!({"holderIdentity": "me", "acquireTime": "1970-01-01T00:00:01.000123Z"})
        );
    }

    fn envelope_of(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &meta), &field(2, object)].concat()
    }

    #[test]
    fn empty_values_count_in_lists_and_selectors() {
        let rule = [field(1, b"get"), field(2, b""), field(3, b"secrets")].concat();
        let meta = field(1, &field(1, b"a"));
        let role = [meta.clone(), field(2, &rule)].concat();
        assert_eq!(
            decode(&envelope_of("rbac.authorization.k8s.io/v1", "Role", &role)),
            Ok(
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a"},
                "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]})
            )
        );
        let rule = field(2, &[field(1, b"CREATE"), field(2, &field(3, b"widgets"))].concat());
        let matches = [field(1, b""), field(3, &rule)].concat();
        let binding = [meta, field(2, &[field(1, b"p"), field(3, &matches)].concat())].concat();
        let kind = "ValidatingAdmissionPolicyBinding";
        assert_eq!(
            decode(&envelope_of("admissionregistration.k8s.io/v1", kind, &binding))
                .map(|object| object["spec"].clone()),
            Ok(json!({"policyName": "p", "matchResources": {"namespaceSelector": {},
                "resourceRules": [{"operations": ["CREATE"], "resources": ["widgets"]}]}}))
        );
    }

    #[test]
    fn maps_may_hold_lists() {
        let scopes = [field(1, b"cluster:a"), field(1, b"cluster:b")].concat();
        let extra = [field(1, b"scopes"), field(2, &scopes)].concat();
        let review = field(2, &[field(3, b"ada"), field(5, &extra)].concat());
        assert_eq!(
            decode(&envelope_of("authorization.k8s.io/v1", "SubjectAccessReview", &review))
                .map(|review| review["spec"].clone()),
            Ok(json!({"user": "ada", "extra": {"scopes": ["cluster:a", "cluster:b"]}}))
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
