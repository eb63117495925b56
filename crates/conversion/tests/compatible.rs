//! Versions without rules: which fields break between them.

use crate::support::{bundle, yaml};

fn breaks(versions: &str) -> Vec<String> {
    let bundle = bundle(&yaml(&format!("versions:\n{versions}"))).unwrap_or_else(|errors| panic!("{errors:#?}"));
    bundle.breaks().iter().map(ToString::to_string).collect()
}

#[test]
fn versions_that_only_add_fields_are_compatible() {
    let more = "  v1: {spec: {a: string}}\n  v2: {spec: {a: string, b: string, list: [{c: integer}]}}";
    assert!(breaks(more).is_empty(), "{:?}", breaks(more));
    let less = "  v1: {spec: {a: string, b: string}}\n  v2: {spec: {a: string}}";
    assert!(breaks(less).is_empty(), "{:?}", breaks(less));
    let bounds = "  v1: {spec: {a: string}}\n  v2: {spec: {a: {$: {type: string, maxLength: 3}}}}";
    assert!(breaks(bounds).is_empty(), "{:?}", breaks(bounds));
}

#[test]
fn renamed_fields_other_types_and_required_fields_break() {
    let versions = "  v1: {spec: {firstName: string, size: string, list: [{a: string}], tags: {'*': string}}}
  v2: {spec: {name: {first: string}, size: integer, 'mode!': string, list: [{a: integer}], tags: [string]}}";
    assert_eq!(
        breaks(versions),
        [
            ".spec.firstName: in v1, and not in v2",
            ".spec.list[].a: a string in v1, an integer in v2",
            ".spec.mode: required by v2, and not in v1",
            ".spec.name: in v2, and not in v1",
            ".spec.size: a string in v1, an integer in v2",
            ".spec.tags: an object in v1, a list in v2",
        ]
    );
}

#[test]
fn rules_decide_about_every_field() {
    let versions = "  v1: {spec: {a: string}}\n  v2: {spec: {b: string}}";
    assert_eq!(breaks(versions).len(), 2);
    let rules = "\nrules:\n  conversions:\n  - {from: v1, to: v2, rules: [{field: spec.a, destination: spec.b}]}";
    assert!(breaks(&format!("{versions}{rules}")).is_empty());
}

#[test]
fn an_empty_list_of_rules_decides_nothing_and_others_stay_undecided() {
    let versions = "  v1: {spec: {a: string}}\n  v2: {spec: {b: string}}";
    let rules = "\nrules:\n  conversions:\n  - {from: v1, to: v2, rules: []}\n  - {from: v2, to: v1, rules: []}";
    assert_eq!(breaks(&format!("{versions}{rules}")).len(), 2);
    let dropped = "\nrules:\n  conversions:\n  - {from: v1, to: v2, rules: [], drop: [.spec.a]}";
    assert!(breaks(&format!("{versions}{dropped}")).is_empty());
    let three = format!("{versions}\n  v3: {{spec: {{c: string}}}}");
    let rules = "\nrules:\n  conversions:\n  - {from: v1, to: v2, rules: [{field: spec.a, destination: spec.b}]}\n  \
                 - {from: v1, to: v3, rules: []}";
    assert_eq!(
        breaks(&format!("{three}{rules}")),
        [".spec.a: in v1, and not in v3", ".spec.c: in v3, and not in v1"]
    );
}

#[test]
fn versions_with_the_same_difference_are_named_together() {
    let versions = "  v1: {spec: {a: string}}\n  v2: {spec: {b: string}}\n  v3: {spec: {b: string}}";
    assert_eq!(
        breaks(versions),
        [".spec.a: in v1, and not in v2, v3", ".spec.b: in v2, v3, and not in v1"]
    );
}
