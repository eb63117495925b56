use super::*;
use crate::fixtures;
use insula_meter::Meter;

const V1: MetaVersion = MetaVersion::V1;

fn now() -> Timestamp {
    Timestamp::parse("2026-11-21T10:00:00Z").expect("parses")
}

fn cells(layout: &Layout<'_>, object: &Json) -> Json {
    let budget = &mut budget_for_row(object.to_string().len(), &Meter::unbounded());
    layout.row(object, IncludeObject::None, V1, now(), budget)["cells"].clone()
}

#[test]
fn durations_are_those_of_kubectl() {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 3600;
    const DAY: i64 = 86_400;
    for (seconds, want) in [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (10 * MINUTE + 5, "10m"),
        (179 * MINUTE, "179m"),
        (180 * MINUTE, "3h"),
        (3 * HOUR + 20 * MINUTE, "3h20m"),
        (8 * HOUR + 20 * MINUTE, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (3 * DAY + 2 * HOUR, "3d2h"),
        (8 * DAY + 2 * HOUR, "8d"),
        (729 * DAY, "729d"),
        (2 * 365 * DAY, "2y"),
        (2 * 365 * DAY + 40 * DAY, "2y40d"),
        (9 * 365 * DAY + 40 * DAY, "9y"),
    ] {
        assert_eq!(human_duration(seconds), want, "{seconds}");
    }
}

/// Returns a column of each type, of lists and of a filter.
fn columns() -> Json {
    json!([
        {"name": "Size", "type": "integer", "format": "int32", "jsonPath": ".spec.size"},
        {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio", "priority": 1},
        {"name": "Ready", "type": "boolean", "jsonPath": ".spec.ready"},
        {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "description": "The colour"},
        {"name": "Until", "type": "date", "jsonPath": ".spec.until"},
        {"name": "List", "type": "string", "jsonPath": ".spec.list"},
        {"name": "Each", "type": "string", "jsonPath": ".spec.parts[*].name"},
        {"name": "Found", "type": "string", "jsonPath": ".spec.parts[?(@.name==\"b\")].state"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ])
}

#[test]
fn numbers_in_columns_of_texts_are_those_of_go() {
    let mut version = json!({"name": "v1", "served": true, "storage": true});
    version["additionalPrinterColumns"] = columns();
    let served = fixtures::served(&fixtures::widgets(json!([version])));
    let layout = Layout::for_resource(&served, &served.api.versions[0]);
    let spec = json!({"colour": 1_234_567.5, "list": ["<", 1e-7, 1_234_567.5]});
    let shown = cells(&layout, &json!({"metadata": {"name": "x"}, "spec": spec}));
    assert_eq!(shown[4], "1.2345675e+06");
    assert_eq!(shown[6], "[\"\\u003c\",1e-7,1234567.5]");
}

#[test]
fn columns_show_only_values_of_their_type() {
    let mut version = json!({"name": "v1", "served": true, "storage": true});
    version["additionalPrinterColumns"] = columns();
    let served = fixtures::served(&fixtures::widgets(json!([version])));
    let layout = Layout::for_resource(&served, &served.api.versions[0]);
    let made = "2026-11-21T09:58:55Z";
    let object = |name: &str, spec: Json| json!({"metadata": {"name": name, "creationTimestamp": made}, "spec": spec});
    let rows = [
        (
            json!({"size": 3, "ratio": 0.25, "ready": true, "colour": "red", "until": "2999-02-03T04:05:06Z", "list": ["a", "b"],
                "parts": [{"name": "a", "state": "good"}, {"name": "b", "state": "bad"}]}),
            json!([
                "x",
                3,
                0.25,
                true,
                "red",
                "<invalid>",
                "[\"a\",\"b\"]",
                "a",
                "bad",
                "65s"
            ]),
        ),
        (
            json!({}),
            json!(["x", null, null, null, null, null, null, null, null, "65s"]),
        ),
        (
            json!({"size": "three", "ratio": 2, "ready": "yes", "colour": 7, "until": "tomorrow", "list": {"a": 1, "b": ["x"]}}),
            json!([
                "x",
                null,
                2,
                null,
                "7",
                "<invalid>",
                "{\"a\":1,\"b\":[\"x\"]}",
                null,
                null,
                "65s"
            ]),
        ),
        (
            json!({"size": 2.5, "ratio": "1", "ready": 1, "colour": null, "until": 12, "list": []}),
            json!(["x", 2, null, null, "<no value>", null, "[]", null, null, "65s"]),
        ),
    ];
    for (spec, want) in rows {
        assert_eq!(cells(&layout, &object("x", spec)), want);
    }
    let definitions = layout.definitions();
    assert_eq!(definitions[0]["format"], "name");
    assert_eq!(
        definitions[1]["description"],
        "Custom resource definition column (in JSONPath format): .spec.size"
    );
    assert_eq!(
        (&definitions[2]["priority"], &definitions[4]["description"]),
        (&json!(1), &json!("The colour"))
    );
}

#[test]
fn built_ins_have_columns_of_their_own() {
    let system = insula_catalog::System::load();
    let object = json!({"metadata": {"name": "a", "creationTimestamp": "2026-11-21T09:00:00Z"}, "type": "Opaque",
        "data": {"x": "", "y": ""}, "binaryData": {"z": ""}, "status": {"phase": "Active"}});
    for (group, plural, headers, want) in [
        ("", "configmaps", json!(["Name", "Data", "Age"]), json!(["a", 3, "60m"])),
        (
            "",
            "secrets",
            json!(["Name", "Type", "Data", "Age"]),
            json!(["a", "Opaque", 2, "60m"]),
        ),
        (
            "",
            "namespaces",
            json!(["Name", "Status", "Age"]),
            json!(["a", "Active", "60m"]),
        ),
        (
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            json!(["Name", "Created At"]),
            json!(["a", "2026-11-21T09:00:00Z"]),
        ),
        ("example.io", "widgets", json!(["Name", "Age"]), json!(["a", "60m"])),
    ] {
        let mut definition = fixtures::widgets(json!([{"name": "v1", "served": true, "storage": true}]));
        definition["group"] = json!(group);
        definition["names"]["plural"] = json!(plural);
        let built_in = system.get(group, plural).cloned();
        let served = built_in.unwrap_or_else(|| fixtures::served(&definition));
        let layout = Layout::for_resource(&served, &served.api.versions[0]);
        let names: Json = layout
            .definitions()
            .as_array()
            .expect("a list")
            .iter()
            .map(|d| d["name"].clone())
            .collect();
        assert_eq!((names, cells(&layout, &object)), (headers, want), "{plural}");
    }
}

#[test]
fn tables_carry_objects_as_asked() {
    let served = fixtures::served(&fixtures::widgets(
        json!([{"name": "v1", "served": true, "storage": true}]),
    ));
    let layout = Layout::for_resource(&served, &served.api.versions[0]);
    let object = json!({"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {}});
    let single = |include, columns| layout.single(&object, include, V1, now(), columns);
    assert_eq!(
        single(IncludeObject::None, Columns::Defined)["rows"],
        json!([{"cells": ["a", null], "object": null}])
    );
    assert_eq!(
        single(IncludeObject::Object, Columns::Defined)["rows"][0]["object"],
        object
    );
    let second = single(IncludeObject::Metadata, Columns::Known);
    assert_eq!(
        second["rows"][0]["object"],
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
    );
    assert_eq!(
        (&second["columnDefinitions"], &second["metadata"]),
        (&Json::Null, &json!({"resourceVersion": "7"}))
    );
    assert_eq!(
        list_metadata("9", Some("t"), Some(3)),
        json!({"resourceVersion": "9", "continue": "t", "remainingItemCount": 3})
    );
    assert!(matches!(
        IncludeObject::parse(Some("Metadata")),
        Ok(IncludeObject::Metadata)
    ));
    let refused = IncludeObject::parse(Some("Everything")).expect_err("is refused");
    assert_eq!(
        refused.to_string(),
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Everything\": must be 'Metadata', \
         'Object', 'None', or empty"
    );
}
