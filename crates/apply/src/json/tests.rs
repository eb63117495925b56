use super::*;
use insula_meter::Meter;
use proptest::prelude::*;
use serde_json::json;

fn patched(target: &Json, patch: &Json) -> Result<Json, PatchError> {
    let mut target = target.clone();
    json_patch(&mut target, patch, &Meter::unbounded()).map(|()| target)
}

#[test]
fn operations_do_what_a_recorded_server_did() {
    let object = json!({"spec": {"size": 1, "parts": ["x", "y"], "bag": {"one": 1, "a/b": 2, "c~d": 3}}});
    let patch = json!([
        {"op": "test", "path": "/spec/size", "value": 1},
        {"op": "replace", "path": "/spec/size", "value": 2},
        {"op": "add", "path": "/spec/parts/-", "value": "z"},
        {"op": "add", "path": "/spec/parts/0", "value": "w"},
        {"op": "remove", "path": "/spec/parts/1"},
        {"op": "copy", "from": "/spec/bag/one", "path": "/spec/bag/two"},
        {"op": "move", "from": "/spec/bag/one", "path": "/spec/bag/three"},
        {"op": "remove", "path": "/spec/bag/a~1b"},
        {"op": "replace", "path": "/spec/bag/c~0d", "value": {"deep": [1, 2.5, true, "s"]}},
    ]);
    let want = json!({"spec": {"size": 2, "parts": ["w", "y", "z"], "bag": {"two": 1, "three": 1,
        "c~d": {"deep": [1, 2.5, true, "s"]}}}});
    assert_eq!(patched(&object, &patch), Ok(want));
}

fn object() -> Json {
    json!({"a": 1, "l": [1, 2, 3], "o": {"x": {"y": 1}}, "": 0, "n": null})
}

/// Checks the result of each patch of [`object`], or the text with which it fails.
fn check(rows: &[(Json, Result<Json, &str>)]) {
    for (patch, want) in rows {
        let got = patched(&object(), patch).map_err(|error| error.to_string());
        let want = want.clone().map_err(str::to_owned);
        assert_eq!(got, want, "{patch}");
    }
}

#[test]
fn tests_and_replacements() {
    check(&[
        (json!([]), Ok(object())),
        (
            json!([{"op": "replace", "path": "/fresh", "value": 1}]),
            Ok(json!({"a": 1, "l": [1, 2, 3], "o": {"x": {"y": 1}}, "": 0, "n": null, "fresh": 1})),
        ),
        (
            json!([{"op": "replace", "path": "", "value": {"b": 1}}]),
            Ok(json!({"b": 1})),
        ),
        (
            json!([{"op": "replace", "path": "/l/3", "value": 1}]),
            Err("operation 0: nothing at /l/3"),
        ),
        (
            json!([{"op": "replace", "path": "/l/-", "value": 1}]),
            Err("operation 0: nothing at /l/-"),
        ),
        (
            json!([{"op": "test", "path": "/a", "value": 7}]),
            Err("operation 0: /a is not what the test wants"),
        ),
        (
            json!([{"op": "test", "path": "/a", "value": 1.0}, {"op": "test", "path": "/none", "value": null},
                {"op": "test", "path": "/n", "value": null}]),
            Ok(object()),
        ),
        (
            json!([{"op": "test", "path": "/none", "value": 1}]),
            Err("operation 0: /none is not what the test wants"),
        ),
    ]);
}

#[test]
fn additions_and_removals() {
    check(&[
        (
            json!([{"op": "remove", "path": "/none"}]),
            Err("operation 0: nothing at /none"),
        ),
        (
            json!([{"op": "remove", "path": ""}]),
            Err("operation 0: the whole object cannot be removed"),
        ),
        (
            json!([{"op": "remove", "path": "/l/3"}]),
            Err("operation 0: /l/3 is not a place in the list"),
        ),
        (
            json!([{"op": "remove", "path": "/l/-1"}]),
            Err("operation 0: /l/-1 is not a place in the list"),
        ),
        (
            json!([{"op": "add", "path": "/far/away", "value": 1}]),
            Err("operation 0: nothing at /far"),
        ),
        (
            json!([{"op": "add", "path": "/a/b", "value": 1}]),
            Err("operation 0: /a/b is below a value that is neither object nor list"),
        ),
        (
            json!([{"op": "add", "path": "/l/9", "value": 1}]),
            Err("operation 0: /l/9 is not a place in the list"),
        ),
        (
            json!([{"op": "add", "path": "/l/01", "value": 1}]),
            Err("operation 0: /l/01 is not a place in the list"),
        ),
        (
            json!([{"op": "add", "path": "/l/+1", "value": 1}]),
            Err("operation 0: /l/+1 is not a place in the list"),
        ),
    ]);
}

