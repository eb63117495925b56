//! Definitions in `apiextensions.k8s.io/v1beta1`: the same objects with their fields in other
//! places, by the rules of `apiextensions/v1beta1` and `apiextensions/v1` in Kubernetes 1.21.
//!
//! A definition of one version has the version's parts at the top; so has one whose versions agree.
//! The stored form is v1, which repeats them in every version.

use crate::kind::{CodedVersion, Gates};
use insula_api::{
    FieldError, FieldPath, Json,
    names::annotations::{MADE_AS, V1BETA1},
};
use serde_json::{Map, json};

const SCALE_VERSION: &str = "autoscaling/v1";

pub(super) const VERSION: CodedVersion = CodedVersion {
    name: V1BETA1,
    validate,
    from_storage,
    to_storage,
};

/// Parts of a version, with their names at the top.
const PARTS: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// Leaves out the version, or the subresources of its schema.
pub(super) fn gate(definition: &mut Json, gates: &Gates) {
    let versions = definition.pointer_mut("/spec/versions").and_then(Json::as_array_mut);
    for version in versions
        .into_iter()
        .flatten()
        .filter(|version| version["name"] == V1BETA1)
    {
        version["served"] = json!(gates.definitions_v1beta1);
        if gates.definition_subresources {
            continue;
        }
        let spec = "/schema/openAPIV3Schema/properties/spec";
        for place in ["", "/properties/versions/items"] {
            if let Some(Json::Object(fields)) = version.pointer_mut(&format!("{spec}{place}/properties")) {
                fields.retain(|name, _| !name.eq_ignore_ascii_case("subresources"));
            }
        }
    }
}

/// Returns the errors that only this version can have: parts at the top and in versions.
fn validate(definition: &Json) -> Vec<FieldError> {
    let (spec, at) = (&definition["spec"], FieldPath::new("spec"));
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(first) = versions.first() else {
        return Vec::new();
    };
    let mut errors = Vec::new();
    let version = &spec["version"];
    if !version.is_null() && *version != first["name"] {
        let why = "must match the first version in spec.versions";
        errors.push(FieldError::invalid(&at.child("version"), version, why));
    }
    for (part, top) in PARTS {
        let of_version = |version: &Json| part_of(version, part).clone();
        let plural = part.trim_end_matches('s').to_owned() + "s";
        let given = part_of(spec, top);
        if !given.is_null() && versions.iter().any(|version| !of_version(version).is_null()) {
            let why = format!("top-level and per-version {plural} are mutually exclusive");
            errors.push(FieldError::invalid(&at.child(top), given, why));
        }
        let shared = of_version(first);
        if !shared.is_null() && versions.iter().all(|version| of_version(version) == shared) {
            let what = match part {
                "additionalPrinterColumns" => "columns",
                _ => &plural,
            };
            let why = format!(
                "per-version {what} may not all be set to identical values (top-level {top} should be used instead)"
            );
            errors.push(FieldError::invalid(&at.child("versions"), &spec["versions"], why));
        }
    }
    errors
}

/// Returns a part of a version or of the whole definition.
fn part_of<'a>(holder: &'a Json, part: &str) -> &'a Json {
    match part {
        "subresources" if !holder["subResources"].is_null() => &holder["subResources"],
        _ => &holder[part],
    }
}

/// Converts a stored definition. Parts on which all versions agree move to the top.
fn from_storage(mut definition: Json) -> Json {
    definition["apiVersion"] = json!(format!("apiextensions.k8s.io/{V1BETA1}"));
    let strict = definition["metadata"]["annotations"][MADE_AS] == V1BETA1;
    let Some(Json::Object(spec)) = definition.get_mut("spec") else {
        return definition;
    };
    let mut top = Map::new();
    if let Some(Json::Array(versions)) = spec.get_mut("versions") {
        for version in versions.iter_mut() {
            rename_columns(version, "jsonPath", "JSONPath");
            if let Some(Json::Object(scale)) = version.pointer_mut("/subresources/scale")
                && strict
            {
                scale.insert("groupVersion".into(), json!(SCALE_VERSION));
                scale.retain(|name, path| name != "statusReplicasPath" || path != "");
            }
        }
        if let Some(first) = versions.first() {
            top.insert("version".into(), first["name"].clone());
        }
        for (part, name) in PARTS {
            let agree = versions
                .iter()
                .all(|version| version.get(part) == versions[0].get(part));
            for version in versions.iter_mut().filter_map(Json::as_object_mut).filter(|_| agree) {
                if let Some(value) = version.remove(part) {
                    top.insert(name.into(), value);
                }
            }
        }
    }
    spec.extend(top);
    if let Some(Json::Object(conversion)) = spec.get_mut("conversion")
        && let Some(Json::Object(webhook)) = conversion.remove("webhook")
    {
        for (name, value) in webhook {
            let name = if name == "clientConfig" {
                "webhookClientConfig".into()
            } else {
                name
            };
            conversion.insert(name, value);
        }
    }
    spec.entry("preserveUnknownFields").or_insert(Json::Bool(false));
    definition
}

