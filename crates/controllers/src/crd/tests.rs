use super::names::{Taken, accept};
use crate::testing::TestControlPlane;
use insula_api::condition;
use serde_json::json;

const CRD: (&str, &str) = ("apiextensions.k8s.io/v1", "customresourcedefinitions");

#[test]
fn names_are_accepted_as_kubernetes_does() {
    let mut taken = Taken::default();
    taken.add_names(&json!({
        "plural": "widgets", "singular": "widget", "shortNames": ["wd"], "kind": "Widget", "listKind": "WidgetList",
    }));
    let cases = [
        (
            json!({"plural": "gadgets", "singular": "gadget", "kind": "Widget", "listKind": "GadgetList"}),
            json!({"kind": "", "plural": "gadgets", "singular": "gadget", "listKind": "GadgetList"}),
            "KindConflict",
            "\"Widget\" is already in use",
        ),
        (
            json!({"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo", "listKind": "WidgetList"}),
            json!({"kind": "Gizmo", "plural": "gizmos", "singular": "gizmo"}),
            "ListKindConflict",
            "\"WidgetList\" is already in use",
        ),
        (
            json!({"plural": "tools", "singular": "wd", "kind": "Tool", "listKind": "ToolList"}),
            json!({"kind": "Tool", "plural": "tools", "listKind": "ToolList"}),
            "SingularConflict",
            "\"wd\" is already in use",
        ),
        (
            json!({"plural": "parts", "singular": "part", "kind": "Part", "listKind": "PartList",
                "shortNames": ["wd", "widget"], "categories": ["all"]}),
            json!({"kind": "Part", "plural": "parts", "singular": "part", "listKind": "PartList",
                "categories": ["all"]}),
            "ShortNamesConflict",
            "[\"wd\" is already in use, \"widget\" is already in use]",
        ),
        (
            json!({"plural": "fine", "singular": "fine", "kind": "Fine", "listKind": "FineList"}),
            json!({"kind": "Fine", "plural": "fine", "singular": "fine", "listKind": "FineList"}),
            "NoConflicts",
            "no conflicts found",
        ),
    ];
    for (wanted, accepted, reason, message) in cases {
        let (got, condition) = accept(&wanted, &json!({"kind": "", "plural": ""}), &taken);
        assert_eq!(
            (got, &*condition.reason, &*condition.message),
            (accepted, reason, message)
        );
    }
}

fn definition(plural: &str, kind: &str) -> String {
    format!(
        "{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: \
            {plural}.example.io}}, \
         spec: {{group: example.io, scope: Namespaced, names: {{plural: {plural}, kind: {kind}}}, versions: [\
         {{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}]}}}}"
    )
}

#[tokio::test]
async fn a_definition_is_served_and_goes_with_its_instances() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    let fresh = rig.create(&org, CRD.1, &definition("widgets", "Widget")).await;
    assert_eq!(
        fresh["status"],
        json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": ["v1"]})
    );
    rig.settle().await;
    let name = "widgets.example.io";
    let served = rig.get(&org, CRD.0, CRD.1, name).unwrap();
    assert_eq!(
        condition(&served, "Established").unwrap()["reason"],
        "InitialNamesAccepted"
    );
    assert_eq!(
        condition(&served, "NamesAccepted").unwrap()["message"],
        "no conflicts found"
    );
    assert_eq!(served["metadata"]["generation"], 1);

    for (object, finalizers) in [("free", "[]"), ("held", "[a.io/hold]")] {
        let yaml = format!(
            "{{apiVersion: example.io/v1, kind: Widget, metadata: {{name: {object}, namespace: default, finalizers: \
                {finalizers}}}}}"
        );
        rig.create(&org, "widgets", &yaml).await;
    }
    rig.delete(&org, CRD.0, CRD.1, name).await.unwrap();
    let marked = rig.get(&org, CRD.0, CRD.1, name).unwrap();
    assert_eq!(
        condition(&marked, "Terminating").unwrap()["reason"],
        "InstanceDeletionPending"
    );
    rig.settle().await;
    let going = rig.get(&org, CRD.0, CRD.1, name).unwrap();
    assert_eq!(
        condition(&going, "Terminating").unwrap()["reason"],
        "InstanceDeletionInProgress"
    );
    assert!(rig.get(&org, "example.io/v1", "widgets", "default/free").is_none());
    let release = json!({"metadata": {"finalizers": null}});
    rig.patch(&org, "example.io/v1", "widgets", "default/held", release)
        .await
        .unwrap();
    rig.settle().await;
    assert!(rig.get(&org, CRD.0, CRD.1, name).is_none());
    assert!(rig.target(&org, "example.io/v1", "widgets", "default").is_none());
}

