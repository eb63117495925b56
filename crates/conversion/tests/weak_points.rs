//! The fourteen weak points of kcp's first conversion engine (2022–2023), each shown to be fixed as
//! far as a library can show it.

use crate::support::{bundle, bundle_of, object, yaml};
use insula_api::FieldPath;
use insula_conversion::{Budget, Bundle, ToStore, parse_rules, rules_in_schema, unmetered_budget};
use insula_meter::Meter;
use serde_json::{Value as Json, json};
use std::sync::Arc;

fn write(bundle: &Bundle, version: &str, part: Json, old: Option<&ToStore>) -> ToStore {
    let old = old.map(|o| o.stored(bundle.storage()));
    bundle
        .put(&object(version, &part), version, old, &mut unmetered_budget())
        .unwrap()
}

fn read(bundle: &Bundle, stored: &ToStore, version: &str) -> Json {
    bundle
        .get(stored.stored(bundle.storage()), version, &mut unmetered_budget())
        .unwrap()
}

const NAMES: &str = r"
versions:
  v1: {spec: {first: string, last: string}}
  v2: {spec: {name: {first: string, last: string}, more: string}}
  v3: {spec: {given: string, family: string}}
rules:
  conversions:
  - {from: v1, to: v2, rules: [{field: spec.first, destination: spec.name.first}, {field: spec.last,
        destination: spec.name.last}]}
  - {from: v1, to: v3, rules: [{field: spec.first, destination: spec.given}, {field: spec.last,
        destination: spec.family}]}
  - {from: v2, to: v1, rules: [{field: spec.name.first, destination: spec.first},
        {field: spec.name.last, destination: spec.last}]}
  - {from: v3, to: v1, rules: [{field: spec.given, destination: spec.first}, {field: spec.family,
        destination: spec.last}]}
";

/// kcp stored rules by `from` only: the second rule set from v1 replaced the first one.
#[test]
fn weak_point_01_rules_keyed_by_from_only() {
    let bundle = bundle_of(NAMES);
    let stored = write(&bundle, "v1", json!({"spec": {"first": "Bob"}}), None);
    assert_eq!(read(&bundle, &stored, "v2")["spec"], json!({"name": {"first": "Bob"}}));
    assert_eq!(read(&bundle, &stored, "v3")["spec"], json!({"given": "Bob"}));
}

/// kcp had no hub: n versions needed n² rule sets.
#[test]
fn weak_point_02_no_hub() {
    let bundle = bundle_of(NAMES);
    let stored = write(&bundle, "v3", json!({"spec": {"given": "Bob"}}), None);
    assert_eq!(
        read(&bundle, &stored, "v2")["spec"],
        json!({"name": {"first": "Bob"}}),
        "v3 to v2 by v1"
    );
}

/// kcp did not check destinations: a rule to a missing field failed at run time, or never.
#[test]
fn weak_point_03_destination_unchecked() {
    let doc = yaml(&NAMES.replacen("destination: spec.name.first", "destination: spec.name.frist", 1));
    let errors = bundle(&doc).err().unwrap();
    let want = "spec.conversions[0].rules[0].destination: Invalid value: \".spec.name.frist\": there is no field \
        .spec.name.frist in v2";
    assert_eq!(errors, [want]);
}

/// kcp had no lists, maps, or renames inside items. Every form has a file in `tests/data`.
#[test]
fn weak_point_04_no_lists_or_maps() {
    let bundle = bundle_of(
        r"
versions:
  v1: {spec: {colors: {'*': {shades: [{name: string}]}}}}
  v2: {spec: {colors: [{key: string, tones: [{label: string}]}]}}
rules:
  conversions:
  - from: v1
    to: v2
    rules:
    - {field: 'spec.colors[key]', destination: 'spec.colors[].key', transformation: key}
    - {field: 'spec.colors[key].shades[i].name', destination: 'spec.colors[].tones[].label'}
",
    );
    let shades = json!([{"name": "dark"}, {"name": "light"}]);
    let stored = write(
        &bundle,
        "v1",
        json!({"spec": {"colors": {"red": {"shades": shades}}}}),
        None,
    );
    let tones = json!([{"label": "dark"}, {"label": "light"}]);
    assert_eq!(
        read(&bundle, &stored, "v2")["spec"],
        json!({"colors": [{"key": "red", "tones": tones}]})
    );
}

