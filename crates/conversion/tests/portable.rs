//! Objects that carry their residual: round trips, edits in between, and limits.

use crate::support::{object, schema, yaml};
use insula_api::FieldPath;
use insula_conversion::{Portable, RESIDUAL_ANNOTATION, VersionSchema, parse_rules, proof, unmetered_budget};
use insula_schema::Structural;
use serde_json::{Value as Json, json};
use std::sync::Arc;

fn portable(doc: &Json) -> Portable {
    let versions: Vec<VersionSchema> = doc["versions"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, short)| VersionSchema {
            name: name.clone(),
            served: true,
            schema: Arc::new(Structural::parse_trusted(&schema(short)).unwrap()),
        })
        .collect();
    let path = FieldPath::new("spec");
    let rules = doc.get("rules").map(|rules| parse_rules(rules, &path).unwrap());
    let storage = doc["storage"].as_str().unwrap_or("v1");
    Portable::compile("example.io", &versions, storage, rules.as_ref(), &path)
        .unwrap_or_else(|e| panic!("{e:#?}\n{doc}"))
}

fn names() -> Portable {
    portable(&yaml(
        "versions:
  v1: {spec: {firstName: string, hint: string, colors: [{name: string, hue: string}]}}
  v2: {spec: {name: {first: string}, mood: string, colors: [{name: string, shade: string}]}}
rules:
  conversions:
  - {from: v1, to: v2, rules: [{field: .spec.firstName, destination: .spec.name.first}]}
  - {from: v2, to: v1, rules: [{field: .spec.name.first, destination: .spec.firstName}]}
",
    ))
}

fn to(portable: &Portable, object: &Json, version: &str) -> Json {
    let converted = portable.convert(object, version, &mut unmetered_budget()).unwrap();
    assert!(!converted.broken);
    converted.object
}

fn carries(object: &Json) -> bool {
    object["metadata"]["annotations"].get(RESIDUAL_ANNOTATION).is_some()
}

#[test]
fn edits_in_between_meet_what_was_hidden() {
    let names = names();
    let spec = json!({"name": {"first": "Bob"}, "mood": "ok", "colors": [{"name": "red", "shade": "dark"}]});
    let x = object("v2", &json!({"spec": spec}));
    let mut seen = to(&names, &x, "v1");
    assert!(carries(&seen));
    assert_eq!(seen["spec"], json!({"firstName": "Bob", "colors": [{"name": "red"}]}));
    seen["spec"]["firstName"] = json!("Rob");
    seen["spec"]["hint"] = json!("only v1 knows");
    let back = to(&names, &seen, "v2");
    assert_eq!(
        back["spec"],
        json!({"name": {"first": "Rob"}, "mood": "ok", "colors": [{"name": "red", "shade": "dark"}]})
    );
    assert_eq!(to(&names, &back, "v1")["spec"], seen["spec"]);
}

#[test]
fn nothing_is_carried_where_nothing_is_hidden() {
    let names = names();
    let x = object(
        "v1",
        &json!({"spec": {"firstName": "Bob"}, "metadata": {"annotations": {"a": "b"}, "uid": "u"}}),
    );
    let seen = to(&names, &x, "v2");
    assert!(!carries(&seen), "{seen}");
    assert_eq!(seen["metadata"], x["metadata"]);
    assert_eq!(to(&names, &seen, "v1"), x);
    assert_eq!(to(&names, &x, "v1"), x);
}

#[test]
fn what_others_wrote_into_the_annotation_is_left_out() {
    let names = names();
    for other in [json!("{"), json!("{\"v2\": 5}"), json!(3)] {
        let annotations = json!({RESIDUAL_ANNOTATION: other});
        let x = object(
            "v1",
            &json!({"spec": {"firstName": "Bob"}, "metadata": {"annotations": annotations}}),
        );
        let converted = names.convert(&x, "v2", &mut unmetered_budget()).unwrap();
        assert!(converted.broken && !carries(&converted.object), "{x}");
        assert_eq!(converted.object["spec"], json!({"name": {"first": "Bob"}}));
    }
}

#[test]
fn more_than_annotations_hold_is_refused() {
    let names = names();
    let x = object("v2", &json!({"spec": {"mood": "x".repeat(300_000)}}));
    let error = names
        .convert(&x, "v1", &mut unmetered_budget())
        .unwrap_err()
        .to_string();
    assert!(error.contains("an object holds 262144"), "{error}");
    let error = names
        .convert(&x, "v9", &mut unmetered_budget())
        .unwrap_err()
        .to_string();
    assert!(error.contains("there is no version v9"), "{error}");
}

/// Round trips of every object of generated APIs through every other version.
#[test]
fn there_and_back_gives_the_same() {
    let mut trips = 0;
    for seed in 0..120 {
        let doc = crate::support::apis::generated_api(seed);
        let portable = portable(&doc);
        let names: Vec<&String> = doc["versions"].as_object().unwrap().keys().collect();
        for (i, from) in names.iter().enumerate() {
            let schema = Structural::parse_trusted(&schema(&doc["versions"][from])).unwrap();
            for x in proof::objects(
                &schema,
                (&format!("example.io/{from}"), "Kind"),
                seed * 64 + i as u64,
                6,
            ) {
                for via in &names {
                    let Ok(there) = portable.convert(&x, via, &mut unmetered_budget()) else {
                        continue;
                    };
                    let Ok(back) = portable.convert(&there.object, from, &mut unmetered_budget()) else {
                        panic!("world {seed}: {x} as {via} is {}, and does not come back", there.object)
                    };
                    trips += 1;
                    let drops = doc.to_string().contains("\"drop\"");
                    assert!(
                        drops || back.object == x,
                        "world {seed}, {from} by {via}\n{x}\n{}\n{}\n{doc}",
                        there.object,
                        back.object
                    );
                }
            }
        }
    }
    assert!(trips > 2_000, "{trips}");
}
