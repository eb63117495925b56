//! A CustomResourceDefinition and its APIConversion are one unit, in whatever order their files
//! come: what comes early waits, what was served before is served on, and a change is in force with
//! its answer.

mod first_rules;

use insula_e2e::{Answer, Client, shared, until, workspace};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const RULES: &str = "/apis/apis.kcp.io/v1alpha1/apiconversions";
const GROUP: &str = "order.example.io";
const NAME: &str = "pets.order.example.io";

/// Returns the definition with these versions, each with one field of `spec` beside `more`.
fn definition(versions: &[(&str, &[&str])]) -> Value {
    let version = |(name, fields): &(&str, &[&str])| {
        let fields: serde_json::Map<String, Value> = fields
            .iter()
            .map(|field| ((*field).to_owned(), json!({"type": "string"})))
            .collect();
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
        json!({"name": name, "served": true, "storage": *name == "v1", "schema": {"openAPIV3Schema": schema}})
    };
    let versions: Vec<Value> = versions.iter().map(version).collect();
    let names = json!({"kind": "Pet", "listKind": "PetList", "plural": "pets", "singular": "pet"});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": NAME},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": versions}})
}

/// Returns rules by which fields of v1 and of other versions are one value.
fn rules(fields: &[(&str, &str, &str)]) -> Value {
    let both = |(own, version, other): &(&str, &str, &str)| {
        let rule =
            |from: &str, to: &str| json!([{"field": format!(".spec.{from}"), "destination": format!(".spec.{to}")}]);
        [
            json!({"from": "v1", "to": version, "rules": rule(own, other)}),
            json!({"from": version, "to": "v1", "rules": rule(other, own)}),
        ]
    };
    let conversions: Vec<Value> = fields.iter().flat_map(both).collect();
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": NAME},
        "spec": {"conversions": conversions}})
}

/// Applies an object of the common name, as its only manager.
fn apply(client: &Client, collection: &str, object: &Value) -> Answer {
    let path = format!("{collection}/{NAME}?fieldManager=test&force=true");
    let headers: &[(&str, &[u8])] = &[("content-type", b"application/apply-patch+yaml")];
    client.send_bytes("PATCH", &path, headers, object.to_string().into_bytes().into())
}

fn warns(answer: &Answer, of: &str) -> bool {
    let mut warnings = answer.headers.get_all("warning").iter();
    warnings.any(|text| text.to_str().is_ok_and(|text| text.contains(of)))
}

fn pets(version: &str) -> String {
    format!("/apis/{GROUP}/{version}/namespaces/default/pets")
}

fn spec(client: &Client, version: &str) -> Value {
    client.get(&format!("{}/a", pets(version))).expect(200)["spec"].take()
}

fn create(client: &Client, spec: &Value) {
    until("pets are served", || {
        (client.get(&pets("v1")).code == 200).then_some(())
    });
    let pet = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Pet",
        "metadata": {"name": "a", "namespace": "default"}, "spec": spec});
    client.post(&pets("v1"), &pet).expect(201);
}

fn condition(client: &Client, path: &str, kind: &str) -> Value {
    let object = client.get(path).expect(200);
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions
        .into_iter()
        .find(|condition| condition["type"] == kind)
        .unwrap_or_default()
}

#[test]
fn rules_that_come_before_their_version_wait_for_it() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "rules-first").0);
    apply(&client, DEFINITIONS, &definition(&[("v1", &["first"])])).expect(201);
    create(&client, &json!({"first": "bob"}));
    let early = apply(&client, RULES, &rules(&[("first", "v2", "name")]));
    assert!(early.code == 201 && warns(&early, "wait until"), "{early:?}");
    let valid = until("the rules are judged", || {
        let valid = condition(&client, &format!("{RULES}/{NAME}"), "Valid");
        valid.is_object().then_some(valid)
    });
    assert_eq!(
        (&valid["status"], &valid["reason"]),
        (&json!("False"), &json!("SchemaNotFound")),
        "{valid}"
    );
    // With the answer both are in force: no request sees v2 without rules.
    apply(
        &client,
        DEFINITIONS,
        &definition(&[("v1", &["first"]), ("v2", &["name"])]),
    )
    .expect(200);
    assert_eq!(spec(&client, "v2"), json!({"name": "bob"}));
    // What waits can be taken back.
    let gone = apply(
        &client,
        RULES,
        &rules(&[("first", "v2", "name"), ("first", "v3", "who")]),
    );
    gone.expect(200);
    assert_eq!(spec(&client, "v2"), json!({"name": "bob"}));
    apply(&client, RULES, &rules(&[("first", "v2", "name")])).expect(200);
    assert_eq!(spec(&client, "v2"), json!({"name": "bob"}));
}

