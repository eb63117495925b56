//! The Go types of definitions (`apiextensions/v1`): their fields, and which of them are encoded.

/// A Go type.
pub(super) enum Go {
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
pub(super) enum Or {
    List,
    Flag,
    Names,
}

pub(super) struct Struct {
    pub(super) name: &'static str,
    pub(super) fields: &'static [(&'static str, Go)],
}

pub(super) const STRING: Go = Go::Text("string");

pub(super) static JSON_SCHEMA_PROPS: Struct = Struct {
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
pub(super) static VALIDATION_RULE: Struct = Struct {
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
pub(super) static DEFINITION: Struct = Struct {
    name: "CustomResourceDefinition",
    fields: &[("spec", Go::Struct(&SPEC))],
};
pub(super) static SPEC: Struct = Struct {
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
    fields: &[("scale", Go::Struct(&SCALE)), ("status", Go::Struct(&STATUS))],
};
static STATUS: Struct = Struct {
    name: "CustomResourceSubresourceStatus",
    fields: &[],
};
static SCALE: Struct = Struct {
    name: "CustomResourceSubresourceScale",
    fields: &[
        ("labelSelectorPath", STRING),
        ("specReplicasPath", STRING),
        ("statusReplicasPath", STRING),
    ],
};

/// Fields without `omitempty`: always encoded, also without a value.
pub(super) const ENCODED: &[(&str, &[&str])] = &[
    ("CustomResourceColumnDefinition", &["name", "type", "jsonPath"]),
    ("CustomResourceConversion", &["strategy"]),
    ("CustomResourceDefinitionNames", &["plural", "kind"]),
    ("CustomResourceDefinitionSpec", &["group", "names", "scope", "versions"]),
    ("CustomResourceDefinitionVersion", &["name", "served", "storage"]),
    (
        "CustomResourceSubresourceScale",
        &["specReplicasPath", "statusReplicasPath"],
    ),
    ("SelectableField", &["jsonPath"]),
    ("ServiceReference", &["name", "namespace"]),
    ("ValidationRule", &["rule"]),
    ("WebhookConversion", &["conversionReviewVersions"]),
];

/// Fields with pointers to texts and flags, whose empty value is a value.
pub(super) const POINTERS: &[&str] = &[
    "deprecationWarning",
    "labelSelectorPath",
    "optionalOldSelf",
    "path",
    "reason",
    "url",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
];
