//! A value that two versions have is one value, whatever lies between them: fields that the hub
//! lacks, at every depth, with rules and without.

use crate::support::written::{Written, residuals_of};
use crate::support::{bundle_of, object};
use insula_conversion::{Stored, laws, unmetered_budget};
use serde_json::json;

const ADDED: &str = "
versions:
  v1: {spec: {url: string}}
  v2: {spec: {url: string, f: string}}
  v3: {spec: {url: string, f: string, g: string}}
";

#[test]
fn a_field_that_the_stored_version_lacks_is_one_field_without_rules() {
    let bundle = bundle_of(ADDED);
    let mut written = Written::new(&bundle);
    written.put("v2", json!({"url": "u", "f": "2"}));
    assert_eq!(written.shows("v1"), json!({"url": "u"}));
    assert_eq!(written.shows("v3"), json!({"url": "u", "f": "2"}));
    written.put("v3", json!({"url": "u", "f": "3", "g": "g"}));
    assert_eq!(written.shows("v2"), json!({"url": "u", "f": "3"}));
    written.put("v1", json!({"url": "w"}));
    assert_eq!(written.shows("v3"), json!({"url": "w", "f": "3", "g": "g"}));
    written.put("v2", json!({"url": "w"}));
    assert_eq!(written.shows("v3"), json!({"url": "w", "g": "g"}));
    let spec = json!({"spec": {"fields": {"g": {"set": "g"}}}});
    assert_eq!(written.residuals(), json!({"*": {"fields": spec}}));
}

#[test]
fn it_stays_one_field_when_storage_moves() {
    let before = bundle_of(ADDED);
    let mut written = Written::new(&before);
    written.put("v2", json!({"url": "u", "f": "2"}));
    let old = written.stored.take().unwrap();
    for storage in ["v2", "v3"] {
        let after = bundle_of(&format!("storage: {storage}\n{ADDED}"));
        for version in ["v1", "v2", "v3"] {
            let shown = after.get(old.stored("v1"), version, &mut unmetered_budget()).unwrap();
            let f = (version != "v1").then(|| json!("2"));
            assert_eq!(shown["spec"].get("f"), f.as_ref(), "{storage} {version}");
        }
        let x = object("v3", &json!({"spec": {"url": "u", "f": "3"}}));
        let moved = after
            .put(&x, "v3", Some(old.stored("v1")), &mut unmetered_budget())
            .unwrap();
        let shown = after.get(moved.stored(storage), "v2", &mut unmetered_budget()).unwrap();
        assert_eq!(shown["spec"], json!({"url": "u", "f": "3"}), "{storage}");
        laws::get_put(&after, &moved).unwrap();
    }
}

#[test]
fn fields_of_items_entries_and_nested_lists_are_shared() {
    let bundle = bundle_of(
        "
versions:
  v1: {spec: {l: [{n: string}], m: {'*': {n: string}}, 'k[n]': [{n!: string, in: [{a: string}]}]}}
  v2: {spec: {l: [{n: string, x: string}], m: {'*': {n: string, x: string}}, 'k[n]': [{n!: string, in: [{a: string,
       b: string}]}]}}
  v3: {spec: {l: [{n: string, x: string}], m: {'*': {n: string, x: string}}, 'k[n]': [{n!: string, in: [{a: string,
       b: string}]}]}}
",
    );
    let spec = json!({"l": [{"n": "1"}, {"n": "2", "x": "x2"}], "m": {"a": {"x": "xa"}}, "k": [{"n": "k",
        "in": [{"a": "a", "b": "b"}]}]});
    let mut written = Written::new(&bundle);
    written.put("v2", spec.clone());
    assert_eq!(written.shows("v3"), spec);
    let without = json!({"l": [{"n": "2"}], "m": {"a": {}}, "k": [{"n": "k", "in": [{"a": "c"}]}, {"n": "new"}]});
    written.put("v1", without);
    let left = json!({"l": [{"n": "2", "x": "x2"}], "m": {"a": {"x": "xa"}}, "k": [{"n": "k",
        "in": [{"a": "c", "b": "b"}]}, {"n": "new"}]});
    assert_eq!(written.shows("v3"), left);
    assert_eq!(written.shows("v2"), left);
}

