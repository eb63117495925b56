//! The definition of a derived type: a CustomResourceDefinition with a structural schema.
//!
//! The derive macro writes a [`Description`] for each type. Schemas are made by `schemars` with the
//! transformations of kube-rs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::schema::{OptionalEnum, OptionalIntOrString, StructuralSchemaRewriter};
use schemars::{JsonSchema, generate::SchemaSettings, transform::AddNullable};
use serde_json::{Map, Value as Json, json};

/// A derived type.
#[derive(Debug)]
pub struct Description {
    /// Group.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural.
    pub plural: &'static str,
    /// True for objects in namespaces.
    pub namespaced: bool,
    /// Short names.
    pub short: &'static [&'static str],
    /// Categories.
    pub categories: &'static [&'static str],
    /// Fields of field selectors, as paths.
    pub selectable: &'static [&'static str],
    /// Text of `kubectl explain`.
    pub description: &'static str,
    /// True if the type has a status.
    pub status: bool,
    /// False for a version that only the store has.
    pub served: bool,
    /// Warning for clients.
    pub deprecated: Option<&'static str>,
    /// Paths of replicas wanted and there, and of the selector.
    pub scale: Option<(&'static str, &'static str, Option<&'static str>)>,
    /// Printer columns.
    pub columns: &'static [Column],
    /// Fields beside the metadata.
    pub fields: &'static [Field],
}

/// A printer column.
#[derive(Debug)]
pub struct Column {
    /// Header.
    pub name: &'static str,
    /// Path of the value.
    pub path: &'static str,
    /// Type of the value; the schema's, if the author gives none.
    pub kind: Option<&'static str>,
    /// Description.
    pub description: Option<&'static str>,
    /// Priority: 0 always shows it.
    pub priority: i32,
}

/// A field of the object.
#[derive(Debug)]
pub struct Field {
    /// Name in JSON.
    pub name: &'static str,
    /// Description.
    pub description: &'static str,
    /// True if an object without the field is invalid.
    pub required: bool,
    /// Schema of its type.
    pub schema: fn() -> Json,
}

/// Returns the schema of a type, in the form of definitions.
pub fn schema<T: JsonSchema>() -> Json {
    let generator = settings()
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .with_transform(OptionalIntOrString)
        .into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    schema
}

/// Returns the schema of the body of a subresource, for clients alone: it may be any.
pub(crate) fn body_schema<T: JsonSchema>() -> Json {
    let mut schema = settings().into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    // A type that has itself in it cannot be written in one piece, and none is no type of OpenAPI.
    match schema["type"] == "null" || refers(&schema) {
        true => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        false => schema,
    }
}

fn refers(schema: &Json) -> bool {
    match schema {
        Json::Object(map) => map.contains_key("$ref") || map.values().any(refers),
        Json::Array(items) => items.iter().any(refers),
        _ => false,
    }
}

fn settings() -> SchemaSettings {
    let inline = |settings: &mut SchemaSettings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    };
    SchemaSettings::openapi3()
        .with(inline)
        .with_transform(AddNullable::default())
}

/// Removes keywords that mean nothing to Kubernetes: titles, and the formats of Rust's unsigned
/// numbers, which have a minimum instead.
pub(crate) fn tidy(schema: &mut Json) {
    let Json::Object(map) = schema else { return };
    if map.get("title").is_some_and(Json::is_string) {
        map.remove("title");
    }
    let unsigned = |format: &Json| {
        format
            .as_str()
            .is_some_and(|format| format.starts_with("uint") || format.starts_with("int"))
    };
    let known = ["int32", "int64"];
    if map
        .get("format")
        .is_some_and(|format| unsigned(format) && !known.iter().any(|known| format == known))
    {
        map.remove("format");
    }
    if let Some(Json::Object(fields)) = map.get_mut("properties") {
        fields.values_mut().for_each(tidy);
    }
    for name in ["items", "additionalProperties", "not"] {
        map.get_mut(name).into_iter().for_each(tidy);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        let schemas = map.get_mut(name).and_then(Json::as_array_mut);
        schemas.into_iter().flatten().for_each(tidy);
    }
}

impl Description {
    /// Returns the definition with this version.
    ///
    /// # Panics
    /// A schema of the type is not one of definitions.
    pub fn definition(&self) -> CustomResourceDefinition {
        let schema = self.schema();
        let columns: Vec<Json> = self.columns.iter().map(|column| column.json(&schema)).collect();
        let mut version = json!({
            "name": self.version, "served": self.served, "storage": true, "schema": {"openAPIV3Schema": schema},
        });
        let mut subresources = Map::new();
        if self.status {
            subresources.insert("status".into(), json!({}));
        }
        if let Some((spec, status, selector)) = self.scale {
            let mut scale = json!({"specReplicasPath": spec, "statusReplicasPath": status});
            if let Some(selector) = selector {
                scale["labelSelectorPath"] = json!(selector);
            }
            subresources.insert("scale".into(), scale);
        }
        if !subresources.is_empty() {
            version["subresources"] = Json::Object(subresources);
        }
        if !columns.is_empty() {
            version["additionalPrinterColumns"] = json!(columns);
        }
        if !self.selectable.is_empty() {
            let fields = self.selectable.iter().map(|path| json!({"jsonPath": path}));
            version["selectableFields"] = fields.collect();
        }
        if let Some(warning) = self.deprecated {
            version["deprecated"] = json!(true);
            if !warning.is_empty() {
                version["deprecationWarning"] = json!(warning);
            }
        }
        let definition = json!({
            "metadata": {"name": format!("{}.{}", self.plural, self.group)},
            "spec": {
                "group": self.group,
                "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
                "names": {
                    "kind": self.kind, "listKind": format!("{}List", self.kind), "plural": self.plural,
                    "singular": self.kind.to_lowercase(), "shortNames": self.short, "categories": self.categories,
                },
                "versions": [version],
            },
        });
        serde_json::from_value(definition).expect("the schemas of the type are JSON schemas")
    }

    fn schema(&self) -> Json {
        let mut properties = Map::new();
        for field in self.fields {
            let mut schema = (field.schema)();
            if !field.description.is_empty() {
                schema["description"] = json!(field.description);
            }
            properties.insert(field.name.to_owned(), schema);
        }
        let required: Vec<&str> = self.fields.iter().filter(|f| f.required).map(|f| f.name).collect();
        let mut schema = json!({"type": "object", "properties": properties});
        if !self.description.is_empty() {
            schema["description"] = json!(self.description);
        }
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema
    }
}

impl Column {
    fn json(&self, schema: &Json) -> Json {
        let kind = self.kind.map(str::to_owned).unwrap_or_else(|| self.kind_in(schema));
        let mut column = json!({"name": self.name, "type": kind, "jsonPath": self.path});
        if let Some(description) = self.description {
            column["description"] = json!(description);
        }
        if self.priority != 0 {
            column["priority"] = json!(self.priority);
        }
        column
    }

    /// Returns the type of the column's value, by the schema.
    fn kind_in(&self, schema: &Json) -> String {
        let fields = self.path.trim_start_matches('.').split('.');
        if self.path == ".metadata.creationTimestamp" {
            return "date".into();
        }
        let found = fields.fold(schema, |schema, field| &schema["properties"][field]);
        match (found["type"].as_str(), found["format"].as_str()) {
            (_, Some("date-time")) => "date",
            (Some("integer"), _) => "integer",
            (Some("number"), _) => "number",
            (Some("boolean"), _) => "boolean",
            _ => "string",
        }
        .into()
    }
}
