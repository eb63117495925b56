//! Request bodies: decoding of JSON, YAML and protobuf, with the duplicate keys that strict field
//! validation reports.
//!
//! One visitor builds the value from either text format and notes duplicate keys (the last one
//! wins, as in Go). Sizes are checked before parsing; depth, aliases and nodes are bounded during
//! it.

mod build;
mod go_error;

use crate::{
    negotiate::{self, Format},
    protobuf::{self, ProtobufError},
};
use build::{Build, Notes, WholeFloats, store_as_integers};
use go_error::{go_json_error, number_beyond};
use insula_api::{Json, Timestamp};
use insula_catalog::Error;
use insula_pipeline::Refusal;
use insula_registry::{Repeated, SentKeys, VisitKeys};
use insula_schema::Structural;
use serde::{Deserialize, de::DeserializeSeed};

/// Largest body (kube-apiserver's limit for every resource).
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Deepest nesting of lists and maps. Kubernetes takes 10,000; real objects stay far below this
/// limit.
pub const DEPTH_MAX: usize = 120;
/// Deepest nesting in YAML, whose parser needs far more stack for each level.
const YAML_DEPTH_MAX: usize = 64;
/// Scalars, lists and maps of a YAML body, with aliases expanded.
const YAML_NODES_MAX: usize = 500_000;
/// Parser events that aliases may add.
const YAML_REPLAYED_EVENTS_MAX: usize = 100_000;
/// Bytes of a body that an error quotes.
const SUMMARY_BYTES: usize = 30;

/// A body's value.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decoded {
    /// The value.
    pub value: Json,
    /// Paths of duplicate keys: `spec.foo`, `spec.list[0].a`.
    pub duplicates: Vec<String>,
}

/// The keys of a body, for strict decoding.
pub struct BodyKeys {
    repeated: Repeated,
    /// A body in JSON whose fields are reported in its order.
    document: Option<Vec<u8>>,
}

impl BodyKeys {
    /// Returns the keys of a body. Only `built_in` kinds are decoded in the order of the body.
    pub fn new(duplicates: Vec<String>, bytes: Vec<u8>, format: Format, built_in: bool) -> Self {
        BodyKeys {
            repeated: match format {
                // A second pass for their lines: hardly any body has duplicate keys.
                Format::Yaml if !duplicates.is_empty() => Repeated::Lines(repeated_keys(&bytes)),
                _ => Repeated::Fields(duplicates),
            },
            document: (built_in && format == Format::Json).then_some(bytes),
        }
    }

    /// Calls a function with the path of each key, in the order of the body.
    pub fn visit(&self, meet: &dyn Fn(&str)) {
        if let Some(document) = &self.document {
            // The body was decoded before.
            let _ = build_json(document, &Notes::with_visitor(meet), WholeFloats::Integers);
        }
    }

    /// Returns the keys for a write. `visit` is [`BodyKeys::visit`].
    pub fn sent<'a>(&self, visit: &'a VisitKeys<'a>) -> SentKeys<'a> {
        SentKeys {
            repeated: self.repeated.clone(),
            in_order: self.document.is_some().then_some(visit),
        }
    }
}

/// The error of a body that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum DecodeError {
    /// The body is too large to be parsed.
    #[error("limit is {BODY_BYTES_MAX}")]
    TooLarge,
    /// The body is no JSON; in the words of Go's decoder.
    #[error("{0}")]
    Json(String),
    /// JSON with a number that no float can hold.
    #[error("json: cannot unmarshal number {0} into Go value of type float64")]
    Number(String),
    /// The body is no YAML.
    #[error("yaml: {0}")]
    Yaml(String),
    /// The body is not Kubernetes' protobuf, or of a kind that is not read in it.
    #[error(transparent)]
    Protobuf(#[from] ProtobufError),
}

impl From<DecodeError> for Refusal {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::TooLarge => too_large(),
            DecodeError::Json(_) | DecodeError::Number(_) | DecodeError::Yaml(_) => {
                Refusal::bad_request(format!("the body of the request cannot be read: {error}"))
            }
            DecodeError::Protobuf(ProtobufError::UnknownKind { .. }) => {
                negotiate::unsupported_among("application/json, application/yaml")
            }
            DecodeError::Protobuf(ProtobufError::Malformed(_) | ProtobufError::UnknownField { .. }) => {
                Refusal::bad_request(error.to_string())
            }
        }
    }
}

fn too_large() -> Refusal {
    Refusal::Verb(Error::TooLarge(DecodeError::TooLarge.to_string()))
}

/// Decodes any body, e.g. delete options.
///
/// # Errors
/// 400 with what is wrong with it, 413.
pub fn decode(bytes: &[u8], format: Format) -> Result<Decoded, Refusal> {
    read(bytes, format).map_err(Refusal::from)
}