#[test]
fn rules_that_give_up_a_version_wait_until_it_is_gone() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "rules-less").0);
    let three: &[(&str, &[&str])] = &[("v1", &["first"]), ("v2", &["name"]), ("v3", &["who"])];
    apply(&client, DEFINITIONS, &definition(three)).expect(201);
    let whole = rules(&[("first", "v2", "name"), ("first", "v3", "who")]);
    apply(&client, RULES, &whole).expect(201);
    create(&client, &json!({"first": "bob"}));
    assert_eq!(spec(&client, "v3"), json!({"who": "bob"}));
    let less = rules(&[("first", "v3", "who")]);
    let early = apply(&client, RULES, &less);
    assert!(early.code == 200 && warns(&early, "wait until"), "{early:?}");
    let valid = until("the rules are judged", || {
        let valid = condition(&client, &format!("{RULES}/{NAME}"), "Valid");
        (valid["status"] == "False").then_some(valid)
    });
    assert!(
        valid["reason"] == "SchemaNotFound" && valid["message"].as_str().unwrap_or_default().contains("has v2"),
        "{valid}"
    );
    // What was served before is served on, with the rules of before.
    assert_eq!(spec(&client, "v2"), json!({"name": "bob"}));
    client
        .merge(&format!("{}/a", pets("v2")), &json!({"spec": {"name": "eve"}}))
        .expect(200);
    assert_eq!(spec(&client, "v3"), json!({"who": "eve"}));
    apply(&client, RULES, &whole).expect(200);
    apply(&client, RULES, &less).expect(200);
    // With the answer both are in force.
    let without = definition(&[("v1", &["first"]), ("v3", &["who"])]);
    let gone = apply(&client, DEFINITIONS, &without);
    assert!(gone.code == 200 && !warns(&gone, "served on"), "{gone:?}");
    assert_eq!(client.get(&pets("v2")).code, 404);
    assert_eq!(spec(&client, "v3"), json!({"who": "eve"}));
    until("the rules are in force", || {
        let valid = condition(&client, &format!("{RULES}/{NAME}"), "Valid");
        (valid["status"] == "True").then_some(())
    });
    // Rules that never named a version have forgotten it.
    apply(&client, DEFINITIONS, &definition(three)).expect(200);
    let mut again = less;
    again["spec"]["hub"] = json!("v1");
    let forgotten = apply(&client, RULES, &again);
    assert!(forgotten.code == 422, "{forgotten:?}");
}

#[test]
fn a_definition_that_comes_before_its_rules_waits_for_them() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "definition-first").0);
    let two: &[(&str, &[&str])] = &[("v1", &["first"]), ("v2", &["name"])];
    let three: &[(&str, &[&str])] = &[("v1", &["first"]), ("v2", &["name"]), ("v3", &["who"])];
    apply(&client, DEFINITIONS, &definition(two)).expect(201);
    create(&client, &json!({"first": "bob"}));
    apply(&client, RULES, &rules(&[("first", "v2", "name")])).expect(201);
    assert_eq!(spec(&client, "v2"), json!({"name": "bob"}));
    let early = apply(&client, DEFINITIONS, &definition(three));
    assert!(early.code == 200 && warns(&early, "served on"), "{early:?}");
    assert_eq!(client.get(&pets("v3")).code, 404);
    assert_eq!(spec(&client, "v2"), json!({"name": "bob"}));
    let held = until("the definition is judged", || {
        let held = condition(&client, &format!("{DEFINITIONS}/{NAME}"), "RolledOut");
        held.is_object().then_some(held)
    });
    assert_eq!(
        (&held["status"], &held["reason"]),
        (&json!("False"), &json!("RulesNotFound")),
        "{held}"
    );
    apply(
        &client,
        RULES,
        &rules(&[("first", "v2", "name"), ("first", "v3", "who")]),
    )
    .expect(200);
    assert_eq!(spec(&client, "v3"), json!({"who": "bob"}));
    until("the definition is in force", || {
        let held = condition(&client, &format!("{DEFINITIONS}/{NAME}"), "RolledOut");
        (held["status"] == "True").then_some(())
    });
}

