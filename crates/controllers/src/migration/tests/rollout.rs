use super::{CRD, EXPORTS, binding_status, bound, definition, names, offer};
use crate::testing::{TestControlPlane, pass};
use insula_api::{Json, condition};
use serde_json::json;

/// Rules that need a number where `v1` allows any text, and others that take what they get.
pub(super) fn parsing(name: &str, expression: &str) -> String {
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": name},
        "spec": {"conversions": [
            {"from": "v1", "to": "v2", "rules": [
                {"field": ".spec.text", "destination": ".spec.number", "transformation": expression,
                    "mayFail": true}]}]}})
    .to_string()
}

/// `v1` has `text`, `v2` has `number`.
pub(super) fn texts(prefix: &str) -> String {
    let version = |name: &str, field: &str, kind: &str| {
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"type": "object", "properties":
            {"spec": {"type": "object", "properties": {field: {"type": kind}}}}}})
    };
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": format!("{prefix}.widgets.example.io")},
        "spec": {"group": "example.io", "scope": "Namespaced", "names": names(),
            "versions": [version("v1", "text", "string"), version("v2", "number", "integer")]}})
    .to_string()
}

pub(super) fn says(object: &Json, kind: &str) -> (Json, String) {
    let shown = condition(object, kind).cloned().unwrap_or_default();
    (
        shown["reason"].clone(),
        shown["message"].as_str().unwrap_or_default().to_owned(),
    )
}

pub(super) fn export(rig: &TestControlPlane) -> Json {
    let export = rig.get("root:provider", EXPORTS, "apiexports", "widgets");
    export.expect("an export")
}

pub(super) fn binding(rig: &TestControlPlane, path: &str) -> Json {
    rig.get(path, EXPORTS, "apibindings", "widgets").expect("a binding")
}

pub(super) fn number(rig: &TestControlPlane, path: &str, name: &str) -> Json {
    let widget = rig.get(path, "example.io/v2", "widgets", &format!("default/{name}"));
    widget.expect("a widget")["spec"]["number"].take()
}

/// Lets one tenant hold all.
async fn all_or_nothing(rig: &TestControlPlane) {
    let spec = json!({"spec": {"rollout": {"strategy": "AllOrNothing"}}});
    rig.patch("root:provider", EXPORTS, "apiexports", "widgets", spec)
        .await
        .expect("an export");
}

/// Asserts that provider and tenants see a blocked rollout, and are served as before.
fn assert_blocked(rig: &TestControlPlane, step: &str) {
    let (reason, why) = says(&export(rig), "RolledOut");
    assert_eq!(reason, "StoredObjectsNotConvertible", "{step}");
    // The provider need not know the path of a tenant.
    let eve = rig.cluster("root:eve");
    assert!(
        why.starts_with(&format!(
            "1 stored objects could not be read ({eve}: 1), e.g. default/many in {eve}: "
        )),
        "{why}"
    );
    for (path, why) in [
        ("root:eve", "1 stored objects of this workspace"),
        ("root:bob", "stored objects of other workspaces"),
    ] {
        let (reason, message) = says(&binding(rig, path), "BindingUpToDate");
        assert_eq!(reason, "RolloutBlocked", "{step}");
        assert!(
            message.contains(&format!("is not rolled out: {why} could not be read")),
            "{message}"
        );
        let status = binding_status(rig, path);
        assert_eq!(status["boundResources"][0]["schema"]["name"], "text.widgets.example.io");
    }
    assert_eq!(number(rig, "root:bob", "7"), Json::Null, "{step}");
    let kept = rig
        .get("root:eve", "example.io/v1", "widgets", "default/many")
        .expect("it is served as before");
    assert_eq!(kept["spec"]["text"], "many");
}

#[tokio::test]
async fn a_generation_that_stored_objects_do_not_fit_serves_nobody() {
    let rig = bound(&["bob", "eve"]).await;
    all_or_nothing(&rig).await;
    rig.create("root:provider", "apiresourceschemas", &texts("text")).await;
    offer(&rig, "text").await;
    rig.settle().await;
    let text = |text: &str| {
        json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": text, "namespace": "default"},
            "spec": {"text": text}})
        .to_string()
    };
    rig.create("root:bob", "widgets", &text("7")).await;
    rig.create("root:eve", "widgets", &text("many")).await;

    // Another schema with rules, and rules for the schema that serves: both fail for one object of
    // one tenant.
    let rules = parsing("next.widgets.example.io", "int(self)");
    rig.create("root:provider", "apiconversions", &rules).await;
    rig.create("root:provider", "apiresourceschemas", &texts("next")).await;
    offer(&rig, "next").await;
    rig.settle().await;
    assert_blocked(&rig, "another schema");

    offer(&rig, "text").await;
    rig.settle().await;
    let rolled_out =
        |rig: &TestControlPlane| condition(&export(rig), "RolledOut").expect("it is there")["status"].clone();
    assert_eq!(rolled_out(&rig), "True");
    let rules = parsing("text.widgets.example.io", "int(self)");
    rig.create("root:provider", "apiconversions", &rules).await;
    rig.settle().await;
    assert_blocked(&rig, "its own rules");

    // The object is corrected.
    let edit = json!({"spec": {"text": "12"}});
    rig.patch("root:eve", "example.io/v1", "widgets", "default/many", edit)
        .await
        .expect("an edit");
    rig.settle().await;
    assert_eq!(
        (number(&rig, "root:bob", "7"), number(&rig, "root:eve", "many")),
        (json!(7), json!(12))
    );
    assert_eq!(rolled_out(&rig), "True");
    let bound = binding(&rig, "root:bob");
    assert_eq!(
        condition(&bound, "BindingUpToDate").expect("it is there")["status"],
        "True"
    );
}

