//! Effects of two definitions on one object.

use super::*;
use crate::publication::{Manifest, publish};
use insula_meter::Meter;
use insula_schema::Structural;
use serde_json::json;

/// Compiles an API with versions of these schemas of `spec`; the first one is stored.
pub(super) fn api(versions: &[Json]) -> Arc<Api> {
    let version = |(index, version): (usize, &Json)| {
        let mut version = version.clone();
        let spec = version["spec"].take();
        let fields = version.as_object_mut().expect("a version");
        fields.remove("spec");
        fields.entry("served").or_insert(json!(true));
        fields.insert("storage".to_owned(), json!(index == 0));
        let properties = json!({"spec": spec, "status": {"type": "object"}});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": properties}});
        fields.insert("schema".to_owned(), schema);
        version
    };
    let versions: Vec<Json> = versions.iter().enumerate().map(version).collect();
    let names = json!({"plural": "pumps", "singular": "pump", "kind": "Pump", "listKind": "PumpList"});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "pumps.example.io"},
        "spec": {"group": "example.io", "scope": "Cluster", "names": names, "versions": versions}});
    let published = publish(Manifest {
        schema: &definition,
        conversion: None,
        meter: &Meter::unbounded(),
    });
    Arc::new(published.compile().expect("the definition is right"))
}

pub(super) fn v1(spec: Json) -> Json {
    json!({"name": "v1", "spec": spec})
}

pub(super) fn fields(fields: Json) -> Json {
    json!({"type": "object", "properties": fields})
}

/// Returns the effects of a release on an object with this spec: each that reaches it, with its
/// detail.
fn reached(before: &[Json], after: &[Json], spec: Json) -> Vec<(String, String)> {
    let (before, after) = (api(before), api(after));
    let value = json!({"apiVersion": "example.io/v1", "kind": "Pump", "metadata": {"name": "main"}, "spec": spec});
    let mut effects = Generation::new(&before, &after, &Meter::unbounded());
    let object = Object::new(&value, None).expect("an object");
    let mut unreadable = None;
    let mut reached = effects.of_object(&object, &value, &mut unreadable);
    assert_eq!(
        unreadable.is_some(),
        after.reads(&object, &Meter::unbounded()).is_err(),
        "{unreadable:?}"
    );
    reached.sort_unstable();
    reached.dedup();
    let of = |index: usize| {
        let effect = &effects.found[index];
        (effect.id().replace("pumps.example.io/", ""), effect.detail.clone())
    };
    reached.into_iter().map(of).collect()
}

/// Checks what reaches an object, for a release of one version.
fn check(before: Json, after: Json, spec: Json, want: &[(&str, &str)]) {
    let got = reached(&[v1(before)], &[v1(after)], spec);
    let got: Vec<(&str, &str)> = got.iter().map(|(id, detail)| (&**id, &**detail)).collect();
    assert_eq!(got, want);
}

#[test]
fn a_new_status_is_an_effect_on_clients() {
    let spec = fields(json!({"a": {"type": "string"}}));
    let narrow = fields(json!({"a": {"type": "string", "maxLength": 1}}));
    let with = json!({"name": "v1", "spec": narrow, "subresources": {"status": {}}});
    let got = reached(&[v1(spec)], &[with], json!({"a": "xx"}));
    let ids: Vec<&str> = got.iter().map(|(id, _)| &**id).collect();
    assert_eq!(ids, ["client-broken:v1", "value-refused:v1:.spec.a"]);
    assert_eq!(got[0].1, "the subresource status is added");
}

/// Whatever was compared before it.
#[test]
fn a_version_that_goes_is_told_as_one() {
    let spec = || fields(json!({"a": {"type": "string"}, "b": {"type": "string"}}));
    let narrow = fields(json!({"b": {"type": "string"}}));
    let v2 = json!({"name": "v2", "spec": spec()});
    let (before, after) = (api(&[v1(spec()), v2]), api(&[v1(narrow)]));
    let effects = Generation::new(&before, &after, &Meter::unbounded());
    let kinds: Vec<(&str, &str)> = effects.found.iter().map(|it| (it.kind, &*it.version)).collect();
    assert_eq!(kinds, [(names::FIELD_REMOVED, "v1"), (names::VERSION_REMOVED, "v2")]);
}

