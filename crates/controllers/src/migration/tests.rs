mod owners;
mod per_binding;
mod rollout;

use super::Migrations;
use crate::testing::{TestControlPlane, pass};
use insula_api::{Json, Scope, condition};
use insula_catalog::ids;
use insula_meter::ServerWork;
use insula_registry::verbs;
use serde_json::json;

const EXPORTS: &str = "apis.kcp.io/v1alpha2";
const CRD: (&str, &str) = ("apiextensions.k8s.io/v1", "customresourcedefinitions");
const REQUESTS: (&str, &str) = ("storagemigration.k8s.io/v1beta1", "storageversionmigrations");

/// `v1` has `size`, `v2` has `bytes` and a `note` that only it shows.
fn versions(storage: &str, wrap: bool) -> Json {
    let version = |name: &str, fields: Json| {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
        let schema = if wrap {
            json!({"openAPIV3Schema": schema})
        } else {
            schema
        };
        json!({"name": name, "served": true, "storage": name == storage, "schema": schema})
    };
    let (number, text) = (json!({"type": "integer"}), json!({"type": "string"}));
    json!([
        version("v1", json!({"size": number})),
        version("v2", json!({"bytes": number, "note": text}))
    ])
}

fn names() -> Json {
    json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"})
}

fn schema(prefix: &str, storage: &str) -> String {
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": format!("{prefix}.widgets.example.io")},
        "spec": {"group": "example.io", "scope": "Namespaced", "names": names(), "versions": versions(storage, false)}})
    .to_string()
}

fn rules(name: &str) -> String {
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": name},
        "spec": {"conversions": [
            {"from": "v1", "to": "v2", "rules": [{"field": ".spec.size", "destination": ".spec.bytes"}]},
            {"from": "v2", "to": "v1", "rules": [{"field": ".spec.bytes", "destination": ".spec.size"}]}]}})
    .to_string()
}

fn definition(storage: &str) -> String {
    json!({"apiVersion": CRD.0, "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.io"},
        "spec": {"group": "example.io", "scope": "Namespaced", "names": names(), "versions": versions(storage, true)}})
    .to_string()
}

fn widget(i: usize) -> String {
    let version = 1 + i % 2;
    let spec = if version == 1 {
        json!({"size": i})
    } else {
        json!({"bytes": i, "note": format!("n{i}")})
    };
    json!({"apiVersion": format!("example.io/v{version}"), "kind": "Widget",
        "metadata": {"name": format!("w{i:03}"), "namespace": "default"}, "spec": spec})
    .to_string()
}

fn request(name: &str, group: &str, resource: &str) -> String {
    json!({"apiVersion": REQUESTS.0, "kind": "StorageVersionMigration", "metadata": {"name": name},
        "spec": {"resource": {"group": group, "resource": resource}}})
    .to_string()
}

/// Offers the next schema, and lets the bindings take it while nothing is migrated yet.
async fn move_bindings_on(rig: &TestControlPlane) {
    offer(rig, "two").await;
    let bindings = crate::apibinding::ApiBindings::new(rig.registry.clone());
    pass(&rig.registry, &bindings).await;
}

/// A provider whose widgets are stored in `v1`, and tenants bound to them.
async fn bound(tenants: &[&str]) -> TestControlPlane {
    let rig = TestControlPlane::new().await;
    rig.workspace("root", "provider").await;
    for prefix in ["one", "two"] {
        rig.create(
            "root:provider",
            "apiconversions",
            &rules(&format!("{prefix}.widgets.example.io")),
        )
        .await;
    }
    rig.create("root:provider", "apiresourceschemas", &schema("one", "v1"))
        .await;
    rig.create("root:provider", "apiresourceschemas", &schema("two", "v2"))
        .await;
    let export = json!({"apiVersion": EXPORTS, "kind": "APIExport", "metadata": {"name": "widgets"},
        "spec": {"resources": [{"group": "example.io", "name": "widgets", "schema": "one.widgets.example.io"}]}});
    rig.create("root:provider", "apiexports", &export.to_string()).await;
    for tenant in tenants {
        rig.workspace("root", tenant).await;
        let binding = json!({"apiVersion": EXPORTS, "kind": "APIBinding", "metadata": {"name": "widgets"},
            "spec": {"reference": {"export": {"path": "root:provider", "name": "widgets"}}}});
        rig.create(&format!("root:{tenant}"), "apibindings", &binding.to_string())
            .await;
    }
    rig.settle().await;
    rig
}

