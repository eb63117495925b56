//! Rows of the access matrix, and recorded messages of a server.

mod delegated;

use super::*;
use crate::{
    rbac::{PolicyRule, Roles},
    required::RequiredGroups,
    user::EXTRA_SCOPES,
};
use std::sync::Arc;

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo::authenticated(name, "", groups.iter().map(|g| (*g).to_owned()).collect())
}

fn cluster(name: &str) -> Option<ClusterName> {
    (name != "*").then(|| ClusterName::parse(name).expect("a cluster name"))
}

/// Parses `verb resource[.group][/subresource] [name]` in a cluster, or `verb /path`.
fn request(at: &str, text: &str) -> Attributes {
    let mut words = text.split(' ');
    let mut next = || words.next().unwrap_or_default().to_owned();
    let (verb, what, name) = (next(), next(), next());
    let cluster = cluster(at);
    if what.starts_with('/') {
        return Attributes {
            verb: verb.into(),
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
        verb: verb.into(),
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
#[derive(Debug, Default)]
struct RoleTable {
    rules: Vec<(&'static str, PolicyRule)>,
    /// A group bound from an export, with the roles of its cluster.
    bound: Option<(&'static str, Arc<RoleTable>)>,
}

impl Roles for RoleTable {
    fn find(&self, user: &Identities<'_>, _namespace: &str, found: &mut dyn FnMut(&PolicyRule) -> bool) -> bool {
        let mut is = |user: &UserInfo| {
            let own = self.rules.iter().filter(|(name, _)| *name == user.name);
            own.map(|(_, rule)| rule).any(&mut *found)
        };
        user.iter().any(&mut is)
    }

    fn ceiling(&self, group: &str, _resource: &str) -> Option<Arc<dyn Roles>> {
        let (bound, roles) = self.bound.as_ref()?;
        (*bound == group).then(|| -> Arc<dyn Roles> { roles.clone() })
    }
}

/// Roles of cluster `a`: `rA` may enter and read; `outsider` has a role and may not enter.
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
    let rules = vec![
        ("rA", paths("access", "/")),
        ("rA", paths("get", "/apis")),
        ("rA", read.clone()),
        ("outsider", read),
    ];
    Some(Arc::new(RoleTable { rules, bound: None }))
}

/// Facts with a maximal permission policy: consumers of `widgets.example.io` may read, and robots
/// of `a` may write the status.
fn below_a_policy() -> ClusterFacts {
    let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<String>>();
    let rule = |verbs, resources| PolicyRule {
        verbs: list(verbs),
        api_groups: list("example.io"),
        resources: list(resources),
        ..PolicyRule::default()
    };
    let rules = vec![
        ("apis.kcp.io:binding:tA", rule("get,list", "*")),
        ("apis.kcp.io:binding:rA", rule("*", "*")),
        ("tA", rule("*", "*")),
        (
            "apis.kcp.io:binding:system:kcp:serviceaccount:a:ns:robot",
            rule("update", "widgets/status"),
        ),
        ("apis.kcp.io:binding:system:serviceaccount:ns:robot", rule("*", "*")),
    ];
    let bound = Some(("example.io", Arc::new(RoleTable { rules, bound: None })));
    let all = PolicyRule {
        verbs: list("*"),
        api_groups: list("*"),
        resources: list("*"),
        ..PolicyRule::default()
    };
    let rules = vec![("system:serviceaccount:ns:robot", all)];
    ClusterFacts {
        roles: Some(Arc::new(RoleTable { rules, bound })),
        ..facts("a")
    }
}

/// Facts of a cluster: the tenant `tA` owns cluster `a`, group `b-admins` administers `b`.
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

/// Clusters, requests, and the actors who may make them. Columns: anonymous, tenant A, tenant B,
/// reader, platform admin, master.
const ACCESS: &[(&str, &str, &str)] = &[
    ("a", "get /readyz", "111111"),
    ("*", "get /livez", "111111"),
    ("*", "head /healthz", "111111"),
    ("*", "get /readyz/etcd", "....11"),
    ("*", "post /readyz", "....11"),
    ("system:admin", "get /readyz", ".....1"),
    ("*", "get /metrics", "....11"),
    ("*", "get /version", "111111"),
    ("*", "post /version", "....11"),
    ("a", "get /version", ".1..11"),
    ("a", "get /apis", ".1.111"),
    ("b", "get /openapi/v3", "..1.11"),
    ("a", "list configmaps", ".1.111"),
    ("a", "create configmaps", ".1..11"),
    ("a", "deletecollection widgets.example.io", ".1..11"),
    ("b", "list configmaps", "..1.11"),
    ("b", "watch configmaps", "..1.11"),
    ("root", "list workspaces.tenancy.kcp.io", "....11"),
    ("root", "create workspaces.tenancy.kcp.io", "....11"),
    ("*", "list configmaps", ".....1"),
    ("*", "watch secrets", ".....1"),
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
    ("a", "update workspaces.tenancy.kcp.io/status w", "....11"),
    ("a", "patch workspacetypes.tenancy.kcp.io/status w", "....11"),
    ("a", "get workspaces.tenancy.kcp.io/status w", ".1..11"),
    ("a", "update workspaces.tenancy.kcp.io w", ".1..11"),
    ("a", "update apibindings.example.io/status w", ".1..11"),
    ("a", "impersonate users pA", ".1..11"),
    ("a", "impersonate serviceaccounts robot", ".1..11"),
    ("a", "impersonate groups devs", ".1..11"),
    ("a", "impersonate groups system:serviceaccounts:ns", ".1..11"),
    (
        "a",
        "impersonate userextras.authentication.k8s.io/example.com/tier gold",
        ".1..11",
    ),
    (
        "a",
        "impersonate userextras.authentication.k8s.io/authentication.kcp.io/scopes cluster:b",
        "....11",
    ),
    (
        "a",
        "impersonate userextras.authentication.k8s.io/authorization.kcp.io/warrant {}",
        "....11",
    ),
    ("a", "impersonate uids.authentication.k8s.io 7", "....11"),
    ("a", "impersonate users system:kcp:serviceaccount:b:ns:robot", "....11"),
    ("a", "impersonate groups system:cluster:b", "....11"),
    ("b", "impersonate users tA", "..1.11"),
    ("a", "impersonate groups system:kcp:admin", "....11"),
    ("a", "impersonate groups system:masters", ".....1"),
    ("a", "impersonate:user-info users pA", "....11"),
    ("a", "impersonate-on:user-info:list configmaps", "....11"),
];

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
    for (at, text, want) in ACCESS {
        let attributes = request(at, text);
        let allowed = |user: &UserInfo| permit(user, attributes.clone(), &facts(at)).is_ok();
        let got: String = actors
            .iter()
            .map(|(_, user)| if allowed(user) { '1' } else { '.' })
            .collect();
        assert_eq!(
            got,
            *want,
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
fn a_policy_narrows_what_roles_give() {
    let robot = user("system:serviceaccount:ns:robot", &[]);
    let actors = [
        user("tA", &[]),
        user("rA", &[]),
        robot,
        user("pA", &[GROUP_KCP_ADMIN]),
        user("master", &[GROUP_MASTERS]),
    ];
    // Columns: tenant A, a user known to the policy only, a robot, platform admin, master.
    for (text, want) in [
        ("list widgets.example.io", "1..11"),
        ("create widgets.example.io", "...11"),
        ("update widgets.example.io/status", "..111"),
        ("list gadgets.example.io", "1..11"),
        ("list configmaps", "1.111"),
        ("get /apis", "1..11"),
    ] {
        let allowed = |user: &UserInfo| permit(user, request("a", text), &below_a_policy()).is_ok();
        let got: String = actors
            .iter()
            .map(|user| if allowed(user) { '1' } else { '.' })
            .collect();
        assert_eq!(got, want, "{text}");
    }
    let refused = permit(&actors[0], request("a", "create widgets.example.io"), &below_a_policy()).expect_err("it is");
    assert!(
        refused.reason.contains("maximal permission policy"),
        "{}",
        refused.reason
    );
    assert!(!refused.message.contains("policy"), "{}", refused.message);
}

#[test]
fn required_groups_stand_before_every_role() {
    let facts = ClusterFacts {
        required_groups: Some(Arc::new(RequiredGroups::read("staff,trained;auditors"))),
        ..facts("a")
    };
    let account = "system:serviceaccount:ns:robot";
    let mut foreign = user(account, &[]);
    foreign
        .extra
        .insert("authentication.kcp.io/cluster-name".into(), vec!["b".into()]);
    for (user, want) in [
        (user("tA", &[]), "not in the groups that the workspace requires"),
        (user("tA", &["staff"]), "not in the groups that the workspace requires"),
        (user("tA", &["staff", "trained"]), ""),
        (user("tA", &["auditors"]), ""),
        (user("x", &["auditors"]), "no access to the workspace"),
        (user("pA", &[GROUP_KCP_ADMIN]), ""),
        (user(account, &[]), "no rule allows it"),
        (foreign, "not in the groups that the workspace requires"),
    ] {
        let permit = permit(&user, request("a", "create configmaps"), &facts);
        assert_eq!(permit.err().map(|no| no.reason).unwrap_or_default(), want, "{user:?}");
    }
    let entered = ClusterFacts { entered: true, ..facts };
    assert!(permit(&user("tA", &[]), request("a", "bind apiexports.apis.kcp.io"), &entered).is_ok());
}

#[test]
fn a_warrant_gives_what_its_user_may_and_no_mastery() {
    let bearer = |warrant: &str| {
        let mut user = user("eve", &[]);
        user.extra
            .insert("authorization.kcp.io/warrant".into(), vec![warrant.to_owned()]);
        user
    };
    for (warrant, at, want) in [
        (r#"{"user":"tA"}"#, "a", true),
        (r#"{"user":"tA"}"#, "b", false),
        (r#"{"groups":["b-admins"]}"#, "b", true),
        (r#"{"groups":["system:kcp:admin"]}"#, "b", true),
        (r#"{"groups":["system:masters"]}"#, "b", false),
        (r#"{"groups":["system:masters"]}"#, "system:admin", false),
        (
            r#"{"user":"tA","extra":{"authentication.kcp.io/scopes":["cluster:b"]}}"#,
            "a",
            false,
        ),
        ("tA", "a", false),
    ] {
        let allowed = permit(&bearer(warrant), request(at, "list configmaps"), &facts(at)).is_ok();
        assert_eq!(allowed, want, "{warrant} in {at}");
    }
}

#[test]
fn while_initializers_work_administrators_look_and_nobody_writes() {
    let unfinished = ClusterFacts {
        unfinished: true,
        ..facts("a")
    };
    let may = |user: &UserInfo, text: &str| permit(user, request("a", text), &unfinished).is_ok();
    let (admin, platform) = (user("tA", &[]), user("op", &[GROUP_KCP_ADMIN]));
    assert!(may(&admin, "get configmaps") && !may(&admin, "create configmaps") && !may(&admin, "delete configmaps"));
    assert!(
        !may(&user("rA", &[]), "list configmaps")
            && permit(&user("rA", &[]), request("a", "list configmaps"), &facts("a")).is_ok()
    );
    assert!(may(&platform, "create configmaps"));
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
            "configmaps is forbidden: User \"ada\" cannot list resource \"configmaps\" in API group \"\" in the \
                namespace \"default\": access denied",
        ),
        (
            at("default", "get secrets a"),
            "secrets \"a\" is forbidden: User \"ada\" cannot get resource \"secrets\" in API group \"\" in the \
                namespace \"default\": access denied",
        ),
        (
            at("", "patch customresourcedefinitions.apiextensions.k8s.io a.example.com"),
            "customresourcedefinitions.apiextensions.k8s.io \"a.example.com\" is forbidden: User \"ada\" cannot \
                patch resource \"customresourcedefinitions\" in API group \"apiextensions.k8s.io\" at the cluster \
                scope: access denied",
        ),
        (
            at("", "get namespaces default"),
            "namespaces \"default\" is forbidden: User \"ada\" cannot get resource \"namespaces\" in API group \"\" \
                in the namespace \"default\": access denied",
        ),
        (
            at("default", "update namespaces/finalize default"),
            "namespaces \"default\" is forbidden: User \"ada\" cannot update resource \"namespaces/finalize\" in \
                API group \"\" in the namespace \"default\": access denied",
        ),
        (
            at("", "list namespaces"),
            "namespaces is forbidden: User \"ada\" cannot list resource \"namespaces\" in API group \"\" at the \
                cluster scope: access denied",
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
