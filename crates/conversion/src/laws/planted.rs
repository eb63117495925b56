//! Faults planted into compiled bundles: the search finds each by the law that it breaks.

use super::Law;
use crate::proof::{Counterexample, Finding, Search, search};
use crate::{Bundle, LossPolicy, ToStore, VersionSchema, parse_rules};
use insula_api::FieldPath;
use insula_schema::Structural;
use serde_json::{Value as Json, json};
use std::sync::Arc;

fn schema(spec: &Json) -> Arc<Structural> {
    let text = json!({"type": "string"});
    let status = json!({"type": "object", "properties": {"phase": text}});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    Structural::parse_trusted(&schema).unwrap().into()
}

fn object(fields: &Json) -> Json {
    json!({"type": "object", "properties": fields})
}

/// Compiles versions v1, v2 and so on; the first is stored.
fn bundle(specs: &[Json], rules: Option<&Json>) -> Bundle {
    let version = |(i, spec)| VersionSchema {
        name: format!("v{}", i + 1),
        served: true,
        schema: schema(spec),
    };
    let at = FieldPath::new("spec");
    let rules = rules.map(|rules| parse_rules(rules, &at).unwrap());
    let versions = specs.iter().enumerate().map(version).collect();
    Bundle::compile("example.io", versions, "v1", rules.as_ref(), LossPolicy::Lossless, &at).unwrap()
}

fn found(bundle: &Bundle) -> Box<Counterexample> {
    search(bundle, Search::default().of_every_pair(bundle)).unwrap_err()
}

fn broken(found: &Counterexample) -> (Law, &str, &str) {
    match &found.finding {
        Finding::Breaks(broken) => (broken.law, &*broken.version, &*broken.place),
        Finding::Fails(_) => panic!("{found}"),
    }
}

fn holds(bundle: &Bundle) {
    let searched = search(bundle, Search::default().of_every_pair(bundle)).unwrap_or_else(|e| panic!("{e}"));
    assert!(searched.writes > 300, "{searched:?}");
}

/// A version shows a field that its schema lacks: a server prunes it from what a client sends back.
#[test]
fn a_field_that_a_server_prunes_from_what_it_showed_is_found() {
    let text = json!({"type": "string"});
    let both = object(&json!({"a": text, "b": text}));
    let mut bundle = bundle(&[both.clone(), both], None);
    holds(&bundle);
    bundle.versions[1].schema = schema(&object(&json!({"a": text})));
    let found = found(&bundle);
    assert_eq!(broken(&found), (Law::WriteBack, "v2", ".spec.b"), "{found}");
}

/// A rule of v2 is affordable for the lists that v2 allows, and not for those that v1 writes: where
/// it exceeds its cost, v2 refuses labels and finalizers of such an object.
#[test]
fn a_rule_of_a_schema_that_refuses_unchanged_values_is_found() {
    let items = json!({"type": "integer"});
    let long = json!({"type": "array", "items": items, "minItems": 40});
    let rule = json!({"rule": "self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d != 7))))"});
    let short = json!({"type": "array", "items": items, "maxItems": 3, "x-kubernetes-validations": [rule]});
    let bundle = bundle(&[object(&json!({"l": long})), object(&json!({"l": short}))], None);
    let found = found(&bundle);
    let (law, version, place) = broken(&found);
    assert_eq!((law, version), (Law::WriteBack, "v2"), "{found}");
    assert!(place.starts_with("spec.l:") && place.contains("cost"), "{place}");
}

/// Rules of v2 at the object, its spec and a field refuse what v1 writes, and one cannot be
/// evaluated: v2 shows it, takes it back, and takes changes of metadata and status beside it.
#[test]
fn values_that_rules_of_a_schema_refuse_are_written_back() {
    let text = json!({"type": "string"});
    let tight = json!({"type": "string", "x-kubernetes-validations": [{"rule": "self.size() > 40"}]});
    let mut spec = object(&json!({"a": tight, "b": text}));
    spec["x-kubernetes-validations"] = json!([{"rule": "self.b == 'never'"}, {"rule": "int(self.a) > 1"}]);
    let loose = object(&json!({"a": text, "b": text}));
    let whole = json!({"type": "object", "properties": {"spec": spec, "status": object(&json!({"phase": text}))},
        "x-kubernetes-validations": [{"rule": "self.spec.a == 'never'"}]});
    let mut bundle = bundle(&[loose.clone(), loose], None);
    let strict: Arc<Structural> = Structural::parse_trusted(&whole).unwrap().into();
    for converter in bundle.converters.values_mut().filter(|converter| converter.to == "v2") {
        converter.schema = strict.clone();
    }
    bundle.versions[1].schema = strict;
    let searched = search(&bundle, Search::default()).unwrap_or_else(|e| panic!("{e}"));
    assert!(searched.writes > 100 && searched.misfits.len() >= 3, "{searched:?}");
}

