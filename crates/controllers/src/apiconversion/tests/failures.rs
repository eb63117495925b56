//! Operations that need no converter, on an object that no converter can convert: it was stored
//! under other rules. And recovery of a missing bundle.

use crate::testing::TestControlPlane;
use insula_api::{Json, Object};
use insula_catalog::ids;
use insula_store::{Txn, Write};
use serde_json::json;
use std::sync::Arc;

const DEFINITION: &str = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
    metadata: {name: engines.example.io}, spec: {group: example.io, scope: Namespaced,
    names: {plural: engines, singular: engine, kind: Engine, listKind: EngineList}, versions: [
      {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {
        spec: {type: object, properties: {size: {type: string}}}}}}},
      {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {
        spec: {type: object, properties: {liters: {type: integer}}}}}}}]}}";
const RULES: &str = "{apiVersion: apis.kcp.io/v1alpha1, kind: APIConversion, metadata: {name: engines.example.io},
    spec: {conversions: [
      {from: v1, to: v2, rules: [{field: .spec.size, destination: .spec.liters, transformation: int(self), mayFail: \
          true}]},
      {from: v2, to: v1, rules: [{field: .spec.liters, destination: .spec.size, transformation: string(self)}]}]}}";
const V1: &str = "example.io/v1";
const V2: &str = "example.io/v2";

/// A workspace with engines and their rules.
async fn engines() -> (TestControlPlane, String) {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    rig.create(&org, "customresourcedefinitions", DEFINITION).await;
    rig.create(&org, "apiconversions", RULES).await;
    rig.settle().await;
    (rig, org)
}

/// Makes an engine that v2 cannot show: past the registry, as rules of before would have let it
/// through.
async fn stored_before(rig: &TestControlPlane, org: &str, metadata: &str) -> String {
    let yaml = format!("{{apiVersion: {V1}, kind: Engine, metadata: {metadata}, spec: {{size: '1'}}}}");
    let made = rig.create(org, "engines", &yaml).await;
    let text = |field: &str| made["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let key = rig.target(org, V1, "engines", &namespace).unwrap().key(&name);
    let mut broken = made;
    broken["spec"]["size"] = json!("large");
    let write = Write::Put(key, Arc::new(Object::new(&broken, None).unwrap()));
    let txn = Txn {
        guards: Vec::new(),
        writes: vec![write],
    };
    rig.registry.store.commit(txn).await.unwrap();
    format!("{namespace}/{name}")
}

/// Asserts that v1 shows an object and v2 fails with the object and the rule.
fn shows_nothing_but_v1(rig: &TestControlPlane, org: &str, name: &str) {
    let (namespace, name) = name.split_once('/').unwrap();
    let target = rig.target(org, V2, "engines", namespace).unwrap();
    let entry = rig.registry.store.latest().get(&target.key(name)).unwrap();
    let error = insula_catalog::stored::value(&target.served, &entry, "v2")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(name) && error.contains("conversions[0].rules[0]"),
        "{error}"
    );
    assert_eq!(
        insula_catalog::stored::value(&target.served, &entry, "v1").unwrap()["spec"]["size"],
        "large"
    );
}

#[tokio::test]
async fn an_unconvertible_object_is_deleted_through_every_version() {
    let (rig, org) = engines().await;
    for version in [V1, V2] {
        let name = stored_before(&rig, &org, "{name: a, namespace: default}").await;
        shows_nothing_but_v1(&rig, &org, &name);
        rig.delete(&org, version, "engines", &name).await.unwrap();
        assert!(rig.get(&org, V1, "engines", &name).is_none(), "{version}");
    }
}

#[tokio::test]
async fn an_unconvertible_object_loses_finalizers_through_every_version() {
    let (rig, org) = engines().await;
    for version in [V1, V2] {
        let held = "{name: a, namespace: default, finalizers: [example.io/hold]}";
        let name = stored_before(&rig, &org, held).await;
        rig.delete(&org, V2, "engines", &name).await.unwrap();
        shows_nothing_but_v1(&rig, &org, &name);
        let more = json!({"metadata": {"finalizers": null}, "spec": {"liters": 2}});
        let refused = rig.patch(&org, V2, "engines", &name, more).await.unwrap_err();
        assert!(refused.to_string().contains("conversions[0].rules[0]"), "{refused}");
        let release = json!({"metadata": {"finalizers": null}});
        rig.patch(&org, version, "engines", &name, release).await.unwrap();
        assert!(rig.get(&org, V1, "engines", &name).is_none(), "{version}");
    }
}

