//! Values of a field that a release takes away: kept, shown by no version without it, shown when
//! the field returns, and gone with the item that they are in.

use crate::support::{bundle_of, object};
use insula_conversion::{Bundle, SchemaPath, ToStore, laws, unmetered_budget};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

/// An object that is written under one release after another.
struct Written(ToStore);

impl Written {
    fn new(bundle: &Bundle, version: &str, spec: &Json) -> Self {
        let x = object(version, &json!({"spec": spec}));
        Written(bundle.put(&x, version, None, &mut unmetered_budget()).unwrap())
    }

    fn put(&mut self, bundle: &Bundle, version: &str, spec: &Json) -> &mut Self {
        self.write(bundle, version, &json!({"spec": spec}))
    }

    fn write(&mut self, bundle: &Bundle, version: &str, object_of: &Json) -> &mut Self {
        let x = object(version, object_of);
        let old = self.0.stored(bundle.storage());
        let after = bundle.put(&x, version, Some(old), &mut unmetered_budget()).unwrap();
        laws::put_get(bundle, &x, version, &after).unwrap();
        laws::get_put(bundle, &after).unwrap();
        if after != self.0 {
            // Nothing that the schema lacks is in the bytes that readers of the stored version get.
            let mut stored = after.value.clone();
            insula_schema::prune(&mut stored, bundle.schema(bundle.storage()).unwrap());
            assert_eq!(stored, after.value);
        }
        self.0 = after;
        self
    }

    fn read(&self, bundle: &Bundle, stored: &ToStore, version: &str) -> Json {
        bundle
            .get(stored.stored(bundle.storage()), version, &mut unmetered_budget())
            .unwrap()
    }

    fn shows(&self, bundle: &Bundle, version: &str) -> Json {
        self.read(bundle, &self.0, version)["spec"].clone()
    }
}

const WITH: &str = "
versions:
  v1:
    spec:
      size: integer
      backup: {schedule: string, bucket: string}
      \"users[name]\": [{name: string, mail: string}]
