//! OpenAPI v2, made of the v3 operations: the older words for the same.

use super::{ApiOf, COMPONENTS, components, paths};
use insula_api::Json;
use serde_json::{Map, json};

/// One document for everything that is served.
pub(super) fn document(apis: &[ApiOf<'_>]) -> Json {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for (served, version) in apis {
        paths::add(&mut paths, served, version);
        schemas.extend(components(served, version, insula_schema::openapi_v2(&version.openapi)));
    }
    let mut wanted = schemas.clone();
    super::add_referenced(&paths, &mut wanted);
    // Schemas of v2 refer to metadata by its v2 place, which the search above does not see.
    let common = super::common();
    schemas = wanted;
    for name in [
        "ObjectMeta",
        "ListMeta",
        "ManagedFieldsEntry",
        "FieldsV1",
        "OwnerReference",
        "Time",
    ] {
        let name = format!("{}{name}", super::META);
        if let Some(schema) = common.get(&name) {
            schemas.entry(name).or_insert_with(|| schema.clone());
        }
    }
    let paths: Map<String, Json> = paths.into_iter().map(|(path, item)| (path, path_item(item))).collect();
    let definitions: Map<String, Json> = schemas
        .into_iter()
        .map(|(name, schema)| (name, relocated(schema)))
        .collect();
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "definitions": definitions,
    })
}

fn path_item(item: Json) -> Json {
    let Json::Object(map) = item else { return item };
    let converted = map.into_iter().map(|(key, value)| match key.as_str() {
        "parameters" => (key, parameters(&value)),
        _ => (key, operation(value)),
    });
    Json::Object(converted.collect())
}

fn operation(mut operation: Json) -> Json {
    let Some(map) = operation.as_object_mut() else {
        return operation;
    };
    let mut given = match map.remove("parameters") {
        Some(list) => parameters(&list).as_array().cloned().unwrap_or_default(),
        None => Vec::new(),
    };
    map.insert("produces".into(), json!(["application/json", "application/yaml"]));
    if let Some(body) = map.remove("requestBody") {
        let content = body["content"].as_object().cloned().unwrap_or_default();
        map.insert("consumes".into(), content.keys().cloned().collect());
        let schema = content
            .into_iter()
            .next()
            .map(|(_, content)| relocated(content["schema"].clone()));
        given.insert(
            0,
            json!({"name": "body", "in": "body", "required": body["required"] == true, "schema": schema}),
        );
    }
    if !given.is_empty() {
        map.insert("parameters".into(), json!(given));
    }
    if let Some(responses) = map.get_mut("responses").and_then(Json::as_object_mut) {
        for response in responses.values_mut().filter_map(Json::as_object_mut) {
            if let Some(content) = response.remove("content") {
                response.insert(
                    "schema".into(),
                    relocated(content["application/json"]["schema"].clone()),
                );
            }
        }
    }
    operation
}

fn parameters(list: &Json) -> Json {
    let convert = |parameter: &Json| {
        let mut converted = parameter.clone();
        if let Some(map) = converted.as_object_mut()
            && let Some(Json::Object(schema)) = map.remove("schema")
        {
            map.extend(schema);
        }
        converted
    };
    list.as_array().into_iter().flatten().map(convert).collect()
}

/// References to the place of definitions in v2. An `allOf` of one reference is the reference itself.
fn relocated(schema: Json) -> Json {
    match schema {
        Json::Object(mut map) => {
            if let Some(Json::Array(all)) = map.get("allOf")
                && let [Json::Object(only)] = all.as_slice()
                && let Some(target) = only.get("$ref").cloned()
            {
                map.remove("allOf");
                map.insert("$ref".into(), target);
            }
            let convert = |(key, value): (String, Json)| match value {
                Json::String(target) if key == "$ref" => {
                    (key, Json::String(target.replacen(COMPONENTS, "#/definitions/", 1)))
                }
                value => (key, relocated(value)),
            };
            Json::Object(map.into_iter().map(convert).collect())
        }
        Json::Array(list) => list.into_iter().map(relocated).collect(),
        other => other,
    }
}
