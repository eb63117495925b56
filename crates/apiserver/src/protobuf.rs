//! Kubernetes' protobuf, as far as clients need it: kubectl and controller-runtime send objects of
//! built-in kinds in it, and metadata informers request it. A body is decoded into the same JSON as
//! any other; metadata and `Status` alone are encoded. All those clients take JSON for whole
//! objects.
//!
//! A message is `k8s\0` and a `runtime.Unknown`: type (apiVersion, kind) and the object's own
//! bytes. `messages` finds the fields of both directions.

mod messages;
#[cfg(test)]
mod tests;
pub(crate) mod write;

pub use write::{encode, event};

use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::{Json, Timestamp};
use insula_catalog::kind::message::{Field, SCHEMA, Type};
use serde_json::{Map, json};

const MAGIC: &[u8] = b"k8s\0";
/// Depth of nested messages. Schemas of definitions nest; JSON is read as deep.
const DEPTH_MAX: usize = 128;

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
        if let (true, Value::Bytes(entry)) = (is_map(*kind), value) {
            let (key, value) = map_entry(entry, *kind, depth)?;
            let map = object.entry(*name).or_insert_with(|| json!({}));
            map[key] = value;
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
        (Type::Count, Value::Varint(number)) => Some(json!(number as i64)).filter(|_| number != 0),
        (Type::Bool, Value::Varint(number)) => Some(json!(number != 0)),
        (Type::Flag, Value::Varint(number)) => Some(json!(true)).filter(|_| number != 0),
        (Type::Double, Value::Fixed64(bits)) => Some(double(f64::from_bits(bits))),
        (Type::Time, Value::Bytes(bytes)) => time(bytes)?.map(|(seconds, _)| json!(Timestamp(seconds).to_string())),
        (Type::MicroTime, Value::Bytes(bytes)) => time(bytes)?.map(|(seconds, nanos)| json!(micro(seconds, nanos))),
        (Type::Raw, Value::Bytes(bytes)) => raw(bytes)?,
        (Type::Message(fields), Value::Bytes(bytes)) => Some(message(bytes, fields, depth)?)
            .filter(|object| !object.is_empty())
            .map(Json::Object),
        (Type::Pointer(fields), Value::Bytes(bytes)) => Some(Json::Object(message(bytes, fields, depth)?)),
        (Type::Schema, Value::Bytes(bytes)) => Some(schema(bytes, depth)?),
        (Type::SchemaOrBool | Type::SchemaOrList, Value::Bytes(bytes)) => schema_or_other(bytes, kind, depth)?,
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
        | Type::Quantities
        | Type::Schema
        | Type::SchemaMap
        | Type::SchemaOrTextsMap => json!({}),
        Type::Integer
        | Type::Bool
        | Type::Flag
        | Type::Count
        | Type::Double
        | Type::Time
        | Type::MicroTime
        | Type::Raw
        | Type::SchemaOrBool
        | Type::SchemaOrList => Json::Null,
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

/// Returns true for a field whose items are the entries of a map.
fn is_map(kind: Type) -> bool {
    matches!(
        kind,
        Type::TextMap | Type::BytesMap | Type::TextsMap | Type::Quantities | Type::SchemaMap | Type::SchemaOrTextsMap
    )
}

fn schema(bytes: &[u8], depth: usize) -> Result<Json, ProtobufError> {
    Ok(Json::Object(message(bytes, SCHEMA, depth)?))
}

/// Decodes a schema or what may stand in its place: a boolean, a list of schemas or a list of
/// texts. Go encodes the boolean beside a schema, too.
fn schema_or_other(bytes: &[u8], kind: Type, depth: usize) -> Result<Option<Json>, ProtobufError> {
    let (mut one, mut other) = (None, None);
    for field in Fields(bytes) {
        match (kind, field?) {
            (Type::SchemaOrBool, (1, Value::Varint(number))) => other = Some(json!(number != 0)),
            (Type::SchemaOrBool, (2, Value::Bytes(bytes))) => one = Some(schema(bytes, depth)?),
            (_, (1, Value::Bytes(bytes))) => one = Some(schema(bytes, depth)?),
            (_, (2, Value::Bytes(bytes))) => {
                let item = match kind {
                    Type::SchemaOrList => schema(bytes, depth)?,
                    _ => json!(utf8(bytes)?),
                };
                if let Json::Array(list) = other.get_or_insert_with(|| json!([])) {
                    list.push(item);
                }
            }
            _ => {}
        }
    }
    Ok(one.or(other))
}

/// Returns a number as Go prints it in JSON: without a fraction where there is none.
fn double(number: f64) -> Json {
    // Below this all integers are exact in both types.
    let is_integer = number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0;
    if is_integer {
        json!(number as i64)
    } else {
        json!(number)
    }
}

fn map_entry(bytes: &[u8], kind: Type, depth: usize) -> Result<(String, Json), ProtobufError> {
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
        Type::SchemaMap => schema(value, depth)?,
        Type::SchemaOrTextsMap => schema_or_other(value, kind, depth)?.unwrap_or_default(),
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
    Fixed64(u64),
    /// A number of 32 bits, which no field of the tables has.
    Fixed32,
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
            1 => Value::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let count = self.varint()?;
                Value::Bytes(self.take(count)?)
            }
            5 => self.take(4).map(|_| Value::Fixed32)?,
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
