//! Scripts of writes, with the expected owners after each.

mod hidden;
mod model;

use super::*;
use insula_schema::Structural;
use serde_json::json;
use std::collections::BTreeMap;

/// Versions with different schemas and equal objects.
struct Shapes(BTreeMap<&'static str, Structural>);

impl Versions for Shapes {
    fn shape(&self, api_version: &str) -> Option<Shape<'_>> {
        self.0.get(api_version).map(Shape::for_schema)
    }

    fn convert(&self, object: &Json, _: &str, to: &str) -> Result<Json, String> {
        let mut converted = object.clone();
        converted["apiVersion"] = json!(to);
        Ok(converted)
    }
}

fn shapes() -> Shapes {
    let schema = |tags: &str| {
        let document = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer", "default": 10}, "colour": {"type": "string"},
                "box": {"type": "object", "properties": {"width": {"type": "integer"}}},
                "tags": {"type": "array", "x-kubernetes-list-type": tags, "items": {"type": "string"}},
                "steps": {"type": "array", "items": {"type": "string"}},
                "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
                "ref": {"type": "object", "x-kubernetes-map-type": "atomic",
                    "properties": {"name": {"type": "string"}}},
                "ports": {"type": "array", "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["port", "protocol"],
                    "items": {"type": "object", "properties": {"port": {"type": "integer"},
                        "protocol": {"type": "string", "default": "TCP"}, "note": {"type": "string"}}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        }});
        Structural::parse_trusted(&document).expect("a schema")
    };
    Shapes(BTreeMap::from([
        ("g/v1", schema("set")),
        ("g/v2", schema("set")),
        ("g/v3", schema("atomic")),
    ]))
}

/// An object, its managers, and a clock that advances with each write.
struct Script {
    shapes: Shapes,
    object: Json,
    managers: Managers,
    now: i64,
}

enum Write {
    Update,
    Apply,
    Force,
}

impl Script {
    fn new() -> Script {
        Script {
            shapes: shapes(),
            object: json!({}),
            managers: Managers::default(),
            now: 0,
        }
    }

    fn write(&mut self, write: &Write, manager: &str, version: &str, body: Json) -> Result<(), ApplyError> {
        self.now += 1;
        let mut body = body;
        body["apiVersion"] = json!(version);
        body["kind"] = json!("Thing");
        let nothing = FieldSet::default();
        let writer = Writer {
            manager,
            subresource: "",
            api_version: version,
            ignored: &nothing,
            now: Timestamp(self.now),
        };
        let on_conflict = match write {
            Write::Update => {
                self.managers = update(&self.object, &body, self.managers.clone(), &writer, &self.shapes)
                    .map_err(ApplyError::Version)?;
                self.object = body;
                return Ok(());
            }
            Write::Apply => OnConflict::Refuse,
            Write::Force => OnConflict::Force,
        };
        let applied = apply(&self.object, &body, &self.managers, &writer, on_conflict, &self.shapes)?;
        self.managers = applied.managers;
        if let Some(object) = applied.object {
            self.object = object;
        }
        Ok(())
    }

    /// Prints each manager as a line `name operation version time: fields`.
    fn owners(&self) -> Vec<String> {
        let entries = self.managers.to_json();
        let line = |entry: &Json| {
            let text = |field: &str| entry[field].as_str().unwrap_or("-").to_owned();
            let second = text("time")
                .trim_end_matches('Z')
                .rsplit(':')
                .next()
                .unwrap_or_default()
                .to_owned();
            format!(
                "{} {} {} {second}: {}",
                text("manager"),
                text("operation"),
                text("apiVersion"),
                entry["fieldsV1"]
            )
        };
        entries.as_array().into_iter().flatten().map(line).collect()
    }
}

fn spec(fields: Json) -> Json {
    json!({"metadata": {"name": "a"}, "spec": fields})
}

fn tell(steps: Vec<(Write, &str, &str, Json)>) -> Script {
    let mut script = Script::new();
    for (write, manager, version, body) in steps {
        script.write(&write, manager, version, body).expect("no conflict");
    }
    script
}