";
const WITHOUT: &str = "
versions:
  v1: {spec: {size: integer, backup: {schedule: string}, \"users[name]\": [{name: string}]}}
";

#[test]
fn a_removed_field_is_kept_and_shows_again() {
    let (with, without) = (bundle_of(WITH), bundle_of(WITHOUT));
    let all = json!({"size": 1, "backup": {"schedule": "daily", "bucket": "b"},
        "users": [{"name": "al", "mail": "a"}, {"name": "bob", "mail": "b"}]});
    let mut written = Written::new(&with, "v1", &all);
    let less = json!({"size": 1, "backup": {"schedule": "daily"}, "users": [{"name": "al"}, {"name": "bob"}]});
    assert_eq!(written.shows(&without, "v1"), less);
    let mut metadata = object("v1", &json!({"spec": less}));
    metadata["metadata"]["labels"] = json!({"a": "b"});
    written.write(&without, "v1", &json!({"spec": less, "metadata": metadata["metadata"]}));
    assert_eq!(written.shows(&with, "v1"), all);
    let edit = json!({"size": 2, "backup": {"schedule": "daily"}, "users": [{"name": "carl"}, {"name": "bob"}]});
    written.put(&without, "v1", &edit);
    assert_eq!(written.shows(&without, "v1"), edit);
    let back = json!({"size": 2, "backup": {"schedule": "daily", "bucket": "b"},
        "users": [{"name": "carl"}, {"name": "bob", "mail": "b"}]});
    assert_eq!(written.shows(&with, "v1"), back);
    // What is written when the field is back counts from then on.
    let mut edit = back.clone();
    edit["backup"]["bucket"] = json!("c");
    edit["users"][1].as_object_mut().unwrap().remove("mail");
    written.put(&with, "v1", &edit);
    assert_eq!(written.0.residual, None);
    assert_eq!(written.shows(&with, "v1"), edit);
}

#[test]
fn what_a_free_form_field_held_is_kept() {
    let with = bundle_of("versions: {v1: {spec: {x: string, f: any, a: anything, l: [any]}}}");
    let without = bundle_of("versions: {v1: {spec: {x: string, f: {k: string}, a: string, l: [{k: string}]}}}");
    let all = json!({"f": {"k": "1", "z": {"y": [{"w": 1}]}}, "a": {"b": 1}, "l": [{"k": "2", "m": true}]});
    let mut written = Written::new(&with, "v1", &all);
    let less = written.shows(&without, "v1");
    written.put(&without, "v1", &less);
    let mut edit = less.clone();
    edit["x"] = json!("now");
    written.put(&without, "v1", &edit);
    let mut back = all.clone();
    back["x"] = json!("now");
    assert_eq!(written.shows(&with, "v1"), back);
    // It is retired by the path that effects have.
    let path = SchemaPath::parse(".spec.f[]").unwrap();
    let left = without.retire(written.0.stored("v1"), None, &path).unwrap().unwrap();
    back["f"] = json!({"k": "1"});
    assert_eq!(written.read(&with, &left, "v1")["spec"], back);
}

/// Whatever schema had them: a place where anything is kept shows them.
#[test]
fn what_is_kept_shows_in_a_field_of_any_form() {
    let with = bundle_of("versions: {v1: {spec: {x: string, f: {k: string, z: string, l: [{k: string, m: string}]}}}}");
    let without = bundle_of("versions: {v1: {spec: {x: string, f: {k: string, l: [{k: string}]}}}}");
    let free = bundle_of("versions: {v1: {spec: any}}");
    let all = json!({"x": "a", "f": {"k": "1", "z": "2", "l": [{"k": "3", "m": "4"}]}});
    let mut written = Written::new(&with, "v1", &all);
    written.put(&without, "v1", &json!({"x": "b", "f": {"k": "1", "l": [{"k": "3"}]}}));
    let shown = json!({"x": "b", "f": {"k": "1", "z": "2", "l": [{"k": "3", "m": "4"}]}});
    assert_eq!(written.shows(&free, "v1"), shown);
    let edit = json!({"x": "c", "f": {"k": "1", "l": [{"k": "3", "m": "5"}]}});
    written.put(&free, "v1", &edit);
    assert_eq!(written.shows(&with, "v1"), edit);
}

/// No schema tells there which item is which: what is kept waits with the items until one does.
#[test]
fn what_is_kept_in_items_with_keys_waits_in_a_field_of_any_form() {
    let (with, without) = (bundle_of(WITH), bundle_of(WITHOUT));
    let free = bundle_of("versions: {v1: {spec: any}}");
    let users = json!([{"name": "al", "mail": "a"}, {"name": "bob", "mail": "b"}]);
    let mut written = Written::new(&with, "v1", &json!({"users": users}));
    written.put(
        &without,
        "v1",
        &json!({"size": 1, "users": [{"name": "al"}, {"name": "bob"}]}),
    );
    let shown = json!({"size": 1, "users": [{"name": "al"}, {"name": "bob"}]});
    assert_eq!(written.shows(&free, "v1"), shown);
    written.put(&free, "v1", &json!({"size": 2, "users": [{"name": "bob"}]}));
    written.put(
        &free,
        "v1",
        &json!({"size": 3, "users": [{"name": "bob"}, {"name": "al"}]}),
    );
    let back = json!({"size": 3, "users": [{"name": "bob", "mail": "b"}, {"name": "al"}]});
    assert_eq!(written.shows(&with, "v1"), back);
    assert_eq!(
        written.shows(&without, "v1"),
        json!({"size": 3, "users": [{"name": "bob"}, {"name": "al"}]})
    );
}

#[test]
fn an_item_takes_what_is_kept_in_it_along_and_an_object_does_not() {
    let (with, without) = (bundle_of(WITH), bundle_of(WITHOUT));
    let all = json!({"backup": {"bucket": "b"}, "users": [{"name": "al", "mail": "a"}]});
    let mut written = Written::new(&with, "v1", &all);
    written.put(&without, "v1", &json!({"users": []}));
    assert_eq!(written.shows(&without, "v1"), json!({"users": []}));
    written.put(&without, "v1", &json!({"users": [{"name": "al"}]}));
    assert_eq!(
        written.shows(&with, "v1"),
        json!({"backup": {"bucket": "b"}, "users": [{"name": "al"}]})
    );
}

#[test]
fn what_one_version_alone_had_is_kept_too() {
    let rules = "rules: {conversions: [
      {from: v1, to: v2, rules: [{field: .spec.size, destination: .spec.disk.size}]},
      {from: v2, to: v1, rules: [{field: .spec.disk.size, destination: .spec.size}]}]}";
    let v1 = "v1: {spec: {size: integer}}";
    let of = |disk: &str, storage: &str| {
        bundle_of(&format!(
            "storage: {storage}\nversions:\n  {v1}\n  v2: {{spec: {{disk: {disk}}}}}\n{rules}"
        ))
    };
    let with = of("{size: integer, kind: string}", "v1");
    let without = of("{size: integer}", "v1");
    let all = json!({"disk": {"size": 1, "kind": "ssd"}});
    let mut written = Written::new(&with, "v2", &all);
    written.put(&without, "v1", &json!({"size": 2}));
    assert_eq!(written.shows(&without, "v2"), json!({"disk": {"size": 2}}));
    written.put(&without, "v2", &json!({"disk": {"size": 3}}));
    assert_eq!(written.shows(&without, "v1"), json!({"size": 3}));
    assert_eq!(written.shows(&with, "v2"), json!({"disk": {"size": 3, "kind": "ssd"}}));
    // Also when the storage version moves while the field is away.
    let moved = of("{size: integer}", "v2");
    let x = moved
        .get(written.0.stored("v1"), "v2", &mut unmetered_budget())
        .unwrap();
    written.0 = moved
        .put(&x, "v2", Some(written.0.stored("v1")), &mut unmetered_budget())
        .unwrap();
    let back = of("{size: integer, kind: string}", "v2");
    assert_eq!(written.shows(&back, "v2"), json!({"disk": {"size": 3, "kind": "ssd"}}));
    assert_eq!(written.shows(&back, "v1"), json!({"size": 3}));
}

