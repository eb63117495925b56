//! Schemas in OpenAPI documents (`data/published.yaml`): declarations that version 2 omits, and the
//! fields of every object.

use insula_api::Json;
use insula_schema::{openapi_v2, openapi_v3};
use serde_json::json;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

#[test]
fn schemas_are_published_in_both_versions() {
    let rows: Vec<Json> = serde_saphyr::from_str(include_str!("data/published.yaml")).unwrap();
    for row in rows {
        let what = row["what"].as_str().unwrap();
        let schema = json!({"type": "object", "properties": {"x": row["x"]}});
        for (version, published) in [("v2", openapi_v2(&schema)), ("v3", openapi_v3(&schema))] {
            let mut got = published["properties"]["x"].clone();
            let has_meta = got.pointer("/properties/metadata").is_some();
            let wants_meta = row["meta"].as_array().is_some_and(|all| all.contains(&version.into()));
            assert_eq!(has_meta, wants_meta, "{what}, {version}");
            if let Some(Json::Object(fields)) = got.get_mut("properties").filter(|_| has_meta) {
                let metadata = fields.remove("metadata").unwrap().to_string();
                assert!(metadata.contains(OBJECT_META), "{what}: {metadata}");
                for name in ["apiVersion", "kind"] {
                    assert_eq!(fields.remove(name).unwrap()["type"], "string", "{what}");
                }
            }
            let want = row.get(version).unwrap_or(&row["x"]);
            assert_eq!(&got, want, "{what}, {version}");
        }
    }
}

/// Every root has a kind and metadata, whatever its schema declares; in version 2 a root that
/// preserves unknown fields declares no field.
#[test]
fn roots_have_what_all_objects_have() {
    let own = json!({"type": "object", "properties": {"metadata": {"type": "object",
        "properties": {"name": {"type": "string", "maxLength": 3}}}}});
    for (published, prefix) in [
        (openapi_v2(&own), "#/definitions/"),
        (openapi_v3(&own), "#/components/schemas/"),
    ] {
        let metadata = &published["properties"]["metadata"];
        assert!(
            metadata.to_string().contains(&format!("{prefix}{OBJECT_META}")),
            "{metadata}"
        );
        for name in ["apiVersion", "kind", "metadata"] {
            assert!(published["properties"][name]["description"].is_string(), "{name}");
        }
    }
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"spec": {"type": "object"}}});
    assert_eq!(openapi_v2(&any), json!({"type": "object"}));
    assert!(openapi_v3(&any)["properties"]["spec"].is_object());
}
