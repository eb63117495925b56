//! Values that one version accepts and another one refuses: all kinds at once, each with its
//! smallest example.

use crate::support::{bundle, yaml};
use insula_conversion::Bundle;
use insula_conversion::proof::{Search, prove, search};
use insula_meter::Meter;

const RULES: &str = r"
versions:
  v1: {spec: {mode: string, name: string, ports: [{port: integer}]}}
  v2:
    spec:
      kindOf: {$: {type: string, enum: [Fast, Slow]}}
      name: {$: {type: string, maxLength: 3}}
      size!: integer
      ports: [{port: {$: {type: integer, maximum: 9}}}]
rules:
  conversions:
  - {from: v1, to: v2, rules: [{field: spec.mode, destination: spec.kindOf}]}
  - {from: v2, to: v1, rules: [{field: spec.kindOf, destination: spec.mode}]}
";

fn compiled(text: &str) -> Bundle {
    bundle(&yaml(text)).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

#[test]
fn every_kind_is_shown_once_by_its_smallest_object() {
    let searched = prove(&compiled(RULES), Search::default(), &Meter::unbounded()).unwrap();
    let shown: Vec<String> = searched.misfits.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            concat!(
                r#"v2 would refuse spec.size: Required value"#,
                r#"; shown by {"apiVersion":"example.io/v1","kind":"Kind","metadata":{"name":"a"},"#,
                r#""spec":{}} written as v1"#
            ),
            concat!(
                r#"v2 would refuse spec.kindOf: Unsupported value: "": supported values: "Fast", "Slow""#,
                r#"; shown by {"apiVersion":"example.io/v1","kind":"Kind","metadata":{"name":"a"},"#,
                r#""spec":{"mode":""}} written as v1"#
            ),
            concat!(
                r#"v2 would refuse spec.name: Too long: may not be more than 3 bytes"#,
                r#"; shown by {"apiVersion":"example.io/v1","kind":"Kind","metadata":{"name":"a"},"#,
                r#""spec":{"name":"1h30m"}} written as v1"#
            ),
            concat!(
                r#"v2 would refuse spec.ports[0].port: Invalid value: 443"#,
                r#": spec.ports[0].port in body should be less than or equal to 9"#,
                r#"; shown by {"apiVersion":"example.io/v1","kind":"Kind","metadata":{"name":"a"},"#,
                r#""spec":{"ports":[{"port":443}]}} written as v1"#
            ),
        ]
    );
    let moved = searched.misfits[1].rule.as_ref().unwrap();
    assert_eq!(
        (moved.0.as_str(), &*moved.1),
        ("spec.conversions[0].rules[0].destination", ".spec.kindOf")
    );
    assert!(searched.misfits[2].rule.is_none());
    let alone = search(
        &compiled(RULES),
        Search {
            seed: 7,
            ..Search::default()
        },
    )
    .unwrap();
    assert_eq!(alone.misfits.len(), 4, "another seed finds the same kinds");
}

#[test]
fn an_author_may_want_such_rules_refused() {
    let refuse = RULES.replace("rules:\n  conv", "rules:\n  validation: Refuse\n  conv");
    let missing = bundle(&yaml(&refuse)).unwrap_err();
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].contains("v2 requires .spec.size"), "{missing:?}");
    let bounds = refuse.replace("size!", "size");
    let errors = prove(&compiled(&bounds), Search::default(), &Meter::unbounded()).unwrap_err();
    let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.conversions[0].rules[0].destination",
            "spec.conversions",
            "spec.conversions"
        ]
    );
    assert!(errors[0].detail.contains("same bounds"), "{}", errors[0]);
}

#[test]
fn validation_has_two_values() {
    let wrong = RULES.replace("rules:\n  conv", "rules:\n  validation: Hide\n  conv");
    let errors = bundle(&yaml(&wrong)).unwrap_err();
    assert_eq!(
        errors,
        [r#"spec.validation: Unsupported value: "Hide": supported values: "Show", "Refuse""#]
    );
}

/// The writer's field for a field that another version refuses.
#[test]
fn an_error_names_the_field_that_the_writer_sent() {
    let bundle = compiled(
        r"
versions:
  v1: {spec: {mode: string, name: string, lines: [{no: integer}], first: string}}
  v2: {spec: {kindOf: string, name: string, ports: [{port: integer}], long: string, other: {size: integer}}}
  v3: {spec: {sort: string, name: string}}
rules:
  hub: v1
  conversions:
  - from: v1
    to: v2
    rules:
    - {field: spec.mode, destination: spec.kindOf}
    - {field: 'spec.lines[i].no', destination: 'spec.ports[].port'}
    - {from: v1.spec.first + '!', to: spec.long}
  - {from: v2, to: v1, rules: [{field: spec.kindOf, destination: spec.mode}]}
  - {from: v1, to: v3, rules: [{field: spec.mode, destination: spec.sort}]}
  - {from: v3, to: v1, rules: [{field: spec.sort, destination: spec.mode}]}
",
    );
    for (from, to, field, origin) in [
        ("v1", "v2", "spec.kindOf", "spec.mode"),
        ("v1", "v2", "spec.name", "spec.name"),
        ("v1", "v2", "spec.ports[2].port", "spec.lines[2].no"),
        ("v1", "v2", "spec.long", "spec.first"),
        ("v1", "v2", "spec.other.size", "spec"),
        ("v3", "v2", "spec.kindOf", "spec.sort"),
        ("v2", "v3", "spec.sort", "spec.kindOf"),
    ] {
        assert_eq!(bundle.origin(from, to, field), origin, "{from} {to} {field}");
    }
}