#[test]
fn a_path_that_means_another_kind_in_the_hub_has_a_home_too() {
    let bundle = bundle_of(
        "
versions:
  v1: {spec: {same: {deep: string}, l: [{same: integer}]}}
  v2: {spec: {same: string, l: [{same: string}]}}
  v3: {spec: {same: string, l: [{same: string}]}}
",
    );
    let mut written = Written::new(&bundle);
    written.put("v2", json!({"same": "a", "l": [{"same": "b"}]}));
    assert_eq!(written.shows("v3"), json!({"same": "a", "l": [{"same": "b"}]}));
    assert_eq!(written.shows("v1"), json!({"l": [{}]}));
    written.put("v1", json!({"same": {"deep": "d"}, "l": [{"same": 1}]}));
    assert_eq!(written.shows("v3"), json!({"same": "a", "l": [{"same": "b"}]}));
}

#[test]
fn rules_of_a_pair_join_fields_that_the_hub_lacks() {
    let bundle = bundle_of(
        "
versions:
  v1: {spec: {url: string}}
  v2: {spec: {url: string, f: string, o: {a: string}, l: [{x: string}]}}
  v3: {spec: {url: string, g: string, p: {b: string}, l: [{y: string}]}}
rules:
  hub: v1
  conversions:
  - {from: v1, to: v2, rules: []}
  - {from: v1, to: v3, rules: []}
  - from: v2
    to: v3
    rules:
    - {field: .spec.f, destination: .spec.g}
    - {field: .spec.o.a, destination: .spec.p.b}
    - {field: '.spec.l[i].x', destination: '.spec.l[].y'}
  - from: v3
    to: v2
    rules:
    - {field: .spec.g, destination: .spec.f}
    - {from: v3.spec.p.b, to: .spec.o.a}
    - {field: '.spec.l[i].y', destination: '.spec.l[].x'}
",
    );
    assert_eq!(bundle.idle_rules(), Vec::<String>::new());
    let mut written = Written::new(&bundle);
    written.put("v2", json!({"f": "f", "o": {"a": "a"}, "l": [{"x": "x"}]}));
    assert_eq!(
        written.shows("v3"),
        json!({"g": "f", "p": {"b": "a"}, "l": [{"y": "x"}]})
    );
    written.put("v3", json!({"g": "g", "p": {"b": "b"}, "l": [{"y": "x"}, {"y": "z"}]}));
    assert_eq!(
        written.shows("v2"),
        json!({"f": "g", "o": {"a": "b"}, "l": [{"x": "x"}, {"x": "z"}]})
    );
    written.put("v1", json!({"url": "u"}));
    assert_eq!(written.shows("v2")["f"], "g");
}

/// Rules beside the hub that are written in vain are told.
#[test]
fn rules_that_convert_no_object_are_named() {
    let bundle = bundle_of(
        "
versions:
  v1: {spec: {url: string, shared: string}}
  v2: {spec: {url: string, own: string, f: string, n: string, l: [{x: string}]}}
  v3: {spec: {url: string, shared: string, g: string, m: string, k: [{y: string}]}}
rules:
  hub: v1
  conversions:
  - {from: v1, to: v2, rules: [{field: spec.shared, destination: spec.own}]}
  - {from: v2, to: v1, rules: [{field: spec.own, destination: spec.shared}]}
  - {from: v1, to: v3, rules: []}
  - from: v2
    to: v3
    rules:
    - {field: spec.own, destination: spec.shared}
    - {field: spec.f, destination: spec.g}
    - {field: spec.f, destination: spec.m, transformation: self + '!'}
    - {from: v2.spec.n + v2.spec.f, to: spec.url, onlyIfAbsent: true}
    - {field: spec.l, destination: spec.k, itemRules: [{field: self.x, destination: item.y}]}
",
    );
    let rule = |n: usize, text: &str| {
        format!(
            "conversions[3].rules[{n}] ({text}) converts no object: v3 is made from the hub v1; beside it a rule \
             counts that moves a field which the hub lacks, or computes one from it and back: write this one between \
             v3 and v1"
        )
    };
    assert_eq!(
        bundle.idle_rules(),
        [
            rule(2, ".spec.f → .spec.m"),
            rule(3, "v2.spec.n + v2.spec.f → .spec.url"),
            rule(4, ".spec.l → .spec.k"),
        ]
    );
    let mut written = Written::new(&bundle);
    written.put("v2", json!({"own": "o", "f": "f", "n": "n", "l": [{"x": "x"}]}));
    assert_eq!(written.shows("v3"), json!({"shared": "o", "g": "f"}));
}