#[test]
fn versions_that_are_not_served_have_no_effects() {
    let spec = fields(json!({"a": {"type": "string"}}));
    let column = |path: &str| json!([{"name": "A", "type": "string", "jsonPath": path}]);
    let with = |path: &str, served: bool| {
        let columns = column(path);
        let v2 = json!({"name": "v2", "spec": spec, "served": served, "additionalPrinterColumns": columns});
        [v1(spec.clone()), v2]
    };
    let of = |served| reached(&with(".spec.a", served), &with(".spec", served), json!({}));
    assert_eq!(of(false), []);
    assert_eq!(of(true).len(), 1);
}

#[test]
fn columns_of_one_name_are_told_apart() {
    let spec = fields(json!({"a": {"type": "string"}}));
    let with = |paths: &[&str]| {
        let column = |path: &&str| json!({"name": "Available", "type": "string", "jsonPath": path});
        let columns: Vec<Json> = paths.iter().map(column).collect();
        json!({"name": "v1", "spec": spec, "additionalPrinterColumns": columns})
    };
    let of = |after: &[&str]| reached(&[with(&[".spec.a", ".spec"])], &[with(after)], json!({}));
    assert_eq!(of(&[".spec.a", ".spec"]), []);
    assert_eq!(of(&[".spec", ".spec.a", ".status"]), []);
    let gone = (
        String::from("column-removed:v1:column Available"),
        ".spec → .spec.a".to_owned(),
    );
    assert_eq!(of(&[".spec.a"]), [gone]);
}

#[test]
fn a_field_that_one_version_loses_is_told_as_shown_by_the_others() {
    let both = || fields(json!({"a": {"type": "string"}, "b": {"type": "string"}}));
    let less = || fields(json!({"b": {"type": "string"}}));
    let version = |name: &str, spec: Json| json!({"name": name, "spec": spec});
    let becomes = |after: [Json; 2]| {
        let [first, second] = after;
        let before = api(&[v1(both()), version("v2", both())]);
        let after = api(&[v1(first), version("v2", second)]);
        let found = Effects::new(&before, &after, &Meter::unbounded()).finish();
        let all = found.iter().filter(|effect| effect.kind == names::FIELD_REMOVED);
        let all = all.map(|effect| (effect.version.clone(), effect.becomes().contains("show it")));
        all.collect::<Vec<_>>()
    };
    let one = |version: &str, is_shown: bool| (version.to_owned(), is_shown);
    assert_eq!(becomes([both(), less()]), [one("v2", true)]);
    assert_eq!(becomes([less(), both()]), [one("v1", true)]);
    assert_eq!(becomes([less(), less()]), [one("v1", false), one("v2", false)]);
}

/// The other version shows it, so that nothing is hidden there.
#[test]
fn a_field_that_only_the_stored_version_loses_is_one_effect() {
    let both = || fields(json!({"a": {"type": "string"}, "b": {"type": "string"}}));
    let less = || fields(json!({"b": {"type": "string"}}));
    let v2 = || json!({"name": "v2", "spec": both()});
    let got = reached(&[v1(both()), v2()], &[v1(less()), v2()], json!({"a": "x", "b": "y"}));
    let ids: Vec<&str> = got.iter().map(|(id, _)| &**id).collect();
    assert_eq!(ids, ["field-removed:v1:.spec.a"]);
}

#[test]
fn a_field_that_holds_nothing_is_gone_too() {
    let of = |what: Json| fields(json!({"o": what, "p": {"type": "string"}}));
    for (kind, value) in [
        (json!({"type": "object"}), json!({})),
        (json!({"type": "array", "items": {"type": "string"}}), json!([])),
    ] {
        check(
            of(kind),
            fields(json!({})),
            json!({"o": value}),
            &[("field-removed:v1:.spec.o", "")],
        );
    }
}

#[test]
fn details_have_no_name_of_a_tenants() {
    let map = |values: Json| fields(json!({"m": {"type": "object", "additionalProperties": values}}));
    let either = json!({"type": "integer", "oneOf": [{"minimum": 9}, {"maximum": 2}]});
    let got = reached(
        &[v1(map(json!({"type": "integer"})))],
        &[v1(map(either))],
        json!({"m": {"secret": 5}}),
    );
    assert_eq!(got[0].0, "value-refused:v1:.spec.m[]");
    assert!(!got[0].1.contains("secret"), "{}", got[0].1);
}

