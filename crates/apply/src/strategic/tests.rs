//! Recorded answers of a server for a ServiceAccount, which has every kind of list, and the patches
//! that it refuses.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn keys() -> MergeKeys {
    MergeKeys::metadata().with("secrets", ListMerge::Key("name".to_owned()))
}

fn patched(live: &Json, patch: &Json) -> Result<Json, PatchError> {
    let mut target = live.clone();
    strategic_merge(&mut target, patch, &keys()).map(|()| target)
}

fn named(names: &str) -> Json {
    names.chars().map(|c| json!({"name": c.to_string()})).collect()
}

fn secrets(list: Json) -> Json {
    json!({ "secrets": list })
}

/// Checks live objects, their patches and the results, each with a name.
fn check(rows: &[(&str, Json, Json, Json)]) {
    for (what, live, patch, want) in rows {
        assert_eq!(patched(live, patch).as_ref(), Ok(want), "{what}");
    }
}

#[test]
fn keyed_lists_merge_as_recorded() {
    let owners = |list: Json| json!({"metadata": {"ownerReferences": list}});
    check(&[
        (
            "add to a keyed list",
            secrets(named("abc")),
            json!({"secrets": [{"name": "d"}, {"name": "b", "x": 1}]}),
            json!({"secrets": [{"name": "d"}, {"name": "a"}, {"name": "b", "x": 1}, {"name": "c"}]}),
        ),
        (
            "delete from a keyed list",
            secrets(named("dabc")),
            json!({"secrets": [{"name": "b", "$patch": "delete"}, {"name": "nothing", "$patch": "delete"}]}),
            secrets(named("dac")),
        ),
        (
            "order elements",
            secrets(named("dac")),
            json!({"$setElementOrder/secrets": named("cead"), "secrets": [{"name": "e"}]}),
            secrets(named("cead")),
        ),
        (
            "order only",
            secrets(named("abc")),
            json!({"$setElementOrder/secrets": named("cb")}),
            secrets(named("acb")),
        ),
        (
            "order and remove",
            secrets(named("abc")),
            json!({"$setElementOrder/secrets": named("ca"), "secrets": [{"$patch": "delete", "name": "b"}]}),
            secrets(named("ca")),
        ),
        (
            "order of an absent list",
            json!({}),
            json!({"$setElementOrder/secrets": named("ca")}),
            json!({}),
        ),
        (
            "order of a new list",
            json!({}),
            json!({"$setElementOrder/secrets": named("ab"), "secrets": named("ab")}),
            secrets(named("ab")),
        ),
        (
            "replace a list",
            secrets(named("cead")),
            json!({"secrets": [{"$patch": "replace"}, {"name": "z"}]}),
            secrets(named("z")),
        ),
        (
            "update by uid",
            owners(json!([{"uid": "1", "kind": "ConfigMap"}])),
            owners(json!([{"uid": "1", "controller": true}])),
            owners(json!([{"uid": "1", "kind": "ConfigMap", "controller": true}])),
        ),
        (
            "deletions without a live value",
            json!({}),
            json!({"secrets": [{"name": "a", "$patch": "delete"}, {"name": "b"}]}),
            secrets(named("b")),
        ),
    ]);
}

#[test]
fn sets_and_unkeyed_lists_merge_as_recorded() {
    let finalizers = |list: Json| json!({"metadata": {"finalizers": list}});
    check(&[
        (
            "an unkeyed list is replaced",
            json!({"imagePullSecrets": named("ab")}),
            json!({"imagePullSecrets": named("c")}),
            json!({"imagePullSecrets": named("c")}),
        ),
        (
            "null removes a list",
            json!({"imagePullSecrets": named("a"), "secrets": named("z")}),
            json!({"imagePullSecrets": null}),
            secrets(named("z")),
        ),
        (
            "merge a set",
            finalizers(json!(["one"])),
            finalizers(json!(["two"])),
            finalizers(json!(["two", "one"])),
        ),
        (
            "a set holds each once",
            finalizers(json!(["one", "two"])),
            finalizers(json!(["two"])),
            finalizers(json!(["one", "two"])),
        ),
        (
            "delete from a set",
            finalizers(json!(["two", "one"])),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["one", "three"]}}),
            finalizers(json!(["two"])),
        ),
        (
            "delete and order",
            finalizers(json!(["a", "b", "c"])),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"], "$setElementOrder/finalizers": ["c",
                "a"]}}),
            finalizers(json!(["c", "a"])),
        ),
        (
            "delete from an absent set",
            json!({"metadata": {}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["one"]}}),
            json!({"metadata": {}}),
        ),
    ]);
}

#[test]
fn maps_merge_as_recorded() {
    let labels = |map: Json| json!({"metadata": {"labels": map}});
    check(&[
        (
            "merge a map",
            labels(json!({"a": "1", "b": "2"})),
            labels(json!({"a": null, "c": "3"})),
            labels(json!({"b": "2", "c": "3"})),
        ),
        (
            "say merge",
            labels(json!({"a": "1"})),
            labels(json!({"$patch": "merge", "b": "2"})),
            labels(json!({"a": "1", "b": "2"})),
        ),
        (
            "replace a map",
            labels(json!({"b": "2"})),
            labels(json!({"$patch": "replace", "only": "this"})),
            labels(json!({"only": "this"})),
        ),
        (
            "delete a map",
            labels(json!({"b": "2"})),
            labels(json!({"$patch": "delete"})),
            json!({"metadata": {}}),
        ),
        (
            "retain keys",
            json!({"a": {"x": 1, "y": 2}}),
            json!({"a": {"$retainKeys": ["y", "z"], "z": 3, "x": null}}),
            json!({"a": {"y": 2, "z": 3}}),
        ),
        (
            "another type is replaced",
            json!({"a": {"x": 1}}),
            json!({"a": [1]}),
            json!({"a": [1]}),
        ),
        (
            "directives without a live value",
            json!({}),
            json!({"a": {"b": {"$retainKeys": [], "c": null, "d": 1}, "$patch": "replace"}}),
            json!({"a": {"b": {"d": 1}}}),
        ),
        (
            "the whole object",
            json!({"a": 1}),
            json!({"$patch": "replace", "b": 1}),
            json!({"b": 1}),
        ),
    ]);
}