/// Returns the paths of duplicate keys in a JSON body; none if it is no JSON.
pub fn duplicates(bytes: &[u8]) -> Vec<String> {
    read(bytes, Format::Json)
        .map(|decoded| decoded.duplicates)
        .unwrap_or_default()
}

fn read(bytes: &[u8], format: Format) -> Result<Decoded, DecodeError> {
    read_with(bytes, format, WholeFloats::Integers)
}

/// Reads a body. YAML becomes JSON before Go decodes it, in which whole floats have no point.
fn read_with(bytes: &[u8], format: Format, whole: WholeFloats) -> Result<Decoded, DecodeError> {
    if bytes.len() > BODY_BYTES_MAX {
        return Err(DecodeError::TooLarge);
    }
    match format {
        Format::Json => decode_json(bytes, whole),
        Format::Yaml => decode_yaml(bytes),
        Format::Protobuf => Ok(Decoded {
            value: protobuf::decode(bytes)?,
            duplicates: Vec::new(),
        }),
    }
}

/// The type of object that the URL implies.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// The kind.
    pub kind: &'a str,
    /// `group/version` of built-in kinds, which may leave it out of the body, as some clients do.
    pub implied: Option<&'a str>,
    /// Schema of a kind that Go decodes into a struct.
    pub structure: Option<&'a Structural>,
}

impl Expected<'_> {
    /// Fills in `apiVersion` and `kind` that a body may leave out.
    fn complete(&self, value: &mut Json) {
        let (Some(api_version), Json::Object(map)) = (self.implied, value) else {
            return;
        };
        for (field, text) in [("apiVersion", api_version), ("kind", self.kind)] {
            let missing = map.get(field).is_none_or(|given| given.is_null() || given == "");
            if missing {
                map.insert(field.to_owned(), text.into());
            }
        }
    }
}

/// Decodes an object of a kind: a map with an `apiVersion` and `kind` in texts, whose metadata has
/// the types of metadata. The registry checks that they fit the URL.
///
/// # Errors
/// 400 in Kubernetes' words, 413.
pub fn decode_object(bytes: &[u8], format: Format, expected: Expected<'_>) -> Result<Decoded, Refusal> {
    let kind = expected.kind;
    let whole = match expected.structure {
        Some(_) => WholeFloats::Floats,
        None => WholeFloats::Integers,
    };
    let mut decoded = read_with(bytes, format, whole).map_err(|error| match error {
        DecodeError::Number(_) => {
            let meta: TypeMeta = serde_json::from_slice(bytes).unwrap_or_default();
            not_handled(kind, (&meta.kind, &meta.api_version), &error.to_string())
        }
        // Only built-in kinds have a protobuf form.
        DecodeError::Protobuf(_) if expected.implied.is_none() => {
            negotiate::unsupported_among("application/json, application/yaml")
        }
        DecodeError::TooLarge | DecodeError::Protobuf(_) => error.into(),
        DecodeError::Json(why) => {
            let why = format!("couldn't get version/kind; json parse error: {why}");
            unrecognized(kind, &why, bytes)
        }
        DecodeError::Yaml(why) => {
            let why = format!("error converting YAML to JSON: yaml: {why}");
            unrecognized(kind, &why, bytes)
        }
    })?;
    complete(&mut decoded.value, expected, |_| bytes.to_vec())?;
    if whole == WholeFloats::Floats {
        store_as_integers(&mut decoded.value);
    }
    Ok(decoded)
}

/// Completes an object of a kind that was not read from a body, and checks it as
/// [`decode_object`] does.
///
/// # Errors
/// 400 in Kubernetes' words.
pub fn complete_object(value: &mut Json, expected: Expected<'_>) -> Result<(), Refusal> {
    complete(value, expected, |value| value.to_string().into_bytes())
}

fn complete(value: &mut Json, expected: Expected<'_>, bytes: impl FnOnce(&Json) -> Vec<u8>) -> Result<(), Refusal> {
    expected.complete(value);
    check_object(value, expected).map_err(|problem| match problem {
        Problem::Unrecognized(why) => unrecognized(expected.kind, &why, &bytes(value)),
        Problem::NoKind => {
            let bytes = bytes(value);
            let text = String::from_utf8_lossy(&bytes);
            let why = format!("Object 'Kind' is missing in '{}'", text.trim_end());
            unrecognized(expected.kind, &why, &bytes)
        }
        Problem::Field(why) => {
            let text = |field: &str| value[field].as_str().unwrap_or_default();
            not_handled(expected.kind, (text("kind"), text("apiVersion")), &why)
        }
    })
}

fn unrecognized(kind: &str, why: &str, bytes: &[u8]) -> Refusal {
    let summary = summary(bytes);
    Refusal::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({summary})"
    ))
}

fn not_handled(kind: &str, (given, api_version): (&str, &str), why: &str) -> Refusal {
    let version = insula_api::names::version_of(api_version);
    Refusal::bad_request(format!(
        "{given} in version {version:?} cannot be handled as a {kind}: {why}"
    ))
}

