//! Removal of bindings and of resources from exports.

use super::*;
use crate::{apibinding::ApiBindings, runtime::Reconciler};
use insula_access::Target;
use insula_meter::ServerWork;
use insula_registry::verbs;

#[tokio::test]
async fn a_binding_that_goes_takes_its_objects_along_and_no_others() {
    let rig = provider_and_tenant().await;
    rig.workspace("root", "bob").await;
    for tenant in ["root:tenant", "root:bob"] {
        rig.create(tenant, "apibindings", &binding("widgets", "root:provider"))
            .await;
        rig.settle().await;
        rig.create(tenant, "widgets", WIDGET).await;
    }
    let held = WIDGET.replace("name: a,", "name: held, finalizers: [a.io/hold],");
    rig.create("root:tenant", "widgets", &held).await;
    // Works without the export.
    rig.delete("root:provider", "apis.kcp.io/v1alpha2", "apiexports", "widgets")
        .await
        .unwrap();
    rig.delete("root:tenant", BINDINGS.0, BINDINGS.1, "widgets")
        .await
        .unwrap();
    rig.settle().await;
    assert_eq!(
        says(&rig, "root:tenant", "widgets", "BindingResourceDeleteSuccess"),
        (
            "SomeFinalizersRemain".to_owned(),
            "Some content in the workspace has finalizers remaining: a.io/hold in 1 resource instances".to_owned()
        )
    );
    let late = WIDGET.replace("name: a,", "name: late,");
    let error = rig.try_create("root:tenant", "widgets", &late).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "widgets.example.io \"late\" is forbidden: create not allowed while custom resource definition is terminating"
    );
    let release = json!({"metadata": {"finalizers": null}});
    rig.patch("root:tenant", WIDGETS.0, WIDGETS.1, "default/held", release)
        .await
        .unwrap();
    rig.settle().await;
    assert!(rig.get("root:tenant", BINDINGS.0, BINDINGS.1, "widgets").is_none());
    assert!(rig.target("root:tenant", WIDGETS.0, WIDGETS.1, "default").is_none());
    assert!(rig.get("root:bob", WIDGETS.0, WIDGETS.1, "default/a").is_some());
}

/// Lets the reconciler of the only binding decide, again and again. Between each look and its
/// commit a server whose copy of the store is late creates an object.
async fn decide_beside(rig: &TestControlPlane, late: &Target, creates: usize) {
    let reconciler = ApiBindings::new(rig.registry.clone());
    let key = rig.keys(ids::apibindings())[0].clone();
    for n in 0..creates {
        let plan =
            reconciler.decide(&reconciler.observe(&key, &rig.registry.store.latest().for_server(ServerWork::Tool)));
        let body = WIDGET.replace("name: a,", &format!("name: late{n},"));
        let body = serde_saphyr::from_str(&body).unwrap();
        // Refused once that server can know what was decided.
        let _ = verbs::create(&rig.registry, late, body, &rig.options()).await;
        let _ = insula_registry::commit(&rig.registry, &plan).await;
    }
    rig.settle().await;
}

#[tokio::test]
async fn no_object_is_left_of_a_binding_that_goes() {
    let rig = provider_and_tenant().await;
    rig.create("root:tenant", "apibindings", &binding("widgets", "root:provider"))
        .await;
    rig.settle().await;
    let late = rig
        .target("root:tenant", WIDGETS.0, WIDGETS.1, "default")
        .expect("widgets are served");
    rig.delete("root:tenant", BINDINGS.0, BINDINGS.1, "widgets")
        .await
        .unwrap();
    decide_beside(&rig, &late, 8).await;
    assert!(rig.get("root:tenant", BINDINGS.0, BINDINGS.1, "widgets").is_none());
    assert_eq!(rig.keys(late.served.resource_id()), []);
}

#[tokio::test]
async fn an_export_of_many_resources_is_bound_in_several_steps() {
    let rig = TestControlPlane::new().await;
    rig.workspace("root", "provider").await;
    rig.workspace("root", "tenant").await;
    let kinds: Vec<String> = (0..60)
        .map(|i| format!("thing{}{}", (b'a' + i / 26) as char, (b'a' + i % 26) as char))
        .collect();
    for plural in &kinds {
        let kind = format!("T{}", &plural[1..]);
        rig.create(
            "root:provider",
            "apiresourceschemas",
            &schema("today", plural, &kind, V1),
        )
        .await;
    }
    let resources: Vec<(&str, &str)> = kinds.iter().map(|plural| (plural.as_str(), "today")).collect();
    rig.create("root:provider", "apiexports", &export(&resources)).await;
    rig.settle().await;
    rig.create("root:tenant", "apibindings", &binding("widgets", "root:provider"))
        .await;
    rig.settle().await;
    assert_eq!(status(&rig, "root:tenant", "widgets")["phase"], "Bound");
    assert_eq!(rig.keys(ids::resource_routes()).len(), 60);
    rig.delete("root:tenant", BINDINGS.0, BINDINGS.1, "widgets")
        .await
        .unwrap();
    rig.settle().await;
    assert_eq!(rig.keys(ids::resource_routes()).len(), 0);
}

