use super::*;
use crate::RoleVerb;
use serde_json::json;

fn policy(rules: Json) -> Result<Policy, InvalidPolicy> {
    Policy::parse(
        &json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}),
    )
}

fn resource(verb: impl Into<RoleVerb>, group: &str, resource: &str, namespace: &str, name: &str) -> Attributes {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Attributes {
        verb: verb.into(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        is_resource_request: true,
        ..Attributes::default()
    }
}

fn path(path: &str) -> Attributes {
    Attributes {
        verb: "get".into(),
        path: path.to_owned(),
        ..Attributes::default()
    }
}

fn pods(namespace: &str, name: &str) -> Attributes {
    resource("get", "", "pods", namespace, name)
}

/// Checks each rule alone, with requests that it fits and some that it does not.
fn check(rows: &[(Json, Vec<Attributes>, Vec<Attributes>)]) {
    let ada = UserInfo::authenticated("ada", "", vec!["team".to_owned()]);
    for (rule, fit, others) in rows {
        let mut rule = rule.clone();
        rule["level"] = json!("Metadata");
        let policy = policy(json!([rule])).expect("is one");
        for attributes in fit {
            let verdict = policy.verdict(&ada, attributes);
            assert_eq!(verdict.level, Level::Metadata, "{rule} {attributes:?}");
            assert!(verdict.omit_stages.has(Stage::RequestReceived));
            assert!(!verdict.omit_stages.has(Stage::Panic));
        }
        for attributes in others {
            let verdict = policy.verdict(&ada, attributes);
            assert_eq!(verdict.level, Level::None, "{rule} {attributes:?}");
        }
    }
}

#[test]
fn rules_fit_users_verbs_and_namespaces_as_in_kubernetes() {
    check(&[
        (json!({}), vec![pods("a", "x"), path("/api")], vec![]),
        (
            json!({"verbs": ["get"]}),
            vec![pods("a", "x")],
            vec![resource("list", "", "pods", "a", "")],
        ),
        (json!({"users": ["ada"]}), vec![pods("a", "x")], vec![]),
        (json!({"users": ["bob"]}), vec![], vec![pods("a", "x")]),
        (json!({"userGroups": ["team", "other"]}), vec![path("/")], vec![]),
        (json!({"userGroups": ["other"]}), vec![], vec![path("/")]),
        (
            json!({"namespaces": ["a", ""]}),
            vec![pods("a", "x"), resource("get", "", "nodes", "", "n")],
            vec![pods("b", "x"), path("/")],
        ),
    ]);
}

#[test]
fn rules_fit_resources_and_paths_as_in_kubernetes() {
    check(&[
        (
            json!({"resources": [{"resources": ["pods"]}]}),
            vec![pods("a", "x")],
            vec![
                resource("get", "", "pods/log", "a", "x"),
                resource("get", "apps", "pods", "a", "x"),
                path("/pods"),
            ],
        ),
        (
            json!({"resources": [{"group": "apps"}]}),
            vec![resource("get", "apps", "sets/status", "a", "x")],
            vec![pods("a", "x")],
        ),
        (
            json!({"resources": [{"resources": ["pods/*"]}]}),
            vec![resource("get", "", "pods/log", "a", "x"), pods("a", "x")],
            vec![resource("get", "", "nodes/log", "", "x")],
        ),
        (
            json!({"resources": [{"resources": ["*/log"]}]}),
            vec![resource("get", "", "pods/log", "a", "x")],
            vec![pods("a", "x")],
        ),
        (
            json!({"resources": [{"resources": ["pods"], "resourceNames": ["x"]}]}),
            vec![pods("a", "x")],
            vec![pods("a", "y")],
        ),
        (
            json!({"nonResourceURLs": ["/healthz*", "/version"]}),
            vec![path("/healthz"), path("/healthz/ping"), path("/version")],
            vec![path("/version/x"), path("/"), pods("a", "x")],
        ),
        (
            json!({"nonResourceURLs": ["*"]}),
            vec![path("/a")],
            vec![pods("a", "x")],
        ),
    ]);
}

#[test]
fn the_first_rule_that_fits_holds_and_secrets_are_never_written_down() {
    let policy = policy(json!([
        {"level": "None", "resources": [{"resources": ["events"]}]},
        {"level": "RequestResponse", "omitStages": ["Panic"], "omitManagedFields": true},
    ]))
    .expect("is one");
    let user = UserInfo::anonymous();
    let level = |attributes: &Attributes| policy.verdict(&user, attributes).level;
    assert_eq!(level(&resource("get", "", "events", "", "")), Level::None);
    let all = policy.verdict(&user, &resource("get", "", "pods", "", ""));
    assert_eq!(all.level, Level::RequestResponse);
    assert!(all.omit_managed_fields && all.omit_stages.has(Stage::Panic));
    for (group, of) in [
        ("", "secrets"),
        ("", "secrets/status"),
        ("", "serviceaccounts/token"),
        ("authentication.k8s.io", "tokenreviews"),
    ] {
        assert_eq!(level(&resource("create", group, of, "", "")), Level::Metadata, "{of}");
    }
    assert_eq!(
        level(&resource("create", "", "serviceaccounts", "", "")),
        Level::RequestResponse
    );
}

#[test]
fn what_is_no_policy_is_refused_with_the_field() {
    let whole = |rules: Json| json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules});
    let rows = [
        (
            json!({"apiVersion": "audit.k8s.io/v1beta1", "kind": "Policy"}),
            "write apiVersion: audit.k8s.io/v1",
        ),
        (whole(json!([])), "rules: Required value"),
        (
            json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rule": []}),
            "unknown field `rule`",
        ),
        (whole(json!([{}])), "rules[0].level: Required value"),
        (
            whole(json!([{"level": "metadata"}])),
            r#"rules[0].level: Unsupported value: "metadata": supported values: "None", "Metadata", "Request", "RequestResponse""#,
        ),
        (
            whole(json!([{"level": "None"}, {"level": "None", "user": []}])),
            "rules[1]: Invalid value",
        ),
        (
            whole(json!([{"level": "None", "omitStages": ["Response"]}])),
            r#"rules[0].omitStages[0]: Unsupported value: "Response""#,
        ),
        (
            whole(json!([{"level": "None", "nonResourceURLs": ["/a"], "namespaces": ["b"]}])),
            "rules cannot apply to both regular resources and non-resource URLs",
        ),
        (
            whole(json!([{"level": "None", "nonResourceURLs": ["a"]}])),
            "must begin with a '/' character",
        ),
        (
            whole(json!([{"level": "None", "nonResourceURLs": ["/a*b"]}])),
            "must be the final character",
        ),
        (
            whole(json!([{"level": "None", "resources": [{"resourceNames": ["a"]}]}])),
            "rules[0].resources[0].resourceNames: Invalid value",
        ),
    ];
    for (document, want) in rows {
        let refusal = Policy::parse(&document).expect_err("is none").to_string();
        assert!(refusal.contains(want), "{refusal}");
    }
}