/// In kcp, an absent source wrote an explicit null, which defaulting and nullable fields took for a
/// value.
#[test]
fn weak_point_05_explicit_nulls() {
    let bundle = bundle_of(
        r"
versions:
  v1: {spec: {a: string}}
  v2: {spec: {b: {$: {type: string, nullable: true}}, c: {$: {type: string, default: x}}}}
rules:
  conversions:
  - {from: v1, to: v2, rules: [{field: spec.a, destination: spec.b}, {from: v1.spec.a + '!', to: spec.c}]}
",
    );
    let stored = write(&bundle, "v1", json!({"spec": {}}), None);
    assert_eq!(read(&bundle, &stored, "v2")["spec"], json!({"c": "x"}));
}

/// In kcp, the source stayed in place, and leaked where the target keeps unknown fields or has
/// another field of that name.
#[test]
fn weak_point_06_source_not_removed() {
    let bundle = bundle_of(
        r"
versions:
  v1: {spec: {old: string, size: string}}
  v2: {spec: {$: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {new: {type: string},
      size: {type: integer}, text: {type: string}}}}}
rules:
  conversions:
  - {from: v1, to: v2, rules: [{field: spec.old, destination: spec.new}, {field: spec.size, destination: spec.text}]}
  - {from: v2, to: v1, rules: [{field: spec.new, destination: spec.old}, {field: spec.text, destination: spec.size}]}
",
    );
    let stored = write(&bundle, "v1", json!({"spec": {"old": "x", "size": "big"}}), None);
    assert_eq!(read(&bundle, &stored, "v2")["spec"], json!({"new": "x", "text": "big"}));
}

/// In kcp, preserved data overwrote newer edits.
#[test]
fn weak_point_07_stale_resurrection() {
    let bundle = bundle_of(
        r"
versions:
  v1: {spec: {last: string}}
  v2: {spec: {last: string, lastUpper: string}}
rules:
  conversions:
  - {from: v1, to: v2, rules: [{field: spec.last, destination: spec.lastUpper, transformation: self.upperAscii()}]}
  - {from: v2, to: v1, rules: [], preserve: [spec.lastUpper]}
",
    );
    let first = write(
        &bundle,
        "v2",
        json!({"spec": {"last": "jones", "lastUpper": "Jones!"}}),
        None,
    );
    assert_eq!(read(&bundle, &first, "v2")["spec"]["lastUpper"], "Jones!");
    let second = write(&bundle, "v1", json!({"spec": {"last": "smith"}}), Some(&first));
    assert_eq!(
        read(&bundle, &second, "v2")["spec"],
        json!({"last": "smith", "lastUpper": "SMITH"})
    );
}

/// kcp preserved data in annotations: visible, editable, limited in size, lost when a client
/// replaced them.
#[test]
fn weak_point_08_preserved_in_annotations() {
    let bundle = bundle_of(NAMES);
    let first = write(
        &bundle,
        "v2",
        json!({"spec": {"more": "x".repeat(300_000)}, "metadata": {"annotations": {"a": "b"}}}),
        None,
    );
    let shown = read(&bundle, &first, "v1");
    assert_eq!(shown["metadata"]["annotations"], json!({"a": "b"}));
    let second = write(&bundle, "v1", json!({"spec": {"first": "Bob"}}), Some(&first));
    let shown = read(&bundle, &second, "v2");
    assert_eq!(
        (
            shown["spec"]["more"].as_str().unwrap().len(),
            shown["metadata"].get("annotations")
        ),
        (300_000, None)
    );
}

/// In kcp, one annotation held the preserved data for several targets, and restored it where it had
/// never been dropped. Here a field that two versions have is one field, and what only one has
/// stays its own.
#[test]
fn weak_point_09_targets_merged() {
    let doc = NAMES.replace("family: string", "family: string, more: string, own: string");
    let bundle = bundle_of(&doc);
    let first = write(&bundle, "v2", json!({"spec": {"more": "two"}}), None);
    assert_eq!(read(&bundle, &first, "v3")["spec"], json!({"more": "two"}));
    let third = json!({"spec": {"more": "three", "own": "three's"}});
    let second = write(&bundle, "v3", third.clone(), Some(&first));
    assert_eq!(read(&bundle, &second, "v2")["spec"], json!({"more": "three"}));
    assert_eq!(read(&bundle, &second, "v3")["spec"], third["spec"]);
}