/// The object is stored in v1, and v2 is what is stored now.
#[tokio::test]
async fn an_unconvertible_object_can_change_its_metadata() {
    let (rig, org) = engines().await;
    let served = |version: &Json, storage: bool| {
        let mut version = version.clone();
        version["storage"] = json!(storage);
        version
    };
    let crd = "apiextensions.k8s.io/v1";
    let resource = "customresourcedefinitions";
    let definition = rig.get(&org, crd, resource, "engines.example.io").unwrap();
    let versions = &definition["spec"]["versions"];
    let flip = json!({"spec": {"versions": [served(&versions[0], false), served(&versions[1], true)]}});
    rig.patch(&org, crd, resource, "engines.example.io", flip)
        .await
        .unwrap();
    rig.settle().await;
    let held = "{name: a, namespace: default, finalizers: [example.io/hold]}";
    let name = stored_before(&rig, &org, held).await;
    for (version, mark) in [(V1, "one"), (V2, "two")] {
        let patch = json!({"metadata": {"labels": {"mark": mark}}});
        rig.patch(&org, version, "engines", &name, patch).await.unwrap();
        shows_nothing_but_v1(&rig, &org, &name);
        let kept = rig.get(&org, V1, "engines", &name).unwrap();
        assert_eq!(kept["metadata"]["labels"]["mark"], mark);
        assert_eq!(kept["spec"]["size"], "large");
    }
    rig.delete(&org, V2, "engines", &name).await.unwrap();
    let release = json!({"metadata": {"finalizers": null}});
    rig.patch(&org, V1, "engines", &name, release).await.unwrap();
    assert!(rig.get(&org, V1, "engines", &name).is_none());
}

#[tokio::test]
async fn an_unconvertible_object_goes_with_its_owner_or_namespace() {
    let (rig, org) = engines().await;
    let owner = rig
        .create(
            &org,
            "configmaps",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: owner, namespace: default}}",
        )
        .await;
    let uid = owner["metadata"]["uid"].as_str().unwrap();
    let owned = format!(
        "{{name: owned, namespace: default, ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: owner, uid: \
            {uid}}}]}}"
    );
    let owned = stored_before(&rig, &org, &owned).await;
    rig.create(
        &org,
        "namespaces",
        "{apiVersion: v1, kind: Namespace, metadata: {name: team}}",
    )
    .await;
    let inside = stored_before(&rig, &org, "{name: inside, namespace: team}").await;

    rig.delete(&org, "v1", "configmaps", "default/owner").await.unwrap();
    rig.delete(&org, "v1", "namespaces", "team").await.unwrap();
    rig.settle().await;
    assert!(rig.get(&org, V1, "engines", &owned).is_none());
    assert!(rig.get(&org, V1, "engines", &inside).is_none());
    assert!(rig.get(&org, "v1", "namespaces", "team").is_none());
}

#[tokio::test]
async fn a_missing_bundle_is_made_again() {
    let (rig, org) = engines().await;
    let yaml =
        format!("{{apiVersion: {V1}, kind: Engine, metadata: {{name: a, namespace: default}}, spec: {{size: '3'}}}}");
    rig.create(&org, "engines", &yaml).await;
    let bundles = rig.keys(ids::bundles());
    let txn = Txn {
        guards: Vec::new(),
        writes: bundles.into_iter().map(Write::Delete).collect(),
    };
    rig.registry.store.commit(txn).await.unwrap();
    // Better nothing than objects without their rules.
    assert!(rig.target(&org, V2, "engines", "default").is_none());
    rig.settle().await;
    let shown = rig.get(&org, V2, "engines", "default/a").unwrap();
    assert_eq!(shown["spec"], json!({"liters": 3}));
}