/// `apiVersion` and `kind` of a body, decoded without the rest.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TypeMeta {
    api_version: String,
    kind: String,
}

enum Problem {
    /// The body is no object.
    Unrecognized(String),
    /// The body is an object without a kind.
    NoKind,
    /// The body is an object with a field that cannot be decoded.
    Field(String),
}

fn check_object(value: &Json, expected: Expected<'_>) -> Result<(), Problem> {
    let Some(map) = value.as_object() else {
        let go = go_kind(value);
        let why = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {go} into Go value of type struct"
        );
        return Err(Problem::Unrecognized(why));
    };
    for field in ["apiVersion", "kind"] {
        match map.get(field) {
            None | Some(Json::Null | Json::String(_)) => {}
            Some(other) => {
                return Err(Problem::Unrecognized(format!(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal {} into field {field} of type string",
                    go_kind(other)
                )));
            }
        }
    }
    if value["kind"].as_str().unwrap_or_default().is_empty() {
        return Err(Problem::NoKind);
    }
    let metadata = &value["metadata"];
    let wrong = match expected.structure {
        Some(schema) if value["kind"] == expected.kind => insula_schema::decode_error(value, schema, expected.kind),
        _ => insula_schema::metadata_type_error(metadata).or_else(|| bad_time(metadata)),
    };
    match wrong {
        Some(why) => Err(Problem::Field(why)),
        None => Ok(()),
    }
}

/// Returns the error of a time in metadata: Go parses times when it decodes.
fn bad_time(metadata: &Json) -> Option<String> {
    let texts = ["creationTimestamp", "deletionTimestamp"]
        .into_iter()
        .filter_map(|field| metadata[field].as_str());
    let mut bad = texts.filter(|text| Timestamp::parse(text).is_none());
    bad.next().map(|text| {
        let quoted = insula_schema::quoted_time(text);
        format!("parsing time {quoted} as \"2006-01-02T15:04:05Z07:00\": cannot parse {quoted} as \"2006\"")
    })
}

fn go_kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

/// Returns the first bytes of a body for an error.
fn summary(bytes: &[u8]) -> String {
    match bytes.len() {
        0 => "<empty>".to_owned(),
        length if length > SUMMARY_BYTES => format!("{} ...", String::from_utf8_lossy(&bytes[..SUMMARY_BYTES])),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn decode_json(bytes: &[u8], whole: WholeFloats) -> Result<Decoded, DecodeError> {
    let notes = Notes::default();
    let value = build_json(bytes, &notes, whole)?;
    Ok(Decoded {
        value,
        duplicates: notes.take_duplicates(),
    })
}

fn build_json(bytes: &[u8], notes: &Notes<'_>, whole: WholeFloats) -> Result<Json, DecodeError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    Build {
        notes,
        whole,
        depth: 0,
        depth_max: DEPTH_MAX,
    }
    .deserialize(&mut deserializer)
    .and_then(|value| deserializer.end().map(|()| value))
    .map_err(|error| match number_beyond(&error, bytes) {
        Some(number) => DecodeError::Number(number),
        None => DecodeError::Json(go_json_error(&error, bytes)),
    })
}

fn decode_yaml(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let notes = Notes::default();
    let value = build_yaml(bytes, &notes)?;
    Ok(Decoded {
        value,
        duplicates: notes.take_duplicates(),
    })
}

/// Returns the duplicate keys of a YAML body with their lines, in the words of Go's decoder; none
/// if it is no YAML.
pub fn repeated_keys(bytes: &[u8]) -> Vec<String> {
    let notes = Notes::with_lines();
    match build_yaml(bytes, &notes) {
        Ok(_) => notes.take_repeated(),
        Err(_) => Vec::new(),
    }
}

fn build_yaml(bytes: &[u8], notes: &Notes<'_>) -> Result<Json, DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Yaml("invalid UTF-8".into()))?;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: YAML_DEPTH_MAX,
            max_nodes: YAML_NODES_MAX,
            max_documents: 1,
            max_total_scalar_bytes: BODY_BYTES_MAX * 2,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: YAML_REPLAYED_EVENTS_MAX,
        },
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        with_snippet: false,
    };
    let value = serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        Build {
            notes,
            whole: WholeFloats::Integers,
            depth: 0,
            depth_max: YAML_DEPTH_MAX,
        }
        .deserialize(deserializer)
    });
    value.map_err(|error| DecodeError::Yaml(yaml_error(&error)))
}

/// Returns the message of a YAML error. That of a body above a limit names the limits.
fn yaml_error(error: &serde_saphyr::Error) -> String {
    match error {
        serde_saphyr::Error::Budget { .. } => format!(
            "a body is one document of at most {YAML_NODES_MAX} values, aliases replaced, nested at most {YAML_DEPTH_MAX} deep"
        ),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