#[test]
fn the_nearest_reason_is_told_in_full() {
    let rule = json!([{"rule": "self.b != 'never'"}]);
    let before = fields(json!({"a": {"type": "string"}, "b": {"type": "string"}}));
    let mut after = fields(json!({"a": {"type": "string", "minLength": 1, "maxLength": 9}, "b": {"type": "string"}}));
    after["x-kubernetes-validations"] = rule;
    let both = "maxLength 9 added, minLength 1 added";
    check(
        before.clone(),
        after.clone(),
        json!({"a": "", "b": "x"}),
        &[("value-refused:v1:.spec.a", both)],
    );
    check(
        before,
        after,
        json!({"a": "", "b": "never"}),
        &[
            ("value-refused:v1:.spec", "rule added: self.b != 'never'"),
            ("value-refused:v1:.spec.a", both),
        ],
    );
}

#[test]
fn a_value_that_is_there_is_not_told_as_absent() {
    let before = fields(json!({"a": {"type": "string"}}));
    let mut after = fields(json!({"a": {"type": "string", "maxLength": 1}}));
    after["required"] = json!(["a"]);
    check(
        before.clone(),
        after.clone(),
        json!({"a": "xx"}),
        &[("value-refused:v1:.spec.a", "maxLength 1 added")],
    );
    check(
        before,
        after,
        json!({}),
        &[("field-required:v1:.spec.a", "optional → required")],
    );
}

#[test]
fn rules_are_told_beside_bounds() {
    let rule = json!([{"rule": "self.b != 'never'", "message": "never say never"}]);
    let before = fields(json!({"a": {"type": "string"}, "b": {"type": "string"}}));
    let mut after = fields(json!({"a": {"type": "string", "enum": ["x"]}, "b": {"type": "string"}}));
    after["x-kubernetes-validations"] = rule;
    check(
        before,
        after,
        json!({"a": "y", "b": "never"}),
        &[
            ("value-refused:v1:.spec", "rule added: self.b != 'never'"),
            ("value-refused:v1:.spec.a", "enum \"x\""),
        ],
    );
}

#[test]
fn what_was_refused_before_is_no_effect_in_other_words() {
    let with = |choices: Json, message: &str| {
        let mut spec = fields(json!({"a": {"type": "string", "enum": choices}, "b": {"type": "string"}}));
        spec["x-kubernetes-validations"] = json!([{"rule": "self.b != 'never'", "message": message}]);
        spec
    };
    let (before, after) = (with(json!(["x"]), "no"), with(json!(["x", "y"]), "never say never"));
    check(before.clone(), after.clone(), json!({"a": "z", "b": "x"}), &[]);
    check(before, after, json!({"a": "x", "b": "never"}), &[]);
}

#[test]
fn errors_about_the_whole_object_are_told_at_the_value() {
    let port = |port: Json| fields(json!({"ports": {"type": "array", "items": port}}));
    check(
        port(json!({"type": "integer"})),
        port(json!({"type": "integer", "format": "int32"})),
        json!({"ports": [1, 4_294_967_296_u64]}),
        &[("value-refused:v1:.spec.ports[]", "format int32 added")],
    );
    let either = json!({"type": "integer", "oneOf": [{"minimum": 9}, {"maximum": 2}]});
    let got = reached(
        &[v1(port(json!({"type": "integer"})))],
        &[v1(port(either))],
        json!({"ports": [5]}),
    );
    let ids: Vec<&str> = got.iter().map(|(id, _)| &**id).collect();
    assert_eq!(ids, ["value-refused:v1:.spec.ports[]"]);
}

#[test]
fn unknown_fields_that_are_kept_no_longer_are_fields_that_are_gone() {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let closed = json!({"type": "object"});
    let of = |what: Json| fields(json!({"o": what, "p": {"type": "string"}}));
    let spec = json!({"o": {"k": "v"}, "p": "x"});
    check(
        of(open),
        of(closed.clone()),
        spec.clone(),
        &[("field-removed:v1:.spec.o[]", "unknown fields are not kept any more")],
    );
    let got = reached(&[v1(of(map))], &[v1(of(closed))], spec);
    assert_eq!(got.len(), 1, "{got:?}");
}

#[test]
fn a_default_that_goes_is_told_as_the_default() {
    let before = fields(json!({"a": {"type": "string", "default": "x"}}));
    let after = fields(json!({"a": {"type": "string"}}));
    check(
        before,
        after,
        json!({}),
        &[("default-changed:v1:.spec.a", "default \"x\" removed")],
    );
}