#[test]
fn creating_owns_everything_and_applying_owns_leaves() {
    let body = json!({"size": 1, "box": {"width": 2}, "tags": ["x"], "steps": ["s"], "sizes": {"a": 1},
        "ref": {"name": "r"}, "ports": [{"port": 80}], "free": {"deep": [1], "empty": {}}});
    let created = tell(vec![(Write::Update, "c", "g/v1", spec(body.clone()))]);
    assert_eq!(
        created.owners(),
        [
            r#"c Update g/v1 01: {"f:spec":{".":{},"f:box":{".":{},"f:width":{}},"f:free":{".":{},"f:deep":{},"f:empty":{}},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"f:ref":{},"f:size":{},"f:sizes":{".":{},"f:a":{}},"f:steps":{},"f:tags":{".":{},"v:\"x\"":{}}}}"#
        ]
    );
    let applied = tell(vec![(Write::Apply, "a", "g/v1", spec(body))]);
    assert_eq!(
        applied.owners(),
        [
            r#"a Apply g/v1 01: {"f:spec":{"f:box":{"f:width":{}},"f:free":{"f:deep":{},"f:empty":{}},"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"f:ref":{},"f:size":{},"f:sizes":{"f:a":{}},"f:steps":{},"f:tags":{"v:\"x\"":{}}}}"#
        ]
    );
}

#[test]
fn what_is_given_up_goes_unless_others_own_it() {
    let script = tell(vec![
        (
            Write::Apply,
            "a",
            "g/v1",
            spec(json!({"size": 1, "colour": "red", "tags": ["x", "y"], "sizes": {"n": 1}})),
        ),
        (Write::Apply, "b", "g/v1", spec(json!({"size": 1, "tags": ["y"]}))),
        (Write::Apply, "a", "g/v1", spec(json!({"sizes": {}}))),
    ]);
    assert_eq!(script.object["spec"], json!({"size": 1, "tags": ["y"], "sizes": {}}));
    let script = tell(vec![
        (
            Write::Apply,
            "a",
            "g/v1",
            spec(json!({"ports": [{"port": 1}, {"port": 2, "note": "n"}]})),
        ),
        (Write::Apply, "b", "g/v1", spec(json!({"ports": [{"port": 2}]}))),
        (Write::Apply, "a", "g/v1", json!({"metadata": {"name": "a"}})),
    ]);
    assert_eq!(script.object["spec"], json!({"ports": [{"port": 2}]}));
    assert_eq!(script.owners().len(), 1);
}

#[test]
fn times_tell_who_changed_the_object_last() {
    let mut script = tell(vec![
        (Write::Apply, "a", "g/v1", spec(json!({"size": 1}))),
        (Write::Apply, "b", "g/v1", spec(json!({"size": 1}))),
        (Write::Update, "c", "g/v1", spec(json!({"size": 1}))),
    ]);
    let want = [
        r#"b Apply g/v1 -: {"f:spec":{"f:size":{}}}"#,
        r#"a Apply g/v1 01: {"f:spec":{"f:size":{}}}"#,
    ];
    assert_eq!(script.owners(), want);
    let before = (script.object.clone(), script.managers.clone());
    script
        .write(&Write::Apply, "a", "g/v1", spec(json!({"size": 1})))
        .expect("applies");
    assert_eq!(
        (script.object, script.managers),
        before,
        "applying again changes nothing"
    );
}

