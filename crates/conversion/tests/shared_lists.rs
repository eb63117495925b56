//! A list of which rules name an item is one list of the versions that have the same rules for it,
//! whatever of it the hub shows.

use crate::support::written::Written;
use crate::support::{bundle, bundle_of, yaml};
use serde_json::{Value as Json, json};

/// Rules of two versions with the hub name the first item of a list that the hub lacks.
const NAMED: &str = "
versions:
  v1: {spec: {one: string, other: string}}
  v2: {spec: {l: [string], other: string}}
  v3: {spec: {l: [string], other: string}}
rules:
  hub: v1
  conversions:
  - {from: v1, to: v2, rules: [{field: spec.one, destination: 'spec.l[0]'}]}
  - {from: v2, to: v1, rules: [{field: 'spec.l[0]', destination: spec.one}]}
  - {from: v1, to: v3, rules: [{field: spec.one, destination: 'spec.l[0]'}]}
  - {from: v3, to: v1, rules: [{field: 'spec.l[0]', destination: spec.one}]}
";

#[test]
fn a_list_that_rules_name_an_item_of_is_one_list() {
    for storage in ["v1", "v2", "v3"] {
        let bundle = bundle_of(&format!("storage: {storage}\n{NAMED}"));
        let mut written = Written::new(&bundle);
        let mut put = |version: &str, spec: Json, one: Json, list: Json| {
            written.put(version, spec);
            assert_eq!(written.shows("v1")["one"], one, "{storage}");
            for version in ["v2", "v3"] {
                assert_eq!(written.shows(version)["l"], list, "{storage} {version}");
            }
        };
        put("v2", json!({"l": ["a", "b"]}), json!("a"), json!(["a", "b"]));
        put("v3", json!({"l": ["a", "c", "d"]}), json!("a"), json!(["a", "c", "d"]));
        put("v1", json!({"one": "z"}), json!("z"), json!(["z", "c", "d"]));
        put(
            "v2",
            json!({"l": ["z", "d"], "other": "o"}),
            json!("z"),
            json!(["z", "d"]),
        );
        put("v1", json!({"other": "o"}), Json::Null, json!(["d"]));
        put("v3", json!({"l": ["d", "e"]}), Json::Null, json!(["d", "e"]));
        put("v1", json!({"one": "y"}), json!("y"), json!(["y", "e"]));
        put("v2", json!({}), Json::Null, Json::Null);
    }
}

/// The items of such a list have fields that one version lacks.
#[test]
fn items_of_a_list_that_rules_name_one_of_keep_what_a_version_lacks() {
    for storage in ["v1", "v2", "v3"] {
        let bundle = bundle_of(&format!(
            "
storage: {storage}
versions:
  v1: {{spec: {{one: string}}}}
  v2: {{spec: {{l: [{{a: string, x: string}}]}}}}
  v3: {{spec: {{l: [{{a: string, y: string}}]}}}}
rules:
  hub: v1
  conversions:
  - {{from: v1, to: v2, rules: [{{field: spec.one, destination: 'spec.l[0].a'}}]}}
  - {{from: v2, to: v1, rules: [{{field: 'spec.l[0].a', destination: spec.one}}]}}
  - {{from: v1, to: v3, rules: [{{field: spec.one, destination: 'spec.l[0].a'}}]}}
  - {{from: v3, to: v1, rules: [{{field: 'spec.l[0].a', destination: spec.one}}]}}
"
        ));
        let mut written = Written::new(&bundle);
        written.put("v2", json!({"l": [{"a": "a", "x": "x"}, {"a": "b", "x": "x2"}]}));
        assert_eq!(written.shows("v3"), json!({"l": [{"a": "a"}, {"a": "b"}]}), "{storage}");
        written.put("v3", json!({"l": [{"a": "a", "y": "y"}, {"a": "c"}]}));
        let all = json!({"l": [{"a": "a", "x": "x"}, {"a": "c", "x": "x2"}]});
        assert_eq!(written.shows("v2"), all, "{storage}");
        // The item is there as long as anything in it is, whatever version shows that.
        written.put("v2", json!({"l": [{"a": "a"}, {"a": "c"}]}));
        written.put("v1", json!({}));
        assert_eq!(written.shows("v3"), json!({"l": [{"y": "y"}, {"a": "c"}]}), "{storage}");
        assert_eq!(written.shows("v2"), json!({"l": [{}, {"a": "c"}]}), "{storage}");
        written.put("v1", json!({"one": "n"}));
        assert_eq!(written.shows("v2"), json!({"l": [{"a": "n"}, {"a": "c"}]}), "{storage}");
    }
}

