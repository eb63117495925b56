//! Encoding of JSON into the bytes that Kubernetes' Go types write: fields in ascending order,
//! those that are values in Go also when they are empty, and maps by their keys.

use super::{
    MAGIC,
    messages::{self, Field, Form, Kind, MessageId},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::{Json, Timestamp};
use serde_json::Map;

/// Wire types: a varint, eight bytes, and bytes with their length before them.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

/// Returns true for a kind whose objects have a form in protobuf.
pub fn is_written(api_version: &str, kind: &str) -> bool {
    messages::all().find(api_version, kind).is_some()
}

/// Encodes an object in its envelope.
///
/// # Errors
/// The kind has no form in protobuf, or a value has none: the text names it.
pub fn encode(object: &Json) -> Result<Vec<u8>, String> {
    // Documents of discovery leave `v1` out.
    let api_version = object["apiVersion"].as_str().unwrap_or("v1");
    let kind = object["kind"].as_str().unwrap_or_default();
    let message = messages::all()
        .find(api_version, kind)
        .ok_or_else(|| format!("kind {kind:?} is not written in protobuf"))?;
    let mut type_meta = Vec::new();
    bytes(1, api_version.as_bytes(), &mut type_meta);
    bytes(2, kind.as_bytes(), &mut type_meta);
    let mut out = MAGIC.to_vec();
    bytes(1, &type_meta, &mut out);
    let raw = write(object, message).map_err(|path| format!("{kind}{path} has no form in protobuf"))?;
    bytes(2, &raw, &mut out);
    // The encodings of content and of the body, which are empty.
    bytes(3, b"", &mut out);
    bytes(4, b"", &mut out);
    Ok(out)
}

/// Encodes an event of a watch: its type, and the object in its envelope. The event itself has no
/// envelope.
///
/// # Errors
/// As for [`encode`].
pub fn event(kind: &str, object: &Json) -> Result<Vec<u8>, String> {
    let mut raw = Vec::new();
    bytes(1, &encode(object)?, &mut raw);
    let mut out = Vec::new();
    bytes(1, kind.as_bytes(), &mut out);
    bytes(2, &raw, &mut out);
    Ok(out)
}

/// Encodes a message. The error is the path of a value that has no number, or is of another type
/// than its field.
fn write(object: &Json, message: MessageId) -> Result<Vec<u8>, String> {
    let message = messages::all().get(message);
    let map = match object {
        Json::Object(map) => Some(map),
        Json::Null => None,
        _ => return Err(String::new()),
    };
    if let Some(unknown) = map.and_then(|map| map.keys().find(|key| !is_known(key, &message.fields))) {
        return Err(format!(".{unknown}"));
    }
    write_fields(map, &message.fields)
}

fn write_fields(map: Option<&Map<String, Json>>, fields: &[Field]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    for field in fields {
        let Some(name) = field.name else {
            if let Kind::Message(inner) = field.kind {
                let inner = write_fields(map, &messages::all().get(inner).fields)?;
                bytes(field.number, &inner, &mut out);
            }
            continue;
        };
        let value = map.and_then(|map| map.get(name)).unwrap_or(&Json::Null);
        write_field(field, value, &mut out).map_err(|path| format!(".{name}{path}"))?;
    }
    Ok(out)
}

/// Returns true for the name of a field, of one in a struct within the struct, or of the type of an
/// object, which stands in the envelope.
fn is_known(name: &str, fields: &[Field]) -> bool {
    let is_in = |field: &Field| match (field.name, field.kind) {
        (Some(known), _) => known == name,
        (None, Kind::Message(inner)) => is_known(name, &messages::all().get(inner).fields),
        _ => false,
    };
    ["apiVersion", "kind"].contains(&name) || fields.iter().any(is_in)
}

fn write_field(field: &Field, value: &Json, out: &mut Vec<u8>) -> Result<(), String> {
    let number = field.number;
    match (field.form, value) {
        (Form::Always, value) => one(number, value, field.kind, out),
        (_, Json::Null) => Ok(()),
        (Form::Optional, value) => one(number, value, field.kind, out),
        (Form::List, Json::Array(list)) => {
            for (index, value) in list.iter().enumerate() {
                one(number, value, field.kind, out).map_err(|path| format!("[{index}]{path}"))?;
            }
            Ok(())
        }
        (Form::Map, Json::Object(map)) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            for (key, value) in entries {
                let mut entry = Vec::new();
                bytes(1, key.as_bytes(), &mut entry);
                match (field.kind, value) {
                    (Kind::Texts, Json::Null) => bytes(2, b"", &mut entry),
                    _ => one(2, value, field.kind, &mut entry).map_err(|path| format!("[{key}]{path}"))?,
                }
                bytes(number, &entry, out);
            }
            Ok(())
        }
        _ => Err(String::new()),
    }
}

