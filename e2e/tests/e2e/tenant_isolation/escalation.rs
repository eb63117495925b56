//! Escalation through labels, roles, initializers and wildcard views. `scripts/views/others.txt`
//! covers the objects of a claimed API that wildcard views show.

use bytes::Bytes;
use insula_e2e::{Answer, Client, Server, Who, shared, unique, until};
use serde_json::{Value, json};

use super::scene::{MAPS, TenantWorkspace, owned_by};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
const TYPES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes";
const EXPORTS: &str = "/apis/apis.kcp.io/v1alpha2/apiexports";
const API_BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";

fn user(server: &Server, name: &str) -> Client {
    server.client(Who::Token(format!("{name}-token")))
}

fn role(name: &str, rest: Value) -> Value {
    let mut role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
    });
    for (field, value) in rest.as_object().unwrap() {
        role[field] = value.clone();
    }
    role
}

fn binding(name: &str, kind: &str, subject: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject}],
    })
}

fn patch(at: &Client, kind: &str, path: &str, body: &Value) -> Answer {
    let kind = format!("application/{kind}");
    let body = Bytes::from(body.to_string());
    at.try_send("PATCH", path, &[("content-type", &kind)], body).unwrap()
}

/// Creates alice's workspace with a role that reads secrets, a role of bob's that aggregates roles
/// by a label, and a role that lets bob write roles and bindings.
fn with_roles(server: &Server) -> (Client, Client) {
    let place = owned_by(server, "alice");
    let (alice, bob) = (
        user(server, "alice").in_workspace(&place.path),
        user(server, "bob").in_workspace(&place.path),
    );
    let mighty = json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]});
    let gathers = json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"gather": "yes"}}]}});
    let writes = json!({"rules": [
        {"nonResourceURLs": ["/"], "verbs": ["access"]},
        {
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["clusterroles", "clusterrolebindings"],
            "verbs": ["get", "list", "create", "update", "patch", "delete"],
        },
    ]});
    for (name, rest) in [("mighty", mighty), ("gathers", gathers), ("writes", writes)] {
        alice.post(ROLES, &role(name, rest)).expect(201);
    }
    for (name, subject) in [("gathers", "bob"), ("writes", "bob"), ("mighty", "nobody")] {
        alice.post(BINDINGS, &binding(name, "User", subject)).expect(201);
    }
    (alice, bob)
}

/// A label on a powerful role let an aggregated role take its rules, because the server checked
/// only changes of rules.
#[test]
fn aggregation_labels_do_not_escalate_roles() {
    let server = shared();
    let (alice, bob) = with_roles(&server);
    bob.get(ROLES).expect(200);
    assert_eq!(bob.get(SECRETS).code, 403);
    let label = json!({"metadata": {"labels": {"gather": "yes"}}});
    let (mighty, bound) = (format!("{ROLES}/mighty"), format!("{BINDINGS}/mighty"));
    let mut whole = bob.get(&mighty).expect(200);
    whole["metadata"]["labels"] = label["metadata"]["labels"].clone();
    let applied = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "mighty", "labels": {"gather": "yes"}},
    });
    let add = json!([{"op": "add", "path": "/metadata/labels", "value": {"gather": "yes"}}]);
    let note = json!({"metadata": {"annotations": {"a": "b"}}});
    let taken = json!({"aggregationRule": null, "rules": []});
    let grant = "is attempting to grant RBAC permissions not currently held";
    let gather = "must have cluster-admin privileges to use the aggregationRule";
    let gathering = role(
        "other",
        json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"gather": "yes"}}]}}),
    );
    let attempts = [
        ("a merge patch", bob.merge(&mighty, &label), grant),
        ("a dry run", bob.merge(&format!("{mighty}?dryRun=All"), &label), grant),
        ("a JSON patch", patch(&bob, "json-patch+json", &mighty, &add), grant),
        ("an update", bob.put(&mighty, &whole), grant),
        (
            "an apply",
            patch(
                &bob,
                "apply-patch+yaml",
                &format!("{mighty}?fieldManager=bob&force=true"),
                &applied,
            ),
            grant,
        ),
        ("an annotation", bob.merge(&mighty, &note), grant),
        ("a label of a binding", bob.merge(&bound, &label), grant),
        (
            "the end of a gathering",
            bob.merge(&format!("{ROLES}/gathers"), &taken),
            gather,
        ),
        ("another gathering", bob.post(ROLES, &gathering), gather),
    ];
    for (what, answer, why) in attempts {
        assert_eq!(answer.code, 403, "{what}: {}", answer.text);
        assert!(answer.text.contains(why), "{what}: {}", answer.text);
    }
    assert_eq!(bob.get(SECRETS).code, 403);
    // As in Kubernetes, the server does not check writes that the garbage collector needs, nor
    // writes without changes.
    for body in [json!({"metadata": {"finalizers": ["example.io/hold"]}}), json!({})] {
        bob.merge(&mighty, &body).expect(200);
    }
    bob.merge(&mighty, &json!({"metadata": {"finalizers": null}}))
        .expect(200);
    // A user with all the rights may change it.
    alice.merge(&mighty, &label).expect(200);
    until("the rules are gathered", || {
        (bob.get(SECRETS).code == 200).then_some(())
    });
}

