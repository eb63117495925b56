//! Patches and applies of the sizes that a body has at most. Their work grows with the size, and
//! not with its square: then each of them would take minutes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use insula_api::{Json, Timestamp};
use insula_apply::{
    FieldSet, ListMerge, Managers, MergeKeys, OnConflict, Shape, Versions, Writer, apply, json_patch, strategic_merge,
};
use insula_meter::Meter;
use insula_schema::Structural;
use serde_json::json;
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

/// Items of a strategic merge.
const MERGED: usize = 40_000;
/// Items of an apply.
const APPLIED: usize = 25_000;
/// Operations of a JSON Patch.
const MOVES: usize = 9_800;

fn merged(mut live: Json, patch: &Json) -> Json {
    let keys = MergeKeys::metadata().with("secrets", ListMerge::Key("name".to_owned()));
    strategic_merge(&mut live, patch, &keys).unwrap();
    live
}

#[test]
fn items_are_merged_by_key() {
    let (old, new) = (items(MERGED, &json!("a")), items(MERGED, &json!("b")));
    assert_eq!(
        merged(json!({"secrets": old}), &json!({"secrets": new})),
        json!({"secrets": new})
    );
}

#[test]
fn items_are_deleted_by_key() {
    let gone: Json = (0..MERGED)
        .map(|n| json!({"$patch": "delete", "name": format!("item-{n}")}))
        .collect();
    let left = merged(
        json!({"secrets": items(MERGED, &json!("a"))}),
        &json!({"secrets": gone}),
    );
    assert_eq!(left, json!({"secrets": []}));
}

#[test]
fn scalars_are_deleted() {
    let scalars: Json = (0..100_000).map(|n| json!(format!("item-{n}"))).collect();
    let left = merged(
        json!({"metadata": {"finalizers": scalars}}),
        &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": scalars}}),
    );
    assert_eq!(left["metadata"]["finalizers"], json!([]));
}

#[test]
fn items_are_ordered() {
    let names: Vec<Json> = (0..MERGED)
        .rev()
        .map(|n| json!({"name": format!("item-{n}")}))
        .collect();
    let ordered = merged(
        json!({"secrets": items(MERGED, &json!("a"))}),
        &json!({"$setElementOrder/secrets": names, "secrets": names}),
    );
    assert_eq!(ordered["secrets"][0]["name"], format!("item-{}", MERGED - 1));
}

#[test]
fn names_are_retained() {
    let names: Vec<String> = (0..MERGED).map(|n| format!("item-{n}")).collect();
    let fields: serde_json::Map<String, Json> = names.iter().map(|name| (name.clone(), json!(1))).collect();
    let mut patch = fields.clone();
    patch.insert("$retainKeys".to_owned(), json!(names));
    assert_eq!(
        merged(json!({"data": fields}), &json!({"data": patch})),
        json!({"data": fields})
    );
}

#[test]
fn items_and_tags_are_applied() {
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
    let object = |note: &Json| {
        let tags: Json = (0..APPLIED).map(|n| json!(format!("tag-{n}"))).collect();
        json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "a"},
            "spec": {"items": items(APPLIED, note), "tags": tags}})
    };
    for note in [json!("b"), Json::Null] {
        let (none, one) = (Managers::default(), writer("one"));
        let first = object(&json!("a"));
        let first = apply(&json!({}), &first, &none, &one, OnConflict::Refuse, &versions).unwrap();
        let live = first.object.unwrap();
        let (managers, two) = (first.managers, writer("two"));
        let second = apply(&live, &object(&note), &managers, &two, OnConflict::Force, &versions).unwrap();
        assert_eq!(second.object.unwrap()["spec"]["items"], items(APPLIED, &note));
    }
}

#[test]
fn items_are_moved() {
    let mut target = json!({"list": (0..MOVES).collect::<Vec<usize>>(), "other": []});
    let moves: Json = (0..MOVES)
        .map(|_| json!({"op": "move", "from": "/list/0", "path": "/other/-"}))
        .collect();
    json_patch(&mut target, &moves, &Meter::unbounded()).unwrap();
    assert_eq!(target["list"], json!([]));
}
