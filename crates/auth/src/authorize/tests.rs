//! Rows of the access matrix, and the texts that a recorded server gave.

use super::*;
use crate::{rbac::PolicyRule, user::EXTRA_SCOPES};

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo::authenticated(name, "", groups.iter().map(|g| (*g).to_owned()).collect())
}

fn cluster(name: &str) -> Option<ClusterName> {
    (name != "*").then(|| ClusterName::parse(name).expect("a cluster name"))
}

/// `verb resource[.group][/subresource] [name]` in a cluster, or `verb /path`.
fn request(at: &str, text: &str) -> Attributes {
    let mut words = text.split(' ');
    let mut next = || words.next().unwrap_or_default().to_owned();
    let (verb, what, name) = (next(), next(), next());
    let cluster = cluster(at);
    if what.starts_with('/') {
        return Attributes {
            verb,
            path: what,
            cluster,
            ..Attributes::default()
        };
    }
    let (what, subresource) = what.split_once('/').unwrap_or((&what, ""));
    let (resource, group) = what.split_once('.').unwrap_or((what, ""));
    let (resource, group, subresource) = (resource.to_owned(), group.to_owned(), subresource.to_owned());
    let version = "v1".to_owned();
    Attributes {
        verb,
        group,
        version,
        resource,
        subresource,
        name,
        cluster,
        is_resource_request: true,
        ..Attributes::default()
    }
}

