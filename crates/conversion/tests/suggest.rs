//! Rules guessed from two schemas: what is found, and that it compiles.
#![allow(clippy::unwrap_used)]

mod support;

use insula_api::FieldPath;
use insula_conversion::{Bundle, Strategy, VersionSchema, parse_rules, suggest};
use insula_schema::Structural;
use serde_json::Value as Json;
use std::sync::Arc;
use support::{schema, yaml};

/// `old → new` of every pair, with the steps; then what is left.
fn check(old: &str, new: &str, want: &[&str]) {
    let parse = |short: &str| Arc::new(Structural::parse_trusted(&schema(&yaml(short))).unwrap());
    let (v1, v2) = (parse(old), parse(new));
    let found = suggest(&v1, &v2);
    let mut lines: Vec<String> = found
        .pairs
        .iter()
        .map(|pair| {
            let step = pair.forth.as_ref().map(|step| format!(" by {}", step.transformation));
            assert!(
                (0.5..1.0).contains(&pair.confidence) || pair.confidence >= 0.4,
                "{pair:?}"
            );
            format!("{} → {}{}", pair.old, pair.new, step.unwrap_or_default())
        })
        .collect();
    lines.extend(found.only_old.iter().map(|path| format!("{path} only in v1")));
    lines.extend(found.only_new.iter().map(|path| format!("{path} only in v2")));
    lines.sort();
    assert_eq!(lines, want, "{found:#?}");
    let rules = found.rules("v1", "v2");
    let path = FieldPath::new("spec");
    let parsed = parse_rules(&rules, &path).unwrap_or_else(|errors| panic!("{errors:#?}\n{rules}"));
    let version = |name: &str, schema| VersionSchema {
        name: name.to_owned(),
        served: true,
        schema,
    };
    let versions = vec![version("v1", v1), version("v2", v2)];
    Bundle::compile("example.io", versions, "v1", Some(&parsed), Strategy::Lossless, &path)
        .unwrap_or_else(|errors| panic!("{errors:#?}\n{rules}"));
}

#[test]
fn renames_moves_and_types_are_found() {
    check(
        "{spec: {firstName: string, lastName: string, size: string, label: string, hint: string, crew: string, tlsEnabled: boolean}}",
        "{spec: {name: {first: string, last: string}, resources: {size: integer}, label: string, mood: number, crews: [string], tls: {disabled: boolean}}}",
        &[
            ".spec.crew → .spec.crews[0]",
            ".spec.firstName → .spec.name.first",
            ".spec.hint only in v1",
            ".spec.lastName → .spec.name.last",
            ".spec.mood only in v2",
            ".spec.size → .spec.resources.size by int(self)",
            ".spec.tlsEnabled → .spec.tls.disabled by !self",
        ],
    );
}

#[test]
fn whole_objects_and_lists_move() {
    check(
        "{spec: {limits: {cpu: string, memory: string}, colors: [{name: string, hue: string}], tags: {'*': string}}}",
        "{spec: {resources: {limits: {cpu: string, memory: string}}, paint: {colors: [{name: string, hue: string}]}, tagMap: {'*': string}}}",
        &[
            ".spec.colors → .spec.paint.colors",
            ".spec.limits → .spec.resources.limits",
            ".spec.tags → .spec.tagMap",
        ],
    );
}

#[test]
fn fields_of_items_are_renamed() {
    check(
        "{spec: {paints: [{name: string, hue: string}], ports: [{portName: string, number: integer}], nested: {rules: [{hosts: [{hostName: string, ttl: integer}], kind: string}]}}}",
        "{spec: {some: {awesomePaints: [{realName: string, realHue: string}]}, ports: [{name: string, number: integer}], rules: [{hosts: [{name: string, ttl: integer}], kind: string}]}}",
        &[
            ".spec.nested.rules[i].hosts[i2].hostName → .spec.rules[i].hosts[i2].name",
            ".spec.paints[i].hue → .spec.some.awesomePaints[i].realHue",
            ".spec.paints[i].name → .spec.some.awesomePaints[i].realName",
            ".spec.ports[i].portName → .spec.ports[i].name",
        ],
    );
}

#[test]
fn equal_descriptions_speak_for_a_pair() {
    let field = |name: &str, words: &str| -> Json {
        serde_json::json!({name: {"$": {"type": "string", "description": words}}})
    };
    let old = serde_json::json!({"spec": field("hint", "What the reader should feel.")}).to_string();
    let new = serde_json::json!({"spec": field("mood", "What the reader should feel.")}).to_string();
    check(&old, &new, &[".spec.hint → .spec.mood"]);
}
