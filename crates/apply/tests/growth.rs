//! Work grows with the size of patches and objects, and not with its square.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use insula_api::{Json, Timestamp};
use insula_apply::{
    FieldSet, ListMerge, Managers, MergeKeys, OnConflict, Shape, Versions, Writer, apply, json_patch, strategic_merge,
};
use insula_schema::Structural;
use serde_json::json;
use std::time::Instant;

/// The larger size is this many times the smaller one.
const STEP: usize = 8;
/// Work for the larger size in work for the smaller one: linear work has about 8, with a logarithm
/// about 10, and quadratic work 64.
const GROWTH_MAX: f64 = 32.0;

/// Measures work of two sizes. The best of three runs counts, because others use the machine.
fn check(what: &str, small: usize, work: impl Fn(usize)) {
    let time = |size: usize| {
        let run = || {
            let begun = Instant::now();
            work(size);
            begun.elapsed().as_secs_f64()
        };
        (0..3).map(|_| run()).fold(f64::INFINITY, f64::min)
    };
    let (small, large) = (time(small), time(small * STEP));
    assert!(large < small * GROWTH_MAX, "{what}: {small:.4} s, then {large:.4} s");
}

struct One(Structural);

impl Versions for One {
    fn shape(&self, _: &str) -> Option<Shape<'_>> {
        Some(Shape::for_schema(&self.0))
    }

    fn convert(&self, object: &Json, _: &str, _: &str) -> Result<Json, String> {
        Ok(object.clone())
    }
}

fn items(count: usize, note: &Json) -> Json {
    (0..count)
        .map(|n| json!({"name": format!("item-{n}"), "note": note}))
        .collect()
}

#[test]
fn strategic_merges_of_many_items_grow_with_them() {
    let keys = MergeKeys::metadata().with("secrets", ListMerge::Key("name".to_owned()));
    let merged = |live: Json, patch: &Json| {
        let mut target = live;
        strategic_merge(&mut target, patch, &keys).unwrap();
    };
    check("items by key", 2_000, |count| {
        merged(
            json!({"secrets": items(count, &json!("a"))}),
            &json!({"secrets": items(count, &json!("b"))}),
        );
    });
    check("deleted items", 2_000, |count| {
        let gone: Json = (0..count)
            .map(|n| json!({"$patch": "delete", "name": format!("item-{n}")}))
            .collect();
        merged(json!({"secrets": items(count, &json!("a"))}), &json!({"secrets": gone}));
    });
    check("deletions of scalars", 4_000, |count| {
        let scalars: Json = (0..count).map(|n| json!(format!("item-{n}"))).collect();
        merged(
            json!({"metadata": {"finalizers": scalars}}),
            &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": scalars}}),
        );
    });
    check("orders", 2_000, |count| {
        let names: Vec<Json> = (0..count).rev().map(|n| json!({"name": format!("item-{n}")})).collect();
        merged(
            json!({"secrets": items(count, &json!("a"))}),
            &json!({"$setElementOrder/secrets": names, "secrets": names}),
        );
    });
    check("kept names", 2_000, |count| {
        let names: Vec<String> = (0..count).map(|n| format!("item-{n}")).collect();
        let fields: serde_json::Map<String, Json> = names.iter().map(|name| (name.clone(), json!(1))).collect();
        let mut patch = fields.clone();
        patch.insert("$retainKeys".to_owned(), json!(names));
        merged(json!({"data": fields}), &json!({"data": patch}));
    });
}

#[test]
fn applies_of_many_items_grow_with_them() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"},
                "note": {"type": "string", "nullable": true}}}}}}}});
    let versions = One(Structural::parse_trusted(&schema).unwrap());
    let ignored = FieldSet::default();
    let writer = |manager| Writer {
        manager,
        subresource: "",
        api_version: "example.io/v1",
        ignored: &ignored,
        now: Timestamp(1),
    };
    let object = |count: usize, note: &Json| {
        let tags: Json = (0..count).map(|n| json!(format!("tag-{n}"))).collect();
        json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "a"},
            "spec": {"items": items(count, note), "tags": tags}})
    };
    for note in [json!("b"), Json::Null] {
        check("items and tags", 500, |count| {
            let first = apply(
                &json!({}),
                &object(count, &json!("a")),
                &Managers::default(),
                &writer("one"),
                OnConflict::Refuse,
                &versions,
            );
            let first = first.unwrap();
            let live = first.object.unwrap();
            let second = apply(
                &live,
                &object(count, &note),
                &first.managers,
                &writer("two"),
                OnConflict::Force,
                &versions,
            );
            assert!(second.unwrap().object.is_some());
        });
    }
}

#[test]
fn moves_in_long_lists_grow_with_them() {
    check("moves", 200, |count| {
        let mut target = json!({"list": (0..count).collect::<Vec<usize>>(), "other": []});
        let moves: Json = (0..count)
            .map(|_| json!({"op": "move", "from": "/list/0", "path": "/other/-"}))
            .collect();
        json_patch(&mut target, &moves).unwrap();
    });
}