/// Encodes one value; null is the empty value of its type.
fn one(number: u32, value: &Json, kind: Kind, out: &mut Vec<u8>) -> Result<(), String> {
    let wrong = String::new;
    match (kind, value) {
        (Kind::Text, Json::String(text)) => bytes(number, text.as_bytes(), out),
        (Kind::Text, Json::Null) => bytes(number, b"", out),
        (Kind::Integer, Json::Number(value)) => varint(number, value.as_i64().ok_or_else(wrong)? as u64, out),
        (Kind::Integer | Kind::Bool, Json::Null) => varint(number, 0, out),
        (Kind::Bool, Json::Bool(value)) => varint(number, u64::from(*value), out),
        (Kind::Double, Json::Number(value)) => double(number, value.as_f64().ok_or_else(wrong)?, out),
        (Kind::Double, Json::Null) => double(number, 0.0, out),
        (Kind::Bytes, Json::String(text)) => {
            let content = STANDARD.decode(text).map_err(|_| wrong())?;
            bytes(number, &content, out);
        }
        (Kind::Bytes | Kind::Texts, Json::Null) => {}
        (Kind::Time | Kind::MicroTime, Json::String(text)) => {
            let moment = time(text, kind).ok_or_else(wrong)?;
            bytes(number, &moment, out);
        }
        (Kind::Quantity, Json::String(text)) => message_of_text(number, text, out),
        (Kind::Quantity, Json::Null) => message_of_text(number, "0", out),
        (Kind::Raw | Kind::Time | Kind::MicroTime, Json::Null) => bytes(number, b"", out),
        (Kind::Raw, value) => message_of_text(number, &value.to_string(), out),
        (Kind::Texts, Json::Array(texts)) => {
            let mut list = Vec::new();
            for text in texts {
                bytes(1, text.as_str().ok_or_else(wrong)?.as_bytes(), &mut list);
            }
            bytes(number, &list, out);
        }
        (Kind::Message(message), value) => bytes(number, &write(value, message)?, out),
        (Kind::SchemaOrBool(schema), value) => {
            let mut held = Vec::new();
            varint(1, u64::from(value != &Json::Bool(false)), &mut held);
            if !value.is_boolean() {
                bytes(2, &write(value, schema)?, &mut held);
            }
            bytes(number, &held, out);
        }
        (Kind::SchemaOrList(schema), Json::Array(list)) => {
            let mut held = Vec::new();
            for value in list {
                bytes(2, &write(value, schema)?, &mut held);
            }
            bytes(number, &held, out);
        }
        (Kind::SchemaOrTexts(_), Json::Array(list)) => {
            let mut held = Vec::new();
            for text in list {
                bytes(2, text.as_str().ok_or_else(wrong)?.as_bytes(), &mut held);
            }
            bytes(number, &held, out);
        }
        (Kind::SchemaOrList(schema) | Kind::SchemaOrTexts(schema), value) => {
            let mut held = Vec::new();
            bytes(1, &write(value, schema)?, &mut held);
            bytes(number, &held, out);
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

/// Writes a message around a text.
fn message_of_text(number: u32, text: &str, out: &mut Vec<u8>) {
    let mut held = Vec::new();
    bytes(1, text.as_bytes(), &mut held);
    bytes(number, &held, out);
}

/// Returns seconds and nanoseconds; whole seconds for [`Kind::Time`], as Go writes them.
fn time(text: &str, kind: Kind) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    varint(1, Timestamp::parse(text)?.0 as u64, &mut out);
    let fraction = match kind {
        Kind::MicroTime => text.split_once('.').map(|(_, rest)| rest).unwrap_or_default(),
        _ => "",
    };
    let digits: String = fraction.chars().take_while(char::is_ascii_digit).take(6).collect();
    varint(2, format!("{digits:0<9}").parse().ok()?, &mut out);
    Some(out)
}

/// Writes a text, bytes or a message.
pub(crate) fn bytes(number: u32, content: &[u8], out: &mut Vec<u8>) {
    raw_varint(u64::from(number << 3 | BYTES), out);
    raw_varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

/// Writes an integer (negative ones in two's complement) or a boolean.
pub(crate) fn varint(number: u32, value: u64, out: &mut Vec<u8>) {
    raw_varint(u64::from(number << 3 | VARINT), out);
    raw_varint(value, out);
}

/// Writes a number of double precision.
pub(crate) fn double(number: u32, value: f64, out: &mut Vec<u8>) {
    raw_varint(u64::from(number << 3 | FIXED64), out);
    out.extend(value.to_le_bytes());
}

fn raw_varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value as u8 & 0x7f | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