async fn offer(rig: &TestControlPlane, prefix: &str) {
    let resources = json!({"spec": {"resources": [
        {"group": "example.io", "name": "widgets", "schema": format!("{prefix}.widgets.example.io")}]}});
    rig.patch("root:provider", EXPORTS, "apiexports", "widgets", resources)
        .await
        .expect("an export");
}

/// Counts the widgets stored in a version.
fn stored_in(rig: &TestControlPlane, path: &str, version: &str) -> usize {
    let target = rig
        .target(path, "example.io/v1", "widgets", "")
        .expect("widgets are served");
    let scope = Scope::cluster(target.served.resource_id(), target.cluster);
    let all = rig
        .registry
        .store
        .latest()
        .for_server(ServerWork::Tool)
        .range(&scope, None, usize::MAX);
    all.iter().filter(|entry| entry.object.version() == version).count()
}

fn seen(rig: &TestControlPlane, path: &str, version: &str, i: usize) -> Json {
    let mut widget = rig
        .get(
            path,
            &format!("example.io/{version}"),
            "widgets",
            &format!("default/w{i:03}"),
        )
        .expect("the widget is there");
    widget["metadata"]["resourceVersion"].take();
    widget
}

fn binding_status(rig: &TestControlPlane, path: &str) -> Json {
    rig.get(path, EXPORTS, "apibindings", "widgets").expect("a binding")["status"].take()
}

#[tokio::test]
async fn a_new_storage_version_is_written_for_every_tenant_and_nothing_reads_otherwise() {
    let rig = bound(&["bob", "eve"]).await;
    for i in 0..230 {
        rig.create("root:bob", "widgets", &widget(i)).await;
    }
    rig.create("root:eve", "widgets", &widget(1)).await;
    let before: Vec<Json> = (0..230)
        .flat_map(|i| ["v1", "v2"].map(|version| seen(&rig, "root:bob", version, i)))
        .collect();
    offer(&rig, "two").await;
    rig.settle().await;
    for path in ["root:bob", "root:eve"] {
        assert_eq!(stored_in(&rig, path, "v1"), 0);
        let status = binding_status(&rig, path);
        assert_eq!(status["boundResources"][0]["storageVersions"], json!(["v2"]));
        let shown = status["conditions"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|c| c["type"] == "StorageMigrating");
        assert_eq!(
            shown.map(|c| (&c["status"], &c["reason"])),
            Some((&json!("False"), &json!("MigrationSucceeded")))
        );
    }
    let after: Vec<Json> = (0..230)
        .flat_map(|i| ["v1", "v2"].map(|version| seen(&rig, "root:bob", version, i)))
        .collect();
    assert_eq!(before, after);
}

#[tokio::test]
async fn whoever_takes_over_goes_on_and_tenants_write_meanwhile() {
    let rig = bound(&["bob"]).await;
    for i in 0..230 {
        rig.create("root:bob", "widgets", &widget(i)).await;
    }
    move_bindings_on(&rig).await;
    assert_eq!(stored_in(&rig, "root:bob", "v1"), 230);
    pass(&rig.registry, &Migrations::new(rig.registry.clone())).await;
    assert_eq!(stored_in(&rig, "root:bob", "v1"), 130);
    let status = binding_status(&rig, "root:bob");
    assert_eq!(status["boundResources"][0]["storageVersions"], json!(["v1", "v2"]));
    let shown = status["conditions"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|c| c["type"] == "StorageMigrating");
    assert_eq!(
        shown.expect("it is told")["message"],
        "40% of 230 objects are stored in v2"
    );

    let edit = json!({"spec": {"size": 1000}});
    rig.patch("root:bob", "example.io/v1", "widgets", "default/w229", edit)
        .await
        .expect("an edit");
    assert_eq!(stored_in(&rig, "root:bob", "v1"), 129);
    rig.settle().await;
    assert_eq!(stored_in(&rig, "root:bob", "v1"), 0);
    assert_eq!(
        seen(&rig, "root:bob", "v2", 229)["spec"],
        json!({"bytes": 1000, "note": "n229"})
    );
    assert_eq!(
        binding_status(&rig, "root:bob")["boundResources"][0]["storageVersions"],
        json!(["v2"])
    );
}

