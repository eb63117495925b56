//! Tests of paths and their values.
use super::*;
use insula_meter::Meter;
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
        let got: Vec<&Json> = parsed
            .eval(&object, &mut PathBudget::new(1_000, &Meter::unbounded()))
            .unwrap();
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

#[test]
fn paths_nest_filters_and_descents_to_a_depth() {
    let nested = |levels: usize| format!(".spec{}..zz{}", "[?(@".repeat(levels), ")]".repeat(levels));
    let depth = |path: &str| match JsonPath::parse(path) {
        Err(PathError::Depth { depth }) => depth,
        other => panic!("{path}: {other:?}"),
    };
    assert!(JsonPath::parse(&nested(3)).is_ok());
    assert_eq!(depth(&nested(4)), 5);
    assert_eq!(depth("..a..b..c..d..e"), 5);
    assert!(JsonPath::parse(".a[?(@..b==1)]..c..d[?(@.e[?(@.f)])]..g").is_ok());
    assert_eq!(depth(".a[?(@..b==1)]..c..d[?(@.e[?(@..f)])]..g"), 5);
    // Filters one after the other do not multiply.
    assert!(JsonPath::parse(&format!(".a{}", "[?(@.b)]".repeat(100))).is_ok());
    // No recursion follows what a path says.
    assert_eq!(depth(&nested(400)), 65);
}

#[test]
fn an_evaluation_visits_no_more_values_than_it_may() {
    let mut value = json!({"a": 1});
    for _ in 0..60 {
        value = json!({"a": value, "b": {"c": 1, "d": [1, 2, 3]}});
    }
    let object = json!({"spec": value, "long": "x".repeat(100_000)});
    for path in [".spec..[?(@..[?(@.zz)])]", "..*..*..*..*", "..[?(@..a)]"] {
        let mut visits = PathBudget::new(20_000, &Meter::unbounded());
        let found = JsonPath::parse(path).unwrap().eval(&object, &mut visits);
        assert_eq!(found, Err(PathTooCostly), "{path}");
        assert_eq!(visits.used(), 20_000);
        // What is spent is spent, for other columns too.
        let other = JsonPath::parse(".spec").unwrap().first(&object, &mut visits);
        assert_eq!(other, Err(PathTooCostly));
    }
    let mut visits = PathBudget::new(50_000, &Meter::unbounded());
    JsonPath::parse("..[?(@.long==@.long)]")
        .unwrap()
        .eval(&json!([object]), &mut visits)
        .unwrap();
    assert!(visits.used() > 3_000, "{}", visits.used());
}

/// A release of cert-manager wrote its columns with other spaces.
#[test]
fn paths_that_differ_in_spaces_are_equal() {
    let [a, b] = [
        r#".status.conditions[?(@.type=="Ready")].status"#,
        r#".status.conditions[?(@.type == "Ready")].status"#,
    ]
    .map(|path| JsonPath::parse(path).unwrap());
    assert_eq!(a, b);
}