#[test]
fn a_first_default_reaches_the_objects_that_lack_the_field() {
    let of = |a: Json, o: Json| {
        let inner = json!({"type": "object", "properties": {"x": o}});
        fields(json!({"a": a, "list": {"type": "array", "items": inner}, "other": {"type": "string"}}))
    };
    let (text, filled) = (json!({"type": "string"}), json!({"type": "string", "default": "d"}));
    let (before, after) = (of(text.clone(), text), of(filled.clone(), filled));
    let told = |object: Json, want: &[(&str, &str)]| check(before.clone(), after.clone(), object, want);
    let a = ("default-added:v1:.spec.a", "default \"d\" added");
    let x = ("default-added:v1:.spec.list[].x", "default \"d\" added");
    told(json!({}), &[a]);
    told(json!({"a": "d", "list": []}), &[]);
    told(json!({"a": "x", "list": [{"x": "y"}, {}]}), &[x]);
    told(json!({"list": [{}]}), &[a, x]);
    assert_eq!(names::consent(names::DEFAULT_ADDED), names::Consent::Unneeded);
}

#[test]
fn a_table_without_columns_has_the_age() {
    let spec = fields(json!({"a": {"type": "string"}}));
    let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
    let a = |kind: &str| json!({"name": "A", "type": kind, "jsonPath": ".spec.a"});
    let with = |columns: Json| [json!({"name": "v1", "spec": spec, "additionalPrinterColumns": columns})];
    let of = |before: Json, after: Json| reached(&with(before), &with(after), json!({}));
    assert_eq!(of(json!([age]), json!([])), []);
    assert_eq!(of(json!([]), json!([age])), []);
    let gone = |name: &str, detail: &str| [(format!("column-removed:v1:column {name}"), detail.to_owned())];
    assert_eq!(of(json!([]), json!([a("string")])), gone("Age", ""));
    assert_eq!(of(json!([a("string"), age]), json!([])), gone("A", ""));
    assert_eq!(of(json!([a("string")]), json!([a("date")])), gone("A", "string → date"));
}

#[test]
fn a_selectable_field_concerns_the_objects_that_have_it() {
    let spec = fields(json!({"a": {"type": "string"}}));
    let with = json!({"name": "v1", "spec": spec, "selectableFields": [{"jsonPath": ".spec.a"}]});
    let of = |object: Json| reached(std::slice::from_ref(&with), &[v1(spec.clone())], object);
    assert_eq!(of(json!({})), []);
    assert_eq!(of(json!({"a": "x"}))[0].0, "client-broken:v1:.spec.a");
}

fn schema() -> Structural {
    let item = json!({"type": "object", "properties": {"x": {"type": "string"}}});
    let map = json!({"type": "object", "additionalProperties": item});
    let spec = json!({"type": "object", "properties": {
        "a": {"type": "string"}, "list": {"type": "array", "items": item}, "map": map}});
    Structural::parse_trusted(&json!({"type": "object", "properties": {"spec": spec}})).expect("a schema")
}

#[test]
fn paths_have_no_name_of_a_tenants() {
    let schema = schema();
    let object = json!({"spec": {"map": {"a.secret/name": {"x": "1"}}}});
    for (error, path) in [
        ("spec.a", ".spec.a"),
        ("spec.list[3].x", ".spec.list[].x"),
        ("spec.map[secret].x", ".spec.map[].x"),
        ("spec.map.secret.x", ".spec.map[].x"),
        ("spec.map[a.secret.name].x", ".spec.map[].x"),
        ("spec.map.a.secret/name.x", ".spec.map[].x"),
        ("spec.map.a.secret/name", ".spec.map[]"),
        ("spec.unknown.secret", ".spec"),
    ] {
        assert_eq!(general(error, schema.root(), &object), path, "{error}");
    }
}

#[test]
fn values_that_are_gone_or_others_are_found() {
    let schema = schema();
    let was = json!({"metadata": {"labels": {"l": "1"}},
        "spec": {"a": "1", "list": [{"x": "1"}, {"x": "2"}], "map": {"secret": {"x": "1"}, "kept": {"x": "1"}}}});
    let is = json!({"spec": {"a": "2", "list": [{"x": "1"}], "map": {"kept": {"x": "1"}}, "new": 1}});
    let found = differing(&was, &is, schema.root());
    let of = |kind: &'static str, path: &str| (kind, path.to_owned());
    assert_eq!(
        found,
        [
            of(names::VALUE_HIDDEN, ".metadata.labels.l"),
            of(names::VALUE_CHANGED, ".spec.a"),
            of(names::VALUE_HIDDEN, ".spec.list[].x"),
            of(names::VALUE_HIDDEN, ".spec.map[].x"),
        ]
    );
}

