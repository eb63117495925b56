//! Printer columns whose paths multiply: filters within filters and recursive descents. One column
//! and one small object stopped the server for all tenants.

use insula_e2e::{Client, shared, unique, until, workspace};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const TABLE: (&str, &str) = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");

fn definition(group: &str, paths: &[&str]) -> Value {
    let columns = paths.iter().enumerate();
    let columns: Vec<Value> = columns
        .map(|(i, path)| json!({"name": format!("c{i}"), "type": "string", "jsonPath": path}))
        .collect();
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("deeps.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "deeps", "kind": "Deep"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open}}},
            }],
        },
    })
}

fn there(server: &insula_e2e::Server) -> Client {
    let admin = server.admin();
    admin.in_workspace(&workspace(&admin, "columns").0)
}

#[test]
fn a_column_that_nests_too_deep_is_refused() {
    let server = shared();
    let client = there(&server);
    let nested = |levels: usize| format!(".spec{}..zz{}", "..[?(@".repeat(levels), ")]".repeat(levels));
    // Two levels for each, and one for the last descent.
    for levels in [2, 6, 400] {
        let path = nested(levels);
        let made = definition(&format!("{}.example.io", unique("deep")), &[".spec.a", &path]);
        let refused = client.post(DEFINITIONS, &made).expect(422);
        let depth = (2 * levels + 1).min(65);
        let cause = &refused["details"]["causes"][0];
        let field = "spec.additionalPrinterColumns[1].JSONPath";
        assert_eq!(cause["field"], field, "{refused}");
        let want = format!("nests filters and recursive descents {depth} deep, and may nest them at most 4 deep");
        assert!(cause["message"].as_str().unwrap().contains(&want), "{refused}");
    }
}

/// The cells of an object that cannot pay for a column stay empty, as after any error of an
/// evaluation; other objects of the page have theirs.
#[test]
fn the_columns_of_a_row_share_a_price() {
    let server = shared();
    let client = there(&server);
    let group = format!("{}.example.io", unique("deep"));
    let paths = [".spec.small", ".spec..[?(@..zz)].name", ".spec.small"];
    client.post(DEFINITIONS, &definition(&group, &paths)).expect(201);
    let objects = format!("/apis/{group}/v1/namespaces/default/deeps");
    until("the kind is served", || {
        (client.get(&objects).code == 200).then_some(())
    });
    // The path finds a value in each: the last object has few values, the first one visits about
    // half the square of its number of values.
    let mut nested = json!({"zz": 1, "name": "found"});
    for _ in 0..58 {
        nested = json!({"a": nested, "b": {"c": 1, "d": [1, 2, 3]}});
    }
    for (name, value) in [("large", nested), ("tiny", json!({"zz": 1, "name": "found"}))] {
        let object = json!({
            "apiVersion": format!("{group}/v1"), "kind": "Deep", "metadata": {"name": name},
            "spec": {"small": "shown", "value": {"inner": value}},
        });
        client.post(&objects, &object).expect(201);
    }
    let rows = |answer: Value| {
        let rows = answer["rows"].as_array().unwrap().clone();
        rows.into_iter().map(|row| row["cells"].clone()).collect::<Vec<_>>()
    };
    let want = [
        json!(["large", "shown", null, null]),
        json!(["tiny", "shown", "found", "shown"]),
    ];
    assert_eq!(rows(client.get_with(&objects, &[TABLE]).expect(200)), want);
    for (name, cells) in [("large", &want[0]), ("tiny", &want[1])] {
        let one = client.get_with(&format!("{objects}/{name}"), &[TABLE]).expect(200);
        assert_eq!(rows(one), std::slice::from_ref(cells));
    }
    let mut seen = Vec::new();
    let watch = format!("{objects}?watch=true&timeoutSeconds=20");
    let watched = client.watch_with(insula_e2e::PATIENCE, &watch, &[TABLE], &mut |event| {
        seen.extend(rows(event["object"].clone()));
        (seen.len() == 2).then_some(())
    });
    assert!(watched.is_some(), "{seen:?}");
    assert_eq!(seen, want);
}