#[test]
fn changes_of_a_definition_without_rules_are_told() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "told").0);
    let both: &[(&str, &[&str])] = &[("v1", &["first", "last"]), ("v2", &["first"])];
    apply(&client, DEFINITIONS, &definition(both)).expect(201);
    create(&client, &json!({"first": "bob", "last": "roy"}));
    let mut less = definition(&[("v1", &["first"]), ("v2", &["first"])]);
    let gone = "field-removed:pets.order.example.io/v1:.spec.last";
    let told = apply(&client, DEFINITIONS, &less);
    assert!(
        told.code == 200 && warns(&told, gone) && warns(&told, "gone with the next write through it"),
        "{told:?}"
    );
    // It is in the store until the next write, as in Kubernetes.
    apply(&client, DEFINITIONS, &definition(both)).expect(200);
    assert_eq!(spec(&client, "v1"), json!({"first": "bob", "last": "roy"}));
    less["metadata"]["annotations"] = json!({"insula.io/accepted-effects": "field-removed=1, version-removd"});
    let accepted = apply(&client, DEFINITIONS, &less);
    assert!(
        accepted.code == 200 && !warns(&accepted, gone) && warns(&accepted, "is no kind of effect"),
        "{accepted:?}"
    );
    // Before its first rules a new version knows nothing of the others' fields.
    let three = definition(&[("v1", &["first"]), ("v2", &["first"]), ("v3", &["name"])]);
    let told = apply(&client, DEFINITIONS, &three);
    assert!(
        told.code == 200 && warns(&told, ".spec.first: in v1, and not in v3") && warns(&told, "APIConversion"),
        "{told:?}"
    );
    apply(&client, DEFINITIONS, &less).expect(200);
    let annotated = json!({"metadata": {"annotations": {"insula.io/accepted-effects": "version-removd"}}});
    let told = client.merge(&format!("{DEFINITIONS}/{NAME}"), &annotated);
    assert!(told.code == 200 && warns(&told, "is no kind of effect"), "{told:?}");
    less["spec"]["versions"][1]["served"] = json!(false);
    let told = apply(&client, DEFINITIONS, &less);
    assert!(
        told.code == 200 && warns(&told, "version-removed:pets.order.example.io/v2"),
        "{told:?}"
    );
}

#[test]
fn effects_beyond_those_that_are_named_are_counted() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "counted").0);
    let fields = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    apply(&client, DEFINITIONS, &definition(&[("v1", &fields)])).expect(201);
    create(&client, &fields.iter().map(|field| (*field, "x")).collect());
    let counted = "effects on stored objects, of which 10 are named";
    let removed = |kept: usize| apply(&client, DEFINITIONS, &definition(&[("v1", &fields[..kept])]));
    let told = removed(1);
    assert!(told.code == 200 && warns(&told, &format!("11 {counted}")), "{told:?}");
    assert!(
        warns(&told, "field-removed:pets.order.example.io/v1:.spec.k"),
        "{told:?}"
    );
    removed(12).expect(200);
    let told = removed(2);
    assert!(told.code == 200 && !warns(&told, counted), "{told:?}");
}

#[test]
fn a_field_is_in_force_with_the_answer() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "in-force").0);
    let mut fields = vec!["name"];
    apply(
        &client,
        DEFINITIONS,
        &definition(&[("v1", &["first"]), ("v2", &fields)]),
    )
    .expect(201);
    create(&client, &json!({"first": "bob"}));
    apply(&client, RULES, &rules(&[("first", "v2", "name")])).expect(201);
    for field in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        fields.push(field);
        apply(
            &client,
            DEFINITIONS,
            &definition(&[("v1", &["first"]), ("v2", &fields)]),
        )
        .expect(200);
        let change = json!({"spec": {field: "x"}});
        let changed = client.merge(&format!("{}/a", pets("v2")), &change).expect(200);
        assert_eq!(changed["spec"][field], "x", "{changed}");
    }
    assert_eq!(spec(&client, "v1"), json!({"first": "bob"}));
}

#[test]
fn rules_are_not_weakened_below_what_objects_show() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "weakened").0);
    apply(
        &client,
        DEFINITIONS,
        &definition(&[("v1", &["first"]), ("v2", &["name"])]),
    )
    .expect(201);
    create(&client, &json!({"first": "bob"}));
    let whole = rules(&[("first", "v2", "name")]);
    apply(&client, RULES, &whole).expect(201);
    let empty = json!({"metadata": {"name": NAME}, "spec": {"conversions": [{"from": "v1", "to": "v2", "rules": []}]}});
    let none = json!({"metadata": {"name": NAME}, "spec": {"conversions": []}});
    let mut half = whole.clone();
    half["spec"]["conversions"].as_array_mut().unwrap().remove(0);
    let path = format!("{RULES}/{NAME}");
    for weaker in [&empty, &none, &half] {
        let refused = client.merge(&path, weaker);
        let why = "1 object in 1 workspace";
        assert!(
            refused.code == 403 && refused.text.contains(why) && refused.text.contains(".spec.name"),
            "{refused:?}"
        );
    }
    assert_eq!(client.delete(&path).code, 403);
    assert_eq!(spec(&client, "v2"), json!({"name": "bob"}));
    // Somebody's word covers as many objects as it says.
    let mut accepted = empty;
    accepted["metadata"]["annotations"] = json!({"insula.io/accepted-effects": "value-hidden=1"});
    client.merge(&path, &accepted).expect(200);
    assert_eq!(spec(&client, "v2"), json!({}));
    assert_eq!(spec(&client, "v1"), json!({"first": "bob"}));
}
