//! Tables of users with their identities in cluster `this`.

use super::*;
use serde_json::json;

/// Makes a user: `name [groups]`, then `key=value` for scopes, cluster and warrants.
fn user(name: &str, groups: &[&str], extra: &[(&str, &str)]) -> UserInfo {
    let mut user = UserInfo {
        name: name.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..UserInfo::default()
    };
    for (key, value) in extra {
        let key = match *key {
            "scope" => EXTRA_SCOPES,
            "from" => EXTRA_CLUSTER,
            _ => EXTRA_WARRANT,
        };
        user.extra.entry(key.to_owned()).or_default().push((*value).to_owned());
    }
    user
}

fn shown(identities: &Identities<'_>) -> Vec<String> {
    let one = |user: &UserInfo| format!("{} {}", user.name, user.groups.join(","));
    identities.iter().map(|user| one(user).trim().to_owned()).collect()
}

fn this() -> ClusterName {
    ClusterName::parse("this").expect("a name")
}

const KNOWN: &[&str] = &["system:authenticated"];
const ACCOUNT: &str = "system:serviceaccount:ns:robot";

/// Checks the identities of each user.
fn check(rows: &[(UserInfo, &[&str])]) {
    for (user, want) in rows {
        assert_eq!(shown(&Identities::in_cluster(user, Some(&this()))), *want, "{user:?}");
    }
}

#[test]
fn users_count_as_themselves_within_their_scopes() {
    check(&[
        (user("eve", KNOWN, &[]), &["eve system:authenticated"]),
        (user("eve", &[], &[("scope", "cluster:this")]), &["eve"]),
        (user("eve", &[], &[("scope", "cluster:other,cluster:this")]), &["eve"]),
        (
            user("eve", &["devs"], &[("scope", "cluster:other")]),
            &["system:anonymous system:unauthenticated"],
        ),
        (
            user("eve", KNOWN, &[("scope", "")]),
            &["system:anonymous system:authenticated"],
        ),
        (
            user("eve", KNOWN, &[("scope", "this")]),
            &["system:anonymous system:authenticated"],
        ),
        (
            user(
                "eve",
                KNOWN,
                &[("scope", "cluster:a,cluster:b"), ("scope", "cluster:b")],
            ),
            &["system:anonymous system:cluster:b,system:authenticated"],
        ),
        (
            user("eve", KNOWN, &[("scope", "cluster:this"), ("scope", "cluster:b")]),
            &["system:anonymous system:authenticated"],
        ),
    ]);
}

#[test]
fn service_accounts_have_a_second_name_with_their_cluster() {
    check(&[
        (user(ACCOUNT, &[], &[]), &["system:serviceaccount:ns:robot"]),
        (
            user(ACCOUNT, KNOWN, &[("from", "this"), ("scope", "cluster:this")]),
            &[
                "system:serviceaccount:ns:robot system:authenticated",
                "system:kcp:serviceaccount:this:ns:robot system:cluster:this,system:authenticated",
            ],
        ),
        (
            user(ACCOUNT, KNOWN, &[("from", "other"), ("scope", "cluster:other")]),
            &[
                "system:anonymous system:cluster:other,system:authenticated",
                "system:kcp:serviceaccount:other:ns:robot system:cluster:other,system:authenticated",
            ],
        ),
        (
            user(ACCOUNT, &[], &[("from", "other"), ("scope", "cluster:this")]),
            &[
                "system:anonymous system:unauthenticated",
                "system:kcp:serviceaccount:other:ns:robot system:cluster:other",
            ],
        ),
        (
            user(ACCOUNT, &[], &[("from", "this"), ("from", "this")]),
            &["system:anonymous system:unauthenticated"],
        ),
    ]);
}