#[tokio::test]
async fn definitions_with_rules_migrate_and_late_writes_are_stored_in_the_new_version() {
    let rig = TestControlPlane::new().await;
    let path = rig.workspace("root", "own").await;
    rig.create(&path, "customresourcedefinitions", &definition("v1")).await;
    rig.create(&path, "apiconversions", &rules("widgets.example.io")).await;
    rig.settle().await;
    rig.create(&path, "widgets", &widget(1)).await;
    let late = rig
        .target(&path, "example.io/v1", "widgets", "default")
        .expect("widgets are served");
    let flip = json!({"spec": {"versions": versions("v2", true)}});
    rig.patch(&path, CRD.0, CRD.1, "widgets.example.io", flip)
        .await
        .expect("an edit");
    rig.settle().await;
    let crd = rig
        .get(&path, CRD.0, CRD.1, "widgets.example.io")
        .expect("a definition");
    assert_eq!(crd["status"]["storedVersions"], json!(["v2"]));
    assert_eq!(
        condition(&crd, "StorageMigrating").expect("it is told")["status"],
        "False"
    );
    assert_eq!(seen(&rig, &path, "v2", 1)["spec"], json!({"bytes": 1, "note": "n1"}));

    let body: Json = serde_json::from_str(&widget(2)).expect("JSON");
    let options = rig.options();
    verbs::create(&rig.registry, &late, body, &options)
        .await
        .expect("the write is routed anew");
    assert_eq!((stored_in(&rig, &path, "v1"), stored_in(&rig, &path, "v2")), (0, 2));
}

#[tokio::test]
async fn plain_definitions_migrate_on_request() {
    let rig = TestControlPlane::new().await;
    let path = rig.workspace("root", "own").await;
    rig.create(&path, "customresourcedefinitions", &definition("v1")).await;
    rig.settle().await;
    rig.create(&path, "widgets", &widget(0)).await;
    let flip = json!({"spec": {"versions": versions("v2", true)}});
    rig.patch(&path, CRD.0, CRD.1, "widgets.example.io", flip)
        .await
        .expect("an edit");
    rig.settle().await;
    let stored = |rig: &TestControlPlane| {
        rig.get(&path, CRD.0, CRD.1, "widgets.example.io")
            .expect("a definition")["status"]["storedVersions"]
            .take()
    };
    assert_eq!((stored(&rig), stored_in(&rig, &path, "v1")), (json!(["v1", "v2"]), 1));

    for name in ["m1", "m2"] {
        rig.create(&path, REQUESTS.1, &request(name, "example.io", "widgets"))
            .await;
    }
    rig.create(&path, REQUESTS.1, &request("maps", "", "configmaps")).await;
    rig.settle().await;
    assert_eq!((stored(&rig), stored_in(&rig, &path, "v1")), (json!(["v2"]), 0));
    for name in ["m1", "m2", "maps"] {
        let done = rig.get(&path, REQUESTS.0, REQUESTS.1, name).expect("a request");
        assert!(
            !done["status"]["resourceVersion"]
                .as_str()
                .unwrap_or_default()
                .is_empty()
        );
        let shown = condition(&done, "Succeeded").expect("it is done");
        assert_eq!(shown["reason"], "StorageVersionMigrationSucceeded");
        assert_eq!(condition(&done, "Running"), None);
    }
    let other = json!({"spec": {"resource": {"resource": "secrets"}}});
    let error = rig
        .patch(&path, REQUESTS.0, REQUESTS.1, "maps", other)
        .await
        .expect_err("it never changes");
    assert!(error.to_string().contains("field is immutable"), "{error}");
}