/// Checks that each patch is malformed with its text, and that it changes nothing.
fn check_malformed(rows: &[(Json, &str)]) {
    let live = json!({"secrets": [{"name": "a"}], "metadata": {"finalizers": ["x"], "labels": {}}, "a": 1});
    for (patch, want) in rows {
        let mut target = live.clone();
        let error = strategic_merge(&mut target, patch, &keys()).expect_err(want);
        assert_eq!(error, PatchError::Malformed((*want).to_owned()), "{patch}");
        assert_eq!(target, live);
    }
}

#[test]
fn senseless_patches_of_maps_are_malformed_and_change_nothing() {
    check_malformed(&[
        (
            json!([1]),
            "error decoding patch: a strategic merge patch must be a JSON object",
        ),
        (
            json!({"$patch": "eat"}),
            "invalid strategic merge patch: the patch: unknown $patch; want merge, replace or delete",
        ),
        (
            json!({"metadata": {"labels": {"$patch": 1}}}),
            "invalid strategic merge patch: metadata.labels: $patch must be a string: merge, replace or delete",
        ),
        (
            json!({"$retainKeys": "x"}),
            "invalid strategic merge patch: the patch: $retainKeys must be a list of names",
        ),
        (
            json!({"$retainKeys": [1]}),
            "invalid strategic merge patch: the patch: $retainKeys must be a list of names",
        ),
        (
            json!({"$retainKeys": ["x"], "y": 1}),
            "invalid strategic merge patch: y: the patch writes a field that its $retainKeys leaves out",
        ),
    ]);
}

#[test]
fn senseless_patches_of_lists_are_malformed_and_change_nothing() {
    check_malformed(&[
        (
            json!({"secrets": [{"x": 1}]}),
            "invalid strategic merge patch: secrets: each item must be an object with the merge key name",
        ),
        (
            json!({"secrets": ["x"]}),
            "invalid strategic merge patch: secrets: each item must be an object with the merge key name",
        ),
        (
            json!({"secrets": [{"$patch": "delete"}]}),
            "invalid strategic merge patch: secrets: each item must be an object with the merge key name",
        ),
        (
            json!({"secrets": [{"$patch": "merge", "name": "a"}]}),
            "invalid strategic merge patch: secrets: unknown $patch of an item; want replace or delete",
        ),
        (
            json!({"metadata": {"finalizers": [{"x": 1}]}}),
            "invalid strategic merge patch: metadata.finalizers: items must be scalars",
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}}),
            "invalid strategic merge patch: metadata.finalizers: what to delete must be a list",
        ),
        (
            json!({"$setElementOrder/secrets": {}}),
            "invalid strategic merge patch: secrets: an element order must be a list",
        ),
        (
            json!({"$setElementOrder/a": []}),
            "invalid strategic merge patch: a: an element order is for lists only",
        ),
        (
            json!({"$setElementOrder/secrets": [{"name": "a"}], "secrets": [{"name": "b"}]}),
            "invalid strategic merge patch: secrets: items are not in the order of the patch's $setElementOrder",
        ),
    ]);
}

#[test]
fn lists_below_status_merge_by_their_key() {
    let keys = MergeKeys::metadata().with("status.conditions", ListMerge::Key("type".to_owned()));
    let conditions = |list: Json| json!({"status": {"conditions": list}});
    let mut namespace = conditions(json!([{"type": "A", "status": "True"}]));
    let patch = conditions(json!([{"type": "B"}, {"type": "A", "status": "False"}]));
    strategic_merge(&mut namespace, &patch, &keys).expect("a patch");
    assert_eq!(
        namespace,
        conditions(json!([{"type": "B"}, {"type": "A", "status": "False"}]))
    );
}

fn names() -> impl Strategy<Value = String> {
    prop::sample::subsequence(vec!['a', 'b', 'c', 'd', 'e'], 0..5)
        .prop_shuffle()
        .prop_map(|names| names.into_iter().collect())
}

proptest! {
    #[test]
    fn a_merged_list_holds_both_in_the_order_of_the_patch(live in names(), patch in names()) {
        let merged = patched(&json!({"secrets": named(&live)}), &json!({"secrets": named(&patch)})).expect("a patch");
        let got: String = merged["secrets"].as_array().expect("a list").iter()
            .map(|item| item["name"].as_str().expect("a name").to_owned()).collect();
        let mut all: Vec<char> = live.chars().chain(patch.chars()).collect();
        all.sort_unstable();
        all.dedup();
        let mut sorted: Vec<char> = got.chars().collect();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, all, "each item once");
        let of_patch: String = got.chars().filter(|c| patch.contains(*c)).collect();
        prop_assert_eq!(of_patch, patch.clone());
        let others: String = got.chars().filter(|c| !patch.contains(*c)).collect();
        let want: String = live.chars().filter(|c| !patch.contains(*c)).collect();
        prop_assert_eq!(others, want);
    }
}
