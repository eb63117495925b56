//! Arbitrary rules are accepted or refused, and never panic; errors name the limits.

use insula_api::FieldPath;
use insula_conversion::{Path, laws, parse_rules, unmetered_budget};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

fn rule() -> impl Strategy<Value = Json> {
    let key = prop::sample::select(vec![
        "field",
        "destination",
        "from",
        "to",
        "rule",
        "transformation",
        "itemRules",
        "kind",
        "mayFail",
    ]);
    let path = prop::sample::select(vec![
        "spec",
        "spec.a",
        "spec.l[i]",
        "spec.l[]",
        "spec.m[key]",
        "spec.m[self.x]",
        "spec.l[0]",
        "self",
        "key",
        "item.a",
        "v1.spec.m[key].x",
        "spec.l[i].l[j]",
        "metadata.labels['a']",
        "v1",
        "spec.l",
        "spec.m",
        "self.a + 'x'",
        "spec.m['k']",
        "metadata",
        "",
    ]);
    let value = prop_oneof![
        4 => path.prop_map(Json::from),
        1 => Just(json!({"a": "self.a", "x": "key"})),
        1 => Just(json!([{"from": "self.x", "to": "item.a"}])),
        1 => Just(json!(true)),
    ];
    prop::collection::btree_map(key, value, 0..5).prop_map(|m| json!(m))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_rules_compile_or_are_refused(rules in prop::collection::vec(rule(), 1..4)) {
        let spec = json!({"a": "string", "l": [{"x": "string", "a": "string", "l": ["string"]}],
            "m": {"*": {"x": "string"}}});
        let doc = json!({"versions": {"v1": {"spec": spec}, "v2": {"spec": spec}},
            "rules": {"conversions": [{"from": "v1", "to": "v2", "rules": rules}]}});
        if let Ok(bundle) = crate::support::bundle(&doc) {
            let part = json!({"spec": {"a": "q", "l": [{"x": "1", "l": ["y"]}, {"x": "2"}], "m": {"k": {"x": "3"},
                "n": {}}}});
            for part in [part, json!({"spec": {"l": [], "m": {}}}), json!({})] {
                for version in ["v1", "v2"] {
                    let x = crate::support::object(version, &part);
                    let Ok(after) = bundle.put(&x, version, None, &mut unmetered_budget()) else { continue };
                    laws::put_get(&bundle, &x, version, &after).map_err(|v| TestCaseError::fail(v.to_string()))?;
                    laws::get_put(&bundle, &after).map_err(|v| TestCaseError::fail(v.to_string()))?;
                }
            }
        }
    }

    #[test]
    fn any_text_is_a_path_or_refused(text in "[a-z.\\[\\]'\"\\\\0-9é ]{0,24}") {
        if let Ok(path) = Path::parse(&text) {
            prop_assert_eq!(Path::parse(&path.to_string()), Ok(path));
        }
    }
}

#[test]
fn limits_are_named() {
    let path = FieldPath::new("spec");
    let rule = json!({"field": "spec.a", "destination": "spec.b"});
    let many = json!({"conversions": [{"from": "v1", "to": "v2", "rules": vec![rule.clone(); 513]}]});
    assert_eq!(
        parse_rules(&many, &path).unwrap_err().errors[0].to_string(),
        "spec.conversions[0].rules: Too many: 513: must have at most 512 items"
    );
    let many = json!({"conversions": vec![json!({"from": "v1", "to": "v2"}); 65]});
    assert_eq!(
        parse_rules(&many, &path).unwrap_err().errors[0].to_string(),
        "spec.conversions: Too many: 65: must have at most 64 items"
    );
    let mut nested = rule;
    for _ in 0..9 {
        nested = json!({"field": "a", "destination": "b", "itemRules": [nested]});
    }
    let deep = json!({"conversions": [{"from": "v1", "to": "v2", "rules": [nested]}]});
    assert!(
        parse_rules(&deep, &path).unwrap_err().errors[0]
            .to_string()
            .ends_with("Forbidden: itemRules may be nested at most 8 deep")
    );
    let long = format!("spec.{}", "a".repeat(1_100));
    let long =
        json!({"conversions": [{"from": "v1", "to": "v2", "rules": [{"field": long, "destination": "spec.b"}]}]});
    assert!(
        parse_rules(&long, &path).unwrap_err().errors[0]
            .to_string()
            .ends_with("a path may be at most 1024 bytes long")
    );
}
