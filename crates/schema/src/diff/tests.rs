use super::*;
use crate::Structural;
use serde_json::json;

fn lines(old: Json, new: Json) -> Vec<String> {
    let parse = |fields: Json| {
        let schema = json!({"type": "object", "properties": {"f": fields}});
        Structural::parse_trusted(&schema).unwrap()
    };
    let changes = diff(parse(old).root(), parse(new).root());
    let line = |change: &Change| {
        let mark = if change.breaking { " !" } else { "" };
        format!("{} {} {}{mark}", change.path, change.kind, change.detail)
    };
    changes.iter().map(line).collect()
}

/// Checks the changes between two versions of a field.
fn check(rows: &[(Json, Json, Vec<&str>)]) {
    for (old, new, want) in rows {
        assert_eq!(lines(old.clone(), new.clone()), *want, "{old} {new}");
    }
}

#[test]
fn types_and_bounds_are_compared() {
    check(&[
        (
            json!({"type": "string"}),
            json!({"type": "string", "description": "x"}),
            vec![],
        ),
        (
            json!({"type": "string"}),
            json!({"type": "integer"}),
            vec![".f type string → integer !"],
        ),
        (
            json!({"type": "integer"}),
            json!({"type": "number"}),
            vec![".f type integer → number"],
        ),
        (
            json!({"type": "integer"}),
            json!({"x-kubernetes-int-or-string": true}),
            vec![".f type integer → int-or-string"],
        ),
        (
            json!({"type": "string", "maxLength": 63}),
            json!({"type": "string", "maxLength": 253}),
            vec![".f widened maxLength 63 → 253"],
        ),
        (
            json!({"type": "string"}),
            json!({"type": "string", "maxLength": 9}),
            vec![".f narrowed maxLength 9 added !"],
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!({"type": "string"}),
            vec![".f widened minLength 2 removed"],
        ),
        (
            json!({"type": "integer", "minimum": 0}),
            json!({"type": "integer", "minimum": 1, "maximum": 5}),
            vec![".f narrowed minimum 0 → 1 !", ".f narrowed maximum 5 added !"],
        ),
        (
            json!({"type": "integer", "maximum": 5, "exclusiveMaximum": true}),
            json!({"type": "integer", "maximum": 5}),
            vec![".f widened maximum 5 (excluded) → 5"],
        ),
    ]);
}

#[test]
fn other_keywords_are_compared() {
    check(&[
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!({"type": "string", "enum": ["b", "c"]}),
            vec![".f narrowed enum lost \"a\" !", ".f widened enum gained \"c\""],
        ),
        (
            json!({"type": "string", "default": "a"}),
            json!({"type": "string", "default": "b"}),
            vec![".f default default \"a\" → \"b\" !"],
        ),
        (
            json!({"type": "string"}),
            json!({"type": "string", "default": "b"}),
            vec![".f default default \"b\" added"],
        ),
        (
            json!({"type": "string", "nullable": true}),
            json!({"type": "string"}),
            vec![".f narrowed null is not accepted any more !"],
        ),
        (
            json!({"type": "string"}),
            json!({"type": "string", "x-kubernetes-validations": [{"rule": "self != ''"}]}),
            vec![".f narrowed rule added: self != '' !"],
        ),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object"}),
            vec![".f[] removed unknown fields are not kept any more !"],
        ),
    ]);
}

#[test]
fn formats_that_refuse_nothing_are_no_bounds() {
    let of = |kind: &str, format: &str| json!({"type": kind, "format": format});
    check(&[
        (
            of("integer", "int32"),
            of("integer", "int64"),
            vec![".f widened format int32 → int64"],
        ),
        (
            of("integer", "int64"),
            of("integer", "int32"),
            vec![".f narrowed format int64 → int32 !"],
        ),
        (
            of("number", "float"),
            of("number", "double"),
            vec![".f widened format float → double"],
        ),
        (
            json!({"type": "string"}),
            of("string", "colour"),
            vec![".f widened format colour added"],
        ),
        (
            json!({"type": "string"}),
            of("string", "date-time"),
            vec![".f narrowed format date-time added !"],
        ),
    ]);
}

