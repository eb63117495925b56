//! Values under names that rules give them, while a version or a field is away for a release.

use crate::support::{bundle, object, yaml};
use insula_conversion::{ToStore, laws, unmetered_budget};
use serde_json::{Value as Json, json};

/// An object over the releases of an API.
#[derive(Default)]
struct Released {
    stored: Option<(ToStore, String)>,
}

impl Released {
    fn put(&mut self, release: &Json, version: &str, spec: &Json) {
        let bundle = bundle(release).unwrap();
        let x = object(version, &json!({"spec": spec}));
        let old = self.stored.as_ref().map(|(stored, at)| stored.stored(at));
        let after = bundle.put(&x, version, old, &mut unmetered_budget()).unwrap();
        laws::put_get(&bundle, &x, version, &after).unwrap();
        laws::get_put(&bundle, &after).unwrap();
        self.stored = Some((after, bundle.storage().to_owned()));
    }

    fn shows(&self, release: &Json, version: &str) -> Json {
        let bundle = bundle(release).unwrap();
        let (stored, at) = self.stored.as_ref().unwrap();
        bundle.get(stored.stored(at), version, &mut unmetered_budget()).unwrap()["spec"].clone()
    }
}

/// A list of which a rule names the first item is shared, also where it is back after a release in
/// which no version had it.
#[test]
fn a_list_that_a_rule_names_an_item_of_is_shared_when_it_is_back() {
    let release = |list: &str, there: &str, back: &str| {
        yaml(&format!(
            "versions:
  v1: {{spec: {{u: string}}}}
  v2: {{spec: {list}}}
  v3: {{spec: {{one: string}}}}
rules:
  hub: v3
  conversions:
  - {{from: v1, to: v3, rules: []}}
  - {{from: v3, to: v1, rules: []}}
  - {{from: v2, to: v3, rules: [{there}]}}
  - {{from: v3, to: v2, rules: [{back}]}}"
        ))
    };
    let with = release(
        "{l: [string], t: string}",
        "{field: 'spec.l[0]', destination: spec.one}",
        "{field: spec.one, destination: 'spec.l[0]'}",
    );
    let without = release("{t: string}", "", "");
    let mut released = Released::default();
    released.put(&with, "v2", &json!({"l": ["a", "b"]}));
    released.put(&without, "v2", &json!({"t": "t"}));
    released.put(&without, "v3", &json!({"one": "c"}));
    assert_eq!(released.shows(&with, "v3"), json!({"one": "c"}));
    released.put(&with, "v3", &json!({"one": "d"}));
    assert_eq!(released.shows(&with, "v2"), json!({"l": ["d", "b"], "t": "t"}));
}

/// A cleared value stays cleared, also where the version is gone whose names its values had beside
/// the hub.
#[test]
fn entries_of_a_map_stay_removed_when_the_version_of_their_names_is_gone() {
    let idle = |version: &str| {
        format!("\n  - {{from: v1, to: {version}, rules: []}}\n  - {{from: {version}, to: v1, rules: []}}")
    };
    let with = yaml(&format!(
        "versions:
  v1: {{spec: {{u: string}}}}
  v2: {{spec: {{m: {{'*': {{p: string}}}}}}}}
  v3: {{spec: {{m: {{'*': {{q: string, y: string}}}}}}}}
rules:
  hub: v1
  conversions:
  - {{from: v2, to: v3, rules: [{{field: 'spec.m[key].p', destination: 'spec.m[key].q'}}]}}
  - {{from: v3, to: v2, rules: [{{field: 'spec.m[key].q', destination: 'spec.m[key].p'}}]}}{}{}",
        idle("v2"),
        idle("v3")
    ));
    let m = "{m: {'*': {q: string, y: string}}}";
    let without = yaml(&format!(
        "versions: {{v1: {{spec: {{u: string}}}}, v3: {{spec: {m}}}, v4: {{spec: {m}}}}}"
    ));
    for cleared in [json!({}), json!({"m": {}}), json!({"m": {"b": {"q": "z"}}})] {
        let mut released = Released::default();
        released.put(&with, "v2", &json!({"m": {"a": {"p": "w"}}}));
        released.put(&without, "v3", &cleared);
        for version in ["v3", "v4"] {
            assert_eq!(released.shows(&without, version), cleared, "{version}");
        }
    }
}

/// A list that a stored version shows in part is stored once when storage moves: what the hub has
/// of it counts.
#[test]
fn a_list_of_the_hub_is_stored_once_when_storage_moves() {
    let release = |storage: &str| {
        yaml(&format!(
            "storage: {storage}
versions:
  v1: {{spec: {{l: [{{a: string, b: string}}], u: string}}}}
  v2: {{spec: {{k: [{{a: string}}]}}}}
  v3: {{spec: {{l: [{{a: string, b: string, c: string}}]}}}}
rules:
  hub: v1
  conversions:
  - {{from: v1, to: v3, rules: []}}
  - {{from: v3, to: v1, rules: []}}
  - {{from: v1, to: v2, rules: [{{from: v1.spec.l, to: spec.k, itemRules: [{{from: self.a, to: item.a}}]}}]}}
  - {{from: v2, to: v1, rules: [{{from: v2.spec.k, to: spec.l, itemRules: [{{from: self.a, to: item.a}}]}}]}}"
        ))
    };
    for (from, to) in [("v2", "v3"), ("v2", "v1"), ("v3", "v2"), ("v1", "v2")] {
        let mut released = Released::default();
        let whole = json!([{"a": "1", "b": "1", "c": "1"}, {"a": "2", "c": "2"}]);
        released.put(&release(from), "v3", &json!({"l": whole}));
        released.put(&release(to), "v2", &json!({"k": [{"a": "0"}, {"a": "1"}, {"a": "2"}]}));
        let whole = json!([{"a": "0"}, {"a": "1", "b": "1", "c": "1"}, {"a": "2", "c": "2"}]);
        assert_eq!(released.shows(&release(to), "v3"), json!({"l": whole}), "{from} {to}");
        released.put(
            &release(to),
            "v1",
            &json!({"l": [{"a": "0"}, {"a": "1", "b": "9"}, {"a": "2"}], "u": "u"}),
        );
        let left = json!([{"a": "0"}, {"a": "1", "b": "9", "c": "1"}, {"a": "2", "c": "2"}]);
        assert_eq!(released.shows(&release(to), "v3"), json!({"l": left}), "{from} {to}");
        assert_eq!(
            released.shows(&release(to), "v2"),
            json!({"k": [{"a": "0"}, {"a": "1"}, {"a": "2"}]}),
            "{from} {to}"
        );
    }
}