#[test]
fn what_a_schema_keeps_whatever_it_is_is_not_retained() {
    let template = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}});
    let doc = json!({"versions": {"v1": {"spec": {"template": {"$": template}, "rest": "any", "all": "anything"}}}});
    let bundle = crate::support::bundle(&doc).unwrap();
    let spec = json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}},
        "rest": {"x": {"y": 1}}, "all": [{"x": 1}]});
    let mut written = Written::new(&bundle, "v1", &spec);
    let mut edit = spec.clone();
    edit["rest"] = json!({"z": 1});
    written.put(&bundle, "v1", &edit);
    assert_eq!((written.shows(&bundle, "v1"), &written.0.residual), (edit, &None));
}

#[test]
fn a_field_that_returns_as_another_type_shows_nothing() {
    let of = |kind: &str| bundle_of(&format!("versions:\n  v1: {{spec: {{size: integer{kind}}}}}\n"));
    let mut written = Written::new(&of(", level: string"), "v1", &json!({"size": 1, "level": "high"}));
    written.put(&of(""), "v1", &json!({"size": 2}));
    assert_eq!(written.shows(&of(", level: integer"), "v1"), json!({"size": 2}));
    // It is there when the former type returns, and can be retired before.
    assert_eq!(
        written.shows(&of(", level: string"), "v1"),
        json!({"size": 2, "level": "high"})
    );
    let path = SchemaPath::parse(".spec.level").unwrap();
    let retire = |of: &Bundle| of.retire(written.0.stored("v1"), None, &path).unwrap();
    let gone = retire(&of(", level: integer")).unwrap();
    assert_eq!(
        written.read(&of(", level: string"), &gone, "v1")["spec"],
        json!({"size": 2})
    );
    assert_eq!(retire(&of(", level: string")), None);
    written.put(&of(", level: integer"), "v1", &json!({"size": 2, "level": 3}));
    assert_eq!(
        written.shows(&of(", level: integer"), "v1"),
        json!({"size": 2, "level": 3})
    );
}

