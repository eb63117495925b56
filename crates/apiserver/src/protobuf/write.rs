//! Encoding of JSON. Empty fields are left out: decoders take absent fields for empty ones.

use super::{MAGIC, messages};
use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::{Json, Timestamp};
use insula_catalog::kind::message::{Field, Type};

/// Wire types: a varint, eight bytes, and bytes with their length before them.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

/// Encodes an object in its envelope; `None` for kinds that are not written in protobuf.
pub fn encode(object: &Json) -> Option<Vec<u8>> {
    let (api_version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let fields = messages::written(api_version, kind)?;
    let mut type_meta = Vec::new();
    bytes(1, api_version.as_bytes(), &mut type_meta);
    bytes(2, kind.as_bytes(), &mut type_meta);
    let mut out = MAGIC.to_vec();
    bytes(1, &type_meta, &mut out);
    bytes(2, &message(object, fields), &mut out);
    Some(out)
}

/// Encodes an event of a watch: its type, and the object in its envelope. The event itself has no
/// envelope.
pub fn event(kind: &str, object: &Json) -> Option<Vec<u8>> {
    let mut raw = Vec::new();
    bytes(1, &encode(object)?, &mut raw);
    let mut out = Vec::new();
    bytes(1, kind.as_bytes(), &mut out);
    bytes(2, &raw, &mut out);
    Some(out)
}

fn message(object: &Json, fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, name, kind, repeats) in fields {
        match (repeats, &object[*name]) {
            (true, Json::Array(list)) => list.iter().for_each(|value| field(*number, value, *kind, &mut out)),
            (true, _) => {}
            (false, value) => field(*number, value, *kind, &mut out),
        }
    }
    out
}

/// Encodes one value. A value of another type than the field's is left out: validated metadata has
/// none.
fn field(number: u32, value: &Json, kind: Type, out: &mut Vec<u8>) {
    match (kind, value) {
        (Type::Text, Json::String(text)) => bytes(number, text.as_bytes(), out),
        (Type::Integer, Json::Number(value)) => {
            if let Some(value) = value.as_i64() {
                varint(number, value as u64, out);
            }
        }
        (Type::Bool, Json::Bool(value)) => varint(number, u64::from(*value), out),
        (Type::Time | Type::MicroTime, Json::String(text)) => {
            if let Some(moment) = time(text) {
                bytes(number, &moment, out);
            }
        }
        (Type::Raw, Json::Object(_)) => {
            let mut raw = Vec::new();
            bytes(1, value.to_string().as_bytes(), &mut raw);
            bytes(number, &raw, out);
        }
        (Type::Message(fields), Json::Object(_)) => bytes(number, &message(value, fields), out),
        (Type::TextMap | Type::BytesMap, Json::Object(map)) => map.iter().for_each(|(key, value)| {
            let text = value.as_str().unwrap_or_default();
            let content = match kind {
                Type::BytesMap => STANDARD.decode(text).unwrap_or_default(),
                _ => text.as_bytes().to_vec(),
            };
            let mut entry = Vec::new();
            bytes(1, key.as_bytes(), &mut entry);
            bytes(2, &content, &mut entry);
            bytes(number, &entry, out);
        }),
        _ => {}
    }
}

fn time(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    varint(1, Timestamp::parse(text)?.0 as u64, &mut out);
    let fraction = text.split_once('.').map(|(_, rest)| rest).unwrap_or_default();
    let digits: String = fraction.chars().take_while(char::is_ascii_digit).take(9).collect();
    if let Ok(nanos) = format!("{digits:0<9}").parse::<u64>() {
        varint(2, nanos, &mut out);
    }
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
