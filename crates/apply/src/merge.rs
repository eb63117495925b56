//! JSON merge patches (RFC 7396): an object of the target's shape; nulls remove fields, lists and
//! scalars replace them.

use crate::PATCH_DEPTH_MAX;
use crate::decode::extent;
use crate::error::PatchError;
use insula_api::Json;

/// Applies a merge patch.
///
/// # Errors
/// Fails if the patch is not an object or is too deep; the target is then unchanged.
pub fn merge_patch(target: &mut Json, patch: &Json) -> Result<(), PatchError> {
    if !patch.is_object() {
        return Err(PatchError::malformed(
            "error decoding patch: a merge patch must be a JSON object",
        ));
    }
    if extent(patch).depth > PATCH_DEPTH_MAX {
        return Err(PatchError::TooDeep);
    }
    merge(target, patch);
    Ok(())
}

fn merge(target: &mut Json, patch: &Json) {
    let Json::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    // An object in the patch replaces any other value; its own nulls are dropped.
    if !target.is_object() {
        *target = Json::Object(serde_json::Map::new());
    }
    let Json::Object(fields) = target else { return };
    for (name, change) in changes {
        match (change, fields.get_mut(name)) {
            (Json::Null, _) => {
                fields.remove(name);
            }
            (_, Some(field)) => merge(field, change),
            (_, None) => {
                let mut field = Json::Null;
                merge(&mut field, change);
                fields.insert(name.clone(), field);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn merges_as_rfc_7396_shows() {
        // The examples of the RFC's appendix whose patch is an object, and a nested null.
        let rows = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (
                json!({"a": 1}),
                json!({"a": {"x": null, "y": [null]}}),
                json!({"a": {"y": [null]}}),
            ),
        ];
        for (mut target, patch, want) in rows {
            let text = format!("{target} + {patch}");
            merge_patch(&mut target, &patch).expect("an object");
            assert_eq!(target, want, "{text}");
        }
    }

    #[test]
    fn a_patch_must_be_an_object_of_sane_depth() {
        for patch in [json!([{"a": 1}]), json!(null), json!("a"), json!(1)] {
            let error = merge_patch(&mut json!({}), &patch).expect_err("no object");
            assert!(matches!(error, PatchError::Malformed(_)), "{patch}");
        }
        let mut deep = json!(1);
        for _ in 0..PATCH_DEPTH_MAX {
            deep = json!({ "a": deep });
        }
        let mut target = json!({"a": 1});
        assert_eq!(merge_patch(&mut target, &deep), Err(PatchError::TooDeep));
        assert_eq!(target, json!({"a": 1}));
    }

    pub(crate) fn value() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![Just(json!(null)), Just(json!(1)), Just(json!("x")), Just(json!(true))];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Json::Array),
                prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|m| Json::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn merging_twice_is_merging_once(target in value(), patch in value().prop_filter("object", Json::is_object)) {
            let mut once = target;
            merge_patch(&mut once, &patch).expect("an object");
            let mut twice = once.clone();
            merge_patch(&mut twice, &patch).expect("an object");
            prop_assert_eq!(once, twice);
        }
    }
}