/// Roles as a table of users and rules.
#[derive(Debug)]
struct Held(Vec<(&'static str, PolicyRule)>);

impl Roles for Held {
    fn find(&self, user: &UserInfo, _namespace: &str, found: &mut dyn FnMut(&PolicyRule) -> bool) -> bool {
        self.0.iter().any(|(name, rule)| *name == user.name && found(rule))
    }
}

/// `rA` may enter and read; `outsider` has a role and may not enter.
fn roles() -> Option<Arc<dyn Roles>> {
    let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<String>>();
    let paths = |verbs, urls| PolicyRule {
        verbs: list(verbs),
        non_resource_urls: list(urls),
        ..PolicyRule::default()
    };
    let read = PolicyRule {
        verbs: list("get,list,watch"),
        api_groups: list(""),
        resources: list("configmaps"),
        ..PolicyRule::default()
    };
    Some(Arc::new(Held(vec![
        ("rA", paths("access", "/")),
        ("rA", paths("get", "/apis")),
        ("rA", read.clone()),
        ("outsider", read),
    ])))
}

/// The tenant `tA` owns cluster `a`, group `b-admins` administers `b`.
fn facts(at: &str) -> ClusterFacts {
    let strings = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
    match at {
        "a" => ClusterFacts {
            cluster: cluster("a"),
            admin_users: strings(&["tA"]),
            roles: roles(),
            ..ClusterFacts::default()
        },
        "b" => ClusterFacts {
            cluster: cluster("b"),
            admin_groups: strings(&["b-admins"]),
            ..ClusterFacts::default()
        },
        other => ClusterFacts {
            cluster: cluster(other),
            ..ClusterFacts::default()
        },
    }
}

#[test]
fn who_may_do_what_where() {
    let anonymous = UserInfo::anonymous();
    let actors = [
        ("anonymous", anonymous),
        ("tenant A", user("tA", &[])),
        ("tenant B", user("tB", &["b-admins"])),
        ("reader", user("rA", &[])),
        ("platform admin", user("pA", &[GROUP_KCP_ADMIN])),
        ("master", user("shard-admin", &[GROUP_MASTERS])),
    ];
    // Columns: anonymous, tenant A, tenant B, reader, platform admin, master.
    let rows = [
        ("a", "get /readyz", "111111"),
        ("*", "get /livez", "111111"),
        ("*", "head /healthz", "111111"),
        ("*", "get /readyz/etcd", "....11"),
        ("*", "post /readyz", "....11"),
        ("system:admin", "get /readyz", ".....1"),
        ("*", "get /metrics", "....11"),
        ("*", "get /version", "....11"),
        ("a", "get /apis", ".1.111"),
        ("b", "get /openapi/v3", "..1.11"),
        ("a", "list configmaps", ".1.111"),
        ("a", "create configmaps", ".1..11"),
        ("a", "deletecollection widgets.example.io", ".1..11"),
        ("b", "list configmaps", "..1.11"),
        ("b", "watch configmaps", "..1.11"),
        ("root", "list workspaces.tenancy.kcp.io", "....11"),
        ("root", "create workspaces.tenancy.kcp.io", "....11"),
        ("*", "list configmaps", "....11"),
        ("*", "watch secrets", "....11"),
        ("system:bound-crds", "list apiresourceschemas.apis.kcp.io", ".....1"),
        (
            "system:admin",
            "get clusterroles.rbac.authorization.k8s.io admin",
            ".....1",
        ),
        ("system:shard", "create configmaps", ".....1"),
        ("a", "get apibindings.apis.kcp.io/status w", ".1..11"),
        ("a", "update apibindings.apis.kcp.io/status w", ".....1"),
        ("a", "patch apibindings.apis.kcp.io/status w", ".....1"),
        ("a", "patch apiexports.apis.kcp.io/status w", ".....1"),
        ("a", "update apibindings.apis.kcp.io w", ".1..11"),
        ("a", "update workspaces.tenancy.kcp.io/status w", ".1..11"),
        ("a", "update apibindings.example.io/status w", ".1..11"),
        ("a", "impersonate users pA", "....11"),
        ("a", "impersonate groups system:kcp:admin", "....11"),
        ("a", "impersonate groups system:masters", ".....1"),
        ("a", "impersonate:user-info users pA", "....11"),
        ("a", "impersonate-on:user-info:list configmaps", "....11"),
    ];
    for (at, text, want) in rows {
        let attributes = request(at, text);
        let allowed = |user: &UserInfo| permit(user, attributes.clone(), &facts(at)).is_ok();
        let got: String = actors
            .iter()
            .map(|(_, user)| if allowed(user) { '1' } else { '.' })
            .collect();
        assert_eq!(
            got,
            want,
            "{text} in {at}; columns: {:?}",
            actors.each_ref().map(|(name, _)| name)
        );
    }
}

#[test]
fn roles_count_for_those_who_may_enter() {
    let outsider = user("outsider", &[]);
    let list = request("a", "list configmaps");
    let mut facts = facts("a");
    assert!(permit(&outsider, list.clone(), &facts).is_err());
    facts.entered = true;
    assert!(permit(&outsider, list, &facts).is_ok(), "as if they were let in");
    assert!(permit(&outsider, request("a", "list secrets"), &facts).is_err());
    assert!(permit(&outsider, request("b", "list configmaps"), &facts).is_err());
    let account = user("system:serviceaccount:default:robot", &[]);
    facts.entered = false;
    let refused = permit(&account, request("a", "list configmaps"), &facts);
    assert_eq!(
        refused.map_err(|refused| refused.reason).err().as_deref(),
        Some("no rule allows it")
    );
}

#[test]
fn facts_of_another_cluster_count_for_nothing() {
    let tenant = user("tA", &[]);
    assert!(permit(&tenant, request("a", "list configmaps"), &facts("a")).is_ok());
    assert!(
        permit(&tenant, request("b", "list configmaps"), &facts("a")).is_err(),
        "facts of a, request to b"
    );
    assert!(permit(&tenant, request("*", "list configmaps"), &facts("a")).is_err());
    let nowhere = ClusterFacts {
        cluster: None,
        ..facts("a")
    };
    assert!(permit(&tenant, request("*", "list configmaps"), &nowhere).is_err());
    assert!(permit(&tenant, request("a", "list configmaps"), &nowhere).is_err());
}

#[test]
fn anonymous_is_no_administrator_even_by_name() {
    let mut facts = facts("a");
    facts.admin_users.push("system:anonymous".to_owned());
    facts.admin_users.push(String::new());
    assert!(permit(&UserInfo::anonymous(), request("a", "list configmaps"), &facts).is_err());
}

#[test]
fn a_scoped_identity_counts_only_in_its_cluster() {
    for group in [GROUP_KCP_ADMIN, GROUP_MASTERS] {
        let mut borrowed = user("tA", &[group]);
        borrowed
            .extra
            .insert(EXTRA_SCOPES.to_owned(), vec!["cluster:a".to_owned()]);
        assert!(permit(&borrowed, request("a", "list configmaps"), &facts("a")).is_ok());
        for at in ["b", "*", "system:admin", "root"] {
            let refused = permit(&borrowed, request(at, "list configmaps"), &facts(at)).expect_err(at);
            assert!(
                refused.message.contains("User \"tA\" cannot list"),
                "{}",
                refused.message
            );
        }
    }
}

#[test]
fn refusals_read_as_recorded() {
    let ada = user("ada", &[]);
    let at = |namespace: &str, text: &str| Attributes {
        namespace: namespace.to_owned(),
        ..request("a", text)
    };
    let rows = [
        (
            at("", "get /apis"),
            "forbidden: User \"ada\" cannot get path \"/apis\": access denied",
        ),
        (
            at("default", "list configmaps"),
            "configmaps is forbidden: User \"ada\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\": access denied",
        ),
        (
            at("default", "get secrets a"),
            "secrets \"a\" is forbidden: User \"ada\" cannot get resource \"secrets\" in API group \"\" in the namespace \"default\": access denied",
        ),
        (
            at("", "patch customresourcedefinitions.apiextensions.k8s.io a.example.com"),
            "customresourcedefinitions.apiextensions.k8s.io \"a.example.com\" is forbidden: User \"ada\" cannot patch resource \"customresourcedefinitions\" in API group \"apiextensions.k8s.io\" at the cluster scope: access denied",
        ),
        (
            at("", "get namespaces default"),
            "namespaces \"default\" is forbidden: User \"ada\" cannot get resource \"namespaces\" in API group \"\" in the namespace \"default\": access denied",
        ),
        (
            at("default", "update namespaces/finalize default"),
            "namespaces \"default\" is forbidden: User \"ada\" cannot update resource \"namespaces/finalize\" in API group \"\" in the namespace \"default\": access denied",
        ),
        (
            at("", "list namespaces"),
            "namespaces is forbidden: User \"ada\" cannot list resource \"namespaces\" in API group \"\" at the cluster scope: access denied",
        ),
    ];
    for (attributes, want) in rows {
        let refused = permit(&ada, attributes, &ClusterFacts::default()).expect_err(want);
        assert_eq!(refused.to_string(), want);
        assert_eq!(refused.reason, "no access to the workspace");
    }
}

#[test]
fn a_permit_says_what_it_is_for_and_why() {
    let attributes = request("a", "list configmaps");
    let permit = permit(&user("tA", &[]), attributes.clone(), &facts("a")).expect("an administrator");
    assert_eq!(
        (permit.attributes(), permit.reason()),
        (&attributes, "administrator of the cluster")
    );
}