#[test]
fn rules_of_a_pair_compute_one_value_from_the_other() {
    let text = "
versions:
  v1: {spec: {url: string}}
  v2: {spec: {url: string, wait: {$: {type: string, format: duration}}}}
  v3: {spec: {url: string, seconds: integer}}
  v4: {spec: {url: string, seconds: integer}}
rules:
  hub: v1
  conversions:
  - {from: v1, to: v2, rules: []}
  - {from: v1, to: v3, rules: []}
  - {from: v1, to: v4, rules: []}
  - from: v2
    to: v3
    rules:
    - {field: .spec.wait, destination: .spec.seconds, transformation: duration(self).getSeconds()}
  - from: v3
    to: v2
    rules:
    - {field: .spec.seconds, destination: .spec.wait, transformation: string(self) + 's'}
";
    for storage in ["v1", "v2", "v3", "v4"] {
        let bundle = bundle_of(&format!("storage: {storage}\n{text}"));
        assert_eq!(bundle.idle_rules(), Vec::<String>::new(), "{storage}");
        let mut written = Written::new(&bundle);
        written.put("v2", json!({"url": "u", "wait": "1m30s"}));
        assert_eq!(written.shows("v3"), json!({"url": "u", "seconds": 90}), "{storage}");
        assert_eq!(written.shows("v4"), json!({"url": "u", "seconds": 90}), "{storage}");
        // What was written is kept as long as it has the same value.
        written.put("v3", json!({"url": "w", "seconds": 90}));
        assert_eq!(written.shows("v2"), json!({"url": "w", "wait": "1m30s"}), "{storage}");
        written.put("v4", json!({"url": "w", "seconds": 5}));
        assert_eq!(written.shows("v3"), json!({"url": "w", "seconds": 5}), "{storage}");
        assert_eq!(written.shows("v2"), json!({"url": "w", "wait": "5s"}), "{storage}");
        written.put("v1", json!({"url": "x"}));
        assert_eq!(written.shows("v4"), json!({"url": "x", "seconds": 5}), "{storage}");
    }
}

#[test]
fn what_an_earlier_program_stored_in_two_homes_is_joined() {
    let bundle = bundle_of(ADDED);
    // A list that only one version wrote is not added to itself.
    let lists = bundle_of("versions:\n  v1: {spec: {u: string}}\n  v2: {spec: {u: string, l: [string]}}\n");
    let list = json!({"v2": {"fields": {"spec": {"fields": {"l": {"set": ["a"]}}}}}}).to_string();
    let value = object("v1", &json!({"spec": {"u": "u"}}));
    let stored = Stored {
        value: &value,
        version: "v1",
        residual: Some(list.as_bytes()),
    };
    let shown = lists.get(stored, "v2", &mut unmetered_budget()).unwrap();
    assert_eq!(shown["spec"], json!({"u": "u", "l": ["a"]}));
    let set = |f: &str| json!({"fields": {"spec": {"fields": {"f": {"set": f}}}}});
    let manager = |version: &str, time: &str| json!({"apiVersion": format!("example.io/{version}"), "time": time});
    for (v2, v3, f) in [("1", "2", "of v3"), ("2", "1", "of v2")] {
        let time = |second: &str| format!("2026-01-01T00:00:0{second}Z");
        let managers = json!([manager("v2", &time(v2)), manager("v3", &time(v3))]);
        let value = object(
            "v1",
            &json!({"spec": {"url": "u"}, "metadata": {"managedFields": managers}}),
        );
        let both = json!({"v2": set("of v2"), "v3": set("of v3")}).to_string();
        let old = |residual| Stored {
            value: &value,
            version: "v1",
            residual: Some(residual),
        };
        for version in ["v2", "v3"] {
            let shown = bundle
                .get(old(both.as_bytes()), version, &mut unmetered_budget())
                .unwrap();
            assert_eq!(shown["spec"], json!({"url": "u", "f": f}), "{version}");
        }
        // One home is enough to show it in both; what is written next has one.
        let one = json!({"v2": set("of v2")}).to_string();
        let mut shown = bundle.get(old(one.as_bytes()), "v3", &mut unmetered_budget()).unwrap();
        assert_eq!(shown["spec"]["f"], "of v2");
        let same = bundle
            .put(&shown, "v3", Some(old(one.as_bytes())), &mut unmetered_budget())
            .unwrap();
        assert_eq!(same.residual.as_deref(), Some(one.as_bytes()));
        shown["spec"]["g"] = json!("g");
        let after = bundle
            .put(&shown, "v3", Some(old(one.as_bytes())), &mut unmetered_budget())
            .unwrap();
        let fields = json!({"f": {"set": "of v2"}, "g": {"set": "g"}});
        let home = json!({"*": {"fields": {"spec": {"fields": fields}}}});
        assert_eq!(residuals_of(&after), home);
    }
}

