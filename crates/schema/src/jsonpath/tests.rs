//! Tests of paths and their values.
use super::*;
use serde_json::json;

#[test]
fn paths_lead_where_kubectl_says() {
    let object = json!({
        "spec": {"size": 3, "list": ["a", "b", "c"], "map": {"x.y": 1, "z": 2}},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "n": 1},
            {"type": "Synced", "status": "False", "n": 5},
        ]},
    });
    let rows = [
        (".spec.size", json!([3])),
        ("{.spec.size}", json!([3])),
        (".spec.missing", json!([])),
        (".spec.list[0]", json!(["a"])),
        (".spec.list[-1]", json!(["c"])),
        (".spec.list[9]", json!([])),
        (".spec.list[0:2]", json!(["a", "b"])),
        (".spec.list[-2:]", json!(["b", "c"])),
        (".spec.list[0,2]", json!(["a", "c"])),
        (".spec.list[*]", json!(["a", "b", "c"])),
        (".spec.map.x\\.y", json!([1])),
        (".spec.map['x.y']", json!([1])),
        (".spec.map['x.y', 'z']", json!([1, 2])),
        (".spec.map.*", json!([1, 2])),
        (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
        (".status.conditions[?(@.type=='Synced')].n", json!([5])),
        (".status.conditions[?(@.n>=2)].type", json!(["Synced"])),
        (".status.conditions[?(@.type!=\"Ready\")].n", json!([5])),
        (".status.conditions[?(@.gone)].n", json!([])),
        ("..type", json!(["Ready", "Synced"])),
    ];
    for (path, want) in rows {
        let parsed = JsonPath::parse(path).unwrap();
        let got: Vec<&Json> = parsed.eval(&object);
        assert_eq!(json!(got), want, "{path}");
    }
}

#[test]
fn malformed_paths_are_refused() {
    for path in [
        ".spec.list[?(",
        ".a[",
        ".a['b",
        "..",
        ".a[x]",
        ".a[?(@.b==)]",
        ".a[1:2:0]",
        "a b",
    ] {
        assert!(JsonPath::parse(path).is_err(), "{path}");
    }
}