/// kcp's export of these kinds leaves their status to the platform.
#[test]
fn tenants_cannot_write_status_of_workspaces_and_types() {
    let server = shared();
    let place = owned_by(&server, "alice");
    let alice = user(&server, "alice").in_workspace(&place.path);
    let child = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "child"}});
    alice.post(WORKSPACES, &child).expect(201);
    let kind = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "kind"}, "spec": {},
    });
    alice.post(TYPES, &kind).expect(201);
    until("the child is ready", || {
        let found = alice.get(&format!("{WORKSPACES}/child")).expect(200);
        (found["status"]["phase"] == "Ready").then_some(())
    });
    let dave = user(&server, "dave").in_workspace(&place.path);
    for (object, resource, status) in [
        (
            format!("{WORKSPACES}/child"),
            "workspaces",
            json!({"phase": "Unavailable"}),
        ),
        (
            format!("{TYPES}/kind"),
            "workspacetypes",
            json!({"virtualWorkspaces": [{"url": "https://elsewhere.example", "type": "initializing"}]}),
        ),
    ] {
        let path = format!("{object}/status");
        let mut whole = alice.get(&path).expect(200);
        whole["status"] = status.clone();
        let applied = json!({
            "apiVersion": whole["apiVersion"], "kind": whole["kind"], "metadata": {"name": whole["metadata"]["name"]},
            "status": status,
        });
        for (verb, answer) in [
            ("patch", alice.merge(&path, &json!({ "status": status }))),
            (
                "patch",
                alice.merge(&format!("{path}?dryRun=All"), &json!({ "status": status })),
            ),
            ("update", alice.put(&path, &whole)),
            (
                "patch",
                patch(
                    &alice,
                    "apply-patch+yaml",
                    &format!("{path}?fieldManager=a&force=true"),
                    &applied,
                ),
            ),
        ] {
            assert_eq!(answer.code, 403, "{verb} {path}: {}", answer.text);
            let why = format!(
                "User \"alice\" cannot {verb} resource \"{resource}/status\" in API group \"tenancy.kcp.io\" at the \
                 cluster scope: access denied"
            );
            let message = answer.body["message"].as_str().unwrap();
            assert!(message.ends_with(&why), "{message}");
        }
        dave.merge(&path, &json!({})).expect(200);
    }
}

/// Creates a workspace with an owner, of a type in another workspace, that waits for the type's
/// initializer.
fn waiting(server: &Server, owner: &str, lobby: &TenantWorkspace, kind: &str) -> String {
    let root = server.client(Who::ShardAdmin).in_workspace("root");
    let name = unique("guest");
    let user = json!({"username": owner}).to_string();
    let guest = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
        "metadata": {"name": name, "annotations": {"experimental.tenancy.kcp.io/owner": user}},
        "spec": {"type": {"path": lobby.path, "name": kind}},
    });
    root.post(WORKSPACES, &guest).expect(201);
    until("the workspace waits for its initializer", || {
        let found = root.get(&format!("{WORKSPACES}/{name}")).expect(200);
        let wanted = json!(format!("{}:{kind}", lobby.cluster));
        let waits = found["status"]["initializers"].as_array()?.contains(&wanted);
        waits.then(|| found["spec"]["cluster"].as_str().unwrap().to_owned())
    })
}

