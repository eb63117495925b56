//! Invalid configurations: tables of changes to a valid one.

use super::*;

/// Checks that each change of the valid configuration is refused with its text.
fn check_refused(rows: &[(&str, Json, &str)]) {
    for (at, change, want) in rows {
        let refused = compiled(&with(config(), &[(*at, change.clone())]), Giver::Operator);
        let refused = refused.expect_err(want);
        assert!(refused.contains(*want), "{at} {change}: {refused}");
    }
}

fn rule(rule: Json) -> Json {
    json!([rule])
}

#[test]
fn issuers_are_refused_in_kubernetes_words() {
    assert!(compiled(&config(), Giver::Operator).is_ok());
    check_refused(&[
        ("issuer/url", json!(""), "jwt[0].issuer.url: Required value"),
        ("issuer/url", json!("http://a"), "URL scheme must be https"),
        (
            "issuer/url",
            json!("https://u:p@a"),
            "URL must not contain a username or password",
        ),
        ("issuer/url", json!("https://a?b"), "URL must not contain a query"),
        ("issuer/url", json!("https://a#b"), "URL must not contain a fragment"),
        ("issuer/url", json!("https:///a"), "URL must name a host"),
        (
            "issuer/url",
            json!(crate::service_account::ISSUER),
            "URL must not overlap with disallowed issuers: [https://kcp.default.svc]",
        ),
        (
            "issuer/discoveryURL",
            json!(format!("{URL}/")),
            "discoveryURL must be different from URL",
        ),
        (
            "issuer/discoveryURL",
            json!("file:///etc/passwd"),
            "jwt[0].issuer.discoveryURL: Invalid value",
        ),
        (
            "issuer/audiences",
            json!([]),
            "at least one jwt[0].issuer.audiences is required",
        ),
        (
            "issuer/audiences",
            json!(["a", "b"]),
            "audienceMatchPolicy must be MatchAny for multiple audiences",
        ),
        (
            "issuer/audiences",
            json!(["a", "a"]),
            "jwt[0].issuer.audiences[1]: Duplicate value: \"a\"",
        ),
        (
            "issuer/audienceMatchPolicy",
            json!("MatchAll"),
            "must be empty or MatchAny for single audience",
        ),
        (
            "issuer/certificateAuthority",
            json!("none"),
            "jwt[0].issuer.certificateAuthority: Invalid value: \"<omitted>\"",
        ),
        ("issuer/jwksURL", json!("https://a"), "unknown field `jwksURL`"),
    ]);
}

#[test]
fn mappings_of_names_are_refused_in_kubernetes_words() {
    check_refused(&[
        (
            "claimMappings/username",
            json!({}),
            "jwt[0].claimMappings.username: Required value: claim or expression is required",
        ),
        (
            "claimMappings/username",
            json!({"claim": "sub"}),
            "prefix is required when claim is set",
        ),
        (
            "claimMappings/username",
            json!({"claim": "sub", "prefix": "", "expression": "claims.sub"}),
            "claim and expression can't both be set",
        ),
        (
            "claimMappings/username",
            json!({"expression": "claims.sub", "prefix": ""}),
            "may not be specified when expression is set",
        ),
        (
            "claimMappings/username",
            json!({"expression": "claims."}),
            "jwt[0].claimMappings.username.expression: Invalid value",
        ),
        (
            "claimMappings/username",
            json!({"expression": "user.name"}),
            "undeclared reference to 'user'",
        ),
        (
            "claimMappings/username",
            json!({"expression": "claims.email"}),
            "claims.email_verified must be used in",
        ),
    ]);
}

#[test]
fn mappings_of_groups_uids_and_extras_are_refused_in_kubernetes_words() {
    check_refused(&[
        (
            "claimMappings/groups",
            json!({"claim": "groups"}),
            "jwt[0].claimMappings.groups.prefix: Required value",
        ),
        (
            "claimMappings/uid",
            json!({"claim": "a", "expression": "b"}),
            "jwt[0].claimMappings.uid: Invalid value",
        ),
        (
            "claimMappings/extra",
            rule(json!({"key": "a", "valueExpression": "claims.a"})),
            "must be a domain-prefixed path",
        ),
        (
            "claimMappings/extra",
            rule(json!({"key": "A.io/b", "valueExpression": "claims.a"})),
            "must be lowercase",
        ),
        (
            "claimMappings/extra",
            rule(json!({"key": "x.k8s.io/b", "valueExpression": "claims.a"})),
            "are reserved for Kubernetes use",
        ),
        (
            "claimMappings/extra",
            rule(json!({"key": "a.io/b"})),
            "extra[0].valueExpression: Required value",
        ),
    ]);
}

#[test]
fn validation_rules_are_refused_in_kubernetes_words() {
    check_refused(&[
        (
            "claimValidationRules",
            rule(json!({})),
            "claim or expression is required",
        ),
        (
            "claimValidationRules",
            rule(json!({"expression": "claims.hd"})),
            "claimValidationRules[0].expression: Invalid value: \"claims.hd\": must evaluate to bool",
        ),
        (
            "claimValidationRules",
            rule(json!({"claim": "a", "message": "b"})),
            "may not be specified when claim is set",
        ),
        (
            "userValidationRules",
            rule(json!({"expression": "claims.a == 'b'"})),
            "undeclared reference to 'claims'",
        ),
        (
            "userValidationRules",
            rule(json!({"expression": "user.nickname == 'b'"})),
            "undefined field 'nickname'",
        ),
    ]);
}

#[test]
fn scopes_come_from_the_operator_alone() {
    let scopes = json!([{"key": "authentication.kcp.io/scopes", "valueExpression": "'cluster:root'"}]);
    let scoped = with(config(), &[("claimMappings/extra", scopes)]);
    assert!(compiled(&scoped, Giver::Operator).is_ok());
    assert!(compiled(&scoped, Giver::Workspace).is_ok(), "accepted, without effect");
}

#[test]
fn email_is_used_where_it_is_verified() {
    let email = json!({"expression": "claims.email"});
    for (at, change) in [
        (
            "claimValidationRules",
            json!([{"expression": "claims.email_verified == true"}]),
        ),
        (
            "claimMappings/extra",
            json!([{"key": "a.io/b", "valueExpression": "string(claims.?email_verified.orValue(false))"}]),
        ),
    ] {
        let config = with(config(), &[("claimMappings/username", email.clone()), (at, change)]);
        assert!(compiled(&config, Giver::Operator).is_ok(), "{at}");
    }
}
