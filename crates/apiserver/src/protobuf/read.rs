//! Decoding into JSON: what Go's encoder of JSON prints for the same struct, without its nulls.

use super::{
    DEPTH_MAX, MAGIC, ProtobufError,
    messages::{self, Field, Form, Kind, MessageId},
    wire::{Fields, Value},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::{Json, Timestamp};
use serde_json::{Map, json};

type Result<T> = std::result::Result<T, ProtobufError>;

/// Decodes a body.
///
/// # Errors
/// It is malformed, of a kind that is not read in this form, or has a field that is not known.
pub fn decode(body: &[u8]) -> Result<Json> {
    let Envelope { api_version, kind, raw } = Envelope::open(body)?;
    let Some(message) = messages::all().find(&api_version, &kind) else {
        return Err(ProtobufError::UnknownKind { api_version, kind });
    };
    let mut object = read(raw, message, DEPTH_MAX)?;
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
    fn open(body: &'a [u8]) -> Result<Self> {
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

fn read(bytes: &[u8], message: MessageId, depth: usize) -> Result<Map<String, Json>> {
    let depth = depth
        .checked_sub(1)
        .ok_or(ProtobufError::Malformed("nested too deep"))?;
    let message = messages::all().get(message);
    let mut object = Map::new();
    for field in Fields(bytes) {
        let (number, value) = field?;
        let known = message.fields.iter().find(|field| field.number == number);
        let field = known.ok_or(ProtobufError::UnknownField {
            message: message.name,
            number,
        })?;
        read_field(field, value, &mut object, depth)?;
    }
    for field in &message.fields {
        if field.form == Form::Always {
            complete(field, &mut object);
        }
    }
    Ok(object)
}

fn read_field(field: &Field, value: Value<'_>, object: &mut Map<String, Json>, depth: usize) -> Result<()> {
    let Some(name) = field.name else {
        if let (Kind::Message(inner), Value::Bytes(bytes)) = (field.kind, value) {
            object.extend(read(bytes, inner, depth)?);
        }
        return Ok(());
    };
    match (field.form, value) {
        (Form::Map, Value::Bytes(entry)) => {
            let (key, value) = map_entry(entry, field.kind, depth)?;
            object.entry(name).or_insert_with(|| json!({}))[key] = value;
        }
        (Form::List, value) => {
            let item = one(value, field.kind, depth)?;
            match object.entry(name).or_insert_with(|| json!([])) {
                Json::Array(list) => list.push(item),
                slot => *slot = json!([item]),
            }
        }
        (_, value) => {
            let value = one(value, field.kind, depth)?;
            if !value.is_null() {
                object.insert(name.to_owned(), value);
            }
        }
    }
    Ok(())
}

/// Adds the empty value of a field that the wire does not have, or removes it, as JSON wants it.
fn complete(field: &Field, object: &mut Map<String, Json>) {
    let Some(name) = field.name else {
        if let Json::Object(inner) = empty(field.kind) {
            for (name, value) in inner {
                object.entry(name).or_insert(value);
            }
        }
        return;
    };
    match (object.get(name), field.omits) {
        (Some(value), true) => {
            if *value == empty(field.kind) || field.kind == Kind::Bytes && value == "" {
                object.remove(name);
            }
        }
        (None, false) => match empty(field.kind) {
            Json::Null => {}
            empty => {
                object.insert(name.to_owned(), empty);
            }
        },
        // What is there and always printed, and what is not there and left out.
        (Some(_), false) | (None, true) => {}
    }
}

/// Returns the empty value of a type as JSON has it; null where Go prints null.
fn empty(kind: Kind) -> Json {
    match kind {
        Kind::Text => json!(""),
        Kind::Integer | Kind::Double => json!(0),
        Kind::Bool => json!(false),
        Kind::Quantity => json!("0"),
        Kind::Message(message) => {
            let mut object = Map::new();
            for field in &messages::all().get(message).fields {
                if field.form == Form::Always {
                    complete(field, &mut object);
                }
            }
            Json::Object(object)
        }
        Kind::Bytes
        | Kind::Texts
        | Kind::Time
        | Kind::MicroTime
        | Kind::Raw
        | Kind::SchemaOrBool(_)
        | Kind::SchemaOrList(_)
        | Kind::SchemaOrTexts(_) => Json::Null,
    }
}

/// Decodes one value; null where Go's JSON has null.
fn one(value: Value<'_>, kind: Kind, depth: usize) -> Result<Json> {
    Ok(match (kind, value) {
        (Kind::Text, Value::Bytes(bytes)) => Json::String(utf8(bytes)?),
        (Kind::Bytes, Value::Bytes(bytes)) => json!(STANDARD.encode(bytes)),
        (Kind::Integer, Value::Varint(number)) => json!(number as i64),
        (Kind::Bool, Value::Varint(number)) => json!(number != 0),
        (Kind::Double, Value::Fixed64(bits)) => double(f64::from_bits(bits)),
        (Kind::Time, Value::Bytes(bytes)) => {
            time(bytes)?.map_or(Json::Null, |(seconds, _)| json!(Timestamp(seconds).to_string()))
        }
        (Kind::MicroTime, Value::Bytes(bytes)) => {
            time(bytes)?.map_or(Json::Null, |(seconds, nanos)| json!(micro(seconds, nanos)))
        }
        (Kind::Texts, Value::Bytes(bytes)) => match texts(bytes)? {
            texts if texts.is_empty() => Json::Null,
            texts => json!(texts),
        },
        (Kind::Quantity, Value::Bytes(bytes)) => json!(texts(bytes)?.pop().unwrap_or_default()),
        (Kind::Raw, Value::Bytes(bytes)) => raw(bytes)?,
        (Kind::Message(message), Value::Bytes(bytes)) => Json::Object(read(bytes, message, depth)?),
        (Kind::SchemaOrBool(_) | Kind::SchemaOrList(_) | Kind::SchemaOrTexts(_), Value::Bytes(bytes)) => {
            schema_or_other(bytes, kind, depth)?
        }
        _ => return Err(ProtobufError::Malformed("a field of another type")),
    })
}

fn map_entry(bytes: &[u8], kind: Kind, depth: usize) -> Result<(String, Json)> {
    let (mut key, mut value) = (String::new(), None);
    for field in Fields(bytes) {
        match field? {
            (1, Value::Bytes(text)) => key = utf8(text)?,
            (2, bytes) => value = Some(one(bytes, kind, depth)?),
            _ => return Err(ProtobufError::Malformed("an entry of a map with a third field")),
        }
    }
    Ok((key, value.unwrap_or_else(|| empty(kind))))
}

/// Decodes seconds and nanoseconds; `None` for Go's zero time.
fn time(bytes: &[u8]) -> Result<Option<(i64, u32)>> {
    let (mut seconds, mut nanos) = (0, 0);
    for field in Fields(bytes) {
        match field? {
            (1, Value::Varint(number)) => seconds = number as i64,
            (2, Value::Varint(number)) => nanos = u32::try_from(number).unwrap_or_default(),
            _ => return Err(ProtobufError::Malformed("a time of another form")),
        }
    }
    Ok((!bytes.is_empty()).then_some((seconds, nanos)))
}

/// `2026-11-21T09:40:00.123456Z`
fn micro(seconds: i64, nanos: u32) -> String {
    let whole = Timestamp(seconds).to_string();
    format!("{}.{:06}Z", whole.trim_end_matches('Z'), nanos / 1000 % 1_000_000)
}

fn raw(bytes: &[u8]) -> Result<Json> {
    for field in Fields(bytes) {
        if let (1, Value::Bytes(text)) = field? {
            return serde_json::from_slice(text).map_err(|_| ProtobufError::Malformed("fields that are no JSON"));
        }
    }
    Ok(Json::Null)
}

fn texts(bytes: &[u8]) -> Result<Vec<String>> {
    let texts = Fields(bytes).map(|field| match field? {
        (1, Value::Bytes(text)) => utf8(text),
        _ => Err(ProtobufError::Malformed("a list of texts of another form")),
    });
    texts.collect()
}

/// Decodes a schema or what may stand in its place: a boolean, a list of schemas or a list of
/// texts.
fn schema_or_other(bytes: &[u8], kind: Kind, depth: usize) -> Result<Json> {
    let schema = |bytes: &[u8], schema| Ok(Json::Object(read(bytes, schema, depth)?));
    let (mut one, mut other) = (None, None);
    for field in Fields(bytes) {
        let item = match (kind, field?) {
            (Kind::SchemaOrBool(_), (1, Value::Varint(number))) => {
                other = Some(json!(number != 0));
                continue;
            }
            (Kind::SchemaOrBool(id), (2, Value::Bytes(bytes)))
            | (Kind::SchemaOrList(id) | Kind::SchemaOrTexts(id), (1, Value::Bytes(bytes))) => {
                one = Some(schema(bytes, id)?);
                continue;
            }
            (Kind::SchemaOrList(id), (2, Value::Bytes(bytes))) => schema(bytes, id)?,
            (Kind::SchemaOrTexts(_), (2, Value::Bytes(bytes))) => json!(utf8(bytes)?),
            _ => return Err(ProtobufError::Malformed("a schema of another form")),
        };
        if let Json::Array(list) = other.get_or_insert_with(|| json!([])) {
            list.push(item);
        }
    }
    Ok(one.or(other).unwrap_or_default())
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

fn utf8(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Malformed("a text that is not UTF-8"))
}