/// The stored version has rules with the hub, and lacks what the hub shares with others.
#[test]
fn what_the_hub_has_and_the_stored_version_lacks_is_shared() {
    let bundle = bundle_of(
        "
storage: v1
versions:
  v1: {spec: {a: string}}
  v2: {spec: {b: string, f: string}}
  v3: {spec: {b: string, g: string, h: string}}
rules:
  hub: v2
  conversions:
  - {from: v1, to: v2, rules: [{field: .spec.a, destination: .spec.b}]}
  - {from: v2, to: v1, rules: [{field: .spec.b, destination: .spec.a}]}
  - {from: v2, to: v3, rules: [{field: .spec.f, destination: .spec.g}]}
  - {from: v3, to: v2, rules: [{field: .spec.g, destination: .spec.f}]}
",
    );
    let mut written = Written::new(&bundle);
    written.put("v2", json!({"b": "b", "f": "f"}));
    assert_eq!(written.shows("v3"), json!({"b": "b", "g": "f"}));
    written.put("v3", json!({"b": "b", "g": "g"}));
    assert_eq!(written.shows("v2"), json!({"b": "b", "f": "g"}));
}

/// A list that rules beside the hub move as a whole, whose items have fields of one version each.
#[test]
fn what_is_in_a_list_that_the_hub_lacks_is_shared() {
    let bundle = bundle_of(
        "
versions:
  v1: {spec: {url: string}}
  v2: {spec: {url: string, 'l[k]': [{k!: string, x: string}]}}
  v3: {spec: {url: string, 'm[k]': [{k!: string, y: string}]}}
  v4: {spec: {url: string, 'm[k]': [{k!: string, y: string}]}}
rules:
  hub: v1
  conversions:
  - {from: v1, to: v2, rules: []}
  - {from: v1, to: v3, rules: []}
  - {from: v1, to: v4, rules: []}
  - {from: v2, to: v3, rules: [{field: .spec.l, destination: .spec.m}]}
  - {from: v3, to: v2, rules: [{field: .spec.m, destination: .spec.l}]}
",
    );
    let mut written = Written::new(&bundle);
    written.put("v3", json!({"m": [{"k": "a", "y": "y"}]}));
    assert_eq!(written.shows("v4"), json!({"m": [{"k": "a", "y": "y"}]}));
    written.put("v2", json!({"l": [{"k": "a", "x": "x"}]}));
    assert_eq!(written.shows("v4"), json!({"m": [{"k": "a", "y": "y"}]}));
}

