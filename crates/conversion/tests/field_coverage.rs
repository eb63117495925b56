//! Field coverage of the samples' rules.

use crate::support::{bundle, yaml};
use expect_test::{Expect, expect};
use insula_conversion::field_coverage;
use std::fmt::Write;

fn table(text: &str) -> String {
    let bundle = bundle(&yaml(text)).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let mut out = String::new();
    for direction in field_coverage(&bundle) {
        writeln!(out, "{} → {}", direction.from, direction.to).unwrap();
        for field in &direction.fields {
            writeln!(out, "  {} {}", field.path, field.outcome).unwrap();
        }
        for made in &direction.made {
            let by = made.by.rule().map(|rule| format!(" by {rule}")).unwrap_or_default();
            writeln!(out, "  {} is a {}{by}", made.path, made.by.word()).unwrap();
        }
    }
    out
}

fn check(text: &str, want: Expect) {
    want.assert_eq(&table(text));
}

#[test]
fn fields_are_moved_carried_computed_kept_and_dropped() {
    check(
        "versions:
  v1: {spec: {first: string, size: string, label: string, hint: string, names: [string]}}
  v2: {spec: {name: {first: string}, liters: integer, label: string, scratch: string, name1: string}}
rules:
  conversions:
  - from: v1
    to: v2
    rules:
    - {field: .spec.first, destination: .spec.name.first}
    - {field: .spec.size, destination: .spec.liters, transformation: int(self), mayFail: true}
    - {field: '.spec.names[0]', destination: .spec.name1}
  - from: v2
    to: v1
    rules:
    - {field: .spec.name.first, destination: .spec.first}
    - {from: string(v2.spec.liters), to: spec.size}
    - {field: .spec.name1, destination: '.spec.names[0]'}
    drop: [.spec.scratch]
",
        expect![[r#"
            v1 → v2
              .spec.first moved to .spec.name.first
              .spec.hint preserved
              .spec.label carried
              .spec.names preserved
              .spec.size computed into .spec.liters by conversions[0].rules[1]
              .spec.names[0] moved to .spec.name1
            v2 → v1
              .spec.label carried
              .spec.liters computed into .spec.size by conversions[1].rules[1]
              .spec.name.first moved to .spec.first
              .spec.name1 moved to .spec.names[0]
              .spec.scratch dropped
        "#]],
    );
}

#[test]
fn fields_of_items_have_fates_of_their_own() {
    check(
        "versions:
  v1: {spec: {colors: [{name: string, hue: string, odd: string}], m: {'*': {feeling: string}}, day: string}}
  v2: {spec: {nested: {colors: [{realName: string, hue: string}]}, l: [{name: string, feeling: string, day: string}]}}
rules:
  conversions:
  - from: v1
    to: v2
    rules:
    - {field: spec.colors, destination: spec.nested.colors, itemRules: [{from: self.name, to: item.realName}]}
    - {field: 'spec.m[key]', destination: 'spec.l[]',
          transformation: {name: key, feeling: self.feeling, day: v1.spec.day}}
    - {field: \"metadata.annotations['a.b/c']\", destination: \"metadata.labels['d']\"}
  - from: v2
    to: v1
    rules:
    - {field: spec.nested.colors, destination: spec.colors, itemRules: [{from: self.realName, to: item.name}]}
    - {field: 'spec.l[i]', destination: 'spec.m[self.name]', transformation: {feeling: self.feeling}, mayFail: true}
",
        expect![[r#"
            v1 → v2
              .spec.colors[].hue moved to .spec.nested.colors[].hue
              .spec.colors[].name moved to .spec.nested.colors[].realName
              .spec.colors[].odd preserved
              .spec.day computed into .spec.l[].day by conversions[0].rules[1]
              .spec.m[].feeling computed into .spec.l[].feeling by conversions[0].rules[1]
              .metadata.annotations['a.b/c'] moved to .metadata.labels.d
            v2 → v1
              .spec.l[].day preserved
              .spec.l[].feeling computed into .spec.m[].feeling by conversions[1].rules[1]
              .spec.l[].name computed into .spec.m[] by conversions[1].rules[1]
              .spec.nested.colors[].hue moved to .spec.colors[].hue
              .spec.nested.colors[].realName moved to .spec.colors[].name
        "#]],
    );
}

#[test]
fn what_rules_move_to_its_own_path_is_carried() {
    check(
        "versions:
  v1: {spec: {l: [{a: string, b: string}]}}
  v2: {spec: {l: [{a: string, c: string}]}}
rules:
  conversions:
  - {from: v1, to: v2, rules: [{from: v1.spec.l, to: spec.l, itemRules: [{from: self.a, to: item.a},
        {from: self.b, to: item.c}]}]}
",
        expect![[r#"
            v1 → v2
              .spec.l[].a carried
              .spec.l[].b moved to .spec.l[].c
            v2 → v1
              .spec.l[].a carried
              .spec.l[].c preserved
        "#]],
    );
}

#[test]
fn versions_of_one_shape_carry_everything() {
    check(
        "versions:
  v1: {spec: {a: string, l: [{b: string}]}, status: {c: integer}}
  v2: {spec: {a: string, l: [{b: string}]}, status: {c: integer}}
",
        expect![[r#"
            v1 → v2
              .spec.a carried
              .spec.l[].b carried
              .status.c carried
            v2 → v1
              .spec.a carried
              .spec.l[].b carried
              .status.c carried
        "#]],
    );
}

#[test]
fn constants_and_defaults_come_of_no_field() {
    check(
        "versions:
  v1: {spec: {l: [{a: string}], same: {$: {type: string, default: x}}, old: string, other: string}}
  v2: {spec: {l: [{a: string, kind: string, on: {$: {type: boolean, default: true}}}], same: {$: {type: string,
      default: y}}, mode: string,
    new: {$: {type: string, default: n}}, left: {$: {type: integer, default: 3}}, pair: {x: string, y: string}}}
rules:
  conversions:
  - from: v1
    to: v2
    rules:
    - {from: \"'Fast'\", to: spec.mode, onlyIfAbsent: true}
    - {field: spec.old, destination: spec.new}
    - {field: spec.other, destination: spec.pair, transformation: {x: \"'one'\", y: self}}
    - {from: v1.spec.l, to: spec.l, itemRules: [{from: \"'plain'\", to: item.kind}]}
",
        expect![[r#"
            v1 → v2
              .spec.l[].a carried
              .spec.old moved to .spec.new
              .spec.other computed into .spec.pair.y by conversions[0].rules[2]
              .spec.same carried
              .spec.pair.x is a constant by conversions[0].rules[2]
              .spec.l[].kind is a constant by conversions[0].rules[3].itemRules[0]
              .spec.mode is a constant by conversions[0].rules[0]
              .spec.l[].on is a default
              .spec.left is a default
            v2 → v1
              .spec.l[].a carried
              .spec.l[].kind preserved
              .spec.l[].on preserved
              .spec.left preserved
              .spec.mode preserved
              .spec.new preserved
              .spec.pair.x preserved
              .spec.pair.y preserved
              .spec.same carried
        "#]],
    );
}
