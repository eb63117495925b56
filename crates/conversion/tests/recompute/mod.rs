//! Recomputation of objects that wrong rules wrote.

use insula_api::FieldPath;
use insula_conversion::{Bundle, LossPolicy, ToStore, parse_rules, unmetered_budget};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

mod store;

use store::*;

#[test]
fn a_write_records_its_rules_and_one_in_the_storage_version_none() {
    let rules = wrong();
    let store = Store::create(&rules, "v1", json!({"size": "5Gi"}), &["spec.size"]);
    assert_eq!(Some(store.record().rules), rules.rules_of("v1"));
    assert_ne!(rules.rules_of("v1"), right().rules_of("v1"));
    assert_eq!(rules.rules_of("v2"), None);
    let store = Store::create(&rules, "v2", json!({"bytes": 5}), &["spec.bytes"]);
    assert_eq!(
        store.stored.residual.as_deref().filter(|it| it.starts_with(b"{\"\"")),
        None
    );
}

#[test]
fn what_a_wrong_rule_wrote_is_recomputed_once() {
    let (wrong, right) = (wrong(), right());
    let mut store = Store::create(
        &wrong,
        "v1",
        json!({"size": "5Gi", "owner": "ann"}),
        &["spec.size", "spec.owner"],
    );
    assert_eq!(store.spec(&right, "v2")["bytes"], 5000);
    let (changes, kept) = store.recompute(&right, &wrong);
    assert_eq!(changes[0], "v2 spec.bytes: 5000 -> 5368709120");
    assert_eq!(kept, [""; 0]);
    assert_eq!(store.spec(&right, "v1"), json!({"size": "5Gi", "owner": "ann"}));
    assert_eq!(
        store.spec(&right, "v2"),
        json!({"bytes": 5_368_709_120_u64, "team": "ann"})
    );
    assert_eq!(Some(store.record().rules), right.rules_of("v1"));
    let before = store.stored.clone();
    assert_eq!(store.recompute(&right, &right), (Vec::new(), Vec::new()));
    assert_eq!(store.stored, before);
}

#[test]
fn a_value_that_the_rules_cannot_restore_stays_as_it_was_written() {
    let (wrong, right) = (wrong(), right());
    let mut store = Store::create(&wrong, "v1", json!({"size": "05Gi"}), &["spec.size"]);
    store.recompute(&right, &wrong);
    assert_eq!(store.spec(&right, "v1")["size"], "05Gi");
    assert_eq!(store.spec(&right, "v2")["bytes"], 5_368_709_120_u64);
}

#[test]
fn fields_that_others_wrote_stay() {
    let (wrong, right) = (wrong(), right());
    let mut store = Store::create(
        &wrong,
        "v1",
        json!({"size": "5Gi", "note": "n"}),
        &["spec.size", "spec.note"],
    );
    store.edit(&wrong, "v2", json!({"color": "red"}), &["spec.color"], &[]);
    let (changes, _) = store.recompute(&right, &wrong);
    assert!(!changes.is_empty());
    assert_eq!(
        store.spec(&right, "v2"),
        json!({"bytes": 5_368_709_120_u64, "color": "red", "note": "n"})
    );

    // The same field, by hand in v2.
    let mut store = Store::create(&wrong, "v1", json!({"size": "5Gi"}), &["spec.size"]);
    store.edit(
        &wrong,
        "v2",
        json!({"bytes": 3_221_225_472_u64}),
        &["spec.bytes"],
        &["spec.size"],
    );
    store.recompute(&right, &wrong);
    assert_eq!(store.spec(&right, "v2")["bytes"], 3_221_225_472_u64);
    assert_eq!(store.spec(&right, "v1")["size"], "3Gi");

    // Written in v2 at first, and then another field through v1.
    let mut store = Store::create(
        &wrong,
        "v2",
        json!({"bytes": 7000, "team": "a"}),
        &["spec.bytes", "spec.team"],
    );
    store.edit(&wrong, "v1", json!({"owner": "b"}), &["spec.owner"], &["spec.team"]);
    store.recompute(&right, &wrong);
    assert_eq!(store.spec(&right, "v2"), json!({"bytes": 7000, "team": "b"}));
}

