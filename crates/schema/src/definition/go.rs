//! Definitions as Go's types (`apiextensions/v1`) decode them: decoding errors, which Kubernetes
//! reports before validation, and unknown keywords of schemas.
//!
//! Positions in errors are those of Go's decoder: the struct that holds the field, then field names
//! from the root, without indices and keys. A type with its own decoder (`items`,
//! `additionalProperties`) begins a new path, and its unknown keywords are dropped silently.

use crate::parse::SCHEMA_DEPTH_MAX;
use insula_api::Json;

/// A Go type.
enum Go {
    /// A string, or a named string type.
    Text(&'static str),
    Bool,
    Integer(&'static str),
    Float,
    Bytes,
    /// Any JSON value.
    Any,
    List(&'static Go),
    Map(&'static Go),
    Struct(&'static Struct),
    /// [`JSON_SCHEMA_PROPS`], which is recursive.
    Schema,
    /// A schema where it is an object, and an alternative otherwise: a list of schemas, a flag.
    SchemaOr(Or),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Or {
    List,
    Flag,
    Names,
}

struct Struct {
    name: &'static str,
    fields: &'static [(&'static str, Go)],
}

const STRING: Go = Go::Text("string");

static JSON_SCHEMA_PROPS: Struct = Struct {
    name: "JSONSchemaProps",
    fields: &[
        ("$ref", STRING),
        ("$schema", STRING),
        ("additionalItems", Go::SchemaOr(Or::Flag)),
        ("additionalProperties", Go::SchemaOr(Or::Flag)),
        ("allOf", Go::List(&Go::Schema)),
        ("anyOf", Go::List(&Go::Schema)),
        ("default", Go::Any),
        ("definitions", Go::Map(&Go::Schema)),
        ("dependencies", Go::Map(&Go::SchemaOr(Or::Names))),
        ("description", STRING),
        ("enum", Go::List(&Go::Any)),
        ("example", Go::Any),
        ("exclusiveMaximum", Go::Bool),
        ("exclusiveMinimum", Go::Bool),
        ("externalDocs", Go::Struct(&EXTERNAL_DOCUMENTATION)),
        ("format", STRING),
        ("id", STRING),
        ("items", Go::SchemaOr(Or::List)),
        ("maxItems", Go::Integer("int64")),
        ("maxLength", Go::Integer("int64")),
        ("maxProperties", Go::Integer("int64")),
        ("maximum", Go::Float),
        ("minItems", Go::Integer("int64")),
        ("minLength", Go::Integer("int64")),
        ("minProperties", Go::Integer("int64")),
        ("minimum", Go::Float),
        ("multipleOf", Go::Float),
        ("not", Go::Schema),
        ("nullable", Go::Bool),
        ("oneOf", Go::List(&Go::Schema)),
        ("pattern", STRING),
        ("patternProperties", Go::Map(&Go::Schema)),
        ("properties", Go::Map(&Go::Schema)),
        ("required", Go::List(&STRING)),
        ("title", STRING),
        ("type", STRING),
        ("uniqueItems", Go::Bool),
        ("x-kubernetes-embedded-resource", Go::Bool),
        ("x-kubernetes-int-or-string", Go::Bool),
        ("x-kubernetes-list-map-keys", Go::List(&STRING)),
        ("x-kubernetes-list-type", STRING),
        ("x-kubernetes-map-type", STRING),
        ("x-kubernetes-preserve-unknown-fields", Go::Bool),
        ("x-kubernetes-validations", Go::List(&Go::Struct(&VALIDATION_RULE))),
    ],
};
static EXTERNAL_DOCUMENTATION: Struct = Struct {
    name: "ExternalDocumentation",
    fields: &[("description", STRING), ("url", STRING)],
};
static VALIDATION_RULE: Struct = Struct {
    name: "ValidationRule",
    fields: &[
        ("fieldPath", STRING),
        ("message", STRING),
        ("messageExpression", STRING),
        ("optionalOldSelf", Go::Bool),
        ("reason", Go::Text("v1.FieldValueErrorReason")),
        ("rule", STRING),
    ],
};
static DEFINITION: Struct = Struct {
    name: "CustomResourceDefinition",
    fields: &[("spec", Go::Struct(&SPEC))],
};
static SPEC: Struct = Struct {
    name: "CustomResourceDefinitionSpec",
    fields: &[
        ("conversion", Go::Struct(&CONVERSION)),
        ("group", STRING),
        ("names", Go::Struct(&NAMES)),
        ("preserveUnknownFields", Go::Bool),
        ("scope", Go::Text("v1.ResourceScope")),
        ("versions", Go::List(&Go::Struct(&VERSION))),
    ],
};
static CONVERSION: Struct = Struct {
    name: "CustomResourceConversion",
    fields: &[
        ("strategy", Go::Text("v1.ConversionStrategyType")),
        ("webhook", Go::Struct(&WEBHOOK)),
    ],
};
static WEBHOOK: Struct = Struct {
    name: "WebhookConversion",
    fields: &[
        ("clientConfig", Go::Struct(&CLIENT_CONFIG)),
        ("conversionReviewVersions", Go::List(&STRING)),
    ],
};
static CLIENT_CONFIG: Struct = Struct {
    name: "WebhookClientConfig",
    fields: &[
        ("caBundle", Go::Bytes),
        ("service", Go::Struct(&SERVICE)),
        ("url", STRING),
    ],
};
static SERVICE: Struct = Struct {
    name: "ServiceReference",
    fields: &[
        ("name", STRING),
        ("namespace", STRING),
        ("path", STRING),
        ("port", Go::Integer("int32")),
    ],
};
static NAMES: Struct = Struct {
    name: "CustomResourceDefinitionNames",
    fields: &[
        ("categories", Go::List(&STRING)),
        ("kind", STRING),
        ("listKind", STRING),
        ("plural", STRING),
        ("shortNames", Go::List(&STRING)),
        ("singular", STRING),
    ],
};
static VERSION: Struct = Struct {
    name: "CustomResourceDefinitionVersion",
    fields: &[
        ("additionalPrinterColumns", Go::List(&Go::Struct(&COLUMN))),
        ("deprecated", Go::Bool),
        ("deprecationWarning", STRING),
        ("name", STRING),
        ("schema", Go::Struct(&VALIDATION)),
        ("selectableFields", Go::List(&Go::Struct(&SELECTABLE))),
        ("served", Go::Bool),
        ("storage", Go::Bool),
        ("subresources", Go::Struct(&SUBRESOURCES)),
    ],
};
static VALIDATION: Struct = Struct {
    name: "CustomResourceValidation",
    fields: &[("openAPIV3Schema", Go::Schema)],
};
static SELECTABLE: Struct = Struct {
    name: "SelectableField",
    fields: &[("jsonPath", STRING)],
};
static COLUMN: Struct = Struct {
    name: "CustomResourceColumnDefinition",
    fields: &[
        ("description", STRING),
        ("format", STRING),
        ("jsonPath", STRING),
        ("name", STRING),
        ("priority", Go::Integer("int32")),
        ("type", STRING),
    ],
};
static SUBRESOURCES: Struct = Struct {
    name: "CustomResourceSubresources",
    fields: &[("scale", Go::Struct(&SCALE)), ("status", Go::Any)],
};
static SCALE: Struct = Struct {
    name: "CustomResourceSubresourceScale",
    fields: &[
        ("labelSelectorPath", STRING),
        ("specReplicasPath", STRING),
        ("statusReplicasPath", STRING),
    ],
};

/// Returns Go's error for a definition that cannot be decoded; `None` if it can.
pub fn undecodable_definition(definition: &Json) -> Option<String> {
    let mut path = Vec::new();
    Go::Struct(&DEFINITION)
        .misread(definition, DEFINITION.name, &mut path)
        .err()
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
    found
}

/// Drops unknown keywords.
pub(super) fn prune_keywords(schema: &mut Json) {
    Go::Schema.prune(schema, 0);
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
            (Go::SchemaOr(_), Json::Object(_)) => Go::Schema.misread(value, JSON_SCHEMA_PROPS.name, &mut Vec::new()),
            (Go::SchemaOr(Or::List), Json::Array(list)) => {
                let mut read = list.iter();
                read.try_for_each(|value| Go::Schema.misread(value, JSON_SCHEMA_PROPS.name, &mut Vec::new()))
            }
            (Go::SchemaOr(Or::Names), Json::Array(list)) => {
                let mut read = list.iter();
                read.try_for_each(|value| STRING.misread(value, "", &mut Vec::new()))
            }
            (Go::SchemaOr(Or::Flag), Json::Bool(_)) | (Go::SchemaOr(Or::List | Or::Names), _) => Ok(()),
            (Go::SchemaOr(Or::Flag), _) => Err("boolean or JSON schema expected".into()),
            _ => {
                let place = match path.is_empty() {
                    true => "value".to_owned(),
                    false => format!("struct field {holder}.{}", path.join(".")),
                };
                let given = given(value);
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

    fn prune(&self, value: &mut Json, depth: usize) {
        if depth > SCHEMA_DEPTH_MAX {
            return;
        }
        match (self.resolved(), value) {
            (Go::List(item), Json::Array(list)) => list.iter_mut().for_each(|value| item.prune(value, depth + 1)),
            (Go::Map(item), Json::Object(map)) => map.values_mut().for_each(|value| item.prune(value, depth + 1)),
            (Go::Struct(of), Json::Object(map)) => map.retain(|key, value| {
                let known = of.fields.iter().find(|(name, _)| name == key);
                known.is_some_and(|(_, kind)| {
                    kind.prune(value, depth + 1);
                    true
                })
            }),
            (Go::SchemaOr(_), value @ Json::Object(_)) => Go::Schema.prune(value, depth + 1),
            (Go::SchemaOr(Or::List), Json::Array(list)) => {
                list.iter_mut().for_each(|value| Go::Schema.prune(value, depth + 1))
            }
            _ => {}
        }
    }
}

/// Returns the name that Go's decoder has for a JSON value's type.
fn given(value: &Json) -> String {
    match value {
        Json::Null => "null".into(),
        Json::Bool(_) => "bool".into(),
        Json::Number(number) if number.is_f64() => format!("number {number}"),
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
                "json: cannot unmarshal number 1.5 into Go struct field JSONSchemaProps.maxLength of type int64",
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
        prune_keywords(&mut pruned);
        assert_eq!(
            pruned,
            json!({"type": "object", "properties": {"const": {"type": "array",
                "items": {"type": "string", "default": {"const": 1}}}}})
        );
    }
}
