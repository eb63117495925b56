//! Definitions as Go's types (`apiextensions/v1`) decode them: decoding errors, which Kubernetes
//! reports before validation, and unknown keywords of schemas.
//!
//! Positions in errors are those of Go's decoder: the struct that holds the field, then field names
//! from the root, without indices and keys. Below a type with its own decoder (`items`,
//! `additionalProperties`) unknown keywords are dropped silently.

use super::types::{DEFINITION, ENCODED, Go, JSON_SCHEMA_PROPS, Or, POINTERS, SPEC, STRING, VALIDATION_RULE};
use crate::parse::SCHEMA_DEPTH_MAX;
use insula_api::Json;

/// Returns Go's error for a definition that cannot be decoded; `None` if it can.
pub fn undecodable_definition(definition: &Json) -> Option<String> {
    let mut path = Vec::new();
    Go::Struct(&DEFINITION)
        .misread(definition, DEFINITION.name, &mut path)
        .err()
}

/// Returns Go's error for a schema that cannot be decoded; `None` if it can.
pub fn undecodable_schema(schema: &Json) -> Option<String> {
    let mut path = Vec::new();
    Go::Schema.misread(schema, JSON_SCHEMA_PROPS.name, &mut path).err()
}

/// Returns the unknown keywords of a definition's schemas, as `fieldValidation` reports them.
pub fn unknown_keywords(definition: &Json) -> Vec<String> {
    let mut found = Vec::new();
    for (i, version) in super::list(&definition["spec"]).iter().enumerate() {
        if let Some(schema) = version.pointer("/schema/openAPIV3Schema") {
            let at = format!("spec.versions[{i}].schema.openAPIV3Schema");
            Go::Schema.unknown(schema, &at, 0, &mut found);
        }
    }
    // The place of the schema in v1beta1.
    if let Some(schema) = definition.pointer("/spec/validation/openAPIV3Schema") {
        Go::Schema.unknown(schema, "spec.validation.openAPIV3Schema", 0, &mut found);
    }
    found
}

/// Drops unknown keywords of schemas, and gives the spec the form in which Go encodes it: a null is
/// an empty value, and an empty value is left out unless its field is always encoded.
pub(super) fn encode_spec(spec: &mut Json) {
    Go::Struct(&SPEC).encode(spec, 0);
}

impl Go {
    fn resolved(&self) -> &Go {
        const SCHEMA: Go = Go::Struct(&JSON_SCHEMA_PROPS);
        match self {
            Go::Schema => &SCHEMA,
            other => other,
        }
    }

    fn name(&self) -> String {
        match self {
            Go::Text(name) | Go::Integer(name) => (*name).to_owned(),
            Go::Bool => "bool".into(),
            Go::Float => "float64".into(),
            Go::Bytes => "[]uint8".into(),
            Go::Any => "v1.JSON".into(),
            Go::List(Go::Struct(of)) if of.name == VALIDATION_RULE.name => "v1.ValidationRules".into(),
            Go::List(item) => format!("[]{}", item.name()),
            Go::Map(value) => format!("map[string]{}", value.name()),
            Go::Struct(of) => format!("v1.{}", of.name),
            Go::Schema => format!("v1.{}", JSON_SCHEMA_PROPS.name),
            Go::SchemaOr(Or::List) => "v1.JSONSchemaPropsOrArray".into(),
            Go::SchemaOr(Or::Flag) => "v1.JSONSchemaPropsOrBool".into(),
            Go::SchemaOr(Or::Names) => "v1.JSONSchemaPropsOrStringArray".into(),
        }
    }