#[test]
fn a_field_written_by_todays_rules_stays_and_its_neighbours_are_recomputed() {
    let (wrong, right) = (wrong(), right());
    let mut store = Store::create(
        &wrong,
        "v1",
        json!({"size": "5Gi", "owner": "a"}),
        &["spec.size", "spec.owner"],
    );
    store.edit(&right, "v1", json!({"owner": "b"}), &[], &[]);
    assert_eq!(
        Some(store.record().rules),
        wrong.rules_of("v1"),
        "the size is still as the wrong rule made it"
    );
    let mut other = Store {
        stored: store.stored.clone(),
        owned: store.owned.clone(),
    };
    store.recompute(&right, &wrong);
    assert_eq!(
        store.spec(&right, "v2"),
        json!({"bytes": 5_368_709_120_u64, "team": "b"})
    );
    other.edit(&right, "v1", json!({"size": "6Gi"}), &[], &[]);
    other.recompute(&right, &wrong);
    assert_eq!(
        other.spec(&right, "v2"),
        json!({"bytes": 6_442_450_944_u64, "team": "b"})
    );
    assert_eq!(other.spec(&right, "v1"), json!({"size": "6Gi", "owner": "b"}));
}

#[test]
fn a_move_to_the_wrong_field_is_moved() {
    let text = json!({"type": "string"});
    let with = |destination: &str| {
        let versions = vec![
            version("v1", json!({"who": text})),
            version("v2", json!({"author": text, "reader": text})),
        ];
        let rules = json!({"conversions": [
            {"from": "v1", "to": "v2", "rules": [{"field": ".spec.who", "destination": destination}]},
            {"from": "v2", "to": "v1", "rules": [{"field": destination, "destination": ".spec.who"}]}]});
        let path = FieldPath::new("spec");
        let rules = parse_rules(&rules, &path).expect("rules");
        Bundle::compile("e.io", versions, "v2", Some(&rules), LossPolicy::Lossless, &path).expect("compiles")
    };
    let (wrong, right) = (with(".spec.reader"), with(".spec.author"));
    let mut store = Store::create(&wrong, "v1", json!({"who": "ann"}), &["spec.who"]);
    assert_eq!(store.spec(&right, "v1"), json!({}));
    let (changes, _) = store.recompute(&right, &wrong);
    assert_eq!(changes.len(), 3, "{changes:?}");
    assert_eq!(store.spec(&right, "v2"), json!({"author": "ann"}));
    assert_eq!(store.spec(&right, "v1"), json!({"who": "ann"}));
}