#[test]
fn warrants_add_identities() {
    let warrant = |value: serde_json::Value| value.to_string();
    let a = warrant(json!({"user": "ada", "groups": ["devs"]}));
    let b = warrant(json!({"user": "bob"}));
    let nested = warrant(json!({"user": "bob", "extra": {EXTRA_WARRANT: [r#"{"user":"ada"}"#]}}));
    let there = warrant(json!({"user": "ada", "extra": {EXTRA_SCOPES: ["cluster:other"]}}));
    let here = warrant(json!({"user": "ada", "extra": {EXTRA_SCOPES: ["cluster:this"]}}));
    let nameless = warrant(json!({"user": ACCOUNT}));
    let foreign = warrant(json!({"user": ACCOUNT, "extra": {EXTRA_CLUSTER: ["this"]}}));
    let master = warrant(json!({"user": "ada", "groups": [GROUP_MASTERS, "devs"]}));
    let text = warrant(json!({"user": "ada", "extra": {EXTRA_SCOPES: "cluster:this"}}));
    check(&[
        (
            user("eve", &[], &[("warrant", &a), ("warrant", &b)]),
            &["eve", "ada devs", "bob"],
        ),
        (user("eve", &[], &[("warrant", &nested)]), &["eve", "bob", "ada"]),
        (
            user("eve", KNOWN, &[("scope", "cluster:other"), ("warrant", &b)]),
            &["system:anonymous system:cluster:other,system:authenticated", "bob"],
        ),
        (
            user("eve", &[], &[("warrant", &there)]),
            &["eve", "system:anonymous system:unauthenticated"],
        ),
        (user("eve", &[], &[("warrant", &here)]), &["eve", "ada"]),
        (user("eve", &[], &[("warrant", &nameless)]), &["eve"]),
        (
            user("eve", &[], &[("warrant", &foreign)]),
            &[
                "eve",
                "system:serviceaccount:ns:robot",
                "system:kcp:serviceaccount:this:ns:robot system:cluster:this",
            ],
        ),
        (user("eve", &[], &[("warrant", &master)]), &["eve", "ada devs"]),
        (user("eve", &[], &[("warrant", &text)]), &["eve"]),
        (user("eve", &[], &[("warrant", "no JSON")]), &["eve"]),
    ]);
}

#[test]
fn no_cluster_is_outside_of_every_scope() {
    let scoped = user("eve", KNOWN, &[("scope", "cluster:this")]);
    assert_eq!(scoped.within(None).name, USER_ANONYMOUS);
    assert_eq!(scoped.within(Some(&this())), scoped);
}

/// Nested warrants are limited in depth and number.
#[test]
fn warrants_have_an_end() {
    let mut text = json!({"user": "deepest"}).to_string();
    for depth in 0..10 {
        text = json!({"user": format!("level-{depth}"), "extra": {EXTRA_WARRANT: [text]}}).to_string();
    }
    let deep = user("eve", &[], &[("warrant", &text)]);
    let names = shown(&Identities::in_cluster(&deep, Some(&this())));
    assert_eq!(names, ["eve", "level-9", "level-8", "level-7", "level-6"]);
    let one = json!({"user": "many"}).to_string();
    let many = user("eve", &[], &[("warrant", one.as_str()); 100]);
    assert_eq!(
        Identities::in_cluster(&many, Some(&this())).iter().count(),
        IDENTITIES_MAX
    );
}

#[test]
fn consumers_have_names_of_their_own() {
    let account = user(
        "system:serviceaccount:ns:robot",
        KNOWN,
        &[("from", "other"), ("scope", "cluster:other")],
    );
    let other = ClusterName::parse("other").expect("a name");
    for (user, at, want) in [
        (
            user("ada", &["devs"], &[]),
            this(),
            &["apis.kcp.io:binding:ada apis.kcp.io:binding:devs"] as &[&str],
        ),
        (
            user("ada", KNOWN, &[("scope", "cluster:this")]),
            this(),
            &["apis.kcp.io:binding:system:anonymous \
                    apis.kcp.io:binding:system:cluster:this,apis.kcp.io:binding:system:authenticated"],
        ),
        (
            user("system:serviceaccount:ns:robot", &[], &[]),
            this(),
            &["apis.kcp.io:binding:system:kcp:serviceaccount:this:ns:robot"],
        ),
        (
            account,
            other,
            &[
                "apis.kcp.io:binding:system:kcp:serviceaccount:other:ns:robot apis.kcp.io:binding:system:authenticated",
                "apis.kcp.io:binding:system:kcp:serviceaccount:other:ns:robot \
                 apis.kcp.io:binding:system:cluster:other,apis.kcp.io:binding:system:authenticated",
            ],
        ),
    ] {
        let identities = Identities::in_cluster(&user, Some(&at));
        assert_eq!(shown(&identities.as_consumers(&at)), want);
    }
}

#[test]
fn scopes_hold_together_and_outside_of_them_a_user_is_nobody() {
    let cluster = |name: &str| ClusterName::parse(name).expect("a name");
    let rows: [(&[&str], &str, bool); 7] = [
        (&["cluster:a"], "a", true),
        (&["cluster:a"], "b", false),
        (&["cluster:a, cluster:b"], "b", true),
        (&["cluster:a,cluster:b", "cluster:b"], "b", true),
        (&["cluster:a,cluster:b", "cluster:b"], "a", false),
        (&["b"], "b", false),
        (&[], "a", true),
    ];
    for (scopes, name, inside) in rows {
        let mut user = UserInfo::authenticated("ada", "1", vec![GROUP_MASTERS.to_owned()]);
        user.extra.insert(
            EXTRA_SCOPES.to_owned(),
            scopes.iter().map(|s| (*s).to_owned()).collect(),
        );
        let seen = user.within(Some(&cluster(name)));
        assert_eq!(seen.name == "ada", inside, "{scopes:?} in {name}");
        assert_eq!(seen.is_in(GROUP_MASTERS), inside, "{scopes:?} in {name}");
        assert!(seen.is_in(GROUP_AUTHENTICATED));
    }
}
