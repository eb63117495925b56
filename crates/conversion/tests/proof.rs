//! Search for counterexamples: rule sets that hold, and the findings for those that do not.

use crate::support::{bundle, yaml};
use insula_conversion::proof::{Search, prove, search};
use insula_meter::Meter;

fn found(text: &str) -> String {
    let doc = yaml(text);
    let bundle = bundle(&doc).unwrap_or_else(|e| panic!("{e:#?}"));
    match search(&bundle, Search::default()) {
        Ok(searched) => {
            assert!(searched.writes > 300, "{searched:?}");
            String::new()
        }
        Err(example) => example.to_string(),
    }
}

const HOLD: &[(&str, &str)] = &[
    (
        "renames and moves",
        r"
versions:
  v1: {spec: {firstName: string, lastName: string, old: string}}
  v2: {spec: {name: {first: string, last: string, middle: string}, new: {hello: string}}}
rules:
  conversions:
  - {from: v1, to: v2, rules: [{field: spec.firstName, destination: spec.name.first},
        {field: spec.lastName, destination: spec.name.last}]}
  - {from: v2, to: v1, rules: [{field: spec.name.first, destination: spec.firstName},
        {field: spec.name.last, destination: spec.lastName}]}
",
    ),
    (
        "a number as text, bounded by a pattern",
        r"
versions:
  v1: {spec: {size: integer}}
  v2: {spec: {size: {$: {type: string, pattern: '^-?[0-9]{1,9}$'}}}}
rules:
  conversions:
  - {from: v1, to: v2, rules: [{from: string(v1.spec.size % 1000), to: spec.size}]}
  - {from: v2, to: v1, rules: [{from: int(v2.spec.size), to: spec.size}]}
",
    ),
    (
        "an author who allows that it fails",
        r"
versions:
  v1: {spec: {size: integer}}
  v2: {spec: {size: string}}
rules:
  conversions:
  - {from: v1, to: v2, rules: [{from: string(v1.spec.size), to: spec.size}]}
  - {from: v2, to: v1, rules: [{from: int(v2.spec.size), to: spec.size, mayFail: true}]}
",
    ),
    (
        "keyed lists, maps, drops, defaults",
        r"
versions:
  v1: {spec: {'ports[name]': [{name!: string, port: integer, note: string}], labels: {'*': string},
      mode: {$: {type: string, default: a}}, gone: string}}
  v2: {spec: {'ports[name]': [{name!: string, number: integer}], tags: {'*': string}}}
rules:
  conversions:
  - from: v1
    to: v2
    drop: [spec.gone]
    rules:
    - {from: v1.spec.ports, to: spec.ports, itemRules: [{from: self.port, to: item.number}]}
    - {field: spec.labels, destination: spec.tags}
  - from: v2
    to: v1
    rules:
    - {from: v2.spec.ports, to: spec.ports, itemRules: [{from: self.number, to: item.port}]}
    - {field: spec.tags, destination: spec.labels}
",
    ),
];

#[test]
fn rules_that_hold_are_let_through() {
    for (name, text) in HOLD {
        assert_eq!(found(text), "", "{name}");
    }
}

/// Rules that break, and parts of the expected message.
const BREAK: &[(&str, &str, &[&str])] = &[
    (
        "text that is no number",
        r"
versions:
  v1: {spec: {size: integer}}
  v2: {spec: {size: string, other: [string]}}
rules:
  conversions:
  - {from: v1, to: v2, rules: [{from: string(v1.spec.size), to: spec.size}]}
  - {from: v2, to: v1, rules: [{from: int(v2.spec.size), to: spec.size}]}
",
        &[
            "conversions[1].rules[0]",
            concat!(
                r#"shown by {"apiVersion":"example.io/v2","kind":"Kind","metadata":{"name":"a"},"#,
                r#""spec":{"size":""}} written as v2 (seed"#
            ),
            "mayFail: true",
        ],
    ),
    (
        "an element that is not always there",
        r#"
versions:
  v1: {spec: {first: string}}
  v2: {spec: {names: string}}
rules:
  conversions:
  - {from: v2, to: v1, rules: [{from: 'v2.spec.names.split("-")[1]', to: spec.first}]}
"#,
        &[
            "conversions[0].rules[0]",
            concat!(
                r#"shown by {"apiVersion":"example.io/v2","kind":"Kind","metadata":{"name":"a"},"#,
                r#""spec":{"names":""}} written as v2"#
            ),
        ],
    ),
];

#[test]
fn what_does_not_hold_is_shown_by_the_smallest_object() {
    for (name, text, wanted) in BREAK {
        let message = found(text);
        for part in *wanted {
            assert!(message.contains(part), "{name}: {part:?} is not in {message:?}");
        }
    }
}

#[test]
fn the_same_seed_finds_the_same() {
    let (_, text, _) = BREAK[0];
    assert_eq!(found(text), found(text));
}

/// Every version is written as often as one of two, whatever their number, so that each pair is
/// searched as in an API of these two.
#[test]
fn more_versions_leave_no_less_for_each_pair() {
    for versions in 2..=6_u32 {
        let one = |version| format!("  v{version}: {{spec: {{f: string, g: integer}}}}\n");
        let text: String = (1..=versions).map(one).collect();
        let bundle = bundle(&yaml(&format!("versions:\n{text}"))).unwrap();
        let searched = prove(&bundle, Search::default(), &Meter::unbounded()).unwrap();
        assert_eq!(searched.cases, 150 * versions, "{versions}: {searched:?}");
        assert!(
            !searched.stopped && searched.writes > 300 * u64::from(versions),
            "{searched:?}"
        );
    }
}