/// A request names its progress itself: resources of the server have no owner that could.
#[tokio::test]
async fn a_request_says_how_far_it_is_for_a_built_in_resource_too() {
    let rig = TestControlPlane::new().await;
    let path = rig.workspace("root", "own").await;
    for i in 0..230 {
        let export = json!({"apiVersion": EXPORTS, "kind": "APIExport", "metadata": {"name": format!("e{i:03}")}});
        rig.create(&path, "apiexports", &export.to_string()).await;
    }
    // Stored as by a server with an older storage version.
    let target = rig
        .target(&path, EXPORTS, "apiexports", "")
        .expect("exports are served");
    let scope = Scope::cluster(target.served.resource_id(), target.cluster.clone());
    let latest = rig.registry.store.latest().for_server(ServerWork::Tool);
    for some in latest.range(&scope, None, usize::MAX).chunks(100) {
        let older = some.iter().map(|entry| {
            let mut value = entry.object.body_value();
            value["apiVersion"] = json!("apis.kcp.io/v1alpha1");
            let object = insula_api::Object::new(&value, None).expect("an object");
            insula_registry::Intent::Rewrite(entry.clone(), object.into())
        });
        let plan = insula_registry::Plan::new(older.collect());
        insula_registry::commit(&rig.registry, &plan)
            .await
            .expect("no conflict");
    }
    rig.create(&path, REQUESTS.1, &request("exports", "apis.kcp.io", "apiexports"))
        .await;
    let message = || {
        let shown = rig.get(&path, REQUESTS.0, REQUESTS.1, "exports").expect("a request");
        condition(&shown, "Running").map(|running| running["message"].clone())
    };
    let migrations = Migrations::new(rig.registry.clone());
    let mut told = Vec::new();
    for _ in 0..4 {
        pass(&rig.registry, &migrations).await;
        told.push(message());
    }
    let expected = [
        Some(json!("40% of 230 objects are stored in v1alpha2")),
        Some(json!("80% of 230 objects are stored in v1alpha2")),
        Some(json!("100% of 230 objects are stored in v1alpha2")),
        None,
    ];
    assert_eq!(told, expected);
    let done = rig.get(&path, REQUESTS.0, REQUESTS.1, "exports").expect("a request");
    assert_eq!(
        condition(&done, "Succeeded").expect("it is done")["reason"],
        "StorageVersionMigrationSucceeded"
    );
}

#[tokio::test]
async fn an_object_that_cannot_be_converted_keeps_its_version_in_the_status() {
    let rig = bound(&["bob"]).await;
    for i in 0..3 {
        rig.create("root:bob", "widgets", &widget(i)).await;
    }
    move_bindings_on(&rig).await;
    // Stored behind the back of rules and dry run: a residual that nobody can read.
    let target = rig
        .target("root:bob", "example.io/v1", "widgets", "default")
        .expect("widgets are served");
    let entry = rig
        .registry
        .store
        .latest()
        .get(&target.key("w001"))
        .expect("it is there");
    let broken = insula_api::Object::new(&entry.object.body_value(), Some(b"?".to_vec().into())).expect("an object");
    let plan = insula_registry::Plan::new(vec![insula_registry::Intent::Rewrite(entry, broken.into())]);
    insula_registry::commit(&rig.registry, &plan)
        .await
        .expect("no conflict");
    rig.settle().await;
    assert_eq!(
        (stored_in(&rig, "root:bob", "v1"), stored_in(&rig, "root:bob", "v2")),
        (1, 2)
    );
    let status = binding_status(&rig, "root:bob");
    assert_eq!(status["boundResources"][0]["storageVersions"], json!(["v1", "v2"]));
    let shown = status["conditions"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|c| c["type"] == "StorageMigrating");
    let shown = shown.expect("it is told");
    assert_eq!(shown["reason"], "MigrationFailed");
    assert!(
        shown["message"]
            .as_str()
            .unwrap_or_default()
            .contains("1 of 3 objects cannot be stored in v2, e.g.:"),
        "{shown}"
    );

    rig.delete("root:bob", "example.io/v1", "widgets", "default/w001")
        .await
        .expect("deleting needs no converter");
    rig.settle().await;
    assert_eq!(
        binding_status(&rig, "root:bob")["boundResources"][0]["storageVersions"],
        json!(["v2"])
    );
    assert_eq!(rig.keys(ids::storageversionmigrations()).len(), 0);
}