#[test]
fn metadata_that_differs_between_versions_is_found() {
    let text = json!({"type": "string"});
    let rule = json!({"from": "v1.spec.a", "to": "metadata.annotations['example.com/a']"});
    let back = json!({"from": "v2.metadata.annotations[?'example.com/a']", "to": "spec.a"});
    let rules = json!({"conversions": [{"from": "v1", "to": "v2", "rules": [rule]},
        {"from": "v2", "to": "v1", "rules": [back]}]});
    let mut bundle = bundle(
        &[object(&json!({"a": text})), object(&json!({"b": text}))],
        Some(&rules),
    );
    // As if no rule had named the annotation.
    bundle.rules_see_metadata = false;
    let found = found(&bundle);
    assert_eq!(broken(&found).0, Law::Metadata, "{found}");
}

/// A keyed list of ports, of which v1 has no `protocol` in the key, and none in the item.
fn ports(keys: &[&str], fields: &[&str]) -> Json {
    let text = json!({"type": "string", "enum": ["a", "b", "c", "d"]});
    let fields: serde_json::Map<String, Json> = fields.iter().map(|name| ((*name).to_owned(), text.clone())).collect();
    let items = json!({"type": "object", "required": keys, "properties": fields});
    let list = json!({"type": "array", "items": items, "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": keys});
    object(&json!({"ports": list}))
}

/// An edit, a deletion, an insertion or another order of items through the version that has a part
/// of their key keeps the other part with its item; a merge by places would move it to another one.
#[test]
fn items_that_a_partial_key_takes_for_others_are_found() {
    let part = ports(&["name"], &["name", "note"]);
    let whole = ports(&["name", "protocol"], &["name", "note", "protocol", "target"]);
    let bundle = bundle(&[part, whole], None);
    holds(&bundle);
    let item = |name: &str, note: &str, protocol: &str| match protocol {
        "" => json!({"name": name, "note": note}),
        _ => json!({"name": name, "note": note, "protocol": protocol}),
    };
    let put = |version: &str, ports: &[Json], old: Option<&ToStore>| {
        let x = json!({"apiVersion": format!("example.io/{version}"), "kind": "Kind", "metadata": {"name": "a"},
            "spec": {"ports": ports}});
        let old = old.map(|old| old.stored("v1"));
        bundle.put(&x, version, old, &mut crate::unmetered_budget()).unwrap()
    };
    let before = put("v2", &[item("a", "a", "c"), item("b", "b", "d")], None);
    let (a, b) = (item("a", "a", ""), item("b", "b", ""));
    for (written, misplaced) in [
        // Another order, with an edit.
        (
            vec![item("b", "c", ""), a.clone()],
            vec![item("b", "c", "c"), item("a", "a", "d")],
        ),
        // A deletion, with an edit of the item that stays.
        (vec![item("b", "c", "")], vec![item("b", "c", "c")]),
        // An insertion before both, with an edit.
        (
            vec![item("d", "d", ""), item("a", "c", ""), b.clone()],
            vec![item("d", "d", "c"), item("a", "c", "d"), item("b", "b", "a")],
        ),
    ] {
        let right = put("v1", &written, Some(&before));
        assert_eq!(super::identity(&bundle, "v1", &before, &right), Ok(()), "{written:?}");
        let wrong = put("v2", &misplaced, None);
        let broken = super::identity(&bundle, "v1", &before, &wrong).unwrap_err();
        assert_eq!(broken.law, Law::Identity, "{written:?}");
    }
}

/// Objects of a large API have a status as well, although its spec alone has more fields than one
/// object gets.
#[test]
fn the_status_of_a_large_api_is_searched() {
    let fields = (0..1_000).map(|i| (format!("f{i}"), json!({"type": "string"})));
    let spec = json!({"type": "object", "properties": fields.collect::<serde_json::Map<String, Json>>()});
    let mut bundle = bundle(&[spec.clone(), spec.clone()], None);
    bundle.versions[1].schema = Structural::parse_trusted(&json!({"type": "object", "properties": {"spec": spec}}))
        .unwrap()
        .into();
    let found = found(&bundle);
    assert_eq!(broken(&found), (Law::WriteBack, "v2", ".status"), "{found}");
    assert!(found.case < 6, "{found}");
}

/// A rule makes a field of the spec of v2 from the status of v1: whoever writes the status of v1
/// alone takes from v2 what its spec holds.
#[test]
fn a_write_of_the_status_that_changes_a_spec_is_found() {
    let text = json!({"type": "string"});
    let rule = json!({"from": "v1.spec.a + v1.status.phase", "to": "spec.b"});
    let rules = |rules: &[Json]| {
        json!({"conversions": [{"from": "v1", "to": "v2", "rules": rules},
            {"from": "v2", "to": "v1", "rules": []}]})
    };
    let specs = [object(&json!({"a": text})), object(&json!({"a": text, "b": text}))];
    let spec_alone = json!({"from": "v1.spec.a + 'x'", "to": "spec.b"});
    holds(&bundle(&specs, Some(&rules(&[spec_alone]))));
    let found = found(&bundle(&specs, Some(&rules(&[rule]))));
    assert_eq!(broken(&found), (Law::Status, "v2", ".spec.b"), "{found}");
}