/// A name with dots is quoted, as in the schema's own effects.
#[test]
fn a_field_with_a_quoted_name_has_one_effect() {
    let text = json!({"type": "string"});
    let before = fields(json!({"a.b/c": text, "d.e": fields(json!({"f": text, "g": text}))}));
    let spec = json!({"a.b/c": "12", "d.e": {"f": "1", "g": "2"}});
    let less = fields(json!({"d.e": fields(json!({"f": text}))}));
    let gone = [
        ("field-removed:v1:.spec['a.b/c']", ""),
        ("field-removed:v1:.spec['d.e'].g", ""),
    ];
    check(before.clone(), less, spec.clone(), &gone);
    let mut narrow = before.clone();
    narrow["properties"]["a.b/c"]["maxLength"] = json!(1);
    narrow["properties"]["d.e"]["properties"]["f"]["enum"] = json!(["2"]);
    let refused = [
        ("value-refused:v1:.spec['a.b/c']", "maxLength 1 added"),
        ("value-refused:v1:.spec['d.e'].f", "enum \"2\""),
    ];
    check(before, narrow, spec, &refused);
}

/// A rule that compares a write with what was there refuses no stored value, and changes of each.
#[test]
fn a_transition_rule_reaches_the_values_that_it_compares() {
    let with = |rule: &str| {
        let mut size = json!({"type": "integer"});
        if !rule.is_empty() {
            size["x-kubernetes-validations"] = json!([{"rule": rule}]);
        }
        fields(json!({"size": size, "other": {"type": "string"}}))
    };
    let reaches = [("change-refused:v1:.spec.size", "rule added: self == oldSelf")];
    check(with(""), with("self == oldSelf"), json!({"size": 1}), &reaches);
    check(with(""), with("self == oldSelf"), json!({"other": "x"}), &[]);
    check(with(""), with("self > 0"), json!({"size": 1}), &[]);
    check(
        with("self == oldSelf"),
        with("self == oldSelf"),
        json!({"size": 1}),
        &[],
    );
}

/// A null that a version shows is a value: it is told when it is gone or another value.
#[test]
fn a_null_is_a_value() {
    let text = json!({"type": "string", "nullable": true});
    let (both, spec) = (fields(json!({"a": text, "b": text})), json!({"a": null, "b": "x"}));
    let less = fields(json!({"b": text}));
    check(both.clone(), less, spec.clone(), &[("field-removed:v1:.spec.a", "")]);
    let filled = fields(json!({"a": {"type": "string", "default": "d"}, "b": text}));
    let got = reached(&[v1(both.clone())], &[v1(filled)], spec.clone());
    assert!(got.iter().any(|(id, _)| id == "value-changed:v1:.spec.a"), "{got:?}");
    check(both.clone(), both, spec, &[]);
}

#[test]
fn a_word_is_for_an_effect_or_a_kind_up_to_a_number() {
    let id = "field-removed:pumps.example.io/v1:.spec.a";
    let covers = |text: &str, objects| Acceptance::parse(text).expect("it reads").covers(id, objects);
    assert!(covers("field-removed", 9) && covers(id, 9) && covers(&format!("{id}=9"), 9));
    assert!(!covers("field-removed=8", 9) && !covers("value-refused", 1));
    for wrong in ["field-removed=many", "field", "nonsense=3", ""] {
        assert!(Acceptance::parse(wrong).is_err(), "{wrong:?}");
    }
}

/// A list that becomes a map refuses items of one key: the effect says so.
#[test]
fn a_duplicate_is_named() {
    let item = fields(json!({"name": {"type": "string"}}));
    let list = |more: Json| {
        let mut list = json!({"type": "array", "items": item});
        list.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        list["items"]["required"] = json!(["name"]);
        fields(json!({"refs": list}))
    };
    let keyed = json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]});
    let spec = json!({"refs": [{"name": "a"}, {"name": "a"}]});
    check(
        list(json!({})),
        list(keyed),
        spec,
        &[
            (
                "client-broken:v1:.spec.refs",
                "list is atomic → map by name: server-side apply takes away no item that was there before",
            ),
            ("value-refused:v1:.spec.refs[]", "duplicate value"),
        ],
    );
}
