//! Owners of fields, and defaults, across generations of a schema.

use super::{CRD, REQUESTS, bound, names, offer, request, seen};
use crate::testing::TestControlPlane;
use insula_api::Json;
use insula_registry::verbs;
use serde_json::json;

/// Versions of widgets with a size; `default` gives it one.
fn sized(prefix: &str, default: Option<u64>) -> String {
    let version = |name: &str| {
        let mut size = json!({"type": "integer"});
        if let Some(default) = default {
            size["default"] = json!(default);
        }
        let fields = json!({"size": size, "note": {"type": "string"}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"type": "object", "properties":
            {"spec": {"type": "object", "properties": fields}}}})
    };
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": format!("{prefix}.widgets.example.io")},
        "spec": {"group": "example.io", "scope": "Namespaced", "names": names(), "versions": [version("v1"),
            version("v2")]}})
    .to_string()
}

/// A write came through `v2` after `v1` had been given a default, and the default was gone from
/// `v1`.
#[tokio::test]
async fn a_write_through_another_version_does_not_hide_new_defaults() {
    let rig = bound(&["bob"]).await;
    rig.create("root:provider", "apiresourceschemas", &sized("plain", None))
        .await;
    rig.create("root:provider", "apiresourceschemas", &sized("defaulted", Some(7)))
        .await;
    offer(&rig, "plain").await;
    rig.settle().await;
    let widget = json!({"apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": {"name": "w001", "namespace": "default"}, "spec": {"note": "n"}});
    rig.create("root:bob", "widgets", &widget.to_string()).await;
    offer(&rig, "defaulted").await;
    rig.settle().await;
    for (patch, note) in [
        (json!({"metadata": {"labels": {"a": "b"}}}), "n"),
        (json!({"spec": {"note": "other"}}), "other"),
    ] {
        rig.patch("root:bob", "example.io/v2", "widgets", "default/w001", patch)
            .await
            .expect("an edit");
        for version in ["v2", "v1"] {
            assert_eq!(
                seen(&rig, "root:bob", version, 1)["spec"],
                json!({"note": note, "size": 7}),
                "{version}"
            );
        }
    }
}

/// The versions of a definition whose `v2` is stored: all of them, `v1` not served, only `v2`.
fn versions(step: usize) -> Json {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"size": {"type": "integer"}, "note": {"type": "string"}}}}}});
    let version =
        |name: &str, served: bool| json!({"name": name, "served": served, "storage": name == "v2", "schema": schema});
    match step {
        0 | 1 => json!([version("v1", step == 0), version("v2", true)]),
        _ => json!([version("v2", true)]),
    }
}

async fn migrate(rig: &TestControlPlane, path: &str, name: &str) {
    rig.create(path, REQUESTS.1, &request(name, "example.io", "widgets"))
        .await;
    rig.settle().await;
}

#[tokio::test]
async fn owners_of_a_plain_definition_move_on_when_a_migration_is_asked_for() {
    for (steps, want) in [(&[1, 2][..], json!(["example.io/v2"])), (&[2][..], json!([]))] {
        let rig = TestControlPlane::new().await;
        let path = rig.workspace("root", "own").await;
        let definition = json!({"apiVersion": CRD.0, "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.io"}, "spec": {"group": "example.io", "scope": "Namespaced",
            "names": names(), "versions": versions(0)}});
        rig.create(&path, "customresourcedefinitions", &definition.to_string())
            .await;
        rig.settle().await;
        let target = rig
            .target(&path, "example.io/v1", "widgets", "default")
            .expect("widgets are served");
        let options = insula_registry::WriteOptions {
            manager: "m".to_owned(),
            ..rig.options()
        };
        let widget = json!({"apiVersion": "example.io/v1", "kind": "Widget",
            "metadata": {"name": "w001", "namespace": "default"}, "spec": {"size": 1, "note": "n"}});
        verbs::create(&rig.registry, &target, widget, &options)
            .await
            .expect("a widget");
        for step in steps {
            let next = json!({"spec": {"versions": versions(*step)}});
            rig.patch(&path, CRD.0, CRD.1, "widgets.example.io", next)
                .await
                .expect("an edit");
            rig.settle().await;
            let before = seen(&rig, &path, "v2", 1);
            migrate(&rig, &path, &format!("m{step}")).await;
            let mut after = seen(&rig, &path, "v2", 1);
            let owners = after["metadata"]["managedFields"].take();
            let versions: Vec<Json> = owners
                .as_array()
                .into_iter()
                .flatten()
                .map(|owner| owner["apiVersion"].clone())
                .collect();
            assert_eq!(json!(versions), want, "{step}: {owners}");
            if let Some(owner) = owners.get(0) {
                assert_eq!(owner["fieldsV1"], json!({"f:spec": {"f:note": {}, "f:size": {}}}));
            }
            assert_eq!(after["spec"], before["spec"]);
        }
    }
}