/// kcp cached a converter for ever. Here a bundle is immutable and made of one generation of schema
/// and rules, so that it can be cached by content: nothing in it can become stale.
#[test]
fn weak_point_10_stale_converters() {
    fn shared<T: Send + Sync + 'static>(value: T) -> Arc<T> {
        Arc::new(value)
    }
    let old = shared(bundle_of(NAMES));
    let new = shared(bundle_of(
        &NAMES
            .replacen("destination: spec.given", "destination: spec.family", 1)
            .replacen("destination: spec.family}]", "destination: spec.given}]", 1),
    ));
    let stored = write(&old, "v1", json!({"spec": {"first": "Bob"}}), None);
    assert_eq!(read(&old, &stored, "v3")["spec"], json!({"given": "Bob"}));
    assert_eq!(read(&new, &stored, "v3")["spec"], json!({"family": "Bob"}));
}

/// In kcp, expressions had no cost limit, only a timeout of one second each.
#[test]
fn weak_point_11_unbounded_expressions() {
    let bundle = bundle_of(
        r"
versions:
  v1: {spec: {list: {$: {type: array, maxItems: 70, items: {type: integer}}}, n: integer}}
  v2: {spec: {list: {$: {type: array, maxItems: 70, items: {type: integer}}}, n: integer}}
rules:
  conversions:
  - {from: v1, to: v2, rules: [{field: spec.list, destination: spec.n,
        transformation: 'size(self.filter(a, self.all(b, self.all(c, a + b + c >= 0))))', mayFail: true}]}
",
    );
    let x = object("v1", &json!({"spec": {"list": vec![1; 70]}}));
    let mut budget = unmetered_budget();
    let error = bundle.put(&x, "v1", None, &mut budget).unwrap_err();
    assert_eq!(
        error.to_string(),
        "converting example.io/v1 to v2: conversions[0].rules[0] (.spec.list → .spec.n): operation cancelled: \
            actual cost limit exceeded"
    );
    assert!(budget.used() <= 2_000_000, "{}", budget.used());
    let small = object("v1", &json!({"spec": {"list": [1, 2]}}));
    assert!(
        bundle
            .put(&small, "v1", None, &mut Budget::new(10, &Meter::unbounded()))
            .is_err(),
        "an object's budget holds for all its rules"
    );
}

/// In kcp, one object that could not be converted failed the whole list, and the error named
/// neither the object nor the reason. Here each conversion concerns one object, and the error names
/// the rule and no value.
#[test]
fn weak_point_12_poison_objects() {
    let text = r"
versions:
  v1: {spec: {age: string}}
  v2: {spec: {years: integer}}
rules:
  conversions:
  - {from: v1, to: v2, rules: [{field: spec.age, destination: spec.years, transformation: int(self), mayFail: true}]}
";
    let bundle = bundle_of(text);
    let poison = object("v1", &json!({"spec": {"age": "secret"}}));
    let error = bundle
        .put(&poison, "v1", None, &mut unmetered_budget())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("converting example.io/v1 to v2: conversions[0].rules[0] (.spec.age → .spec.years): "),
        "{error}"
    );
    assert!(!error.contains("secret"), "{error}");
    // Stored before these rules existed: it fails alone, and can be read in its own version.
    let stored = ToStore {
        value: poison.clone(),
        residual: None,
    };
    assert!(bundle.get(stored.stored("v1"), "v2", &mut unmetered_budget()).is_err());
    assert_eq!(read(&bundle, &stored, "v1"), poison);
    // Its metadata can be written, so that a finalizer can be removed; its content can change only
    // to a value that every version can show.
    let mut freed = poison.clone();
    freed["metadata"]["finalizers"] = json!([]);
    let freed = bundle
        .put(&freed, "v1", Some(stored.stored("v1")), &mut unmetered_budget())
        .unwrap();
    assert_eq!(freed.value["metadata"]["finalizers"], json!([]));
    let fixed = write(&bundle, "v1", json!({"spec": {"age": "7"}}), Some(&freed));
    assert_eq!(read(&bundle, &fixed, "v2")["spec"], json!({"years": 7}));
}