fn kind(name: &str, permissions: Option<Value>) -> Value {
    let mut kind = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": name},
        "spec": {"initializer": true, "extend": {"with": [{"name": "universal", "path": "root"}]}},
    });
    if let Some(permissions) = permissions {
        kind["spec"]["initializerPermissions"] = permissions;
    }
    kind
}

fn export(at: &Client, name: &str) {
    let export = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": name}, "spec": {},
    });
    at.post(EXPORTS, &export).expect(201);
}

/// An initializer that acts as a workspace's owner has the owner's rights in that workspace only.
/// It used to bind private exports that its own account may not bind.
#[test]
fn an_initializer_acts_as_the_owner_in_one_workspace_only() {
    let server = shared();
    let (lobby, private) = (owned_by(&server, "bob"), owned_by(&server, "alice"));
    let (bob, alice) = (user(&server, "bob"), user(&server, "alice").in_workspace(&private.path));
    bob.in_workspace(&lobby.path)
        .post(TYPES, &kind("trusted", None))
        .expect(201);
    export(&alice, "private");
    export(&alice, "open");
    let rules = json!({"rules": [{
        "apiGroups": ["apis.kcp.io"], "resources": ["apiexports"], "resourceNames": ["open"], "verbs": ["bind"],
    }]});
    alice.post(ROLES, &role("open", rules)).expect(201);
    alice
        .post(BINDINGS, &binding("open", "Group", "system:authenticated"))
        .expect(201);
    alice.post(TYPES, &kind("closed", None)).expect(201);
    let guest = waiting(&server, "alice", &lobby, "trusted");
    let inside = |path: &str| {
        let view = format!("initializingworkspaces/{}:trusted/clusters/{guest}", lobby.cluster);
        format!("/services/{view}{path}")
    };
    let bind = |name: &str, path: &str| {
        json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": name},
            "spec": {"reference": {"export": {"path": path, "name": name}}},
        })
    };
    for path in [&private.path, &private.cluster] {
        let refused = bob.post(&inside(API_BINDINGS), &bind("private", path));
        assert_eq!(refused.code, 403, "{}", refused.text);
        let why = format!("no permission to bind to export {path}:private");
        assert!(refused.text.contains(&why), "{}", refused.text);
    }
    let child = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "child"},
        "spec": {"type": {"path": private.path, "name": "closed"}},
    });
    let refused = bob.post(&inside(WORKSPACES), &child);
    assert_eq!(refused.code, 403, "{}", refused.text);
    assert!(
        refused.text.contains("missing verb='use' permission"),
        "{}",
        refused.text
    );
    // The owner may bind public exports, too, and may do anything in the workspace.
    bob.post(&inside(API_BINDINGS), &bind("open", &private.path))
        .expect(201);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}});
    bob.post(&inside(MAPS), &map).expect(201);
}

/// A user who could impersonate others in their own workspace acted as the owners of the workspaces
/// that it initializes: the server kept the name, but not the scope in which the name is valid.
#[test]
fn an_initializer_cannot_impersonate_global_identities() {
    let server = shared();
    let lobby = owned_by(&server, "bob");
    let bob = user(&server, "bob");
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
    let here = bob.in_workspace(&lobby.path);
    here.post(TYPES, &kind("guided", Some(rules))).expect(201);
    let stands = json!({"rules": [
        {"nonResourceURLs": ["/"], "verbs": ["access"]},
        {"apiGroups": ["tenancy.kcp.io"], "resources": ["workspacetypes"], "verbs": ["initialize"]},
    ]});
    here.post(ROLES, &role("stands", stands)).expect(201);
    here.post(BINDINGS, &binding("stands", "User", "alice")).expect(201);
    let guest = waiting(&server, "alice", &lobby, "guided");
    let inside = |path: &str| {
        let view = format!("initializingworkspaces/{}:guided/clusters/{guest}", lobby.cluster);
        format!("/services/{view}{path}")
    };
    let as_owner = [("impersonate-user", "alice")];
    for headers in [&[][..], &as_owner[..]] {
        bob.get_with(&inside(MAPS), headers).expect(200);
        for path in [SECRETS, ROLES] {
            let refused = bob.get_with(&inside(path), headers);
            assert_eq!(refused.code, 403, "{path} {headers:?}: {}", refused.text);
        }
    }
}
