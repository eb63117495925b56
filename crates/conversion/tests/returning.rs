//! Values of fields and lists that are away for a release, in versions beside the stored one.
#![allow(clippy::unwrap_used)]

mod support;

use insula_conversion::{ToStore, object_budget};
use serde_json::{Value as Json, json};
use support::{bundle_of, object};

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
        let after = bundle.put(&x, version, old, &mut object_budget()).unwrap();
        self.stored = Some((after, storage));
    }

    fn shows(&self, (versions, storage): (&str, &str), version: &str) -> Json {
        let bundle = bundle_of(&format!("storage: {storage}\nversions: {versions}\n"));
        let (stored, at) = self.stored.as_ref().unwrap();
        bundle.get(stored.stored(at), version, &mut object_budget()).unwrap()["spec"].clone()
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