#[tokio::test]
async fn freed_names_go_to_waiting_definitions() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    rig.create(&org, CRD.1, &definition("widgets", "Widget")).await;
    rig.settle().await;
    // The older of two comes first, whatever their names.
    for plural in ["gizmos", "gadgets"] {
        rig.create(&org, CRD.1, &definition(plural, "Widget")).await;
        rig.settle().await;
        let waiting = rig.get(&org, CRD.0, CRD.1, &format!("{plural}.example.io")).unwrap();
        assert_eq!(condition(&waiting, "Established").unwrap()["reason"], "NotAccepted");
        assert!(rig.target(&org, "example.io/v1", plural, "default").is_none());
    }
    for (gone, served, waits) in [("widgets", "gizmos", Some("gadgets")), ("gizmos", "gadgets", None)] {
        rig.delete(&org, CRD.0, CRD.1, &format!("{gone}.example.io"))
            .await
            .unwrap();
        rig.settle().await;
        assert!(
            rig.target(&org, "example.io/v1", served, "default").is_some(),
            "{served}"
        );
        assert!(waits.is_none_or(|plural| rig.target(&org, "example.io/v1", plural, "default").is_none()));
    }
}

/// Of two definitions that wait for a name the older one gets it, unless it stops to want it.
#[tokio::test]
async fn names_that_no_definition_waits_for_are_free() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    let with_short = |plural: &str, kind: &str, short: &str| {
        let names = format!("plural: {plural}, kind: {kind}");
        definition(plural, kind).replace(&names, &format!("{names}, shortNames: {short}"))
    };
    for (plural, kind, short) in [
        ("widgets", "Widget", "[a]"),
        ("gadgets", "Gadget", "[a, b]"),
        ("gizmos", "Gizmo", "[b]"),
    ] {
        rig.create(&org, CRD.1, &with_short(plural, kind, short)).await;
        rig.settle().await;
    }
    let is_served = |plural: &str| rig.target(&org, "example.io/v1", plural, "default").is_some();
    assert_eq!(["widgets", "gadgets", "gizmos"].map(is_served), [true, false, false]);
    let fewer = json!({"spec": {"names": {"shortNames": ["a"]}}});
    rig.patch(&org, CRD.0, CRD.1, "gadgets.example.io", fewer)
        .await
        .unwrap();
    rig.settle().await;
    assert_eq!(["widgets", "gadgets", "gizmos"].map(is_served), [true, false, true]);
}

#[tokio::test]
async fn a_definition_converts_by_the_rules_of_its_name() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    let version = |name: &str, field: &str| {
        format!(
            "{{name: {name}, served: true, storage: {}, schema: {{openAPIV3Schema: {{type: object, properties: {{spec: \
             {{type: object, properties: {{{field}: {{type: integer}}}}}}}}}}}}}}",
            name == "v1"
        )
    };
    let yaml = format!(
        "{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: \
            widgets.example.io}}, \
         spec: {{group: example.io, scope: Namespaced, names: {{plural: widgets, kind: Widget}}, versions: [{}, \
             {}]}}}}",
        version("v1", "size"),
        version("v2", "bytes")
    );
    rig.create(&org, CRD.1, &yaml).await;
    rig.settle().await;
    let rules = "{apiVersion: apis.kcp.io/v1alpha1, kind: APIConversion, metadata: {name: widgets.example.io}, spec: \
        {conversions: [{from: v1, to: v2, rules: [{field: .spec.size, destination: .spec.bytes}]}, \
        {from: v2, to: v1, rules: [{field: .spec.bytes, destination: .spec.size}]}]}}";
    rig.create(&org, "apiconversions", rules).await;
    rig.settle().await;
    let widget = "{apiVersion: example.io/v2, kind: Widget, metadata: {name: a, namespace: default}, spec: {bytes: 3}}";
    rig.create(&org, "widgets", widget).await;
    let seen = rig.get(&org, "example.io/v1", "widgets", "default/a").unwrap();
    assert_eq!(seen["spec"], json!({"size": 3}));
    // A definition that the rules do not fit waits: what was served before is served on.
    let versions = |names: &[(&str, &str)]| {
        let parse = |(name, field): &(&str, &str)| serde_saphyr::from_str(&version(name, field)).unwrap();
        let versions: Vec<insula_api::Json> = names.iter().map(parse).collect();
        json!({"spec": {"versions": versions}})
    };
    let rolled_out = |rig: &TestControlPlane| {
        let definition = rig.get(&org, CRD.0, CRD.1, "widgets.example.io").unwrap();
        condition(&definition, "RolledOut").map(|condition| (condition["status"].clone(), condition["reason"].clone()))
    };
    assert_eq!(rolled_out(&rig), None);
    let gone = versions(&[("v1", "size")]);
    rig.patch(&org, CRD.0, CRD.1, "widgets.example.io", gone).await.unwrap();
    rig.settle().await;
    assert_eq!(rolled_out(&rig), Some((json!("False"), json!("RulesNotFound"))));
    let seen = rig.get(&org, "example.io/v2", "widgets", "default/a").unwrap();
    assert_eq!(seen["spec"], json!({"bytes": 3}));
    let back = versions(&[("v1", "size"), ("v2", "bytes")]);
    rig.patch(&org, CRD.0, CRD.1, "widgets.example.io", back).await.unwrap();
    rig.settle().await;
    assert_eq!(rolled_out(&rig), Some((json!("True"), insula_api::Json::Null)));
    rig.delete(&org, CRD.0, CRD.1, "widgets.example.io").await.unwrap();
    rig.settle().await;
    assert_eq!(
        (
            rig.keys(insula_catalog::ids::resource_routes()).len(),
            rig.collect().await
        ),
        (0, 1)
    );
}