    /// Reports the first value of a wrong type. `holder` is the struct of the field.
    fn misread<'a>(&self, value: &'a Json, holder: &str, path: &mut Vec<&'a str>) -> Result<(), String> {
        if path.len() > SCHEMA_DEPTH_MAX {
            return Ok(());
        }
        match (self.resolved(), value) {
            (_, Json::Null)
            | (Go::Any, _)
            | (Go::Text(_), Json::String(_))
            | (Go::Bool, Json::Bool(_))
            | (Go::Float, Json::Number(_)) => Ok(()),
            (Go::Integer(_), Json::Number(number)) if number.is_i64() => Ok(()),
            (Go::Bytes, Json::String(text)) => match bad_base64(text) {
                Some(at) => Err(format!("illegal base64 data at input byte {at}")),
                None => Ok(()),
            },
            (Go::List(item), Json::Array(list)) => list.iter().try_for_each(|value| item.misread(value, holder, path)),
            (Go::Map(item), Json::Object(map)) => map.values().try_for_each(|value| item.misread(value, holder, path)),
            (Go::Struct(of), Json::Object(map)) => of.fields.iter().try_for_each(|(name, kind)| {
                let Some((name, value)) = map.get_key_value(*name) else {
                    return Ok(());
                };
                path.push(name);
                let read = kind.misread(value, of.name, path);
                path.pop();
                read
            }),
            (Go::SchemaOr(_), Json::Object(_)) => Go::Schema.misread(value, holder, path),
            (Go::SchemaOr(Or::List), Json::Array(list)) => list
                .iter()
                .try_for_each(|value| Go::Schema.misread(value, holder, path)),
            (Go::SchemaOr(Or::Names), Json::Array(list)) => {
                list.iter().try_for_each(|value| STRING.misread(value, holder, path))
            }
            (Go::SchemaOr(Or::Flag), Json::Bool(_)) | (Go::SchemaOr(Or::List | Or::Names), _) => Ok(()),
            (Go::SchemaOr(Or::Flag), _) => Err("boolean or JSON schema expected".into()),
            _ => {
                let place = match path.is_empty() {
                    true => "value".to_owned(),
                    false => format!("struct field {holder}.{}", path.join(".")),
                };
                let given = given(value, matches!(self, Go::Integer(_)));
                Err(format!(
                    "json: cannot unmarshal {given} into Go {place} of type {}",
                    self.name()
                ))
            }
        }
    }

    fn unknown(&self, value: &Json, at: &str, depth: usize, found: &mut Vec<String>) {
        if depth > SCHEMA_DEPTH_MAX {
            return;
        }
        match (self.resolved(), value) {
            (Go::List(item), Json::Array(list)) => {
                for (i, value) in list.iter().enumerate() {
                    item.unknown(value, &format!("{at}[{i}]"), depth + 1, found);
                }
            }
            (Go::Map(item), Json::Object(map)) => {
                for (key, value) in map {
                    item.unknown(value, &format!("{at}.{key}"), depth + 1, found);
                }
            }
            (Go::Struct(of), Json::Object(map)) => {
                for (key, value) in map {
                    let at = format!("{at}.{key}");
                    match of.fields.iter().find(|(name, _)| name == key) {
                        Some((_, kind)) => kind.unknown(value, &at, depth + 1, found),
                        None => found.push(at),
                    }
                }
            }
            _ => {}
        }
    }

    fn encode(&self, value: &mut Json, depth: usize) {
        if depth > SCHEMA_DEPTH_MAX {
            return;
        }
        match (self.resolved(), value) {
            (Go::List(item), Json::Array(list)) => list.iter_mut().for_each(|value| item.encode_item(value, depth + 1)),
            (Go::Map(item), Json::Object(map)) => {
                map.values_mut().for_each(|value| item.encode_item(value, depth + 1));
            }
            (Go::Struct(of), Json::Object(map)) => {
                let always = ENCODED.iter().find(|(name, _)| *name == of.name);
                map.retain(|key, value| {
                    let Some((_, kind)) = of.fields.iter().find(|(name, _)| name == key) else {
                        return false;
                    };
                    kind.encode(value, depth + 1);
                    let always = always.is_some_and(|(_, fields)| fields.contains(&key.as_str()));
                    if always && value.is_null() {
                        *value = kind.zero();
                    }
                    always || !kind.is_nothing(key, value)
                });
            }
            (Go::SchemaOr(_), value @ Json::Object(_)) => Go::Schema.encode(value, depth + 1),
            (Go::SchemaOr(Or::List), Json::Array(list)) => {
                list.iter_mut()
                    .for_each(|value| Go::Schema.encode_item(value, depth + 1));
            }
            _ => {}
        }
    }

    /// Encodes an item of a list or map, which is never left out.
    fn encode_item(&self, value: &mut Json, depth: usize) {
        if value.is_null() {
            *value = self.zero();
        }
        self.encode(value, depth);
    }

    /// Returns the encoded form of an empty value.
    fn zero(&self) -> Json {
        match self.resolved() {
            Go::Text(_) => Json::from(""),
            Go::Bool => Json::from(false),
            Go::Struct(_) => Json::Object(serde_json::Map::new()),
            _ => Json::Null,
        }
    }

    /// Returns true for a value that Go's encoder leaves out.
    fn is_nothing(&self, key: &str, value: &Json) -> bool {
        let is_pointer = POINTERS.contains(&key);
        match (self.resolved(), value) {
            (_, Json::Null) => true,
            (Go::Text(_), Json::String(text)) => text.is_empty() && !is_pointer,
            (Go::Bool, Json::Bool(flag)) => !flag && !is_pointer,
            (Go::Integer("int32"), Json::Number(number)) => key == "priority" && number.as_i64() == Some(0),
            (Go::List(_), Json::Array(list)) => list.is_empty(),
            (Go::Map(_), Json::Object(map)) => map.is_empty(),
            _ => false,
        }
    }
}

