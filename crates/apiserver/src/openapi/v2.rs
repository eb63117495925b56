//! OpenAPI v2 documents, translated from the v3 operations.

use super::{
    API_UNITS, ApiOf, COMPONENTS, Made, V2, components, gnostic, members::Members, packed::Piece, paths,
    subresource_components,
};
use insula_api::Json;
use insula_meter::{Ended, Meter};
use serde_json::{Map, json};
use std::sync::LazyLock;

/// The bytes before the definitions, between definitions and paths, and after the paths.
type Frame = [Piece; 3];

/// Returns the bytes around the parts of a document, which all documents share.
pub(super) fn frame(form: V2) -> Frame {
    static JSON: LazyLock<Frame> = LazyLock::new(|| make_frame(V2::Json));
    static PROTOBUF: LazyLock<Frame> = LazyLock::new(|| make_frame(V2::Protobuf));
    match form {
        V2::Json => JSON.clone(),
        V2::Protobuf => PROTOBUF.clone(),
    }
}

fn make_frame(form: V2) -> Frame {
    let info = json!({"title": "Kubernetes", "version": "v1.36.0"});
    let definitions: Map<String, Json> = super::common()
        .into_iter()
        .map(|(name, schema)| (name, relocated(schema)))
        .collect();
    // Neither map is empty, so that every part begins with a comma.
    let paths = json!({"/version/": {"get": {
        "description": "get the version information for this server", "operationId": "getCodeVersion", "tags": ["version"],
        "produces": ["application/json"],
        "responses": {"200": {"description": "OK", "schema": {"type": "object"}}, "401": {"description": "Unauthorized"}},
    }}});
    match form {
        V2::Json => {
            let (definitions, paths) = (json!(definitions).to_string(), paths.to_string());
            let open = |map: &str| map.strip_suffix('}').unwrap_or_default().to_owned();
            [
                format!(
                    "{{\"swagger\":\"2.0\",\"info\":{info},\"definitions\":{}",
                    open(&definitions)
                ),
                format!("}},\"paths\":{}", open(&paths)),
                "}}".to_owned(),
            ]
            .map(|text| Piece::compress(text.as_bytes()))
        }
        V2::Protobuf => [
            json!({"swagger": "2.0", "info": info, "definitions": definitions}),
            json!({"paths": paths}),
            json!({}),
        ]
        .map(|document| Piece::compress(&gnostic::encoded(&document))),
    }
}

/// Returns the definitions and paths of a group version.
///
/// # Errors
/// The request may compute no further.
pub(super) fn part(apis: &[ApiOf<'_>], form: V2, meter: &Meter) -> Result<Made, Ended> {
    let (mut definitions, mut paths) = (Members::new("definitions", form), Members::new("paths", form));
    for (served, version) in apis {
        meter.spend(API_UNITS)?;
        let mut own = Map::new();
        paths::add(&mut own, served, version);
        paths.extend(own.into_iter().map(|(path, item)| (path, path_item(item))));
        let schemas = components(served, version, insula_schema::openapi_v2(&version.openapi));
        let subresources = subresource_components(served, version, insula_schema::openapi_v2);
        let all = schemas.into_iter().chain(subresources);
        definitions.extend(all.map(|(name, schema)| (name, relocated(schema))));
    }
    Ok([definitions.finish(), paths.finish()].into())
}

/// Returns definitions and paths as parts of a document.
pub(super) fn pieces(definitions: Map<String, Json>, paths: Map<String, Json>, form: V2) -> Made {
    let piece = |field, members: Map<String, Json>| {
        let mut written = Members::new(field, form);
        written.extend(members);
        written.finish()
    };
    [piece("definitions", definitions), piece("paths", paths)].into()
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
        let mut consumed: Vec<&String> = content.keys().collect();
        // Clients take the first type: the plainest kind of patch.
        consumed.sort_by_key(|kind| kind.starts_with("application/apply-patch"));
        map.insert("consumes".into(), json!(consumed));
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

/// Rewrites references to v2's definitions. An `allOf` of one reference is the reference itself.
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
