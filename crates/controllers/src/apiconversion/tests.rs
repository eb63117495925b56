//! The status of rules over their life.

mod failures;
mod parts;

use crate::testing::TestControlPlane;
use insula_api::{Json, condition};
use serde_json::json;

const RULES: &str =
    "{apiVersion: apis.kcp.io/v1alpha1, kind: APIConversion, metadata: {name: today.widgets.example.io},
    spec: {conversions: [{from: v1, to: v2, rules: [{field: .spec.a, destination: .spec.b}]},
                         {from: v2, to: v1, rules: [{field: .spec.b, destination: .spec.a}]}]}}";
const SCHEMA: &str =
    "{apiVersion: apis.kcp.io/v1alpha1, kind: APIResourceSchema, metadata: {name: today.widgets.example.io},
    spec: {group: example.io, scope: Namespaced,
           names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}, versions: [
      {name: v1, served: true, storage: true, schema: {type: object, properties: {
        spec: {type: object, properties: {a: {type: string}}}}}},
      {name: v2, served: true, storage: false, schema: {type: object, properties: {
        spec: {type: object, properties: {b: {type: string}}}}}}]}}";

fn rules_of_today(rig: &TestControlPlane, workspace: &str) -> Json {
    let (api, name) = ("apis.kcp.io/v1alpha1", "today.widgets.example.io");
    rig.get(workspace, api, "apiconversions", name).expect("stored")
}

#[tokio::test]
async fn rules_wait_for_their_schema_and_say_so() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    let (group, name) = ("apis.kcp.io/v1alpha1", "today.widgets.example.io");
    rig.create(&org, "apiconversions", RULES).await;
    rig.settle().await;
    let waiting = rig.get(&org, group, "apiconversions", name).expect("stored");
    let valid = condition(&waiting, "Valid").expect("has a status");
    assert_eq!(
        (&valid["status"], &valid["reason"]),
        (&"False".into(), &"SchemaNotFound".into())
    );
    rig.create(&org, "apiresourceschemas", SCHEMA).await;
    rig.settle().await;
    let fits = rig.get(&org, group, "apiconversions", name).expect("stored");
    assert_eq!(condition(&fits, "Valid").expect("has a status")["status"], "True");
}

/// The same rules, written in another way or with others, have conditions of their generation.
#[tokio::test]
async fn conditions_name_the_generation_that_they_are_about() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    rig.create(&org, "apiresourceschemas", SCHEMA).await;
    rig.create(&org, "apiconversions", RULES).await;
    let both = |transformation: Option<&str>| {
        let mut rule = json!({"field": ".spec.a", "destination": ".spec.b"});
        if let Some(transformation) = transformation {
            rule["transformation"] = json!(transformation);
        }
        let back = json!({"field": ".spec.b", "destination": ".spec.a"});
        json!({"spec": {"conversions": [{"from": "v1", "to": "v2", "rules": [rule]},
            {"from": "v2", "to": "v1", "rules": [back], "drop": []}]}})
    };
    for (generation, change) in [(1, None), (2, Some(both(None))), (3, Some(both(Some("self"))))] {
        if let Some(change) = change {
            let (api, name) = ("apis.kcp.io/v1alpha1", "today.widgets.example.io");
            let patched = rig.patch(&org, api, "apiconversions", name, change).await;
            patched.expect("it is taken");
        }
        rig.settle().await;
        let rules = rules_of_today(&rig, &org);
        assert_eq!(rules["metadata"]["generation"], generation, "{rules}");
        for kind in ["Valid", "Lossless", "Covered", "Fitting"] {
            let observed = &condition(&rules, kind).expect("has a status")["observedGeneration"];
            assert_eq!(*observed, generation, "{kind}");
        }
    }
}

const TABLE: &str =
    "{apiVersion: apis.kcp.io/v1alpha1, kind: APIConversion, metadata: {name: today.widgets.example.io},
    spec: {conversions: [
      {from: v1, to: v2, drop: [.spec.gone], rules: [
        {field: .spec.a, destination: .spec.b},
        {field: .spec.size, destination: .spec.liters, transformation: int(self), mayFail: true}]},
      {from: v2, to: v1, rules: [
        {field: .spec.b, destination: .spec.a},
        {field: .spec.liters, destination: .spec.size, transformation: string(self)}]}]}}";
const FIELDS: &str =
    "{apiVersion: apis.kcp.io/v1alpha1, kind: APIResourceSchema, metadata: {name: today.widgets.example.io},
    spec: {group: example.io, scope: Namespaced,
           names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}, versions: [
      {name: v1, served: true, storage: true, schema: {type: object, properties: {spec: {type: object, properties: {
        a: {type: string}, size: {type: string}, gone: {type: string}, label: {type: string}}}}}},
      {name: v2, served: true, storage: false, schema: {type: object, properties: {spec: {type: object, properties: {
        b: {type: string}, liters: {type: integer}, label: {type: string}, mood: {type: string}}}}}}]}}";

