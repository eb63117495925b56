//! Decoding errors of Kubernetes' own kinds, which Go reads into structs: the first value that does
//! not fit its field fails with a message that names the struct.

use crate::node::{Node, Type};
use crate::structs::{field_type, format_of, go_path, go_type, root_field, root_type};
use crate::structural::Structural;
use insula_api::{Json, Timestamp};
use serde_json::Number;

/// Fields of all kinds whose times have microseconds.
const MICRO_TIMES: &[&str] = &["acquireTime", "eventTime", "lastObservedTime", "renewTime"];
const TIME_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Returns Go's error for an object that cannot be decoded into its struct; `None` if it can.
pub fn decode_error(object: &Json, schema: &Structural, kind: &str) -> Option<String> {
    let map = object.as_object()?;
    map.iter().find_map(|(name, child)| {
        let node = root_field(schema, name)?;
        let type_name = root_type(node, kind, name);
        let field = GoField {
            owner: kind,
            path: name,
            type_name: &type_name,
        };
        scan(child, node, &field)
    })
}

/// A field during the walk.
struct GoField<'a> {
    /// Name of the struct that has the field.
    owner: &'a str,
    /// Path of the field from the object.
    path: &'a str,
    /// Go type of the field, or of its items: `v1.Subject`, `string`.
    type_name: &'a str,
}

impl GoField<'_> {
    fn unfit(&self, value: &str, wanted: &str) -> Option<String> {
        let GoField { owner, path, .. } = self;
        Some(format!(
            "json: cannot unmarshal {value} into Go struct field {owner}.{path} of type {wanted}"
        ))
    }

    /// Returns the last step of the path.
    fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }
}

/// Returns the first error in the fields of a struct.
fn fields(value: &Json, node: &Node, owner: &str, path: &str) -> Option<String> {
    let map = value.as_object()?;
    map.iter().find_map(|(name, child)| {
        let node = node.property(name)?;
        let type_name = field_type(node, owner, name);
        let field = GoField {
            owner,
            path: &format!("{path}.{}", go_path(owner, name)),
            type_name: &type_name,
        };
        scan(child, node, &field)
    })
}

fn scan(value: &Json, node: &Node, go_field: &GoField<'_>) -> Option<String> {
    let kind = match (value, node.kind) {
        (Json::Null, _) | (_, None) => return None,
        (_, Some(kind)) => kind,
    };
    let wanted = || go_type(node, go_field.type_name);
    match (kind, value) {
        (Type::String, Json::String(text)) => text_error(text, node, go_field.name()),
        (Type::Boolean, Json::Bool(_)) | (Type::Number, Json::Number(_)) => None,
        (Type::Integer, Json::Number(number)) => match fits(number, node) {
            true => None,
            false => go_field.unfit(&format!("number {number}"), &wanted()),
        },
        (Type::Array, Json::Array(items)) => {
            let node = node.items()?;
            items.iter().find_map(|item| scan(item, node, go_field))
        }
        (Type::Object, Json::Object(map)) => match &node.additional {
            Some(additional) => map.values().find_map(|value| scan(value, additional, go_field)),
            None => {
                let owner = go_field.type_name.rsplit('.').next().unwrap_or_default();
                fields(value, node, owner, go_field.path)
            }
        },
        // A list of bytes is encoded as text.
        (_, other) => go_field.unfit(crate::embedded::go_kind(other), &wanted()),
    }
}

fn fits(number: &Number, node: &Node) -> bool {
    let whole = number.as_i64();
    match format_of(node) {
        "int32" => whole.is_some_and(|number| i32::try_from(number).is_ok()),
        _ => whole.is_some(),
    }
}

fn text_error(text: &str, node: &Node, name: &str) -> Option<String> {
    match format_of(node) {
        "byte" => base64_error(text),
        "date-time" => time_error(text, name),
        _ => None,
    }
}

/// Returns Go's error for invalid base64, with the offset of the first invalid character. Go
/// ignores line breaks.
fn base64_error(text: &str) -> Option<String> {
    use base64::Engine;
    let letters: String = text.chars().filter(|letter| !matches!(letter, '\r' | '\n')).collect();
    let engine = base64::engine::general_purpose::STANDARD;
    let at = match engine.decode(&letters).err()? {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
        base64::DecodeError::InvalidLength(length) => length / 4 * 4,
        base64::DecodeError::InvalidPadding => letters.len(),
    };
    Some(format!("illegal base64 data at input byte {at}"))
}

