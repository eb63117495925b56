//! Schemas in published OpenAPI documents.
//!
//! Version 3 keeps everything. Version 2 cannot express some schemas; those nodes are published
//! without a type rather than with a wrong one, because clients validate against it.

use insula_api::Json;
use serde_json::{Map, json};

const API_CONVENTIONS: &str = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
const OBJECT_META_V3: &str = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const OBJECT_META_V2: &str = "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

#[derive(Clone, Copy, PartialEq)]
enum Dialect {
    V2,
    V3,
}

#[derive(Clone, Copy, PartialEq)]
enum SchemaPosition {
    Root,
    Below,
}

/// Returns the OpenAPI v3 schema of one version, without its group-version-kind.
pub fn openapi_v3(schema: &Json) -> Json {
    publish(schema, Dialect::V3, SchemaPosition::Root)
}

/// Returns the OpenAPI v2 schema of one version, without its group-version-kind.
pub fn openapi_v2(schema: &Json) -> Json {
    publish(schema, Dialect::V2, SchemaPosition::Root)
}

fn publish(schema: &Json, dialect: Dialect, position: SchemaPosition) -> Json {
    let Json::Object(source) = schema else {
        return json!({"type": "object"});
    };
    let flag = |name: &str| source.get(name).and_then(Json::as_bool).unwrap_or(false);
    let embedded = flag("x-kubernetes-embedded-resource");
    let preserves = flag("x-kubernetes-preserve-unknown-fields");
    let mut out = Map::new();
    // With any declared field, kubectl would refuse all others.
    if dialect == Dialect::V2 && position == SchemaPosition::Root && preserves {
        return json!({"type": "object"});
    }
    for (name, value) in source {
        let published = match (name.as_str(), value) {
            (_, Json::Null) => continue,
            ("allOf" | "anyOf" | "oneOf" | "not" | "nullable", _) if dialect == Dialect::V2 => continue,
            ("properties", Json::Object(fields)) => {
                let fields = fields
                    .iter()
                    .filter(|(name, _)| position == SchemaPosition::Below || name.as_str() != "metadata");
                Json::Object(
                    fields
                        .map(|(n, s)| (n.clone(), publish(s, dialect, SchemaPosition::Below)))
                        .collect(),
                )
            }
            ("items" | "additionalProperties", Json::Object(_)) => publish(value, dialect, SchemaPosition::Below),
            _ => value.clone(),
        };
        out.insert(name.clone(), published);
    }
    if flag("x-kubernetes-int-or-string") {
        match dialect {
            Dialect::V3 => {
                out.entry("anyOf")
                    .or_insert_with(|| json!([{"type": "integer"}, {"type": "string"}]));
                out.remove("type");
            }
            Dialect::V2 => {
                out.remove("type");
            }
        }
    }
    if dialect == Dialect::V2 {
        loosen(&mut out, source, preserves);
    }
    let published = Json::Object(out);
    let untyped = dialect == Dialect::V2 && preserves;
    if position == SchemaPosition::Root || embedded && !untyped {
        with_meta(published, dialect, position)
    } else {
        published
    }
}

/// Removes declarations that v2 cannot express: kubectl refuses values of untyped nodes that have
/// fields or items, and lists without items.
fn loosen(out: &mut Map<String, Json>, source: &Map<String, Json>, preserves: bool) {
    let is_nullable = |schema: &Json| schema.get("nullable") == Some(&Json::Bool(true));
    let nullable = source.get("nullable") == Some(&Json::Bool(true));
    if nullable || preserves {
        out.remove("properties");
        out.remove("items");
    }
    let untyped = match source.get("type").and_then(Json::as_str) {
        Some("array") => !out.contains_key("items"),
        Some("object") => preserves,
        _ => false,
    };
    if nullable || untyped {
        out.remove("type");
    }
    if source.get("additionalProperties").is_some_and(is_nullable) {
        out.remove("required");
    }
    // In v2 a required field cannot be null, so such fields are not required.
    if let (Some(Json::Array(required)), true) = (out.get("required"), out.contains_key("properties")) {
        let given = source.get("properties");
        let field = |name: &Json| name.as_str().and_then(|name| given?.get(name));
        let left = required.iter().filter(|name| !field(name).is_some_and(is_nullable));
        let left: Vec<Json> = left.cloned().collect();
        match left.is_empty() {
            true => drop(out.remove("required")),
            false => drop(out.insert("required".to_owned(), Json::Array(left))),
        }
    }
}

fn with_meta(mut schema: Json, dialect: Dialect, position: SchemaPosition) -> Json {
    let reference = match dialect {
        Dialect::V3 => json!({"allOf": [{"$ref": OBJECT_META_V3}]}),
        Dialect::V2 => json!({"$ref": OBJECT_META_V2}),
    };
    let mut metadata = reference;
    metadata["description"] = format!("Standard object's metadata. More info: {API_CONVENTIONS}#metadata").into();
    let (version, kind) = if position == SchemaPosition::Root {
        (
            format!(
                "APIVersion defines the versioned schema of this representation of an object. Servers should convert \
                 recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
                 {API_CONVENTIONS}#resources"
            ),
            format!(
                "Kind is a string value representing the REST resource this object represents. Servers may infer this \
                 from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
                 {API_CONVENTIONS}#types-kinds"
            ),
        )
    } else {
        (
            format!(
                "apiVersion defines the versioned schema of this representation of an object. More info: \
                 {API_CONVENTIONS}#resources"
            ),
            format!(
                "kind is a string value representing the type of this object. In CamelCase. More info: \
                 {API_CONVENTIONS}#types-kinds"
            ),
        )
    };
    let Json::Object(map) = &mut schema else { return schema };
    let fields = map.entry("properties").or_insert_with(|| json!({}));
    fields["apiVersion"] = json!({"type": "string", "description": version});
    fields["kind"] = json!({"type": "string", "description": kind});
    fields["metadata"] = metadata;
    if position == SchemaPosition::Below {
        let mut required = vec![json!("kind"), json!("apiVersion")];
        if let Some(Json::Array(given)) = map.get("required") {
            required.extend(
                given
                    .iter()
                    .filter(|n| !["kind", "apiVersion"].contains(&n.as_str().unwrap_or("")))
                    .cloned(),
            );
        }
        map.insert("required".to_owned(), Json::Array(required));
    }
    schema
}