#[tokio::test]
async fn versions_that_stored_objects_need_are_not_removed() {
    let rig = bound(&["bob", "eve"]).await;
    for i in 0..3 {
        rig.create("root:bob", "widgets", &widget(i)).await;
    }
    rig.create("root:eve", "widgets", &widget(1)).await;
    let one = "one.widgets.example.io";
    for (resource, why) in [
        (
            "apiresourceschemas",
            "it serves 4 objects in 2 workspaces (root:bob: 3, root:eve: 1): let",
        ),
        (
            "apiconversions",
            "4 objects in 2 workspaces (root:bob: 3, root:eve: 1) are read by these rules: nothing",
        ),
    ] {
        let error = rig.delete("root:provider", "apis.kcp.io/v1alpha1", resource, one).await;
        let error = error.expect_err("it is needed").to_string();
        assert!(error.contains(why), "{error}");
    }
    // Once the tenants are served from another schema, nobody needs the old one.
    offer(&rig, "two").await;
    rig.settle().await;
    for resource in ["apiconversions", "apiresourceschemas"] {
        rig.delete("root:provider", "apis.kcp.io/v1alpha1", resource, one)
            .await
            .expect("nobody needs it");
    }
}

#[tokio::test]
async fn stored_versions_of_a_definition_are_true() {
    let rig = TestControlPlane::new().await;
    let path = rig.workspace("root", "own").await;
    rig.create(&path, "customresourcedefinitions", &definition("v1")).await;
    rig.settle().await;
    rig.create(&path, "widgets", &widget(0)).await;
    let flip = json!({"spec": {"versions": versions("v2", true)}});
    rig.patch(&path, CRD.0, CRD.1, "widgets.example.io", flip)
        .await
        .expect("an edit");
    rig.settle().await;
    let prune = json!({"status": {"storedVersions": ["v2"]}});
    let error = rig
        .patch(&path, CRD.0, CRD.1, "widgets.example.io", prune.clone())
        .await
        .expect_err("v1 is needed");
    let why =
        "status.storedVersions: Invalid value: [\"v2\"]: 1 object in 1 workspace (root:own: 1) are stored in v1: a";
    assert!(error.to_string().contains(why), "{error}");
    rig.patch(
        &path,
        "example.io/v2",
        "widgets",
        "default/w000",
        json!({"spec": {"note": "x"}}),
    )
    .await
    .expect("an edit");
    rig.patch(&path, CRD.0, CRD.1, "widgets.example.io", prune)
        .await
        .expect("nothing is stored in v1");
}

#[tokio::test]
async fn owners_of_fields_stay() {
    let rig = bound(&["bob"]).await;
    let target = rig
        .target("root:bob", "example.io/v2", "widgets", "default")
        .expect("widgets are served");
    let options = insula_registry::WriteOptions {
        manager: "kubectl".to_owned(),
        ..rig.options()
    };
    let body: Json = serde_json::from_str(&widget(1)).expect("JSON");
    verbs::create(&rig.registry, &target, body, &options)
        .await
        .expect("a widget");
    let before = seen(&rig, "root:bob", "v2", 1);
    assert_eq!(before["metadata"]["managedFields"][0]["manager"], "kubectl");
    offer(&rig, "two").await;
    rig.settle().await;
    assert_eq!(stored_in(&rig, "root:bob", "v1"), 0);
    assert_eq!(seen(&rig, "root:bob", "v2", 1), before);
}
