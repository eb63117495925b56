//! Bundles: a schema and its conversion rules in the form that serves every tenant bound to them.
//!
//! Admission compiles a bundle to find its errors before the schema is stored. The binding
//! reconciler stores it.

use crate::{ResourceRoute, ids};
use insula_api::{FieldError, FieldPath, Json, names::annotations::MADE_AS};
use insula_store::Snapshot;
use serde_json::{Map, json};
use std::sync::LazyLock;

/// Annotation of a schema that its bundle keeps.
const APPROVED: &str = "api-approved.kubernetes.io";

/// The rules of a bundle that serves a definition without rules.
static NO_RULES: LazyLock<Json> = LazyLock::new(|| json!({"conversions": []}));

/// Returns the bundle of an APIResourceSchema and, if there is one, of the APIConversion with the
/// same name.
pub fn of_schema(schema: &Json, conversion: Option<&Json>) -> Json {
    let (spec, metadata) = (&schema["spec"], &schema["metadata"]);
    let mut annotations = json!({
        "apis.kcp.io/bound-crd": "",
        "apis.kcp.io/schema-cluster": metadata["annotations"][crate::object::CLUSTER_ANNOTATION],
        "apis.kcp.io/schema-name": metadata["name"],
    });
    if let Some(approved) = metadata["annotations"].get(APPROVED) {
        annotations[APPROVED] = approved.clone();
    }
    let rules = match conversion {
        Some(conversion) => Some(conversion["spec"].clone()),
        None => rules_in(spec),
    };
    assemble(
        metadata["uid"].as_str().unwrap_or_default(),
        annotations,
        definition_of(spec),
        rules,
    )
}

/// Returns the bundle of a CustomResourceDefinition and the APIConversion with the same name.
pub fn of_definition(definition: &Json, conversion: &Json) -> Json {
    let metadata = &definition["metadata"];
    let mut annotations = json!({
        "apis.kcp.io/schema-cluster": metadata["annotations"][crate::object::CLUSTER_ANNOTATION],
        "apis.kcp.io/schema-name": metadata["name"],
    });
    if let Some(made_as) = metadata["annotations"].get(MADE_AS) {
        annotations[MADE_AS] = made_as.clone();
    }
    let name = metadata["uid"].as_str().unwrap_or_default();
    let mut bundle = assemble(
        name,
        annotations,
        definition["spec"].clone(),
        Some(conversion["spec"].clone()),
    );
    if let Some(accepted) = definition["status"].get("acceptedNames") {
        bundle["status"] = json!({"acceptedNames": accepted});
    }
    bundle
}

/// Returns the bundle of a CustomResourceDefinition that has no rules in force: what is served on
/// while it waits for some. It loses nothing, so what is written meanwhile is whole afterwards.
pub fn without_rules(definition: &Json) -> Json {
    of_definition(definition, &json!({"spec": *NO_RULES}))
}

/// Returns false for a bundle that serves a definition without rules.
pub fn has_rules(bundle: &Json) -> bool {
    bundle["rules"] != *NO_RULES
}

/// Returns the bundle that is to serve a definition without rules. `None` if the definition serves
/// itself, as in Kubernetes: no bundle ever has, its rules were deleted when it had no objects, or
/// it has a webhook.
pub fn kept(snapshot: &Snapshot, route: &ResourceRoute, definition: &Json) -> Option<Json> {
    let present = snapshot.get(&ids::bundle(route.bundle.as_ref()?))?;
    let is_kept = !has_rules(&present.object.body_value()) && !has_webhook(definition);
    is_kept.then(|| without_rules(definition))
}

/// Returns true if a webhook converts between the versions of a definition without rules.
pub fn has_webhook(definition: &Json) -> bool {
    definition["spec"]["conversion"]["strategy"] == "Webhook"
}

/// The fields of a bundle that serve.
const SERVING: [&str; 3] = ["spec", "rules", "status"];

/// Returns true if two bundles serve alike.
pub fn is_same(one: &Json, other: &Json) -> bool {
    SERVING.iter().all(|field| one[*field] == other[*field])
}

/// Returns a stored bundle that serves as `wanted` does.
#[must_use]
pub fn updated(mut present: Json, wanted: &Json) -> Json {
    for field in SERVING {
        present[field] = wanted[field].clone();
    }
    present
}

