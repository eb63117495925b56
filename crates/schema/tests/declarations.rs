//! Tables of schemas and the declarations of their values.

use insula_cel::{Decl, Shape};
use insula_schema::Structural;
use serde_json::json;

/// Renders a declaration as one line: type, most elements and fewest bytes; fields by their names
/// in expressions.
fn show(decl: &Decl) -> String {
    let bounds = format!("<{}>{}", decl.max_elements().unwrap(), decl.min_bytes());
    match decl.shape() {
        Shape::Scalar(ty) => format!("{ty}{bounds}"),
        Shape::List { items, kind } => format!("list({}){bounds} {kind:?}", show(items)),
        Shape::Map { values } => format!("map({}){bounds}", show(values)),
        Shape::Object { fields, .. } => {
            let fields: Vec<String> = fields
                .iter()
                .map(|f| format!("{}: {}", f.written, show(&f.decl)))
                .collect();
            format!("{{{}}}{bounds}", fields.join(", "))
        }
    }
}

/// Checks the declaration of each schema, as a root and as a field.
fn check(cases: &[(serde_json::Value, &str)]) {
    for (schema, want) in cases {
        let root = json!({"type": "object", "properties": {"x": schema}});
        let compiled = Structural::parse_trusted(&root).unwrap();
        let declared = compiled.root().property("x").unwrap().declaration("self");
        let got = declared.as_ref().map_or("nothing".to_owned(), show);
        assert_eq!(got, *want, "{schema}");
        let below = compiled.declaration().field("x").map(|f| show(&f.decl));
        assert_eq!(below.unwrap_or("nothing".to_owned()), *want, "{schema}, from the root");
    }
}

#[test]
fn scalars_have_types_and_bounds() {
    check(&[
        (json!({"type": "integer"}), "int<0>1"),
        (json!({"type": "number"}), "double<0>1"),
        (json!({"type": "boolean"}), "bool<0>4"),
        (json!({"type": "string"}), "string<3145726>2"),
        (json!({"type": "string", "maxLength": 5}), "string<20>2"),
        (json!({"type": "string", "enum": ["red", "green"]}), "string<5>2"),
        (
            json!({"type": "string", "enum": ["red", "green"], "maxLength": 1}),
            "string<4>2",
        ),
        (json!({"type": "string", "format": "byte"}), "bytes<3145726>2"),
        (json!({"type": "string", "format": "byte", "maxLength": 5}), "bytes<5>2"),
        (json!({"type": "string", "format": "date"}), "timestamp<12>12"),
        (json!({"type": "string", "format": "date-time"}), "timestamp<32>21"),
        (json!({"type": "string", "format": "duration"}), "duration<32>3"),
        (json!({"type": "string", "format": "ipv4"}), "string<3145726>2"),
        (json!({"x-kubernetes-int-or-string": true}), "dyn<3145726>1"),
        (json!({"x-kubernetes-int-or-string": true, "maxLength": 3}), "dyn<12>1"),
    ]);
}

#[test]
fn lists_and_maps_have_types_and_bounds() {
    check(&[
        (
            json!({"type": "array", "items": {"type": "integer"}}),
            "list(int<0>1)<1572863>2 Atomic",
        ),
        (
            json!({"type": "array", "maxItems": 3, "x-kubernetes-list-type": "set", "items": {"type": "boolean"}}),
            "list(bool<0>4)<3>2 Set",
        ),
        (
            json!({"type": "array", "maxItems": 3, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                   "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "integer"}}}}),
            r#"list({k: int<0>1}<0>8)<3>2 Map(["k"])"#,
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            "map(string<3145726>2)<393215>2",
        ),
        (
            json!({"type": "object", "maxProperties": 7, "additionalProperties": {"type": "integer"}}),
            "map(int<0>1)<7>2",
        ),
        (
            json!({"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": true}}),
            "nothing",
        ),
        (
            json!({"type": "object", "additionalProperties": {"x-kubernetes-preserve-unknown-fields": true}}),
            "nothing",
        ),
    ]);
}

#[test]
fn objects_have_types_and_bounds() {
    check(&[
        (json!({"type": "object", "additionalProperties": true}), "{}<0>2"),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            "{}<0>2",
        ),
        // 2 + (1 + 1 + 4) + (2 + 2 + 4). Fields with a default or without a type do not count.
        (
            json!({"type": "object", "required": ["a", "bb", "c", "d"], "properties": {
                "a": {"type": "integer"}, "bb": {"type": "string", "maxLength": 1},
                "c": {"type": "integer", "default": 1}, "d": {"x-kubernetes-preserve-unknown-fields": true}}}),
            "{a: int<0>1, bb: string<4>2, c: int<0>1}<0>16",
        ),
        (
            json!({"type": "object", "properties": {"a-b": {"type": "integer"}, "in": {"type": "integer"},
                "x__y": {"type": "integer"}, "a/b.c": {"type": "integer"}, "1st": {"type": "integer"},
                "ü": {"type": "integer"}}}),
            "{a__dash__b: int<0>1, a__slash__b__dot__c: int<0>1, __in__: int<0>1, x__underscores__y: int<0>1}<0>2",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true,
                   "properties": {"metadata": {"type": "object"}, "spec": {"type": "object"}}}),
            "{apiVersion: string<3145726>2, kind: string<3145726>2, metadata: {generateName: string<3145726>2, \
             name: string<3145726>2}<0>2, spec: {}<0>2}<0>2",
        ),
    ]);
}

#[test]
fn roots_have_type_and_name() {
    let compiled =
        Structural::parse_trusted(&json!({"type": "object", "properties": {"spec": {"type": "object"}}})).unwrap();
    let got = show(compiled.declaration());
    let want = "{apiVersion: string<3145726>2, kind: string<3145726>2, metadata: {generateName: string<3145726>2, \
                name: string<3145726>2}<0>2, spec: {}<0>2}<0>2";
    assert_eq!(got, want);
    let text = json!({"type": "string"});
    let own = json!({"type": "object", "properties": {"kind": text, "apiVersion": text, "metadata": {"type": "object",
        "properties": {"name": {"type": "string", "maxLength": 3}, "generateName": text}}}});
    let compiled = Structural::parse_trusted(&own).unwrap();
    let name = compiled
        .declaration()
        .field("metadata")
        .unwrap()
        .decl
        .field("name")
        .unwrap()
        .decl
        .clone();
    assert_eq!(name.max_elements(), Some(12), "a schema's own metadata is kept");
}

#[test]
fn types_of_different_places_differ() {
    let object = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let root =
        json!({"type": "object", "properties": {"a": object, "b": object, "l": {"type": "array", "items": object}}});
    let compiled = Structural::parse_trusted(&root).unwrap();
    let a = compiled.declaration().field("a").unwrap().decl.ty();
    assert_ne!(a, compiled.declaration().field("b").unwrap().decl.ty());
    assert_eq!(a.to_string(), "object.a");
    assert_eq!(
        compiled.declaration().field("l").unwrap().decl.ty().to_string(),
        "list(object.l.@idx)"
    );
}