#[test]
fn combinations_are_compared() {
    let least = |length: usize| json!({"minLength": length});
    let of = |name: &str, all: Json| json!({"type": "string", name: all});
    let none = || json!({"type": "string"});
    check(&[
        (none(), of("not", least(9)), vec![".f narrowed not added !"]),
        (
            of("not", least(9)),
            of("not", least(8)),
            vec![".f narrowed not changed !"],
        ),
        (of("oneOf", json!([least(1)])), none(), vec![".f widened oneOf removed"]),
        (
            of("oneOf", json!([least(1)])),
            of("oneOf", json!([least(1), least(2)])),
            vec![".f narrowed oneOf changed !"],
        ),
        (
            of("anyOf", json!([least(1)])),
            of("anyOf", json!([least(2), least(1)])),
            vec![".f widened anyOf changed"],
        ),
        (
            of("anyOf", json!([least(1), least(2)])),
            of("anyOf", json!([least(2)])),
            vec![".f narrowed anyOf changed !"],
        ),
        (
            of("allOf", json!([least(1), least(2)])),
            of("allOf", json!([least(2)])),
            vec![".f widened allOf changed"],
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            vec![],
        ),
        (
            none(),
            of("allOf", json!([least(1)])),
            vec![".f narrowed allOf added !"],
        ),
        (
            of("allOf", json!([least(1), least(2)])),
            of("allOf", json!([least(2), least(1)])),
            vec![],
        ),
    ]);
}

#[test]
fn branches_are_compared_by_all_that_they_refuse() {
    let object = |any_of: Json| json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": any_of});
    let either = |mut branches: Json| {
        branches["x-kubernetes-int-or-string"] = json!(true);
        branches
    };
    let spelled = || json!([{"type": "integer"}, {"type": "string"}]);
    check(&[
        (
            object(json!([{"required": ["a"]}, {"required": ["b"]}])),
            object(json!([{"required": ["a", "c"]}, {"required": ["b"]}])),
            vec![".f narrowed anyOf changed !"],
        ),
        (
            either(json!({"anyOf": spelled()})),
            either(json!({"anyOf": [{"pattern": "%$"}, {"minimum": 1}]})),
            vec![".f narrowed anyOf added !"],
        ),
        (
            either(json!({})),
            either(json!({"allOf": [{"anyOf": spelled()}]})),
            vec![],
        ),
        (
            either(json!({"allOf": [{"anyOf": spelled()}]})),
            either(json!({"allOf": [{"anyOf": spelled()}, {"maximum": 9}]})),
            vec![".f narrowed allOf added !"],
        ),
    ]);
}

/// A comparison of each branch with each one would take twice as long for each level.
#[test]
fn deep_branches_are_compared_once() {
    let deep = |length: usize| {
        let bottom = json!({"minLength": length});
        let not = (0..60).fold(bottom, |inner, _| json!({"not": inner}));
        json!({"type": "string", "not": not})
    };
    assert_eq!(lines(deep(1), deep(1)), [""; 0]);
    assert_eq!(lines(deep(1), deep(2)), [".f narrowed not changed !"]);
}

#[test]
fn fields_come_go_and_become_required() {
    let text = json!({"type": "string"});
    let object = |fields: Json, required: Json| json!({"type": "object", "properties": fields, "required": required});
    let old = object(json!({"a": text, "b": text, "c": text}), json!(["b"]));
    let new = object(
        json!({"b": text, "c": {"type": "string", "default": "x"}, "d": text, "a.b": {"type": "array", "items": text}}),
        json!(["c", "d"]),
    );
    let want = [
        ".f.a removed string !",
        ".f['a.b'] added list",
        ".f.b optional required → optional",
        ".f.c required optional → required, with a default",
        ".f.c default default \"x\" added",
        ".f.d added string, required !",
    ];
    assert_eq!(lines(old, new), want);
}

#[test]
fn items_and_their_identity_are_compared() {
    let list = |item: Json, kind: &str| {
        json!({"type": "array", "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}, "x": item}}})
    };
    let got = lines(
        list(json!({"type": "string"}), "atomic"),
        list(json!({"type": "boolean"}), "map"),
    );
    assert_eq!(
        got,
        [
            ".f identity list is atomic → map by n: server-side apply takes away no item that was there before !",
            ".f[].x type string → boolean !"
        ]
    );
}

/// Clients that apply a part of a list or map take the rest away once it is one value.
#[test]
fn what_becomes_one_value_breaks() {
    let list = |kind: &str| {
        json!({"type": "array", "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}}})
    };
    let got = lines(list("map"), list("atomic"));
    let whole = "server-side apply writes it as a whole, also what others applied";
    assert_eq!(got, [format!(".f identity list is map by n → atomic: {whole} !")]);
    let map = |kind: &str| {
        let text = json!({"type": "string"});
        json!({"type": "object", "x-kubernetes-map-type": kind, "additionalProperties": text})
    };
    assert_eq!(
        lines(map("granular"), map("atomic")),
        [format!(".f identity map is granular → atomic: {whole} !")]
    );
    assert_eq!(
        lines(map("atomic"), map("granular")),
        [".f identity map is atomic → granular"]
    );
}
