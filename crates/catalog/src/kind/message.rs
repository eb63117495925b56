//! Kubernetes' protobuf messages of a built-in kind as data: fields with their numbers, which are
//! those of Kubernetes' `generated.proto` files.

/// Type of a field.
#[derive(Debug, Clone, Copy)]
pub enum Type {
    /// A string.
    Text,
    /// A varint.
    Integer,
    /// A varint, 0 or 1.
    Bool,
    /// A varint, 0 or 1, that JSON leaves out when it is 0.
    Flag,
    /// A varint that JSON leaves out when it is 0.
    Count,
    /// A number of double precision.
    Double,
    /// RFC 3339 in JSON; seconds (1) and nanoseconds (2) on the wire.
    Time,
    /// RFC 3339 in JSON to the microsecond; on the wire as [`Type::Time`].
    MicroTime,
    /// Any JSON, as text in field 1.
    Raw,
    /// Base64 in JSON.
    Bytes,
    /// A message that is left out when it is empty.
    Message(&'static [Field]),
    /// A message that may be present and empty: an empty selector selects everything.
    Pointer(&'static [Field]),
    /// A struct within a struct in Go: JSON has its fields beside those around it.
    Embedded(&'static [Field]),
    /// Entries of a map: key 1, value 2.
    TextMap,
    /// A map of quantities: each value is a message with a text in field 1.
    Quantities,
    /// A map whose values are base64 in JSON.
    BytesMap,
    /// A map of lists of texts: each value is a message with the texts in field 1.
    TextsMap,
    /// `JSONSchemaProps`, whose fields are [`SCHEMA`]. The types that hold it name it instead of
    /// its fields, because it holds itself.
    Schema,
    /// A map of schemas.
    SchemaMap,
    /// `JSONSchemaPropsOrBool`: a boolean (1) or a schema (2).
    SchemaOrBool,
    /// `JSONSchemaPropsOrArray`: a schema (1) or a list of schemas (2).
    SchemaOrList,
    /// A map of `JSONSchemaPropsOrStringArray`: a schema (1) or a list of texts (2).
    SchemaOrTextsMap,
}

/// A field: number, JSON name, type, and true for a repeated one.
pub type Field = (u32, &'static str, Type, bool);

/// The message of a kind that clients may send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) fields: &'static [Field],
}

impl Message {
    pub(crate) const fn new(api_version: &'static str, kind: &'static str, fields: &'static [Field]) -> Self {
        Message {
            api_version,
            kind,
            fields,
        }
    }
}

/// Returns the field of a text.
pub(crate) const fn text(number: u32, name: &'static str) -> Field {
    (number, name, Type::Text, false)
}

/// Returns the field of a list of texts.
pub(crate) const fn texts(number: u32, name: &'static str) -> Field {
    (number, name, Type::Text, true)
}

/// Returns the field of a message.
pub(crate) const fn one(number: u32, name: &'static str, fields: &'static [Field]) -> Field {
    (number, name, Type::Message(fields), false)
}

/// Returns the field of a message that may be present and empty.
pub(crate) const fn optional(number: u32, name: &'static str, fields: &'static [Field]) -> Field {
    (number, name, Type::Pointer(fields), false)
}

/// Returns the field of a struct within a struct.
pub(crate) const fn embedded(number: u32, fields: &'static [Field]) -> Field {
    (number, "", Type::Embedded(fields), false)
}

/// Returns the field of a list of messages.
pub(crate) const fn list(number: u32, name: &'static str, fields: &'static [Field]) -> Field {
    (number, name, Type::Message(fields), true)
}

const OWNER: &[Field] = &[
    (1, "kind", Type::Text, false),
    (3, "name", Type::Text, false),
    (4, "uid", Type::Text, false),
    (5, "apiVersion", Type::Text, false),
    (6, "controller", Type::Bool, false),
    (7, "blockOwnerDeletion", Type::Bool, false),
];
const MANAGED: &[Field] = &[
    (1, "manager", Type::Text, false),
    (2, "operation", Type::Text, false),
    (3, "apiVersion", Type::Text, false),
    (4, "time", Type::Time, false),
    (6, "fieldsType", Type::Text, false),
    (7, "fieldsV1", Type::Raw, false),
    (8, "subresource", Type::Text, false),
];
/// `ObjectMeta`.
pub const META: &[Field] = &[
    (1, "name", Type::Text, false),
    (2, "generateName", Type::Text, false),
    (3, "namespace", Type::Text, false),
    (5, "uid", Type::Text, false),
    (6, "resourceVersion", Type::Text, false),
    (7, "generation", Type::Integer, false),
    (8, "creationTimestamp", Type::Time, false),
    (9, "deletionTimestamp", Type::Time, false),
    (10, "deletionGracePeriodSeconds", Type::Integer, false),
    (11, "labels", Type::TextMap, false),
    (12, "annotations", Type::TextMap, false),
    (13, "ownerReferences", Type::Message(OWNER), true),
    (14, "finalizers", Type::Text, true),
    (17, "managedFields", Type::Message(MANAGED), true),
];
/// `ObjectReference`.
pub(crate) const OBJECT_REFERENCE: &[Field] = &[
    (1, "kind", Type::Text, false),
    (2, "namespace", Type::Text, false),
    (3, "name", Type::Text, false),
    (4, "uid", Type::Text, false),
    (5, "apiVersion", Type::Text, false),
    (6, "resourceVersion", Type::Text, false),
    (7, "fieldPath", Type::Text, false),
];
/// A requirement of a selector.
pub(crate) const REQUIREMENT: &[Field] = &[text(1, "key"), text(2, "operator"), texts(3, "values")];
/// `LabelSelector`.
pub(crate) const SELECTOR: &[Field] = &[
    (1, "matchLabels", Type::TextMap, false),
    list(2, "matchExpressions", REQUIREMENT),
];

const VALIDATION_RULE: &[Field] = &[
    text(1, "rule"),
    text(2, "message"),
    text(3, "messageExpression"),
    text(4, "reason"),
    text(5, "fieldPath"),
    (6, "optionalOldSelf", Type::Bool, false),
];
/// `JSONSchemaProps`.
pub const SCHEMA: &[Field] = &[
    text(1, "id"),
    text(2, "$schema"),
    text(3, "$ref"),
    text(4, "description"),
    text(5, "type"),
    text(6, "format"),
    text(7, "title"),
    (8, "default", Type::Raw, false),
    (9, "maximum", Type::Double, false),
    (10, "exclusiveMaximum", Type::Flag, false),
    (11, "minimum", Type::Double, false),
    (12, "exclusiveMinimum", Type::Flag, false),
    (13, "maxLength", Type::Integer, false),
    (14, "minLength", Type::Integer, false),
    text(15, "pattern"),
    (16, "maxItems", Type::Integer, false),
    (17, "minItems", Type::Integer, false),
    (18, "uniqueItems", Type::Flag, false),
    (19, "multipleOf", Type::Double, false),
    (20, "enum", Type::Raw, true),
    (21, "maxProperties", Type::Integer, false),
    (22, "minProperties", Type::Integer, false),
    texts(23, "required"),
    (24, "items", Type::SchemaOrList, false),
    (25, "allOf", Type::Schema, true),
    (26, "oneOf", Type::Schema, true),
    (27, "anyOf", Type::Schema, true),
    (28, "not", Type::Schema, false),
    (29, "properties", Type::SchemaMap, false),
    (30, "additionalProperties", Type::SchemaOrBool, false),
    (31, "patternProperties", Type::SchemaMap, false),
    (32, "dependencies", Type::SchemaOrTextsMap, false),
    (33, "additionalItems", Type::SchemaOrBool, false),
    (34, "definitions", Type::SchemaMap, false),
    optional(35, "externalDocs", &[text(1, "description"), text(2, "url")]),
    (36, "example", Type::Raw, false),
    (37, "nullable", Type::Flag, false),
    (38, "x-kubernetes-preserve-unknown-fields", Type::Bool, false),
    (39, "x-kubernetes-embedded-resource", Type::Flag, false),
    (40, "x-kubernetes-int-or-string", Type::Flag, false),
    texts(41, "x-kubernetes-list-map-keys"),
    text(42, "x-kubernetes-list-type"),
    text(43, "x-kubernetes-map-type"),
    list(44, "x-kubernetes-validations", VALIDATION_RULE),
];