#[test]
fn moves_and_copies() {
    check(&[
        (
            json!([{"op": "move", "from": "/o", "path": "/o/x/z"}]),
            Err("operation 0: /o cannot be moved into itself"),
        ),
        (
            json!([{"op": "move", "from": "/none", "path": "/b"}]),
            Err("operation 0: nothing at /none"),
        ),
        (json!([{"op": "move", "from": "/a", "path": "/a"}]), Ok(object())),
        (
            json!([{"op": "copy", "from": "/none", "path": "/b"}]),
            Err("operation 0: nothing at /none"),
        ),
    ]);
}

#[test]
fn invalid_operations_are_refused() {
    for patch in [
        json!([{"op": "append", "path": "/l", "value": 1}]),
        json!([{"op": "add", "path": "/l"}]),
        json!([{"path": "/l"}]),
        json!([{"op": "remove", "path": "a"}]),
        json!([{"op": "remove", "path": "/a~2"}]),
        json!([{"op": "remove", "path": 1}]),
        json!([{}]),
    ] {
        assert!(
            matches!(patched(&object(), &patch), Err(PatchError::Failed { .. })),
            "{patch}"
        );
    }
    for patch in [
        json!({"op": "remove", "path": "/a"}),
        json!([1]),
        json!(null),
        json!("x"),
    ] {
        assert!(
            matches!(patched(&object(), &patch), Err(PatchError::Malformed(_))),
            "{patch}"
        );
    }
}

#[test]
fn a_failing_patch_changes_nothing() {
    let mut target = json!({"a": 1});
    let patch = json!([{"op": "replace", "path": "/a", "value": 2}, {"op": "test", "path": "/a", "value": 3}]);
    assert!(json_patch(&mut target, &patch, &Meter::unbounded()).is_err());
    assert_eq!(target, json!({"a": 1}));
}

#[test]
fn too_many_operations_are_refused_by_number() {
    let patch = |count: usize| Json::Array(vec![json!({"op": "add", "path": "/a", "value": 1}); count]);
    assert!(patched(&json!({}), &patch(JSON_PATCH_OPERATIONS_MAX)).is_ok());
    let error = patched(&json!({}), &patch(JSON_PATCH_OPERATIONS_MAX + 1)).expect_err("too many");
    let want = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!(error.to_string(), want);
}

#[test]
fn copies_of_copies_stop_at_the_limit() {
    // Each operation doubles the object: 30 of them would multiply its size by a billion.
    let patch = Json::Array(vec![json!({"op": "copy", "from": "/l", "path": "/l/-"}); 30]);
    let error = patched(&json!({"l": ["x".repeat(1024)]}), &patch)
        .expect_err("too large")
        .to_string();
    assert!(
        error.ends_with("copies may add at most 3145728 bytes in all"),
        "{error}"
    );
}

#[test]
fn what_is_built_in_steps_is_no_deeper_than_allowed() {
    // A copy into the copied value deepens it; without a limit, freeing the result would overflow
    // the stack.
    let patch = Json::Array(vec![json!({"op": "copy", "from": "/a", "path": "/a/a"}); 200]);
    let error = patched(&json!({"a": {}}), &patch).expect_err("too deep").to_string();
    assert!(
        error.ends_with("the result would be nested more than 120 deep"),
        "{error}"
    );
    let mut operations = Vec::new();
    let mut path = String::new();
    for _ in 0..PATCH_DEPTH_MAX {
        path.push_str("/a");
        operations.push(json!({"op": "add", "path": path, "value": {}}));
    }
    let error = patched(&json!({}), &Json::Array(operations))
        .expect_err("too deep")
        .to_string();
    assert!(
        error.ends_with("the result would be nested more than 120 deep"),
        "{error}"
    );
}

#[test]
fn a_patch_that_only_makes_work_is_stopped() {
    let target = json!({"l": vec![0; 100_000]});
    let patch = Json::Array(vec![
        json!({"op": "add", "path": "/l/0", "value": 1});
        JSON_PATCH_OPERATIONS_MAX
    ]);
    let error = patched(&target, &patch).expect_err("too much work").to_string();
    assert!(error.contains("touches more than 50000000 values"), "{error}");
}

fn operation() -> impl Strategy<Value = Json> {
    let path = prop::collection::vec(prop_oneof!["[a-c]", "[0-3]", Just("-".to_owned())], 0..4);
    let path = path.prop_map(|tokens| tokens.iter().map(|t| format!("/{t}")).collect::<String>());
    let op = prop_oneof!["add", "remove", "replace", "move", "copy", "test", "other"];
    let value = prop_oneof![
        Just(json!(1)),
        Just(json!({"a": {}})),
        Just(json!([1, 2])),
        Just(json!(null))
    ];
    (op, path.clone(), path, value)
        .prop_map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
}

proptest! {
    #[test]
    fn any_operations_apply_or_leave_everything(operations in prop::collection::vec(operation(), 0..12)) {
        let before = json!({"a": {"b": [1, {"c": 2}], "c": {}}, "b": [0, 1, 2]});
        let mut target = before.clone();
        let done = json_patch(&mut target, &Json::Array(operations), &Meter::unbounded());
        if done.is_err() {
            prop_assert_eq!(target, before);
        }
    }
}