/// A release adds the second version that has the list, and another one takes the first away.
#[test]
fn a_list_that_rules_name_an_item_of_is_shared_with_a_version_that_comes_later() {
    let all = yaml(NAMED);
    let release = |versions: &[&str], storage: &str| {
        let mut doc = all.clone();
        let is_there = |name: &Json| versions.contains(&name.as_str().unwrap());
        doc["versions"]
            .as_object_mut()
            .unwrap()
            .retain(|name, _| is_there(&json!(name)));
        let conversions = doc["rules"]["conversions"].as_array_mut().unwrap();
        conversions.retain(|way| is_there(&way["from"]) && is_there(&way["to"]));
        doc["storage"] = json!(storage);
        bundle(&doc).unwrap()
    };
    for storage in ["v1", "v2"] {
        let first = release(&["v1", "v2"], storage);
        let mut written = Written::new(&first);
        written.put("v2", json!({"l": ["a", "b"]}));
        let second = release(&["v1", "v2", "v3"], storage);
        written.bundle = &second;
        assert_eq!(written.shows("v3"), json!({"l": ["a", "b"]}), "{storage}");
        written.put("v3", json!({"l": ["a", "b"], "other": "o"}));
        assert_eq!(written.shows("v2"), json!({"l": ["a", "b"], "other": "o"}), "{storage}");
        written.put("v1", json!({"one": "z"}));
        assert_eq!(written.shows("v3"), json!({"l": ["z", "b"]}), "{storage}");
        if storage == "v1" {
            let third = release(&["v1", "v3"], storage);
            written.bundle = &third;
            assert_eq!(written.shows("v3"), json!({"l": ["z", "b"]}), "{storage}");
        }
    }
}

/// Rules that are not the same, and lists in items, are told.
#[test]
fn lists_that_are_not_one_list_are_named() {
    let spelled = NAMED.replace(
        "to: v1, rules: [{field: 'spec.l[0]', destination: spec.one}]}\n  - {from: v1, to: v3",
        "to: v1, rules: [{from: 'v2.spec.l[0]', to: spec.one}]}\n  - {from: v1, to: v3",
    );
    assert_ne!(spelled, NAMED);
    assert!(bundle_of(&spelled).lists_apart().is_empty());
    let other = NAMED.replace(
        "{from: v3, to: v1, rules: [{field: 'spec.l[0]'",
        "{from: v3, to: v1, rules: [{field: 'spec.l[1]'",
    );
    let told = ".spec.l is not one list in v2 and v3: the hub v1 lacks it, rules name an item of it, and each version \
                keeps for itself what no rule moves; with the same rules in each all of it is one list";
    assert_eq!(bundle_of(&other).lists_apart(), [told]);
    assert!(bundle_of(NAMED).lists_apart().is_empty());
    let nested = bundle_of(
        "
versions:
  v1: {spec: {k: [{one: string}]}}
  v2: {spec: {k: [{l: [string]}]}}
  v3: {spec: {k: [{l: [string]}]}}
rules:
  hub: v1
  conversions:
  - {from: v1, to: v2, rules: [{from: v1.spec.k, to: spec.k, itemRules: [{from: self.one, to: 'item.l[0]'}]}]}
  - {from: v2, to: v1, rules: [{from: v2.spec.k, to: spec.k, itemRules: [{from: 'self.l[0]', to: item.one}]}]}
  - {from: v1, to: v3, rules: [{from: v1.spec.k, to: spec.k, itemRules: [{from: self.one, to: 'item.l[0]'}]}]}
  - {from: v3, to: v1, rules: [{from: v3.spec.k, to: spec.k, itemRules: [{from: 'self.l[0]', to: item.one}]}]}
",
    );
    let told = ".spec.k[].l is not one list in v2 and v3: the hub v1 lacks it, rules name an item of it, and each \
                version keeps for itself what no rule moves";
    assert_eq!(nested.lists_apart(), [told]);
}

/// A rule beside the hub names an item of a list that the hub lacks.
#[test]
fn rules_of_a_pair_join_a_field_with_an_item() {
    let text = "
versions:
  v1: {spec: {url: string}}
  v2: {spec: {url: string, l: [{a: string, b: string}], t: [string]}}
  v3: {spec: {url: string, one: string, first: string}}
  v4: {spec: {url: string, l: [{a: string, b: string}], t: [string]}}
rules:
  hub: v1
  conversions:
  - {from: v1, to: v2, rules: []}
  - {from: v1, to: v3, rules: []}
  - {from: v1, to: v4, rules: []}
  - from: v2
    to: v3
    rules: [{field: 'spec.l[0].a', destination: spec.one}, {from: 'v2.spec.t[0]', to: spec.first}]
  - from: v3
    to: v2
    rules: [{field: spec.one, destination: 'spec.l[0].a'}, {field: spec.first, destination: 'spec.t[0]'}]
";
    for storage in ["v1", "v2", "v3", "v4"] {
        let bundle = bundle_of(&format!("storage: {storage}\n{text}"));
        assert_eq!(bundle.idle_rules(), Vec::<String>::new(), "{storage}");
        let mut written = Written::new(&bundle);
        written.put("v2", json!({"l": [{"a": "a", "b": "b"}, {"a": "c"}], "t": ["t", "u"]}));
        assert_eq!(written.shows("v3"), json!({"one": "a", "first": "t"}), "{storage}");
        written.put("v3", json!({"url": "u", "one": "z", "first": "y"}));
        let all = json!({"url": "u", "l": [{"a": "z", "b": "b"}, {"a": "c"}], "t": ["y", "u"]});
        assert_eq!(written.shows("v2"), all, "{storage}");
        assert_eq!(written.shows("v4"), all, "{storage}");
        written.put("v3", json!({"url": "u"}));
        assert_eq!(
            written.shows("v4"),
            json!({"url": "u", "l": [{"b": "b"}, {"a": "c"}], "t": ["u"]}),
            "{storage}"
        );
    }
}