#[tokio::test]
async fn rules_of_a_definition_are_tried_on_its_objects_first() {
    let rig = TestControlPlane::new().await;
    let path = rig.workspace("root", "own").await;
    let mut definition: Json = serde_json::from_str(&definition("v1")).expect("JSON");
    let mut schema: Json = serde_json::from_str(&texts("x")).expect("JSON");
    for version in schema["spec"]["versions"].as_array_mut().into_iter().flatten() {
        version["schema"] = json!({"openAPIV3Schema": version["schema"].take()});
    }
    definition["spec"]["versions"] = schema["spec"]["versions"].take();
    rig.create(&path, "customresourcedefinitions", &definition.to_string())
        .await;
    rig.settle().await;
    let widget = json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "a",
        "namespace": "default"},
        "spec": {"text": "many"}});
    rig.create(&path, "widgets", &widget.to_string()).await;
    rig.create(&path, "apiconversions", &parsing("widgets.example.io", "int(self)"))
        .await;
    rig.settle().await;
    let crd = || {
        rig.get(&path, CRD.0, CRD.1, "widgets.example.io")
            .expect("a definition")
    };
    assert_eq!(says(&crd(), "RolledOut").0, "StoredObjectsNotConvertible");
    assert!(
        rig.get(&path, "example.io/v2", "widgets", "default/a").is_some(),
        "it is served without rules"
    );
    rig.delete(&path, "example.io/v1", "widgets", "default/a")
        .await
        .expect("it goes");
    rig.settle().await;
    assert_eq!(condition(&crd(), "RolledOut").expect("it is told")["status"], "True");
}

#[tokio::test]
async fn a_dry_run_goes_beyond_its_first_slice() {
    let rig = bound(&["bob"]).await;
    all_or_nothing(&rig).await;
    rig.create("root:provider", "apiresourceschemas", &texts("text")).await;
    offer(&rig, "text").await;
    rig.settle().await;
    let target = rig
        .target("root:bob", "example.io/v1", "widgets", "default")
        .expect("widgets are served");
    let widget = |i: usize| {
        let text = if i == 1200 { "many".to_owned() } else { i.to_string() };
        let value = json!({"apiVersion": "example.io/v1", "kind": "Widget", "spec": {"text": text}});
        insula_registry::Intent::Create(target.key(&format!("w{i:04}")), value)
    };
    for batch in 0..13 {
        let plan = insula_registry::Plan::new((batch * 100..batch * 100 + 100).map(widget).collect());
        insula_registry::commit(&rig.registry, &plan)
            .await
            .expect("no conflict");
    }
    rig.create(
        "root:provider",
        "apiconversions",
        &parsing("text.widgets.example.io", "int(self)"),
    )
    .await;
    let bindings = crate::apibinding::ApiBindings::new(rig.registry.clone());
    assert_eq!(pass(&rig.registry, &bindings).await, 0, "it takes a second look");
    pass(&rig.registry, &bindings).await;
    let export = rig
        .get("root:provider", EXPORTS, "apiexports", "widgets")
        .expect("an export");
    let (reason, why) = says(&export, "RolledOut");
    assert_eq!(reason, "StoredObjectsNotConvertible");
    let bob = rig.cluster("root:bob");
    assert!(
        why.contains(&format!("({bob}: 1), e.g. default/w1200 in {bob}")),
        "{why}"
    );
}

/// Rolled out, rolled back, rolled out again within the minute for which a dry run holds.
#[tokio::test]
async fn objects_written_since_a_dry_run_are_tried_too() {
    let rig = bound(&["bob"]).await;
    rig.create("root:provider", "apiresourceschemas", &texts("text")).await;
    rig.create(
        "root:provider",
        "apiconversions",
        &parsing("next.widgets.example.io", "int(self)"),
    )
    .await;
    rig.create("root:provider", "apiresourceschemas", &texts("next")).await;
    let served = || {
        binding_status(&rig, "root:bob")["boundResources"][0]["schema"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let bindings = crate::apibinding::ApiBindings::new(rig.registry.clone());
    let object = json!({"apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": {"name": "a", "namespace": "default"}, "spec": {"text": "many"}});
    for (round, prefix) in ["next", "text", "next"].into_iter().enumerate() {
        offer(&rig, prefix).await;
        pass(&rig.registry, &bindings).await;
        if round == 1 {
            assert_eq!(served(), "text.widgets.example.io");
            rig.create("root:bob", "widgets", &object.to_string()).await;
        }
    }
    assert_eq!(served(), "text.widgets.example.io");
    let binding = rig
        .get("root:bob", EXPORTS, "apibindings", "widgets")
        .expect("a binding");
    assert_eq!(says(&binding, "BindingUpToDate").0, "RolloutBlocked");
}