#[tokio::test]
async fn the_status_tells_what_becomes_of_every_field() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    rig.create(&org, "apiresourceschemas", FIELDS).await;
    rig.create(&org, "apiconversions", TABLE).await;
    rig.settle().await;
    let object = rules_of_today(&rig, &org);
    let shown = |kind: &str| {
        let condition = condition(&object, kind).expect("has a status");
        (condition["status"].clone(), condition["reason"].clone())
    };
    assert_eq!(shown("Valid"), (json!("True"), json!(null)));
    assert_eq!(shown("Lossless"), (json!("False"), json!("FieldsDropped")));
    assert_eq!(shown("Covered"), (json!("False"), json!("FieldsPreserved")));
    let message = &condition(&object, "Covered").expect("is there")["message"];
    assert_eq!(
        message,
        "kept for their own version, and not shown in the other: .spec.mood of v2 in v1"
    );
    let rows = |direction: usize| object["status"]["directions"][direction]["fields"].clone();
    assert_eq!(
        rows(0),
        json!([
            {"path": ".spec.a", "fate": "moved", "to": [".spec.b"]},
            {"path": ".spec.gone", "fate": "dropped"},
            {"path": ".spec.label", "fate": "carried"},
            {"path": ".spec.size", "fate": "computed", "to": [".spec.liters"], "rules": ["conversions[0].rules[1]"]},
        ])
    );
    let direction = &object["status"]["directions"][0];
    assert_eq!((&direction["from"], &direction["to"]), (&json!("v1"), &json!("v2")));
    assert_eq!(direction["mayFail"][0]["rule"], "conversions[0].rules[1]");
    assert_eq!(direction["mayFail"][0]["marked"], true);
    assert!(direction["cost"].as_u64() > Some(0), "{direction}");
}

#[tokio::test]
async fn waiting_rules_that_do_not_hold_say_why_when_their_schema_comes() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    let unmarked = TABLE.replace(", mayFail: true", "");
    rig.create(&org, "apiconversions", &unmarked).await;
    rig.create(&org, "apiresourceschemas", FIELDS).await;
    rig.settle().await;
    let object = rules_of_today(&rig, &org);
    let valid = condition(&object, "Valid").expect("has a status");
    assert_eq!(valid["reason"], "CounterexampleFound");
    let why = valid["message"].as_str().unwrap_or_default();
    assert!(
        why.contains("spec.conversions[0].rules[1].transformation") && why.contains("mayFail: true"),
        "{why}"
    );
    assert_eq!(condition(&object, "Lossless").expect("has a status")["status"], "False");
}

/// Four versions of 80 fields with long names: bounds differ, and one field each is in no other.
fn large_schema() -> Json {
    let version = |number: usize| {
        let field = |at: usize| {
            let name = format!("{}{at}", "aFieldWithAnUncommonlyLongName".repeat(3));
            (name, json!({"type": "string", "enum": ["", format!("\"{number}\"")]}))
        };
        let mut fields: serde_json::Map<String, Json> = (0..80).map(field).collect();
        fields.insert(format!("only{number}"), json!({"type": "string"}));
        let spec = json!({"type": "object", "properties": fields});
        json!({"name": format!("v{number}"), "served": true, "storage": number == 1,
               "schema": {"type": "object", "properties": {"spec": spec}}})
    };
    json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": "today.widgets.example.io"},
        "spec": {
            "group": "example.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": (1..=4).map(version).collect::<Vec<_>>(),
        },
    })
}

#[tokio::test]
async fn a_status_has_at_most_8_kib() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    let renamed = |from: usize, to: usize| {
        let rule = json!({"field": format!(".spec.only{from}"), "destination": format!(".spec.only{to}")});
        json!({"from": format!("v{from}"), "to": format!("v{to}"), "rules": [rule]})
    };
    let rules = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion",
        "metadata": {"name": "today.widgets.example.io"},
        "spec": {"conversions": (2..=4).flat_map(|n| [renamed(1, n), renamed(n, 1)]).collect::<Vec<_>>()},
    });
    rig.create(&org, "apiresourceschemas", &large_schema().to_string())
        .await;
    rig.create(&org, "apiconversions", &rules.to_string()).await;
    rig.settle().await;
    let object = rules_of_today(&rig, &org);
    let bytes = object["status"].to_string().len();
    assert!((6 * 1_024..=8 * 1_024).contains(&bytes), "{bytes} bytes");
    let message = condition(&object, "Fitting").expect("has a status")["message"].clone();
    let message = message.as_str().expect("a text");
    assert!(message.contains(r#""apiVersion":"example.io/v"#), "{message}");
    assert!(message.contains(r#""kind":"Widget""#), "{message}");
    assert!(
        message.ends_with(" more: insula conversion test lists them"),
        "{message}"
    );
    let omitted = |direction: &Json| direction["omitted"].as_u64();
    let directions = object["status"]["directions"].as_array().expect("directions");
    assert_eq!(directions.len(), 6);
    assert!(
        directions.iter().filter_map(omitted).sum::<u64>() > 400,
        "{directions:?}"
    );
    // Fields that rules move are told rather than those that stay.
    for direction in directions {
        let fields = direction["fields"].as_array().expect("fields");
        assert!(fields.iter().any(|field| field["fate"] == "moved"), "{direction}");
    }
}