#[test]
fn conflicts_name_managers_and_fields() {
    let mut script = tell(vec![
        (Write::Update, "c", "g/v2", spec(json!({"colour": "red"}))),
        (
            Write::Apply,
            "a",
            "g/v1",
            spec(json!({"size": 1, "ports": [{"port": 80, "note": "x"}]})),
        ),
    ]);
    let error = script
        .write(&Write::Apply, "b", "g/v1", spec(json!({"size": 2})))
        .expect_err("owned by a");
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"a\": .spec.size"
    );
    let body = spec(json!({"size": 2, "colour": "blue", "ports": [{"port": 80, "protocol": "TCP", "note": "y"}]}));
    let error = script
        .write(&Write::Apply, "b", "g/v1", body.clone())
        .expect_err("owned");
    assert_eq!(
        error.to_string(),
        "Apply failed with 3 conflicts: conflicts with \"a\":\n- .spec.size\n- \
            .spec.ports[port=80,protocol=\"TCP\"].note\nconflicts with \"c\" using g/v2:\n- .spec.colour"
    );
    script.write(&Write::Force, "b", "g/v1", body).expect("forced");
    assert_eq!(
        script.owners(),
        [
            r#"a Apply g/v1 02: {"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}}}}"#,
            r#"b Apply g/v1 05: {"f:spec":{"f:colour":{},"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:note":{},"f:port":{},"f:protocol":{}}},"f:size":{}}}"#,
            r#"c Update g/v2 01: {"f:spec":{}}"#,
        ]
    );
}

#[test]
fn fields_are_compared_in_their_owners_version() {
    let mut script = tell(vec![
        (Write::Apply, "a", "g/v1", spec(json!({"tags": ["x"]}))),
        (Write::Apply, "d", "g/v3", spec(json!({"tags": ["x"]}))),
    ]);
    let error = script
        .write(&Write::Apply, "a", "g/v1", spec(json!({"tags": ["x", "y"]})))
        .expect_err("one value to d");
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"d\": .spec.tags"
    );
    script.shapes.0.remove("g/v3");
    script
        .write(&Write::Apply, "a", "g/v1", spec(json!({"tags": ["x", "y"]})))
        .expect("d's version is gone");
    assert_eq!(
        script.owners(),
        [r#"a Apply g/v1 04: {"f:spec":{"f:tags":{"v:\"x\"":{},"v:\"y\"":{}}}}"#]
    );
}

#[test]
fn lists_take_the_applied_order() {
    let tags = |tags: &str| spec(json!({"tags": tags.split(' ').collect::<Vec<_>>()}));
    for (live, applied, want) in [
        ("red q", "blue red", "blue red q"),
        ("codes", "codes", "codes"),
        ("x y", "z x", "z x y"),
        ("z x y", "y x", "z y x"),
        ("w z y x", "n1 y n2", "w z n1 y x n2"),
        ("a b c", "c x a", "b c x a"),
    ] {
        let script = tell(vec![
            (Write::Update, "c", "g/v1", tags(live)),
            (Write::Apply, "a", "g/v1", tags(applied)),
        ]);
        assert_eq!(script.object["spec"], tags(want)["spec"], "{live} + {applied}");
    }
}