fn assemble(name: &str, annotations: Json, spec: Json, rules: Option<Json>) -> Json {
    let mut bundle = json!({
        "apiVersion": ids::INTERNAL_V1, "kind": "Bundle",
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec,
    });
    if let Some(rules) = rules {
        bundle["rules"] = rules;
    }
    bundle
}

/// Returns an APIResourceSchema's `spec` in the form of a CustomResourceDefinition's `spec`.
pub fn definition_of(spec: &Json) -> Json {
    let mut out = Map::new();
    for field in ["group", "names", "scope", "nameValidation"] {
        if let Some(value) = spec.get(field) {
            out.insert(field.into(), value.clone());
        }
    }
    let versions = spec["versions"].as_array().into_iter().flatten().map(|version| {
        let mut version = version.clone();
        if let Some(fields) = version.as_object_mut() {
            fields.remove("conversion");
            let schema = fields.remove("schema").unwrap_or(Json::Null);
            fields.insert("schema".into(), json!({"openAPIV3Schema": schema}));
        }
        version
    });
    out.insert("versions".into(), versions.collect());
    Json::Object(out)
}

/// Returns the conversion rules inside a schema's `spec`, in the form of an APIConversion's `spec`.
fn rules_in(spec: &Json) -> Option<Json> {
    let conversion = &spec["conversion"];
    if !conversion["conversions"].is_null() || !conversion["hub"].is_null() {
        let mut rules = Map::new();
        for field in ["hub", "validation", "conversions"] {
            if let Some(value) = conversion.get(field) {
                rules.insert(field.into(), value.clone());
            }
        }
        return Some(Json::Object(rules));
    }
    let spokes: Vec<Json> = spokes(spec)
        .map(|(_, version)| {
            let mut spoke = version["conversion"].clone();
            spoke["version"] = version["name"].clone();
            spoke
        })
        .collect();
    let hub = spec.get("hubVersion").filter(|hub| hub.is_string());
    (hub.is_some() || !spokes.is_empty()).then(|| match hub {
        Some(hub) => json!({"hub": hub, "conversions": spokes}),
        None => json!({"conversions": spokes}),
    })
}

fn spokes(spec: &Json) -> impl Iterator<Item = (usize, &Json)> {
    let versions = spec["versions"].as_array().into_iter().flatten().enumerate();
    versions.filter(|(_, version)| version["conversion"].is_object())
}

/// Returns the errors of a bundle's rules with their field paths translated to the schema.
pub fn point_into_schema(schema: &Json, errors: Vec<FieldError>) -> Vec<FieldError> {
    let spec = &schema["spec"];
    let in_conversion = !spec["conversion"]["conversions"].is_null();
    let place = |path: &str| -> Option<String> {
        let rest = path.strip_prefix("spec.conversions")?;
        if in_conversion {
            return Some(format!("spec.conversion.conversions{rest}"));
        }
        let (index, rest) = rest.strip_prefix('[')?.split_once(']')?;
        let (version, _) = spokes(spec).nth(index.parse().ok()?)?;
        Some(format!("spec.versions[{version}].conversion{rest}"))
    };
    let moved = errors.into_iter().map(|error| match place(error.field.as_str()) {
        Some(path) => FieldError {
            field: FieldPath::new(&path),
            ..error
        },
        None => error,
    });
    moved.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_every_spelling_become_one() {
        let by_pair = json!({"conversion": {"strategy": "None", "hub": "v1", "conversions": [{"from": "v1"}]}});
        assert_eq!(
            rules_in(&by_pair),
            Some(json!({"hub": "v1", "conversions": [{"from": "v1"}]}))
        );
        let by_version =
            json!({"hubVersion": "v1", "versions": [{"name": "v1"}, {"name": "v2", "conversion": {"toHub": []}}]});
        assert_eq!(
            rules_in(&by_version),
            Some(json!({"hub": "v1", "conversions": [{"version": "v2", "toHub": []}]}))
        );
        assert_eq!(
            rules_in(&json!({"conversion": {"strategy": "None"}, "versions": [{"name": "v1"}]})),
            None
        );
    }

    #[test]
    fn errors_point_where_the_rule_was_written() {
        let schema =
            json!({"spec": {"hubVersion": "v1", "versions": [{"name": "v1"}, {"name": "v2", "conversion": {}}]}});
        let error = FieldError::required(&FieldPath::new("spec.conversions[0].toHub[1]"), "x");
        let moved = point_into_schema(&schema, vec![error]);
        assert_eq!(moved[0].field.as_str(), "spec.versions[1].conversion.toHub[1]");
    }
}
