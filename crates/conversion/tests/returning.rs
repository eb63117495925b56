//! Values of fields and lists that are away for a release, in versions beside the stored one.

use crate::support::{bundle_of, object};
use insula_conversion::{ToStore, unmetered_budget};
use serde_json::{Value as Json, json};

/// An object over the releases of an API: each of them gives the document and the storage version.
#[derive(Default)]
struct Released {
    stored: Option<(ToStore, &'static str)>,
}

impl Released {
    fn put(&mut self, (versions, storage): (&str, &'static str), version: &str, spec: Json) {
        let bundle = bundle_of(&format!("storage: {storage}\nversions: {versions}\n"));
        let x = object(version, &json!({"spec": spec}));
        let old = self.stored.as_ref().map(|(stored, at)| stored.stored(at));
        let after = bundle.put(&x, version, old, &mut unmetered_budget()).unwrap();
        self.stored = Some((after, storage));
    }

    fn shows(&self, (versions, storage): (&str, &str), version: &str) -> Json {
        let bundle = bundle_of(&format!("storage: {storage}\nversions: {versions}\n"));
        let (stored, at) = self.stored.as_ref().unwrap();
        bundle.get(stored.stored(at), version, &mut unmetered_budget()).unwrap()["spec"].clone()
    }
}

#[test]
fn what_is_in_the_items_of_a_list_outlives_a_write_while_the_list_is_away() {
    let (none, keys) = ("{spec: {u: string}}", "{spec: {u: string, 'l[k]': [{k!: string}]}}");
    let all = "{spec: {u: string, 'l[k]': [{k!: string, y: string}]}}";
    let with = format!("{{v1: {keys}, v2: {all}, v3: {keys}}}");
    let without = format!("{{v1: {none}, v2: {none}, v3: {keys}}}");
    for writer in ["v1", "v2", "v3"] {
        let mut released = Released::default();
        released.put((&with, "v1"), "v2", json!({"u": "u", "l": [{"k": "a", "y": "y"}]}));
        let mut spec = released.shows((&without, "v1"), writer);
        spec["u"] = json!("w");
        released.put((&without, "v1"), writer, spec);
        let shown = released.shows((&with, "v1"), "v2");
        assert_eq!(shown, json!({"u": "w", "l": [{"k": "a", "y": "y"}]}), "{writer}");
    }
}

#[test]
fn a_field_that_was_away_when_storage_moved_is_shared_when_it_is_back() {
    let with = "{v1: {spec: {u: string, f: string}}, v2: {spec: {u: string, f: string}}}";
    let without = "{v1: {spec: {u: string}}, v2: {spec: {u: string}}}";
    let mut released = Released::default();
    released.put((with, "v1"), "v1", json!({"u": "u", "f": "f"}));
    released.put((without, "v1"), "v1", json!({"u": "w"}));
    released.put((without, "v2"), "v2", json!({"u": "x"}));
    for version in ["v1", "v2"] {
        assert_eq!(
            released.shows((with, "v2"), version),
            json!({"u": "x", "f": "f"}),
            "{version}"
        );
    }
}

const BOTH: &str = "{v1: {spec: {u: string, f: string}}, v2: {spec: {u: string, f: string}}}";
const ONE: &str = "{v1: {spec: {u: string}}, v2: {spec: {u: string, f: string}}}";

#[test]
fn a_field_that_one_version_loses_still_shows_in_the_other() {
    let f = json!({"u": "u", "f": "f"});
    for writes in [0, 1] {
        let mut released = Released::default();
        released.put((BOTH, "v1"), "v1", f.clone());
        for _ in 0..writes {
            released.put((ONE, "v1"), "v1", json!({"u": "u"}));
        }
        assert_eq!(released.shows((ONE, "v1"), "v2"), f, "after {writes} writes");
        released.put((ONE, "v1"), "v2", json!({"u": "u", "f": "g"}));
        assert_eq!(released.shows((ONE, "v1"), "v1"), json!({"u": "u"}));
        for version in ["v1", "v2"] {
            assert_eq!(released.shows((BOTH, "v1"), version), json!({"u": "u", "f": "g"}));
        }
        released.put((ONE, "v1"), "v2", json!({"u": "u"}));
        for version in ["v1", "v2"] {
            assert_eq!(released.shows((BOTH, "v1"), version), json!({"u": "u"}));
        }
    }
}

#[test]
fn a_field_that_a_version_gets_shows_what_the_other_has_in_it() {
    let f = json!({"u": "u", "f": "f"});
    let mut released = Released::default();
    released.put((ONE, "v1"), "v2", f.clone());
    assert_eq!(released.shows((BOTH, "v1"), "v1"), f);
    released.put((BOTH, "v1"), "v1", json!({"u": "u", "f": "g"}));
    assert_eq!(released.shows((BOTH, "v1"), "v2"), json!({"u": "u", "f": "g"}));
}

/// The same with a field in which anything is kept, also beside a hub without it.
#[test]
fn a_field_of_any_content_shows_in_a_version_that_gets_it() {
    let one = "{v1: {spec: {u: string}}, v2: {spec: {u: string, f: any}}}";
    let both = "{v1: {spec: {u: string, f: any}}, v2: {spec: {u: string, f: any}}}";
    let f = json!({"u": "u", "f": {"a": 1, "b": {"c": [2]}}});
    let mut released = Released::default();
    released.put((one, "v1"), "v2", f.clone());
    assert_eq!(released.shows((both, "v1"), "v1"), f);
    let around = "{v1: {spec: {u: string}}, v2: {spec: {u: string, f: any}}, v3: {spec: {u: string, f: any}}}";
    let all = "{v1: {spec: {u: string, f: any}}, v2: {spec: {u: string, f: any}}, v3: {spec: {u: string, f: any}}}";
    let mut released = Released::default();
    released.put((around, "v1"), "v2", f.clone());
    for version in ["v1", "v2", "v3"] {
        assert_eq!(released.shows((all, "v1"), version), f, "{version}");
    }
}

/// A later write in a field of a wider type counts once both have that type.
#[test]
fn a_later_write_in_a_wider_field_counts() {
    let two = "{v1: {spec: {p: integer}}, v2: {spec: {p: number}}}";
    let same = "{v1: {spec: {p: number}}, v2: {spec: {p: number}}}";
    let mut released = Released::default();
    released.put((two, "v2"), "v1", json!({"p": 5}));
    released.put((two, "v2"), "v2", json!({"p": 7}));
    for version in ["v1", "v2"] {
        assert_eq!(released.shows((same, "v2"), version), json!({"p": 7}), "{version}");
    }
}

/// The version that still has the field shows another value than the one that the stored version
/// lost: that one does not come back when the other goes.
#[test]
fn a_lost_value_does_not_come_back_in_the_place_of_another() {
    let mut released = Released::default();
    released.put((BOTH, "v1"), "v1", json!({"u": "u", "f": "f"}));
    released.put((ONE, "v1"), "v2", json!({"u": "u", "f": "g"}));
    released.put((ONE, "v1"), "v2", json!({"u": "u"}));
    for release in [ONE, BOTH] {
        assert_eq!(released.shows((release, "v1"), "v2"), json!({"u": "u"}));
    }
}

/// The stored version shows nothing of the items, and retains a value in one of them.
#[test]
fn a_lost_value_stays_with_its_item_when_another_version_adds_one() {
    let both = "{v1: {spec: {l: [{x: string}]}}, v2: {spec: {l: [{x: string, y: string}]}}}";
    let none = "{v1: {spec: {l: [{}]}}, v2: {spec: {l: [{y: string}]}}}";
    let mut released = Released::default();
    released.put((both, "v1"), "v2", json!({"l": [{"x": "x"}]}));
    released.put((none, "v1"), "v2", json!({"l": [{"y": "new"}, {}]}));
    assert_eq!(
        released.shows((both, "v1"), "v2"),
        json!({"l": [{"y": "new"}, {"x": "x"}]})
    );
}

/// While the field is away, no version has anything that the others lack, so that what lies beside
/// the object is nobody's; with the field come versions that differ.
#[test]
fn a_field_that_comes_back_with_others_shows_in_every_version() {
    let with = "{v1: {spec: {u: string, f: string, g: string}}, v2: {spec: {u: string, f: string}}}";
    let without = "{v1: {spec: {u: string}}, v2: {spec: {u: string}}}";
    let mut released = Released::default();
    released.put((with, "v2"), "v1", json!({"f": "f", "g": "g"}));
    released.put((without, "v2"), "v1", json!({"u": "u"}));
    assert_eq!(
        released.shows((with, "v2"), "v1"),
        json!({"u": "u", "f": "f", "g": "g"})
    );
    assert_eq!(released.shows((with, "v2"), "v2"), json!({"u": "u", "f": "f"}));
}

#[test]
fn an_object_that_was_cleared_while_it_showed_nothing_shows_what_a_release_brings_back() {
    let with = "{v1: {spec: {u: string}}, v2: {spec: {o: {f: string}}}, v3: {spec: {o: {f: string, g: string}}}}";
    let without = "{v1: {spec: {u: string}}, v2: {spec: {o: {f: string}}}, v3: {spec: {o: {g: string}}}}";
    let mut released = Released::default();
    released.put((with, "v1"), "v2", json!({"o": {"f": "f"}}));
    assert_eq!(released.shows((without, "v1"), "v3"), json!({"o": {}}));
    released.put((without, "v1"), "v3", json!({}));
    assert_eq!(released.shows((without, "v1"), "v3"), json!({}));
    assert_eq!(released.shows((with, "v1"), "v3"), json!({"o": {"f": "f"}}));
}

/// The list comes back with one version, and what another has in its items lies elsewhere.
#[test]
fn what_waits_for_a_list_is_there_when_storage_has_moved_meanwhile() {
    let with = "{v1: {spec: {'l[k]': [{k!: string}]}}, v2: {spec: {'l[k]': [{k!: string, y: string}]}}}";
    let without = "{v1: {spec: {u: string}}, v2: {spec: {u: string}}}";
    let mut released = Released::default();
    let list = json!({"l": [{"k": "a", "y": "y"}]});
    released.put((with, "v1"), "v2", list.clone());
    released.put((without, "v2"), "v2", json!({"u": "u"}));
    for storage in ["v1", "v2"] {
        assert_eq!(released.shows((with, storage), "v2"), list, "{storage}");
    }
}

/// Rules between a hub v1 and a version v2, which move nothing.
const PAIR: &str = "\nrules: {hub: v1, conversions: [{from: v1, to: v2, rules: []}, {from: v2, to: v1, rules: []}]}";

/// Two versions keep something of one object: one that it was there, the other a value in it.
#[test]
fn an_empty_object_that_one_version_keeps_hides_no_value_of_another() {
    let with = "{v1: {spec: {o: {}, l: [{}]}}, v2: {spec: {o: {f: integer}, l: [{x: string}]}}";
    let three = format!("{with}, v3: {{spec: {{o: {{}}, l: [{{}}]}}}}}}{PAIR}");
    let without = format!("{{v1: {{spec: {{l: [{{}}]}}}}, v2: {{spec: {{l: [{{x: string}}]}}}}}}{PAIR}");
    let mut released = Released::default();
    released.put((&three, "v1"), "v2", json!({"o": {"f": 1}}));
    released.put((&without, "v2"), "v2", json!({"l": []}));
    let with = format!("{with}}}{PAIR}");
    assert_eq!(released.shows((&with, "v2"), "v2"), json!({"o": {"f": 1}, "l": []}));
}

/// Without its field, the items have none at all.
#[test]
fn a_value_in_items_without_fields_shows_when_its_field_is_back() {
    let with = "{v1: {spec: {u: string}}, v2: {spec: {l: [{x: integer}]}}}";
    let without = "{v1: {spec: {u: string}}, v2: {spec: {l: [{}]}}}";
    let mut released = Released::default();
    released.put((with, "v1"), "v2", json!({"l": [{"x": 1}]}));
    released.put((without, "v2"), "v1", json!({"u": "u"}));
    assert_eq!(released.shows((with, "v2"), "v2"), json!({"l": [{"x": 1}]}));
}

/// While the field is away, the hub shows all that versions have.
#[test]
fn an_entry_that_is_removed_takes_along_what_was_in_it_beside_the_hub() {
    let none = "{v1: {spec: {u: string}}, v2: {spec: {m: {'*': {}}}}, v3: {spec: {u: string, m: {'*': {x: string}}}}}";
    let with = none.replace("v1: ", "v4: {spec: {m: {'*': {y: string}}}}, v1: ");
    let mut released = Released::default();
    released.put((&with, "v3"), "v4", json!({"m": {"a": {"y": "y"}}}));
    released.put((none, "v3"), "v2", json!({}));
    released.put((none, "v1"), "v1", json!({"u": "u"}));
    assert_eq!(released.shows((none, "v1"), "v2"), json!({}));
    assert_eq!(released.shows((&with, "v1"), "v4"), json!({}));
}

/// An entry of a map is a value, also one without fields.
#[test]
fn an_object_that_was_cleared_shows_the_entries_of_a_map_that_is_back() {
    let with = "{v1: {spec: {o: {m: {'*': {}}}}}, v2: {spec: {o: {m: {'*': {}}, f: string}}}}";
    let without = "{v1: {spec: {o: {m: {'*': {}}}}}, v2: {spec: {o: {f: string}}}}";
    let mut released = Released::default();
    released.put((with, "v1"), "v2", json!({"o": {"m": {"a": {}}, "f": "f"}}));
    released.put((without, "v1"), "v2", json!({}));
    assert_eq!(released.shows((without, "v1"), "v2"), json!({}));
    assert_eq!(released.shows((with, "v1"), "v2"), json!({"o": {"m": {"a": {}}}}));
}

/// Neither version is made from the union.
#[test]
fn a_field_that_the_stored_one_of_two_versions_with_rules_loses_shows_in_the_other() {
    let with = format!("{{v1: {{spec: {{f: integer}}}}, v2: {{spec: {{f: integer, g: string}}}}}}{PAIR}");
    let without = format!("{{v1: {{spec: {{f: integer}}}}, v2: {{spec: {{g: string}}}}}}{PAIR}");
    let mut released = Released::default();
    released.put((&with, "v2"), "v1", json!({"f": 3}));
    assert_eq!(released.shows((&without, "v2"), "v1"), json!({"f": 3}));
}

/// The list is in an item of another one, and was away with that.
#[test]
fn a_part_of_a_key_with_a_default_is_back_with_its_list() {
    let (short, long) = ("{n!: string}", "{n!: string, t: {$: {type: string, default: T}}}");
    let with = format!(
        "{{v1: {{spec: {{'l[k]': [{{k!: string, 'm[n,t]': [{long}]}}]}}}}, \
           v2: {{spec: {{'l[k]': [{{k!: string, 'm[n]': [{short}]}}]}}}}}}{PAIR}"
    );
    let without = format!("{{v1: {{spec: {{u: string}}}}, v2: {{spec: {{u: string}}}}}}{PAIR}");
    let list = json!({"l": [{"k": "k", "m": [{"n": "n", "t": "t"}]}]});
    let mut released = Released::default();
    released.put((&with, "v2"), "v1", list.clone());
    released.put((&without, "v1"), "v1", json!({"u": "u"}));
    assert_eq!(released.shows((&with, "v1"), "v1"), list);
}

/// The stored version lacks a part of the key, for which the union has a default.
#[test]
fn a_default_in_the_key_of_a_conversion_names_no_other_item() {
    let list = |y: &str| {
        format!(
            "{{v1: {{spec: {{u: string, 'l[n]': [{{n!: string{y}}}]}}}}, \
               v2: {{spec: {{u: string, 'l[n,t]': [{{n!: string, t: {{$: {{type: string, default: T}}}}{y}}}]}}}}}}"
        )
    };
    let (with, without) = (list(", y: string"), list(""));
    let mut released = Released::default();
    let all = json!({"l": [{"n": "a", "t": "x", "y": "y"}, {"n": "a", "t": "z", "y": "w"}]});
    released.put((&with, "v1"), "v2", all.clone());
    released.put((&without, "v1"), "v1", json!({"u": "u", "l": [{"n": "a"}, {"n": "a"}]}));
    assert_eq!(released.shows((&with, "v1"), "v2")["l"], all["l"]);
}

/// The list is in the items of another one, which stayed.
#[test]
fn what_waits_for_a_list_in_an_item_is_there_with_the_list() {
    let with = "{v1: {spec: {l: [{'m[k]': [{k!: string}]}]}}, v2: {spec: {l: [{'m[k]': [{k!: string, y: string}]}]}}}";
    let without = "{v1: {spec: {u: string, l: [{}]}}, v2: {spec: {u: string, l: [{}]}}}";
    let list = json!({"l": [{"m": [{"k": "a", "y": "y"}, {"k": "b"}]}]});
    for storage in ["v1", "v2"] {
        let mut released = Released::default();
        released.put((with, "v1"), "v2", list.clone());
        released.put((without, "v2"), "v2", json!({"u": "u", "l": [{}]}));
        assert_eq!(released.shows((with, storage), "v2"), list, "{storage}");
    }
}

/// Rules of three versions around a hub v1, of which those between v1 and v2 move fields.
fn around(versions: &str, moves: &[(&str, &str)]) -> String {
    let rules = |moves: &[(&str, &str)]| {
        let rule = |(from, to): &(&str, &str)| format!("{{field: {from}, destination: {to}}}");
        moves.iter().map(rule).collect::<Vec<_>>().join(", ")
    };
    let back: Vec<(&str, &str)> = moves.iter().map(|(from, to)| (*to, *from)).collect();
    format!(
        "{versions}\nrules: {{hub: v1, conversions: [{{from: v1, to: v2, rules: [{}]}}, {{from: v2, to: v1, rules: \
           [{}]}}, {{from: v1, to: v3, rules: []}}, {{from: v3, to: v1, rules: []}}]}}",
        rules(moves),
        rules(&back)
    )
}

/// While the field is away, no rule relates the objects that it is in.
#[test]
fn an_empty_object_that_a_version_writes_hides_no_field_that_a_release_brings_back() {
    let with = "{v1: {spec: {o: {f: integer}}}, v2: {spec: {p: {f: integer}}}, v3: {spec: {u: string}}}";
    let with = around(with, &[("spec.o.f", "spec.p.f")]);
    let without = around(
        "{v1: {spec: {o: {}}}, v2: {spec: {p: {}}}, v3: {spec: {u: string}}}",
        &[],
    );
    let mut released = Released::default();
    released.put((&with, "v2"), "v1", json!({"o": {"f": 9}}));
    released.put((&without, "v2"), "v1", json!({"o": {}}));
    assert_eq!(released.shows((&with, "v2"), "v1"), json!({"o": {"f": 9}}));
    assert_eq!(released.shows((&with, "v2"), "v2"), json!({"p": {"f": 9}}));
}

/// While the hub retains a value, it has all that versions show.
#[test]
fn what_the_hub_retains_is_the_unions_once_there_is_one() {
    let first = "{v1: {spec: {u: string, f: string}}, v2: {spec: {u: string}}, v3: {spec: {u: string}}}";
    let without = "{v1: {spec: {u: string}}, v2: {spec: {u: string}}, v3: {spec: {u: string}}}";
    let with = "{v1: {spec: {u: string}}, v2: {spec: {u: string, g: string}}, v3: {spec: {u: string, f: string}}}";
    let all = "{v1: {spec: {u: string, f: string}}, v2: {spec: {u: string, g: string}}, v3: {spec: {u: string, f: \
               string}}}";
    let [first, without, with, all] = [first, without, with, all].map(|versions| around(versions, &[]));
    let mut released = Released::default();
    released.put((&first, "v2"), "v1", json!({"u": "u", "f": "f"}));
    released.put((&without, "v2"), "v2", json!({"u": "w"}));
    let shown = json!({"u": "w", "f": "f"});
    assert_eq!(released.shows((&with, "v2"), "v3"), shown);
    released.put((&with, "v2"), "v2", json!({"u": "w", "g": "g"}));
    for (versions, version) in [(&with, "v3"), (&all, "v3"), (&all, "v1")] {
        assert_eq!(released.shows((versions, "v2"), version), shown, "{version}");
    }
}

/// A field of the items was away before their list: two entries tell of one list.
#[test]
fn a_list_that_goes_after_a_field_of_its_items_comes_back_with_both() {
    let without = "{v1: {spec: {u: string}}, v2: {spec: {u: string, m: string}}}";
    let list = without.replace("v1: {spec: {", "v1: {spec: {l: [{}], ");
    let all = list.replace("}}}", "}}, v3: {spec: {l: [{x: string}]}}}");
    let three = around(&all, &[]);
    let [list, without] = [list.as_str(), without].map(|versions| format!("{versions}{PAIR}"));
    let mut released = Released::default();
    released.put((&three, "v2"), "v3", json!({"l": [{"x": "x"}]}));
    released.put((&list, "v2"), "v2", json!({"u": "u"}));
    released.put((&without, "v2"), "v2", json!({"u": "w"}));
    assert_eq!(released.shows((&list, "v2"), "v1"), json!({"u": "w", "l": [{}]}));
    assert_eq!(released.shows((&three, "v2"), "v3"), json!({"l": [{"x": "x"}]}));
    assert_eq!(released.shows((&three, "v2"), "v1"), json!({"u": "w", "l": [{}]}));
}

/// The list goes with the key's default, and comes back to items that never had one.
#[test]
fn a_part_of_a_key_beside_a_default_is_back_with_a_list_that_was_away() {
    let with = "{v1: {spec: {u: string, 'l[n]': [{n!: string}]}}, v2: {spec: {'l[n,t]': [{n!: string, t: {$: {type: \
                string, default: T}}}]}}}";
    let without = "{v1: {spec: {u: string}}, v2: {spec: {}}}";
    let list = json!({"l": [{"n": "a", "t": "x"}, {"n": "b", "t": "T"}]});
    let mut released = Released::default();
    released.put((with, "v1"), "v2", list.clone());
    released.put((without, "v1"), "v1", json!({"u": "u"}));
    assert_eq!(released.shows((with, "v1"), "v2"), list);
}

/// Rules name an entry of a map, which the union kept while no version had it.
#[test]
fn an_entry_that_rules_name_shows_where_they_move_it_when_the_map_is_back() {
    let with = "{v1: {spec: {m: {'*': {at: string, own: string}}}}, v2: {spec: {g: [string], f: string}}, v3: {spec: \
                {}}}";
    let with = around(with, &[("\"spec.m['main'].at\"", "spec.f")]);
    let without = around("{v1: {spec: {}}, v2: {spec: {g: [string]}}, v3: {spec: {}}}", &[]);
    let mut released = Released::default();
    released.put((&with, "v1"), "v2", json!({"f": "f"}));
    released.put((&without, "v2"), "v2", json!({}));
    released.put((&without, "v2"), "v2", json!({"g": []}));
    assert_eq!(released.shows((&with, "v2"), "v2"), json!({"g": [], "f": "f"}));
    assert_eq!(released.shows((&with, "v2"), "v1"), json!({"m": {"main": {"at": "f"}}}));
}
