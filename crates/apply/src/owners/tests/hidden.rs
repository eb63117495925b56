//! Applies in several versions, of which one hides fields of another.

use super::*;

/// Two versions, of which `g/v2` shows a field that `g/v1` lacks: it is kept beside the object.
struct Hiding(Shapes);

impl Versions for Hiding {
    fn shape(&self, api_version: &str) -> Option<Shape<'_>> {
        self.0.shape(api_version)
    }

    fn convert(&self, object: &Json, from: &str, to: &str) -> Result<Json, String> {
        let mut converted = object.clone();
        converted["apiVersion"] = json!(to);
        if to == "g/v1"
            && let Some(spec) = converted["spec"].as_object_mut()
        {
            spec.remove("colour");
        }
        if (from, to) == ("g/v1", "g/v2") {
            converted["spec"]["colour"] = json!("red");
        }
        Ok(converted)
    }
}

/// The version of the last apply lacks a field that others own: what is removed there first is
/// restored together with the object around it.
#[test]
fn an_apply_in_a_version_with_more_fields_keeps_what_is_owned() {
    for config in [
        json!({"apiVersion": "g/v2", "kind": "Thing", "spec": {"size": 2}}),
        json!({"apiVersion": "g/v2", "kind": "Thing", "metadata": {"labels": {"a": "b"}}}),
    ] {
        let versions = Hiding(shapes());
        let owned = |version: &str, fields: Json| Entry {
            api_version: version.into(),
            fields: FieldSet::from_json(&fields).unwrap(),
            time: None,
        };
        let nothing = FieldSet::default();
        let writer = |manager, api_version| Writer {
            manager,
            subresource: "",
            api_version,
            ignored: &nothing,
            now: Timestamp(2),
        };
        let identity = |manager, version| writer(manager, version).identity(Operation::Apply);
        let managers = Managers(BTreeMap::from([
            (
                identity("one", "g/v1"),
                owned("g/v1", json!({"f:spec": {"f:size": {}}})),
            ),
            (
                identity("two", "g/v2"),
                owned("g/v2", json!({"f:spec": {"f:colour": {}, "f:steps": {}}})),
            ),
        ]));
        let live = json!({"apiVersion": "g/v2", "kind": "Thing", "spec": {"size": 1, "colour": "red", "steps": ["s"]}});
        let writer = writer("one", "g/v2");
        let applied = apply(&live, &config, &managers, &writer, OnConflict::Refuse, &versions).unwrap();
        let mut want = config.clone();
        want["spec"]["colour"] = json!("red");
        want["spec"]["steps"] = json!(["s"]);
        assert_eq!(applied.object, Some(want));
    }
}