#[test]
fn what_does_not_fit_is_refused_in_kubernetes_words() {
    for (body, want) in [
        (json!({"nothing": 1}), ".spec.nothing: field not declared in schema"),
        (
            json!({"tags": ["x", "x"]}),
            ".spec.tags: duplicate entries for key [=\"x\"]",
        ),
        (
            json!({"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]}),
            ".spec.ports: duplicate entries for key [port=1,protocol=\"TCP\"]",
        ),
        (
            json!({"tags": [{}]}),
            ".spec.tags: element 0: associative list without keys has an element that's a map type",
        ),
        (
            json!({"size": "1"}),
            ".spec.size: expected numeric (int or float), got \"1\"",
        ),
        (
            json!({"size": "1", "steps": [1], "box": []}),
            "errors:\n  .spec.box: expected map, got []\n  .spec.size: expected numeric (int or float), got \
                \"1\"\n  .spec.steps[0]: expected string, got 1",
        ),
    ] {
        let error = Script::new()
            .write(&Write::Apply, "a", "g/v1", spec(body))
            .expect_err(want);
        assert_eq!(error, ApplyError::Mistyped(want.into()));
    }
}

#[test]
fn the_first_apply_finds_what_was_there_before() {
    let mut script = tell(vec![(
        Write::Update,
        "c",
        "g/v1",
        spec(json!({"size": 1, "colour": "red"})),
    )]);
    script.managers = Managers::default();
    script
        .write(&Write::Apply, "a", "g/v1", spec(json!({"size": 1})))
        .expect("applies");
    assert_eq!(
        script.owners(),
        [
            r#"a Apply g/v1 -: {"f:spec":{"f:size":{}}}"#,
            r#"before-first-apply Update g/v1 02: {"f:spec":{".":{},"f:colour":{},"f:size":{}}}"#,
        ]
    );
}

#[test]
fn client_side_apply_is_taken_over_by_kubectl_alone() {
    let last =
        json!({"apiVersion": "g/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"size": 1, "colour": "red"}});
    let mut created = spec(json!({"size": 1, "colour": "blue"}));
    created["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": last.to_string()});
    let script = || {
        tell(vec![(
            Write::Update,
            "kubectl-client-side-apply",
            "g/v1",
            created.clone(),
        )])
    };
    let other = script().write(&Write::Apply, "other", "g/v1", spec(json!({"size": 2})));
    assert!(matches!(other, Err(ApplyError::Conflicts(_))));
    let mut kubectl = script();
    let error = kubectl.write(
        &Write::Apply,
        "kubectl",
        "g/v1",
        spec(json!({"size": 2, "colour": "red"})),
    );
    let error = error.expect_err("the colour was changed since");
    assert!(error.to_string().ends_with("using g/v1: .spec.colour"), "{error}");
    kubectl
        .write(&Write::Apply, "kubectl", "g/v1", spec(json!({"size": 2})))
        .expect("its own");
    let kept = &kubectl.object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    let kept: Json = serde_json::from_str(kept.as_str().expect("text")).expect("JSON");
    assert_eq!(kept["spec"], json!({"size": 2}));
}

#[test]
fn old_updaters_become_one() {
    let mut script = Script::new();
    for i in 0..14 {
        let name = format!("u{i:02}");
        script
            .write(
                &Write::Update,
                &name,
                "g/v1",
                spec(json!({"sizes": {"n": i}, "free": {name.as_str(): i}})),
            )
            .expect("writes");
    }
    let updaters: Vec<_> = script
        .owners()
        .iter()
        .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    assert!(updaters.len() <= UPDATE_MANAGERS_MAX, "{updaters:?}");
    let everything = (0..14).fold(json!({}), |mut free, i| {
        free[format!("k{i:02}")] = json!(i);
        free
    });
    let mut script = Script::new();
    for i in 0..14 {
        let mut free = everything.clone();
        free.as_object_mut()
            .expect("a map")
            .retain(|name, _| name.as_str() <= format!("k{i:02}").as_str());
        script
            .write(&Write::Update, &format!("u{i:02}"), "g/v1", spec(json!({"free": free})))
            .expect("writes");
    }
    let owners = script.owners();
    assert_eq!(owners.len(), UPDATE_MANAGERS_MAX);
    assert!(owners[0].starts_with("ancient-changes Update g/v1 05: "), "{owners:?}");
    assert!(owners[0].contains("f:k00") && owners[0].contains("f:k04"), "{owners:?}");
}

#[test]
fn entries_that_cannot_be_read_are_none() {
    let entry = |field: &str, value: Json| {
        let mut entry = json!({"manager": "m", "operation": "Update", "apiVersion": "g/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {}}, "time": "2026-11-21T09:40:00Z", "subresource": "status"});
        entry[field] = value;
        json!([entry])
    };
    let good = entry("manager", json!("n"));
    assert_eq!(Managers::read(&good).expect("reads").to_json(), good);
    for (field, value) in [
        ("operation", json!("Think")),
        ("apiVersion", json!("")),
        ("fieldsType", json!("FieldsV2")),
        ("fieldsV1", json!({"f": 1})),
        ("time", json!("noon")),
    ] {
        assert_eq!(Managers::read(&entry(field, value.clone())), None, "{field} {value}");
    }
    assert!(Managers::is_reset(&json!([{}])));
    assert!(!Managers::is_reset(&json!([])) && !Managers::is_reset(&good));
}