#[test]
fn what_is_kept_goes_when_its_field_is_retired() {
    let (with, without) = (bundle_of(WITH), bundle_of(WITHOUT));
    let all = json!({"size": 1, "backup": {"schedule": "daily", "bucket": "b"},
        "users": [{"name": "al", "mail": "a"}, {"name": "bob", "mail": "b"}]});
    let retire = |bundle: &Bundle, stored: &ToStore, path: &str| {
        let path = SchemaPath::parse(path).unwrap();
        bundle.retire(stored.stored("v1"), None, &path).unwrap()
    };
    for written_since in [false, true] {
        let mut written = Written::new(&with, "v1", &all);
        if written_since {
            let edit = json!({"size": 2, "backup": {"schedule": "daily"}, "users": [{"name": "al"}, {"name": "bob"}]});
            written.put(&without, "v1", &edit);
        }
        let shown = written.shows(&without, "v1");
        // A field that the schema has is no such field, and there is nothing at others.
        for path in [
            ".spec.size",
            ".spec.backup",
            ".spec.users[].name",
            ".spec.users[].bucket",
            ".spec.x",
        ] {
            assert_eq!(retire(&without, &written.0, path), None, "{path}");
            assert_eq!(retire(&with, &written.0, path), None, "{path}");
        }
        written.0 = retire(&without, &written.0, ".spec.backup.bucket").unwrap();
        assert_eq!(written.shows(&without, "v1"), shown);
        let mut left = all.clone();
        left["size"] = shown["size"].clone();
        left["backup"].as_object_mut().unwrap().remove("bucket");
        assert_eq!(written.shows(&with, "v1"), left);
        written.0 = retire(&without, &written.0, ".spec.users[].mail").unwrap();
        assert_eq!(written.0.residual, None);
        assert_eq!(written.shows(&with, "v1"), shown);
    }
}

#[test]
fn a_version_that_goes_leaves_what_it_alone_had_until_that_is_retired() {
    let both = bundle_of("versions:\n  v1: {spec: {size: integer}}\n  v2: {spec: {size: integer, kind: string}}\n");
    let one = bundle_of("versions:\n  v1: {spec: {size: integer}}\n");
    let mut written = Written::new(&both, "v2", &json!({"size": 1, "kind": "ssd"}));
    written.put(&one, "v1", &json!({"size": 2}));
    assert_eq!(written.shows(&both, "v2"), json!({"size": 2, "kind": "ssd"}));
    let path = SchemaPath::parse(".spec.kind").unwrap();
    assert_eq!(both.lacking(&path).collect::<Vec<_>>(), ["v1"]);
    assert_eq!(both.retire(written.0.stored("v1"), None, &path).unwrap(), None);
    written.0 = one.retire(written.0.stored("v1"), None, &path).unwrap().unwrap();
    assert_eq!(written.shows(&both, "v2"), json!({"size": 2}));
}

/// The fields that a generation of the schema has.
fn generation(has: &[bool]) -> Bundle {
    let all = [
        "a: string",
        "b: string",
        "c: {x: string, y: string}",
        "l: [{x: string, y: string}]",
        "m: {\"*\": {x: string, y: string}}",
    ];
    let mut fields: Vec<String> = all
        .iter()
        .zip(has)
        .filter(|(_, has)| **has)
        .map(|(field, _)| (*field).to_owned())
        .collect();
    if !has[5] {
        fields
            .iter_mut()
            .for_each(|field| *field = field.replace(", y: string", ""));
    }
    bundle_of(
        &format!("versions:\n  v1: {{spec: {{z: string, {}}}}}\n", fields.join(", "))
            .replace("z: string, }", "z: string}"),
    )
}