/// The rules are corrected in the release that stores the version through which they wrote.
#[test]
fn what_a_wrong_rule_wrote_is_recomputed_after_a_move_of_the_storage() {
    let (wrong, right) = (wrong(), stored_in("v1", UP, DOWN));
    let written = || {
        let spec = json!({"size": "5Gi", "owner": "ann"});
        let mut store = Store::create(&wrong, "v1", spec, &["spec.size", "spec.owner"]);
        store.edit(&wrong, "v2", json!({"color": "red"}), &["spec.color"], &[]);
        store.moved(&right)
    };
    let mut store = written();
    assert_eq!(store.spec(&right, "v1"), json!({"size": "0Gi", "owner": "ann"}));
    assert_eq!(store.record().rules, wrong.rules_of("v1").unwrap());
    let (changes, kept) = store.recompute(&right, &wrong);
    assert_eq!(changes[0], "v1 spec.size: \"0Gi\" -> \"5Gi\"");
    assert_eq!(kept, [""; 0]);
    assert_eq!(store.spec(&right, "v1"), json!({"size": "5Gi", "owner": "ann"}));
    let v2 = json!({"bytes": 5_368_709_120_u64, "team": "ann", "color": "red"});
    assert_eq!(store.spec(&right, "v2"), v2);
    assert!(
        !written_by(&store).contains(&"v1".to_owned()),
        "a second run finds nothing"
    );

    // What was written since stays, by whichever version.
    for (version, fields) in [
        ("v1", json!({"size": "7Gi"})),
        ("v2", json!({"bytes": 7_516_192_768_u64})),
    ] {
        let mut store = written();
        store.edit(&right, version, fields, &[], &[]);
        let (changes, kept) = store.recompute(&right, &wrong);
        assert_eq!(changes, [""; 0], "{version}");
        assert!(
            kept.iter().any(|one| one.starts_with("v1 spec.size: ")),
            "{version}: {kept:?}"
        );
        assert_eq!(store.spec(&right, "v1")["size"], "7Gi", "{version}");
    }

    // By the rules that move it, nothing is wrong.
    let same = Store::create(&wrong, "v1", json!({"size": "5Gi"}), &["spec.size"]);
    let same = same.moved(&stored_in("v1", WRONG_UP, WRONG_DOWN));
    assert_eq!(written_by(&same), ["v2"]);
}

/// After another move nobody knows what its writers saw: the object counts as wrong, not as right.
#[test]
fn what_a_wrong_rule_wrote_is_known_after_two_moves_of_the_storage() {
    let (wrong, right) = (wrong(), stored_in("v1", UP, DOWN));
    let store = Store::create(&wrong, "v1", json!({"size": "5Gi"}), &["spec.size"]);
    let store = store.moved(&right).moved(&stored_in("v2", UP, DOWN));
    assert_eq!(store.record().rules, wrong.rules_of("v1").unwrap());
}

#[test]
fn objects_of_unknown_rules_stay_unknown() {
    let rules = right();
    let owned = BTreeMap::from([("v1", vec!["spec.size"])]);
    let mut x = object("v2", json!({"bytes": 5}), &owned);
    x["metadata"]["managedFields"] = json!([{"apiVersion": "e.io/v1", "fieldsV1": {"f:spec": {}}}]);
    let stored = ToStore {
        value: x,
        residual: None,
    };
    let mut store = Store { stored, owned };
    store.edit(&rules, "v1", json!({"owner": "b"}), &["spec.owner"], &[]);
    assert_eq!(store.record().rules, insula_conversion::RULES_UNKNOWN);
}

#[test]
fn a_status_that_others_write_does_not_hide_the_wrong_rule() {
    let (wrong, right) = (wrong(), right());
    let mut store = Store::create(&wrong, "v1", json!({"size": "05Gi"}), &["spec.size"]);
    for phase in ["a", "b"] {
        let mut x = right.get(store.stored(), "v2", &mut unmetered_budget()).expect("reads");
        x["status"] = json!({ "note": phase });
        store.stored = right
            .put(&x, "v2", Some(store.stored()), &mut unmetered_budget())
            .expect("stores");
    }
    store.recompute(&right, &wrong);
    assert_eq!(store.spec(&right, "v2"), json!({"bytes": 5_368_709_120_u64}));
    assert_eq!(store.spec(&right, "v1"), json!({"size": "05Gi"}));
    let status = right.get(store.stored(), "v1", &mut unmetered_budget()).expect("reads")["status"].clone();
    assert_eq!(status, json!({"note": "b"}));
}

/// One write: the version, whether today's rules serve it, and the fields.
#[derive(Debug, Clone)]
struct Edit {
    version: &'static str,
    corrected: bool,
    size: Option<u64>,
    owner: Option<u8>,
    color: Option<u8>,
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = (
        any::<bool>(),
        prop::option::of(1..9u64),
        prop::option::of(0..4u8),
        prop::option::of(0..4u8),
    );
    let edit = edit.prop_map(|(first, size, owner, color)| Edit {
        version: if first { "v1" } else { "v2" },
        corrected: false,
        size,
        owner,
        color,
    });
    (prop::collection::vec(edit, 1..6), 0..6_usize).prop_map(|(mut edits, from)| {
        edits
            .iter_mut()
            .skip(from.max(1))
            .for_each(|edit| edit.corrected = true);
        edits
    })
}

