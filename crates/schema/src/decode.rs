//! Decoding errors of Kubernetes' own kinds, which Go reads into structs: the first value that does
//! not fit its field fails with a message that names the struct, and a null in a map of texts
//! becomes an empty text.
//!
//! The schema has the fields' types; it lacks the names of structs, and the fields with microsecond
//! times.

use crate::node::{Node, Type};
use crate::structural::Structural;
use insula_api::{Json, Timestamp};
use serde_json::Number;

/// Fields of all kinds whose times have microseconds.
const MICRO_TIMES: &[&str] = &["acquireTime", "eventTime", "lastObservedTime", "renewTime"];
const TIME_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Structs whose name differs from that of their field.
const STRUCTS: &[(&str, &str)] = &[
    ("imagePullSecrets", "LocalObjectReference"),
    ("involvedObject", "ObjectReference"),
    ("regarding", "ObjectReference"),
    ("related", "ObjectReference"),
    ("rules", "PolicyRule"),
    ("secrets", "ObjectReference"),
    ("deprecatedSource", "EventSource"),
    ("source", "EventSource"),
    ("series", "EventSeries"),
    ("subjects", "Subject"),
];

/// Returns Go's error for an object that cannot be decoded into its struct; `None` if it can.
pub fn decode_error(object: &Json, schema: &Structural, kind: &str) -> Option<String> {
    let go_field = GoField {
        owner: kind.to_owned(),
        path: String::new(),
        kind,
    };
    fields(object, schema.root(), &go_field, true)
}

/// Replaces nulls in maps of texts by empty texts.
pub fn fill_nulls(object: &mut Json, schema: &Structural) {
    fill_nulls_at(object, schema.root());
}

fn fill_nulls_at(value: &mut Json, node: &Node) {
    match value {
        Json::Object(map) => {
            for (name, child) in map.iter_mut() {
                let is_text = |node: &Node| node.kind == Some(Type::String);
                match (node.property(name), &node.additional) {
                    (Some(node), _) => fill_nulls_at(child, node),
                    (None, Some(additional)) if is_text(additional) && child.is_null() => *child = Json::from(""),
                    (None, Some(additional)) => fill_nulls_at(child, additional),
                    (None, None) => {}
                }
            }
        }
        Json::Array(items) => {
            if let Some(node) = node.items() {
                items.iter_mut().for_each(|item| fill_nulls_at(item, node));
            }
        }
        _ => {}
    }
}

/// A field during the walk.
struct GoField<'a> {
    /// Name of the struct that has the field.
    owner: String,
    /// Path of the field from the object.
    path: String,
    kind: &'a str,
}

impl GoField<'_> {
    fn unfit(&self, value: &str, wanted: &str) -> Option<String> {
        let GoField { owner, path, .. } = self;
        Some(format!(
            "json: cannot unmarshal {value} into Go struct field {owner}.{path} of type {wanted}"
        ))
    }

    fn field(&self, name: &str, owner: String) -> GoField<'_> {
        let dot = if self.path.is_empty() { "" } else { "." };
        GoField {
            owner,
            path: format!("{}{dot}{name}", self.path),
            kind: self.kind,
        }
    }
}

fn fields(value: &Json, node: &Node, go_field: &GoField<'_>, is_root: bool) -> Option<String> {
    let map = value.as_object()?;
    map.iter().find_map(|(name, child)| {
        if is_root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            return None;
        }
        let owner = match go_field.path.rsplit('.').next() {
            Some(field) if !field.is_empty() => structure(go_field.kind, field),
            _ => go_field.owner.clone(),
        };
        scan(child, node.property(name)?, name, &go_field.field(name, owner))
    })
}

/// Returns the name of the struct in a field.
fn structure(kind: &str, field: &str) -> String {
    let known = STRUCTS.iter().find(|(name, _)| *name == field);
    match (field, known) {
        ("spec", _) => format!("{kind}Spec"),
        ("status", _) => format!("{kind}Status"),
        (_, Some((_, known))) => (*known).to_owned(),
        (_, None) => {
            let mut letters = field.chars();
            let first = letters.next().map(|letter| letter.to_ascii_uppercase());
            first.into_iter().chain(letters).collect()
        }
    }
}

fn scan(value: &Json, node: &Node, name: &str, go_field: &GoField<'_>) -> Option<String> {
    let kind = match (value, node.kind) {
        (Json::Null, _) | (_, None) => return None,
        (_, Some(kind)) => kind,
    };
    let wanted = || go_type(node, name, go_field.kind);
    match (kind, value) {
        (Type::String, Json::String(text)) => text_error(text, node, name),
        (Type::Boolean, Json::Bool(_)) | (Type::Number, Json::Number(_)) => None,
        (Type::Integer, Json::Number(number)) => match fits(number, node) {
            true => None,
            false => go_field.unfit(&format!("number {number}"), &wanted()),
        },
        (Type::Array, Json::Array(items)) => {
            let node = node.items()?;
            items.iter().find_map(|item| scan(item, node, name, go_field))
        }
        (Type::Object, Json::Object(map)) => match &node.additional {
            Some(additional) => map.values().find_map(|value| scan(value, additional, name, go_field)),
            None => fields(value, node, go_field, false),
        },
        // A list of bytes is encoded as text.
        (_, other) => go_field.unfit(crate::embedded::go_kind(other), &wanted()),
    }
}

fn format_of(node: &Node) -> &str {
    node.limits
        .as_ref()
        .and_then(|limits| limits.format.as_deref())
        .unwrap_or_default()
}

fn fits(number: &Number, node: &Node) -> bool {
    let whole = number.as_i64();
    match format_of(node) {
        "int32" => whole.is_some_and(|number| i32::try_from(number).is_ok()),
        _ => whole.is_some(),
    }
}

fn go_type(node: &Node, name: &str, kind: &str) -> String {
    match node.kind {
        Some(Type::String) if format_of(node) == "byte" => "[]uint8".to_owned(),
        Some(Type::String) => "string".to_owned(),
        Some(Type::Boolean) => "bool".to_owned(),
        Some(Type::Number) => "float64".to_owned(),
        Some(Type::Integer) if format_of(node) == "int32" => "int32".to_owned(),
        Some(Type::Integer) => "int64".to_owned(),
        Some(Type::Array) => {
            let item = node.items().map(|item| go_type(item, name, kind));
            format!("[]{}", item.unwrap_or_default())
        }
        Some(Type::Object) => match &node.additional {
            Some(additional) => format!("map[string]{}", go_type(additional, name, kind)),
            None => format!("v1.{}", structure(kind, name)),
        },
        None => "interface {}".to_owned(),
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
            "parsing time {text:?} as {layout:?}: cannot parse {from:?} as {wanted:?}"
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
                "json: cannot unmarshal number into Go struct field PolicyRule.spec.rules.verbs of type string",
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
            json!({"metadata": 1, "spec": {"renewTime": "2026-01-02T03:04:05.000000Z",
                "time": "2026-01-02T03:04:05Z"}}),
        ] {
            assert_eq!(decode_error(&fine, &schema(), "Thing"), None, "{fine}");
        }
    }

    #[test]
    fn nulls_in_maps_of_texts_are_empty() {
        let mut object = json!({"data": {"a": null, "b": "c"}, "spec": {"on": null}});
        fill_nulls(&mut object, &schema());
        assert_eq!(object, json!({"data": {"a": "", "b": "c"}, "spec": {"on": null}}));
    }
}