/// A version that goes takes the rules with it, and the name under which the union has the value;
/// the version that it shared the value with still has the field.
#[test]
fn a_value_beside_the_hub_stays_when_the_version_of_its_name_goes() {
    let release = |with: &str, there: &str, back: &str| {
        let idle = |version: &str| {
            format!("  - {{from: v1, to: {version}, rules: []}}\n  - {{from: {version}, to: v1, rules: []}}\n")
        };
        let f = "{u: string, f: string, o: {a: string, b: [string]}}";
        let g = "{u: string, g: string, p: {c: string, d: [string]}}";
        let mut text = format!("versions:\n  v1: {{spec: {{u: string}}}}\n  v3: {{spec: {g}}}\n");
        if !with.is_empty() {
            text += &format!("  {with}: {{spec: {f}}}\n");
        }
        text += &format!("rules:\n  hub: v1\n  conversions:\n{}", idle("v3"));
        if !with.is_empty() {
            text += &idle(with);
            text += &format!("  - {{from: v2, to: v3, rules: [{there}]}}\n  - {{from: v3, to: v2, rules: [{back}]}}\n");
        }
        yaml(&text)
    };
    let with = release(
        "v2",
        "{field: spec.f, destination: spec.g}, {field: spec.o.a, destination: spec.p.c}, \
         {field: spec.o.b, destination: spec.p.d}",
        "{field: spec.g, destination: spec.f}, {field: spec.p.c, destination: spec.o.a}, \
         {field: spec.p.d, destination: spec.o.b}",
    );
    let without = release("", "", "");
    let of_v3 = |g: &str| json!({"g": g, "p": {"c": "a", "d": ["b"]}});
    let mut released = Released::default();
    released.put(&with, "v2", &json!({"f": "x", "o": {"a": "a", "b": ["b"]}}));
    assert_eq!(released.shows(&with, "v3"), of_v3("x"));
    assert_eq!(released.shows(&without, "v3"), of_v3("x"));
    released.put(&without, "v1", &json!({"u": "u"}));
    let mut shown = of_v3("x");
    shown["u"] = json!("u");
    assert_eq!(released.shows(&without, "v3"), shown);
    shown["g"] = json!("y");
    released.put(&without, "v3", &shown);
    // The version is back, with its rules.
    assert_eq!(
        released.shows(&with, "v2"),
        json!({"u": "u", "f": "y", "o": {"a": "a", "b": ["b"]}})
    );
}

/// The hub's field was away with its rules, and a version wrote the value under its own name.
#[test]
fn the_later_write_counts_when_a_renamed_field_of_the_hub_is_back() {
    for (storage, hub) in [("v1", "v1"), ("v2", "v1"), ("v3", "v1")] {
        let release = |fields: &str, there: &str, back: &str| {
            yaml(&format!(
                "storage: {storage}
versions:
  v1: {{spec: {fields}}}
  v2: {{spec: {{b: string, u: string}}}}
  v3: {{spec: {{u: string}}}}
rules:
  hub: {hub}
  conversions:
  - {{from: v1, to: v2, rules: [{there}]}}
  - {{from: v2, to: v1, rules: [{back}]}}
  - {{from: v1, to: v3, rules: []}}
  - {{from: v3, to: v1, rules: []}}"
            ))
        };
        let with = release(
            "{a: string, u: string}",
            "{field: spec.a, destination: spec.b}",
            "{field: spec.b, destination: spec.a}",
        );
        let without = release("{u: string}", "", "");
        for writer in ["v1", "v2"] {
            let mut released = Released::default();
            let first = if writer == "v1" {
                json!({"a": "old", "u": "u"})
            } else {
                json!({"b": "old", "u": "u"})
            };
            released.put(&with, writer, &first);
            released.put(&without, "v2", &json!({"b": "new", "u": "u"}));
            assert_eq!(
                released.shows(&with, "v1"),
                json!({"a": "new", "u": "u"}),
                "{storage} {writer}"
            );
            assert_eq!(
                released.shows(&with, "v2"),
                json!({"b": "new", "u": "u"}),
                "{storage} {writer}"
            );
            released.put(&with, "v3", &json!({"u": "w"}));
            assert_eq!(
                released.shows(&with, "v1"),
                json!({"a": "new", "u": "w"}),
                "{storage} {writer}"
            );
            assert_eq!(
                released.shows(&with, "v2"),
                json!({"b": "new", "u": "w"}),
                "{storage} {writer}"
            );
        }
    }
}