/// Converts a definition to its stored form. Parts at the top go to every version.
fn to_storage(mut definition: Json) -> Json {
    definition["apiVersion"] = json!("apiextensions.k8s.io/v1");
    // An update keeps what the definition was made as: see `prepare_for_update`.
    if !definition["metadata"]["annotations"].is_object() {
        definition["metadata"]["annotations"] = json!({});
    }
    definition["metadata"]["annotations"][MADE_AS] = json!(V1BETA1);
    let Some(Json::Object(spec)) = definition.get_mut("spec") else {
        return definition;
    };
    let name = spec.remove("version");
    if spec.get("versions").and_then(Json::as_array).is_none_or(Vec::is_empty) {
        let only = name.map(|name| json!({"name": name, "served": true, "storage": true}));
        spec.insert("versions".into(), only.into_iter().collect());
    }
    respell(spec);
    let tops: Vec<_> = PARTS
        .iter()
        .filter_map(|(part, top)| Some((*part, spec.remove(*top).filter(|value| !value.is_null())?)))
        .collect();
    let versions = spec.get_mut("versions").and_then(Json::as_array_mut);
    for version in versions.into_iter().flatten() {
        let Json::Object(fields) = version else { continue };
        respell(fields);
        fields.extend(tops.iter().map(|(part, value)| ((*part).to_owned(), value.clone())));
        rename_columns(version, "JSONPath", "jsonPath");
        if let Some(Json::Object(scale)) = version.pointer_mut("/subresources/scale") {
            scale.remove("groupVersion");
        }
    }
    if let Some(Json::Object(conversion)) = spec.get_mut("conversion") {
        let mut webhook = Map::new();
        for (from, to) in [
            ("webhookClientConfig", "clientConfig"),
            ("conversionReviewVersions", "conversionReviewVersions"),
        ] {
            webhook.extend(conversion.remove(from).map(|value| (to.to_owned(), value)));
        }
        if !webhook.is_empty() {
            // The versions have a default beside a webhook alone.
            if conversion.get("strategy").is_some_and(|strategy| strategy == "Webhook") {
                webhook.entry("conversionReviewVersions").or_insert(json!([V1BETA1]));
            }
            conversion.insert("webhook".into(), Json::Object(webhook));
        }
    }
    definition
}

/// Gives the proposal's field `subResources` the name that it got.
fn respell(fields: &mut Map<String, Json>) {
    if let Some(value) = fields.remove("subResources").filter(|value| !value.is_null()) {
        fields.insert("subresources".into(), value);
    }
}