#[tokio::test]
async fn a_dropped_resource_is_served_while_objects_exist() {
    let rig = provider_and_tenant().await;
    rig.create("root:tenant", "apibindings", &binding("widgets", "root:provider"))
        .await;
    rig.settle().await;
    rig.create("root:tenant", "widgets", WIDGET).await;
    let nothing = json!({"spec": {"resources": []}});
    rig.patch(
        "root:provider",
        "apis.kcp.io/v1alpha2",
        "apiexports",
        "widgets",
        nothing,
    )
    .await
    .unwrap();
    rig.settle().await;
    rig.delete("root:tenant", WIDGETS.0, WIDGETS.1, "default/a")
        .await
        .unwrap();
    rig.settle().await;
    assert_eq!(rig.keys(ids::resource_routes()).len(), 0);
    assert_eq!(status(&rig, "root:tenant", "widgets")["boundResources"], json!([]));
}

/// The same beside a late server: an object that it creates is served until it is deleted.
#[tokio::test]
async fn no_object_is_left_of_a_dropped_resource() {
    for creates in [1, 8] {
        let rig = provider_and_tenant().await;
        rig.create("root:tenant", "apibindings", &binding("widgets", "root:provider"))
            .await;
        rig.settle().await;
        let late = rig
            .target("root:tenant", WIDGETS.0, WIDGETS.1, "default")
            .expect("widgets are served");
        let nothing = json!({"spec": {"resources": []}});
        rig.patch("root:provider", BINDINGS.0, "apiexports", "widgets", nothing)
            .await
            .unwrap();
        decide_beside(&rig, &late, creates).await;
        let left = rig.keys(late.served.resource_id());
        assert!(!left.is_empty(), "the first is created before the route is closed");
        assert!(rig.try_create("root:tenant", "widgets", WIDGET).await.is_ok());
        for key in left {
            let name = format!("default/{}", key.name);
            rig.delete("root:tenant", WIDGETS.0, WIDGETS.1, &name).await.unwrap();
        }
        rig.delete("root:tenant", WIDGETS.0, WIDGETS.1, "default/a")
            .await
            .unwrap();
        rig.settle().await;
        assert_eq!(rig.keys(ids::resource_routes()).len(), 0);
    }
}

#[tokio::test]
async fn extra_annotations_of_an_export_reach_its_bindings() {
    let rig = provider_and_tenant().await;
    rig.create("root:tenant", "apibindings", &binding("widgets", "root:provider"))
        .await;
    let shown = |rig: &TestControlPlane| {
        let binding = rig.get("root:tenant", BINDINGS.0, BINDINGS.1, "widgets");
        let annotations = binding.expect("the binding is there")["metadata"]["annotations"].take();
        annotations["extra.apis.kcp.io/docs"].as_str().map(str::to_owned)
    };
    let own = json!({"metadata": {"annotations": {"example.io/own": "y".repeat(200)}}});
    rig.patch("root:tenant", BINDINGS.0, BINDINGS.1, "widgets", own)
        .await
        .unwrap();
    rig.settle().await;
    assert_eq!(shown(&rig), None);
    for (text, is_shown) in [
        (json!("here"), Some("here")),
        (json!("there"), Some("there")),
        // More than a binding may have.
        (json!("x".repeat(262_144 - 100)), None),
        (Json::Null, None),
    ] {
        let change =
            json!({"metadata": {"annotations": {"extra.apis.kcp.io/docs": text, "other.example.io/docs": "x"}}});
        rig.patch("root:provider", BINDINGS.0, "apiexports", "widgets", change)
            .await
            .unwrap();
        rig.settle().await;
        assert_eq!(shown(&rig).as_deref(), is_shown);
    }
}

#[tokio::test]
async fn a_successor_takes_over_names_and_objects() {
    let rig = provider_and_tenant().await;
    for name in ["first", "second"] {
        rig.create("root:tenant", "apibindings", &binding(name, "root:provider"))
            .await;
        rig.settle().await;
    }
    assert_eq!(
        says(&rig, "root:tenant", "second", "BindingUpToDate").0,
        "NamingConflicts"
    );
    rig.create("root:tenant", "widgets", WIDGET).await;
    let before = status(&rig, "root:tenant", "first")["boundResources"].take();
    rig.delete("root:tenant", BINDINGS.0, BINDINGS.1, "first")
        .await
        .unwrap();
    rig.settle().await;
    assert!(rig.get("root:tenant", BINDINGS.0, BINDINGS.1, "first").is_none());
    let after = status(&rig, "root:tenant", "second");
    assert_eq!((&after["phase"], &after["boundResources"]), (&json!("Bound"), &before));
    let kept = rig.get("root:tenant", WIDGETS.0, WIDGETS.1, "default/a");
    assert_eq!(kept.expect("the object is there")["spec"], json!({"size": 3}));
    assert_last_takes_all(&rig, "second").await;
}

/// Checks that the last binding of a resource takes names and objects along.
async fn assert_last_takes_all(rig: &TestControlPlane, name: &str) {
    rig.delete("root:tenant", BINDINGS.0, BINDINGS.1, name).await.unwrap();
    rig.settle().await;
    assert_eq!(rig.keys(ids::resource_routes()).len(), 0);
    assert!(rig.get("root:tenant", BINDINGS.0, BINDINGS.1, name).is_none());
}