fn time_error(text: &str, name: &str) -> Option<String> {
    let micro = MICRO_TIMES.contains(&name);
    let layout = if micro { MICRO_LAYOUT } else { TIME_LAYOUT };
    let why = |from: &str, wanted: &str| {
        Some(format!(
            "parsing time {} as {layout:?}: cannot parse {} as {wanted:?}",
            quoted(text),
            quoted(from)
        ))
    };
    if Timestamp::parse(text).is_none() {
        return why(text, "2006");
    }
    // Seconds end at byte 19.
    let rest = text.get(19..).unwrap_or_default();
    let digits = rest
        .strip_prefix('.')
        .map_or(0, |fraction| fraction.bytes().take_while(u8::is_ascii_digit).count());
    match micro && digits != 6 {
        true => why(rest, ".000000"),
        false => None,
    }
}

/// Quotes a text as Go's package `time` does: other than printable ASCII as bytes.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=0x7f => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Structural {
        Structural::parse_trusted(&json!({"type": "object", "properties": {
            "data": {"type": "object", "additionalProperties": {"type": "string"}},
            "bytes": {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}},
            "spec": {"type": "object", "properties": {
                "seconds": {"type": "integer", "format": "int32"},
                "renewTime": {"type": "string", "format": "date-time"},
                "time": {"type": "string", "format": "date-time"},
                "on": {"type": "boolean"},
                "rules": {"type": "array", "items": {"type": "object", "properties": {
                    "verbs": {"type": "array", "items": {"type": "string"}}}}}}}}}))
        .expect("a schema")
    }

    #[test]
    fn what_does_not_fit_its_field_is_named_as_go_names_it() {
        let rows = [
            (
                json!({"data": {"a": 1}}),
                "json: cannot unmarshal number into Go struct field Thing.data of type string",
            ),
            (
                json!({"data": []}),
                "json: cannot unmarshal array into Go struct field Thing.data of type map[string]string",
            ),
            (
                json!({"metadata": 1}),
                "json: cannot unmarshal number into Go struct field Thing.metadata of type v1.ObjectMeta",
            ),
            (
                json!({"metadata": {"labels": {"a": 1}}}),
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of \
                 type string",
            ),
            (
                json!({"metadata": {"ownerReferences": [{"uid": 1}]}}),
                "json: cannot unmarshal number into Go struct field OwnerReference.metadata.ownerReferences.uid of \
                 type types.UID",
            ),
            (json!({"bytes": {"a": "a b"}}), "illegal base64 data at input byte 1"),
            (
                json!({"spec": 1}),
                "json: cannot unmarshal number into Go struct field Thing.spec of type v1.ThingSpec",
            ),
            (
                json!({"spec": {"seconds": "1"}}),
                "json: cannot unmarshal string into Go struct field ThingSpec.spec.seconds of type int32",
            ),
            (
                json!({"spec": {"seconds": 1.5}}),
                "json: cannot unmarshal number 1.5 into Go struct field ThingSpec.spec.seconds of type int32",
            ),
            (
                json!({"spec": {"rules": [{"verbs": [1]}]}}),
                "json: cannot unmarshal number into Go struct field RuleWithOperations.spec.rules.verbs of type string",
            ),
            (
                json!({"spec": {"time": "yesterday"}}),
                "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\"",
            ),
            (
                json!({"spec": {"renewTime": "2026-01-02T03:04:05Z"}}),
                "parsing time \"2026-01-02T03:04:05Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"Z\" as \
                 \".000000\"",
            ),
        ];
        for (object, want) in rows {
            assert_eq!(
                decode_error(&object, &schema(), "Thing").as_deref(),
                Some(want),
                "{object}"
            );
        }
        for fine in [
            json!({"data": {"a": null}, "bytes": {"a": "YQ==\n"}, "spec": null, "more": 1}),
            json!({"metadata": {"labels": null}, "spec": {"renewTime": "2026-01-02T03:04:05.000000Z",
                "time": "2026-01-02T03:04:05Z"}}),
        ] {
            assert_eq!(decode_error(&fine, &schema(), "Thing"), None, "{fine}");
        }
    }
}