fn rename_columns(version: &mut Json, from: &str, to: &str) {
    let columns = version.get_mut("additionalPrinterColumns").and_then(Json::as_array_mut);
    for column in columns.into_iter().flatten().filter_map(Json::as_object_mut) {
        if let Some(path) = column.remove(from) {
            column.insert(to.to_owned(), path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(spec: Json) -> Json {
        json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "tabs.example.com"}, "spec": spec})
    }

    /// Pairs of a `spec` in v1beta1 and in v1, each of which converts to the other.
    #[test]
    fn fields_move_both_ways() {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let column = |path: &str| json!([{"name": "Size", "type": "string", path: ".spec.size"}]);
        let cases = [
            // One version: its parts are at the top.
            (
                json!({"version": "v1", "versions": [{"name": "v1", "served": true, "storage": true}],
                    "validation": schema, "additionalPrinterColumns": column("JSONPath"),
                    "subresources": {"status": {}}, "preserveUnknownFields": false}),
                json!({"versions": [{"name": "v1", "served": true, "storage": true, "schema": schema,
                    "additionalPrinterColumns": column("jsonPath"), "subresources": {"status": {}}}],
                    "preserveUnknownFields": false}),
            ),
            // Versions that differ keep their parts.
            (
                json!({"version": "v1", "preserveUnknownFields": true, "versions": [
                    {"name": "v1", "schema": schema, "additionalPrinterColumns": column("JSONPath")},
                    {"name": "v2"}]}),
                json!({"preserveUnknownFields": true, "versions": [
                    {"name": "v1", "schema": schema, "additionalPrinterColumns": column("jsonPath")},
                    {"name": "v2"}]}),
            ),
            // A webhook, and the Scale of the proposal.
            (
                json!({"version": "v1", "versions": [{"name": "v1"}], "preserveUnknownFields": false,
                    "conversion": {"strategy": "Webhook", "webhookClientConfig": {"url": "https://a"},
                        "conversionReviewVersions": ["v1"]},
                    "subresources": {"scale": {"specReplicasPath": ".spec.replicas",
                        "groupVersion": "autoscaling/v1"}}}),
                json!({"versions": [{"name": "v1",
                    "subresources": {"scale": {"specReplicasPath": ".spec.replicas"}}}],
                    "preserveUnknownFields": false,
                    "conversion": {"strategy": "Webhook",
                        "webhook": {"clientConfig": {"url": "https://a"}, "conversionReviewVersions": ["v1"]}}}),
            ),
        ];
        for (older, stored) in cases {
            let there = to_storage(made(older.clone()));
            assert_eq!(there["spec"], stored);
            assert_eq!(from_storage(there)["spec"], older);
        }
    }

    #[test]
    fn short_forms_are_completed() {
        let there = to_storage(made(json!({"version": "v1", "versions": [],
            "subResources": {"scale": {"groupVersion": "autoscaling/v1", "specReplicasPath": ".spec.replicas"}},
            "conversion": {"strategy": "Webhook", "webhookClientConfig": {}}})));
        assert_eq!(
            there["spec"],
            json!({
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "subresources": {"scale": {"specReplicasPath": ".spec.replicas"}}}],
                "conversion": {"strategy": "Webhook",
                    "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v1beta1"]}},
            })
        );
        assert_eq!(from_storage(there)["spec"]["preserveUnknownFields"], false);
    }

    #[test]
    fn parts_are_given_once() {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let two =
            |first: Json, second: Json| json!([{"name": "v1", "schema": first}, {"name": "v2", "schema": second}]);
        let cases = [
            (json!({"version": "v1"}), ""),
            (json!({"versions": two(schema.clone(), json!(null))}), ""),
            (
                json!({"version": "v2", "versions": two(schema.clone(), json!(null))}),
                "spec.version: Invalid value: \"v2\": must match the first version in spec.versions",
            ),
            (
                json!({"validation": schema, "versions": two(schema.clone(), json!(null))}),
                "spec.validation: Invalid value: {\"openAPIV3Schema\":{\"type\":\"object\"}}: top-level and \
                 per-version schemas are mutually exclusive",
            ),
            (
                json!({"subResources": {"status": {}},
                    "versions": [{"name": "v1", "subresources": {}}, {"name": "v2"}]}),
                "spec.subresources: Invalid value: {\"status\":{}}: top-level and per-version subresources are \
                 mutually exclusive",
            ),
            (
                json!({"versions": two(schema.clone(), schema.clone())}),
                "per-version schemas may not all be set to identical values (top-level validation should be used \
                 instead)",
            ),
            (
                json!({"versions": [{"name": "v1", "additionalPrinterColumns": []}]}),
                "per-version columns may not all be set to identical values (top-level additionalPrinterColumns \
                 should be used instead)",
            ),
        ];
        for (spec, want) in cases {
            let errors = validate(&made(spec));
            let text: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let text = text.join("; ");
            assert!(text.contains(want) && text.is_empty() == want.is_empty(), "{text}");
        }
    }

    /// Whatever a client sends is converted without a panic.
    #[test]
    fn malformed_definitions_stay_malformed() {
        for spec in [
            json!(null),
            json!([]),
            json!({"versions": {}, "version": 1}),
            json!({"versions": [1, null], "validation": 1, "subresources": [], "conversion": []}),
            json!({"version": "v1", "additionalPrinterColumns": [1], "subresources": {"scale": 1}}),
        ] {
            validate(&made(spec.clone()));
            from_storage(to_storage(made(spec)));
        }
    }
}