/// Returns the name that Go's decoder has for a JSON value's type. It writes the number where it
/// wanted an integer.
fn given(value: &Json, wants_integer: bool) -> String {
    match value {
        Json::Null => "null".into(),
        Json::Bool(_) => "bool".into(),
        Json::Number(number) if wants_integer => format!("number {number}"),
        Json::Number(_) => "number".into(),
        Json::String(_) => "string".into(),
        Json::Array(_) => "array".into(),
        Json::Object(_) => "object".into(),
    }
}

/// Returns the offset at which a text ceases to be base64 with padding. Line ends are skipped, as
/// in Go.
fn bad_base64(text: &str) -> Option<usize> {
    let ends = |byte: u8| byte == b'\n' || byte == b'\r';
    let digits = text.bytes().filter(|byte| !ends(*byte)).count();
    let of_alphabet = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    let body = text.trim_end_matches(['\n', '\r']).trim_end_matches('=');
    let bad = body.bytes().position(|byte| !of_alphabet(byte) && !ends(byte));
    bad.or_else(|| (digits % 4 != 0).then_some(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn undecodable(spec: Json) -> Option<String> {
        undecodable_definition(&json!({"spec": spec}))
    }

    fn with(schema: Json) -> Json {
        json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}})
    }

    #[test]
    fn wrong_types_are_named_as_go_names_them() {
        let rows = [
            (
                json!({"names": {"plural": ["a"]}}),
                "json: cannot unmarshal array into Go struct field CustomResourceDefinitionNames.spec.names.plural \
                of type string",
            ),
            (
                json!({"versions": {}}),
                "json: cannot unmarshal object into Go struct field CustomResourceDefinitionSpec.spec.versions of type \
                 []v1.CustomResourceDefinitionVersion",
            ),
            (
                json!({"conversion": {"webhook": {"clientConfig": {"caBundle": "%%%"}}}}),
                "illegal base64 data at input byte 0",
            ),
            (
                with(json!({"properties": {"a": {"type": ["string"]}}}))["spec"].clone(),
                "json: cannot unmarshal array into Go struct field \
                 JSONSchemaProps.spec.versions.schema.openAPIV3Schema.properties.type of type string",
            ),
            (
                with(json!({"items": {"maxLength": 1.5}}))["spec"].clone(),
                "json: cannot unmarshal number 1.5 into Go struct field \
                 JSONSchemaProps.spec.versions.schema.openAPIV3Schema.items.maxLength of type int64",
            ),
            (
                with(json!({"additionalProperties": 1}))["spec"].clone(),
                "boolean or JSON schema expected",
            ),
        ];
        for (spec, want) in rows {
            assert_eq!(undecodable(spec.clone()).as_deref(), Some(want), "{spec}");
        }
        assert_eq!(
            undecodable(json!({"names": null, "conversion": {"webhook": {"clientConfig": {"caBundle": "YQ=="}}}})),
            None
        );
    }

    #[test]
    fn unknown_keywords_are_told_and_dropped() {
        let schema = json!({"type": "object", "const": 1, "properties": {"const": {"type": "array", "x-other": 1,
            "items": {"readOnly": true, "type": "string", "default": {"const": 1}}}}});
        let at = "spec.versions[0].schema.openAPIV3Schema";
        assert_eq!(
            unknown_keywords(&with(schema.clone())),
            [format!("{at}.const"), format!("{at}.properties.const.x-other")],
            "what is below items is not told"
        );
        let mut pruned = schema;
        Go::Schema.encode(&mut pruned, 0);
        assert_eq!(
            pruned,
            json!({"type": "object", "properties": {"const": {"type": "array",
                "items": {"type": "string", "default": {"const": 1}}}}})
        );
    }
}