impl Edit {
    /// Returns the fields to write, by name, and the names of the same fields in the other version.
    fn fields(&self) -> Vec<(&'static str, &'static str, Json)> {
        let (size, owner) = (self.size, self.owner.map(|owner| json!(format!("o{owner}"))));
        let mut fields = Vec::new();
        match self.version {
            "v1" => {
                // A text that the rules do not restore.
                fields.extend(size.map(|size| ("spec.size", "spec.bytes", json!(format!("0{size}Gi")))));
                fields.extend(owner.map(|owner| ("spec.owner", "spec.team", owner)));
            }
            _ => {
                fields.extend(size.map(|size| ("spec.bytes", "spec.size", json!(size << 30))));
                fields.extend(owner.map(|owner| ("spec.team", "spec.owner", owner)));
                fields.extend(self.color.map(|color| ("spec.color", "", json!(format!("c{color}")))));
            }
        }
        fields
    }
}

/// The wanted fields after the repair: as their last writer wrote them, and in the other version as
/// today's rules make that.
#[derive(Debug, Default)]
struct Model {
    v1: serde_json::Map<String, Json>,
    v2: serde_json::Map<String, Json>,
}

impl Model {
    fn write(&mut self, version: &str, field: &str, value: &Json) {
        let (v1, v2) = (&mut self.v1, &mut self.v2);
        let gibibytes = |text: &str| {
            text.trim_start_matches('0')
                .trim_end_matches("Gi")
                .parse::<u64>()
                .expect("a number")
        };
        match (version, field) {
            ("v1", "spec.size") => {
                v1.insert("size".into(), value.clone());
                v2.insert("bytes".into(), json!(gibibytes(value.as_str().expect("a text")) << 30));
            }
            ("v2", "spec.bytes") => {
                v2.insert("bytes".into(), value.clone());
                v1.insert(
                    "size".into(),
                    json!(format!("{}Gi", value.as_u64().expect("a number") >> 30)),
                );
            }
            (_, "spec.color") => drop(v2.insert("color".into(), value.clone())),
            _ => {
                v1.insert("owner".into(), value.clone());
                v2.insert("team".into(), value.clone());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]

    /// Whoever writes which fields, by which rules and in which order: after the repair each field
    /// is as its last writer wrote it, and shows in the other version as today's rules make it.
    #[test]
    fn every_field_is_as_its_last_writer_wrote_it(edits in edits()) {
        let (wrong, right) = (wrong(), right());
        let mut model = Model::default();
        let mut store: Option<Store> = None;
        for edit in &edits {
            let rules = if edit.corrected { &right } else { &wrong };
            let store = store.get_or_insert_with(|| Store::create(rules, edit.version, json!({}), &[]));
            let before = store.spec(rules, edit.version);
            let (mut fields, mut owned, mut lost) = (json!({}), Vec::new(), Vec::new());
            for (field, other, value) in edit.fields() {
                let name = &field["spec.".len()..];
                // What a client writes as it was shown does not become its own.
                if before[name] != value {
                    fields[name] = value.clone();
                    owned.push(field);
                    lost.extend([field, other]);
                    model.write(edit.version, field, &value);
                }
            }
            store.edit(rules, edit.version, fields, &owned, &lost);
        }
        let mut store = store.expect("there is an edit");
        store.recompute(&right, &wrong);
        let told = |rules: &Bundle| (store.spec(rules, "v1"), store.spec(rules, "v2"));
        prop_assert_eq!(told(&right), (Json::Object(model.v1), Json::Object(model.v2)));
    }
}