/// Rules move the list, or its items one by one; the stored version shows a part of their key.
#[test]
fn an_item_that_goes_from_a_moved_list_is_the_one_that_the_writer_means() {
    for (there, back) in [
        (
            "{field: .spec.l, destination: .spec.m}",
            "{field: .spec.m, destination: .spec.l}",
        ),
        (
            "{from: v1.spec.l, to: .spec.m, itemRules: [{from: self.k, to: item.n}]}",
            "{from: v2.spec.m, to: .spec.l, itemRules: [{from: self.n, to: item.k}]}",
        ),
    ] {
        let key = if there.starts_with("{field") { "n" } else { "k" };
        let bundle = bundle_of(&format!(
            "
storage: v2
versions:
  v1: {{spec: {{'l[{key},t]': [{{{key}!: string, t: {{$: {{type: string, default: T}}}}}}]}}}}
  v2: {{spec: {{'m[n]': [{{n!: string, h: string}}]}}}}
rules:
  hub: v1
  conversions: [{{from: v1, to: v2, rules: [{there}]}}, {{from: v2, to: v1, rules: [{back}]}}]
"
        ));
        let mut written = Written::new(&bundle);
        written.put("v1", json!({"l": [{key: "a", "t": "x"}, {key: "a", "t": "z"}]}));
        written.put("v2", json!({"m": [{"n": "a", "h": "h"}, {"n": "a"}]}));
        written.put("v1", json!({"l": [{key: "a", "t": "z"}]}));
        assert_eq!(written.shows("v2"), json!({"m": [{"n": "a"}]}), "{there}");
    }
}

/// One version tells items apart by a key, and others have the list without one: the stored one,
/// with the whole key or a part of it, by other names as well.
#[test]
fn a_key_of_any_version_tells_the_items_of_all_apart() {
    let move_list = |from: &str, to: &str, a: &str, b: &str| {
        format!("{{from: {from}, to: {to}, rules: [{{field: '.spec.{a}', destination: '.spec.{b}'}}]}}")
    };
    let by_item = |from: &str, to: &str, a: [&str; 3], b: [&str; 3]| {
        let rules = [1, 2].map(|i| format!("{{field: 'self.{}', destination: 'item.{}'}}", a[i], b[i]));
        let rule = format!(
            "{{field: .spec.{}, destination: .spec.{}, itemRules: [{}]}}",
            a[0],
            b[0],
            rules.join(", ")
        );
        format!("{{from: {from}, to: {to}, rules: [{rule}]}}")
    };
    let (old, new) = (["l", "k", "w"], ["m", "n", "v"]);
    for (names, rules) in [
        (old, None),
        (
            ["m", "k", "w"],
            Some([move_list("v1", "v2", "l", "m"), move_list("v2", "v1", "m", "l")]),
        ),
        (
            new,
            Some([by_item("v1", "v2", old, new), by_item("v2", "v1", new, old)]),
        ),
    ] {
        let [list, key, value] = names;
        let rules = rules.map_or(String::new(), |[there, back]| {
            format!("rules: {{hub: v1, conversions: [{there}, {back}]}}")
        });
        for (keys, parts) in [(key.to_owned(), ["x", "x", "x"]), (format!("{key},t"), ["x", "y", "x"])] {
            for storage in ["v1", "v2"] {
                let bundle = bundle_of(&format!(
                    "
storage: {storage}
versions:
  v1: {{spec: {{l: [{{k: string, w: string}}]}}}}
  v2: {{spec: {{'{list}[{keys}]': [{{{key}!: string, t: {{$: {{type: string, default: x}}}}, {value}: string,
       note: string}}]}}}}
{rules}
"
                ));
                let item = |i: usize| {
                    let (name, part) = (["a", "b", "c"][i], parts[i]);
                    json!({key: name, "t": part, value: "w", "note": format!("note {i}")})
                };
                let mut written = Written::new(&bundle);
                written.put("v2", json!({list: [item(0), item(1), item(2)]}));
                let turned = json!({"l": [{"k": "c", "w": "w"}, {"k": "b", "w": "w"}, {"k": "a", "w": "w"}]});
                written.put("v1", turned);
                let what = format!("{names:?} {keys} {storage}");
                assert_eq!(
                    written.shows("v2"),
                    json!({list: [item(2), item(1), item(0)]}),
                    "{what}"
                );
                written.put(
                    "v1",
                    json!({"l": [{"k": "a", "w": "w"}, {"k": "d"}, {"k": "c", "w": "w"}]}),
                );
                let fresh = json!({key: "d", "t": "x"});
                assert_eq!(written.shows("v2"), json!({list: [item(0), fresh, item(2)]}), "{what}");
            }
        }
    }
}