/// kcp's rules treated spec and status alike, and could write any metadata. Here status obeys the
/// same laws, and metadata is not converted.
#[test]
fn weak_point_13_metadata_and_status() {
    let bundle = bundle_of(
        r"
versions:
  v1: {spec: {a: string}, status: {phase: string, hidden: string}}
  v2: {spec: {a: string}, status: {state: {phase: string}}}
rules:
  conversions:
  - {from: v1, to: v2, rules: [{field: status.phase, destination: status.state.phase}]}
  - {from: v2, to: v1, rules: [{field: status.state.phase, destination: status.phase}]}
",
    );
    let managed =
        json!([{"manager": "m", "operation": "Apply", "apiVersion": "example.io/v1", "fieldsV1": {"f:spec": {}}}]);
    let first = json!({"status": {"phase": "A", "hidden": "h"}, "metadata": {"managedFields": managed}});
    let first = write(&bundle, "v1", first, None);
    assert_eq!(read(&bundle, &first, "v2")["metadata"]["managedFields"], managed);
    let second = write(
        &bundle,
        "v2",
        json!({"status": {"state": {"phase": "B"}}}),
        Some(&first),
    );
    assert_eq!(
        read(&bundle, &second, "v1")["status"],
        json!({"phase": "B", "hidden": "h"})
    );
}

/// kcp did not check round trips before production. Here admission can call `laws` on any object.
#[test]
fn weak_point_14_round_trip_unchecked() {
    let bundle = bundle_of(NAMES);
    let x = object("v2", &json!({"spec": {"name": {"first": "Bob"}, "more": "x"}}));
    let after = bundle.put(&x, "v2", None, &mut unmetered_budget()).unwrap();
    insula_conversion::laws::put_get(&bundle, &x, "v2", &after).unwrap();
    insula_conversion::laws::get_put(&bundle, &after).unwrap();
    let broken = ToStore {
        residual: None,
        ..after
    };
    let violation = insula_conversion::laws::put_get(&bundle, &x, "v2", &broken).unwrap_err();
    assert_eq!(violation.to_string(), "PutGet does not hold in v2 at .spec.more");
}

/// An object stored before the storage version changed reads as before in every version, and the
/// next write moves it.
#[test]
fn stored_in_yesterdays_version() {
    let mut doc = yaml(NAMES);
    let old = bundle(&doc).unwrap();
    let stored = write(
        &old,
        "v2",
        json!({"spec": {"name": {"first": "Bob"}, "more": "x"}}),
        None,
    );
    let stored = write(
        &old,
        "v1",
        json!({"spec": {"first": "Rob", "last": "Jones"}}),
        Some(&stored),
    );
    doc["storage"] = json!("v2");
    doc["rules"]["hub"] = json!("v1");
    let new = bundle(&doc).unwrap();
    for version in ["v1", "v2", "v3"] {
        let was = old.get(stored.stored("v1"), version, &mut unmetered_budget()).unwrap();
        assert_eq!(
            new.get(stored.stored("v1"), version, &mut unmetered_budget()).unwrap(),
            was
        );
    }
    let x = object("v3", &json!({"spec": {"given": "Al", "family": "Jones"}}));
    let moved = new
        .put(&x, "v3", Some(stored.stored("v1")), &mut unmetered_budget())
        .unwrap();
    assert_eq!(moved.value["apiVersion"], "example.io/v2");
    assert_eq!(
        moved.value["spec"],
        json!({"name": {"first": "Al", "last": "Jones"}, "more": "x"})
    );
    // There is no residual, but for the records of what wrote it.
    let records = insula_conversion::written(moved.residual.as_deref()).unwrap();
    let versions: Vec<&str> = records.keys().map(String::as_str).collect();
    assert_eq!(versions, ["v1", "v3"]);
    assert_eq!(
        String::from_utf8_lossy(moved.residual.as_deref().unwrap())
            .matches("fields")
            .count(),
        1
    );
    // Writing back the same object moves it, too, and changes nothing else.
    let x = new.get(stored.stored("v1"), "v1", &mut unmetered_budget()).unwrap();
    let moved = new
        .put(&x, "v1", Some(stored.stored("v1")), &mut unmetered_budget())
        .unwrap();
    assert_eq!(
        moved.value["spec"],
        json!({"name": {"first": "Rob", "last": "Jones"}, "more": "x"})
    );
}