fn text() -> impl Strategy<Value = Json> {
    "[abc]".prop_map(Json::from)
}

fn inner() -> impl Strategy<Value = Json> {
    (prop::option::of(text()), prop::option::of(text())).prop_map(|(x, y)| {
        let fields = [("x", x), ("y", y)].into_iter();
        fields
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect()
    })
}

fn spec() -> impl Strategy<Value = Json> {
    let map = prop::collection::btree_map("[pq]", inner(), 0..3);
    (
        prop::option::of(text()),
        prop::option::of(text()),
        prop::option::of(inner()),
        prop::option::of(prop::collection::vec(inner(), 0..3)),
        prop::option::of(map),
    )
        .prop_map(|(a, b, c, l, m)| {
            let all = [
                ("a", a),
                ("b", b),
                ("c", c),
                ("l", l.map(Json::from)),
                ("m", m.map(|m| json!(m))),
            ];
            all.into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?)))
                .collect()
        })
}

/// Returns an object as a generation shows it.
fn pruned(bundle: &Bundle, spec: &Json) -> Json {
    let mut x = object("v1", &json!({"spec": spec}));
    insula_schema::prune(&mut x, bundle.schema("v1").unwrap());
    x["spec"].clone()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 600 } else { 6000 }))]

    /// Writes through generations that have and lack fields: each write shows what it wrote, and a
    /// top-level field that was away shows, when it is back, what was written into it last.
    #[test]
    fn every_generation_shows_what_was_written_last(
        writes in prop::collection::vec((prop::collection::vec(any::<bool>(), 6), spec()), 1..6),
    ) {
        let all = generation(&[true; 6]);
        let (first, rest) = writes.split_first().unwrap();
        let under = generation(&first.0);
        let mut last = pruned(&under, &first.1);
        let mut written = Written::new(&under, "v1", &last);
        for (has, spec) in rest {
            let under = generation(has);
            let x = pruned(&under, spec);
            written.put(&under, "v1", &x);
            prop_assert_eq!(written.shows(&under, "v1"), x.clone());
            for (name, has) in ["a", "b", "c", "l", "m"].iter().zip(has) {
                match x.get(name) {
                    _ if !has => {}
                    Some(value) => last[name] = value.clone(),
                    None => drop(last.as_object_mut().unwrap().remove(*name)),
                }
            }
            let shown = written.shows(&all, "v1");
            for name in ["a", "b"] {
                prop_assert_eq!(shown.get(name), last.get(name), "{}", name);
            }
        }
    }
}

/// Until objects are written anew, values are stored as a former storage version had them.
#[test]
fn a_value_that_a_version_shows_is_not_retired_while_storage_moves() {
    let (without, with) = ("v1: {spec: {size: integer}}", "{spec: {size: integer, kind: string}}");
    let three = |storage: &str| {
        bundle_of(&format!(
            "storage: {storage}\nversions:\n  {without}\n  v2: {with}\n  v3: {with}\n"
        ))
    };
    let two = |storage: &str| bundle_of(&format!("storage: {storage}\nversions:\n  {without}\n  v2: {with}\n"));
    let path = SchemaPath::parse(".spec.kind").unwrap();
    let written = Written::new(&three("v1"), "v2", &json!({"size": 1, "kind": "ssd"}));
    for after in [three("v1"), three("v2"), two("v1"), two("v2")] {
        let stored = written.0.stored("v1");
        let shown = after.get(stored, "v2", &mut unmetered_budget()).unwrap();
        assert_eq!(shown["spec"], json!({"size": 1, "kind": "ssd"}));
        assert_eq!(after.retire(stored, None, &path).unwrap(), None);
    }
}