/// The notations of options 1, 2 and 3 of the seed parse to equal rules.
#[test]
fn rules_in_a_schema() {
    let rules = r"{fromHub: [{field: spec.name.first, rule: self.spec.firstName}], toHub: [{field: spec.firstName, rule: self.spec.name.first}]}";
    let one = yaml(&format!(
        "spec: {{conversion: {{strategy: None, hub: v1, conversions: [{{version: v2, {}}}]}}}}",
        &rules[1..rules.len() - 1]
    ));
    let two = yaml(&format!(
        "spec: {{hubVersion: v1, versions: [{{name: v1}}, {{name: v2, conversion: {rules}}}]}}"
    ));
    let three = yaml(&format!(
        "{{hub: v1, conversions: [{{version: v2, {}}}]}}",
        &rules[1..rules.len() - 1]
    ));
    let three = parse_rules(&three, &FieldPath::new("spec")).unwrap();
    for set in [
        rules_in_schema(&one).unwrap().unwrap(),
        rules_in_schema(&two).unwrap().unwrap(),
    ] {
        assert_eq!(set.hub, three.hub);
        for (a, b) in set.conversions.iter().zip(&three.conversions) {
            assert_eq!((&a.from, &a.to, a.rules.len()), (&b.from, &b.to, b.rules.len()));
            assert_eq!(
                (&a.rules[0].source, &a.rules[0].destination),
                (&b.rules[0].source, &b.rules[0].destination)
            );
        }
    }
    assert_eq!(
        rules_in_schema(&yaml("spec: {conversion: {strategy: None}, versions: [{name: v1}]}")).unwrap(),
        None
    );
    let both = yaml(&format!(
        "spec: {{hubVersion: v1, conversion: {{hub: v1, conversions: []}}, versions: [{{name: v2, conversion: \
            {rules}}}]}}"
    ));
    assert_eq!(
        rules_in_schema(&both).unwrap_err().errors[0].to_string(),
        "spec.conversion: Forbidden: rules are either here or in versions[].conversion, not in both"
    );
}

/// Versions that differ only in name need no conversion of objects.
#[test]
fn equal_shapes_are_identities() {
    let bundle = bundle_of("{versions: {v1: {spec: {a: string}}, v2: {spec: {a: string}}, v3: {spec: {a: integer}}}}");
    assert!(bundle.is_identity("v1", "v2") && bundle.is_identity("v3", "v3"));
    assert!(!bundle.is_identity("v1", "v3") && !bundle.is_identity("v1", "v9"));
    let stored = write(&bundle, "v2", json!({"spec": {"a": "x"}}), None);
    assert_eq!(
        (&stored.value["apiVersion"], &stored.residual),
        (&json!("example.io/v1"), &None)
    );
}

/// Merging and patching long lists takes roughly linear time, so that a tenant's list of thousands
/// of items does not block a server.
#[test]
fn long_lists_are_merged_in_linear_time() {
    let bundle = bundle_of(
        r"
versions:
  v1: {spec: {'keyed[n]': [{n: integer}], plain: [{n: integer}]}}
  v2: {spec: {'keyed[n]': [{n: integer, x: integer}], plain: [{n: integer, x: integer}]}}
",
    );
    let items = |shift: u64, x: bool| -> Json {
        let item = |n: u64| if x { json!({"n": n, "x": n}) } else { json!({"n": n}) };
        (0..6_000).map(|n| item(n * 7 % 6_000 + shift)).collect()
    };
    let first = write(
        &bundle,
        "v2",
        json!({"spec": {"keyed": items(0, true), "plain": items(0, true)}}),
        None,
    );
    let second = write(
        &bundle,
        "v1",
        json!({"spec": {"keyed": items(5, false), "plain": items(5, false)}}),
        Some(&first),
    );
    let shown = read(&bundle, &second, "v2");
    assert_eq!(shown["spec"]["keyed"][0], json!({"n": 5, "x": 5}));
    assert_eq!(shown["spec"]["plain"][0], json!({"n": 5, "x": 0}));
}
