//! Reads at old revisions after rights were revoked. The latest state decides on access; the data
//! is that of the requested revision.

use std::time::Duration;

use insula_e2e::{Client, Server, Who, publish_widgets, ready_workspace, shared, unique, until};
use serde_json::{Value, json};

use super::scene::{MAPS, owned_by};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
const API_BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
const ALL_MAPS: &str = "/api/v1/configmaps";

fn user(server: &Server, name: &str) -> Client {
    server.client(Who::Token(format!("{name}-token")))
}

fn map(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

/// Returns a list's revision and the continue token of its first page.
fn bookmarks(at: &Client, list: &str) -> (String, String) {
    let page = at.get(&format!("{list}?limit=1")).expect(200);
    let text = |field: &str| page["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("resourceVersion"), text("continue"))
}

/// Returns the requests that read an old revision.
fn ways(list: &str, (revision, token): &(String, String)) -> Vec<String> {
    let mut ways = vec![
        format!("{list}?resourceVersion={revision}&resourceVersionMatch=Exact"),
        format!("{list}?resourceVersion={revision}&limit=5"),
        format!("{list}?resourceVersion={revision}&resourceVersionMatch=NotOlderThan"),
        format!("{list}?resourceVersion=0"),
    ];
    if !token.is_empty() {
        ways.push(format!("{list}?limit=5&continue={token}"));
    }
    ways
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[test]
fn a_revoked_role_denies_reads_at_old_revisions() {
    let server = shared();
    let place = owned_by(&server, "alice");
    let (alice, bob) = (
        user(&server, "alice").in_workspace(&place.path),
        user(&server, "bob").in_workspace(&place.path),
    );
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reads"},
        "rules": [
            {"nonResourceURLs": ["/"], "verbs": ["access"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]},
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reads"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    alice.post(&format!("{RBAC}/clusterroles"), &role).expect(201);
    alice.post(&format!("{RBAC}/clusterrolebindings"), &binding).expect(201);
    for name in ["a", "b"] {
        alice.post(MAPS, &map(name, json!({}))).expect(201);
    }
    let old = bookmarks(&bob, MAPS);
    for way in ways(MAPS, &old) {
        bob.get(&way).expect(200);
    }
    alice.delete(&format!("{RBAC}/clusterrolebindings/reads")).expect(200);
    for way in ways(MAPS, &old) {
        let refused = bob.get(&way);
        assert_eq!(refused.code, 403, "{way}: {}", refused.text);
        alice.get(&way).expect(200);
    }
    // A user with access now may read old revisions too, also those from before the access.
    alice.delete(&format!("{MAPS}/a")).expect(200);
    alice.post(&format!("{RBAC}/clusterrolebindings"), &binding).expect(201);
    let then = bob.get(&ways(MAPS, &old)[0]).expect(200);
    assert!(names(&then).contains(&"a"), "{then}");
}

/// A path means the workspace that it leads to now. Nobody can read the deleted workspace that was
/// there before.
#[test]
fn old_revisions_do_not_show_deleted_workspaces() {
    let server = shared();
    let masters = server.client(Who::ShardAdmin);
    let owner = |user: &str| json!({"experimental.tenancy.kcp.io/owner": json!({"username": user}).to_string()});
    let name = unique("reused");
    let (path, _) = ready_workspace(&masters, "root", &name, owner("alice"));
    let (alice, bob) = (
        user(&server, "alice").in_workspace(&path),
        user(&server, "bob").in_workspace(&path),
    );
    for name in ["first", "second"] {
        alice.post(MAPS, &map(name, json!({}))).expect(201);
    }
    let old = bookmarks(&alice, MAPS);
    masters
        .in_workspace("root")
        .delete(&format!("{WORKSPACES}/{name}"))
        .expect(200);
    until("the workspace is gone", || {
        (masters.in_workspace("root").get(&format!("{WORKSPACES}/{name}")).code == 404).then_some(())
    });
    for way in ways(MAPS, &old) {
        let refused = alice.get(&way);
        assert_eq!(refused.code, 403, "{way}: {}", refused.text);
    }
    ready_workspace(&masters, "root", &name, owner("bob"));
    for way in ways(MAPS, &old) {
        let refused = alice.get(&way);
        assert_eq!(refused.code, 403, "{way}: {}", refused.text);
        let found = bob.get(&way).expect(200);
        assert!(!names(&found).contains(&"first"), "{way}: {found}");
    }
    // An inactive workspace does not reveal its past either.
    let new = bookmarks(&bob, MAPS);
    let inactive = json!({"metadata": {"annotations": {"core.kcp.io/inactive": "true"}}});
    let logical = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster";
    masters.in_workspace(&path).merge(logical, &inactive).expect(200);
    for way in ways(MAPS, &new) {
        let refused = bob.get(&way);
        assert_eq!(refused.code, 403, "{way}: {}", refused.text);
        assert!(refused.text.contains("marked inactive"), "{}", refused.text);
    }
}

fn gadgets() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.past.example.io"},
        "spec": {
            "group": "past.example.io", "scope": "Cluster", "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

/// The history of a resource begins with its current definition. It excludes earlier definitions of
/// the same name.
#[test]
fn a_recreated_definition_hides_the_former_history() {
    let server = shared();
    let place = owned_by(&server, "alice");
    let alice = user(&server, "alice").in_workspace(&place.path);
    let (definitions, list) = (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/past.example.io/v1/gadgets",
    );
    let served = || until("gadgets are served", || (alice.get(list).code == 200).then_some(()));
    alice.post(definitions, &gadgets()).expect(201);
    served();
    for name in ["a", "b"] {
        let gadget = json!({"apiVersion": "past.example.io/v1", "kind": "Gadget", "metadata": {"name": name}});
        alice.post(list, &gadget).expect(201);
    }
    let old = bookmarks(&alice, list);
    alice
        .delete(&format!("{definitions}/gadgets.past.example.io"))
        .expect(200);
    until("gadgets are gone", || (alice.get(list).code == 404).then_some(()));
    let past = [
        format!("{list}?resourceVersion={}&resourceVersionMatch=Exact", old.0),
        format!("{list}?continue={}", old.1),
    ];
    for way in &past {
        assert_eq!(alice.get(way).code, 404, "{way}");
    }
    until("the definition is gone", || {
        (alice.post(definitions, &gadgets()).code == 201).then_some(())
    });
    served();
    for way in &past {
        let gone = alice.get(way);
        assert_eq!(gone.code, 410, "{way}: {}", gone.text);
    }
}

/// Clients of a binding: bob binds alice's export and accepts a claim on maps with a label.
struct Shared {
    tenant: Client,
    /// Client of alice's virtual workspace with all consumers.
    all: Client,
    /// Client of alice's virtual workspace, limited to bob's cluster.
    one: Client,
}

fn claim(state: &str) -> Value {
    json!({
        "resource": "configmaps", "verbs": ["get", "list", "watch"], "state": state,
        "selector": {"matchLabels": {"share": "yes"}},
    })
}

fn share(server: &Server) -> Shared {
    let (provider, tenant) = (owned_by(server, "alice"), owned_by(server, "bob"));
    let (alice, bob) = (user(server, "alice"), user(server, "bob").in_workspace(&tenant.path));
    let here = alice.in_workspace(&provider.path);
    publish_widgets(&here);
    let bind = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "bind"},
        "rules": [{"apiGroups": ["apis.kcp.io"], "resources": ["apiexports"], "verbs": ["bind"]}],
    });
    let everybody = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "bind"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bind"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}],
    });
    here.post(&format!("{RBAC}/clusterroles"), &bind).expect(201);
    here.post(&format!("{RBAC}/clusterrolebindings"), &everybody)
        .expect(201);
    let claims = json!({"spec": {"permissionClaims": [
        {"resource": "configmaps", "verbs": ["get", "list", "watch"]},
    ]}});
    here.merge("/apis/apis.kcp.io/v1alpha2/apiexports/widgets", &claims)
        .expect(200);
    let binding = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "widgets"},
        "spec": {
            "reference": {"export": {"path": provider.path, "name": "widgets"}},
            "permissionClaims": [claim("Accepted")],
        },
    });
    bob.post(API_BINDINGS, &binding).expect(201);
    until("widgets are bound", || {
        (bob.get("/apis/example.io/v1/widgets").code == 200).then_some(())
    });
    let view = format!("/services/apiexport/{}/widgets/clusters", provider.cluster);
    Shared {
        tenant: bob,
        all: alice.below(&format!("{view}/*")),
        one: alice.below(&format!("{view}/{}", tenant.cluster)),
    }
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"firstName": "Ada"}})
}

/// Returns the events of a watch from an old revision, until it ends or the event `last` arrives.
fn events(at: &Client, path: &str, last: &str) -> Vec<String> {
    let mut seen = Vec::new();
    let path = format!("{path}&timeoutSeconds=30");
    at.watch_for(Duration::from_secs(60), &path, &mut |event| {
        let name = event["object"]["metadata"]["name"].as_str();
        let what = match event["type"].as_str().unwrap_or_default() {
            "ERROR" => format!("ERROR {}", event["object"]["code"]),
            kind => format!("{kind} {}", name.unwrap_or_default()),
        };
        let is_last = what == last || what.starts_with("ERROR");
        seen.push(what);
        is_last.then_some(())
    });
    seen
}

/// Checks that a list and a watch from an old revision show nothing through all clusters, and are
/// refused through one.
fn assert_nothing_is_visible(all: &Client, one: &Client, list: &str, old: &(String, String)) {
    for way in ways(list, old) {
        let found = all.get(&way).expect(200);
        assert!(names(&found).is_empty(), "{way}: {found}");
        let refused = one.get(&way);
        assert_eq!(refused.code, 403, "{way}: {}", refused.text);
    }
    let from = format!("{list}?watch=true&resourceVersion={}", old.0);
    assert_eq!(events(all, &from, ""), ["ERROR 410"]);
}

/// After a consumer revokes a claim, its objects are gone for the provider at every revision.
#[test]
fn a_virtual_workspace_shows_old_revisions_with_todays_rights() {
    let server = shared();
    let Shared { tenant, all, one } = share(&server);
    let yes = || json!({"share": "yes"});
    for name in ["kept", "taken"] {
        tenant.post(MAPS, &map(name, yes())).expect(201);
    }
    let widgets = "/apis/example.io/v1/namespaces/default/widgets";
    let every_widget = "/apis/example.io/v1/widgets";
    for name in ["w", "x"] {
        tenant.post(widgets, &widget(name)).expect(201);
    }
    let (before, old) = (bookmarks(&all, ALL_MAPS), bookmarks(&one, ALL_MAPS));
    let exact = |old: &(String, String)| format!("{ALL_MAPS}?resourceVersion={}&resourceVersionMatch=Exact", old.0);
    for view in [&all, &one] {
        let list = view.get(&exact(&old)).expect(200);
        assert_eq!(names(&list), ["kept", "taken"]);
    }
    // Removing a label hides the object at old revisions too. Adding one reveals nothing of the
    // time before.
    tenant.post(MAPS, &map("late", json!({}))).expect(201);
    let between = bookmarks(&all, ALL_MAPS);
    tenant
        .merge(&format!("{MAPS}/taken"), &json!({"metadata": {"labels": null}}))
        .expect(200);
    tenant
        .merge(&format!("{MAPS}/late"), &json!({"metadata": {"labels": yes()}}))
        .expect(200);
    for view in [&all, &one] {
        for old in [&old, &between] {
            let list = view.get(&exact(old)).expect(200);
            assert_eq!(names(&list), ["kept"], "{list}");
        }
        let from = format!("{ALL_MAPS}?watch=true&resourceVersion={}", old.0);
        assert_eq!(events(view, &from, "ADDED late"), ["ERROR 410"]);
    }
    // Past revisions still show ordinarily deleted objects to callers who may read such objects.
    tenant.delete(&format!("{MAPS}/late")).expect(200);
    tenant
        .merge(&format!("{MAPS}/taken"), &json!({"metadata": {"labels": yes()}}))
        .expect(200);
    tenant.delete(&format!("{MAPS}/taken")).expect(200);
    for view in [&all, &one] {
        assert_eq!(names(&view.get(&exact(&old)).expect(200)), ["kept", "taken"]);
        let from = format!("{ALL_MAPS}?watch=true&resourceVersion={}", old.0);
        assert_eq!(
            events(view, &from, "ADDED taken")[..3],
            ["DELETED taken", "ADDED late", "DELETED late"]
        );
    }
    // Rejects a claim, and then deletes the binding.
    let claims = |state: &str| json!({"spec": {"permissionClaims": [claim(state)]}});
    tenant
        .merge(&format!("{API_BINDINGS}/widgets"), &claims("Rejected"))
        .expect(200);
    assert_nothing_is_visible(&all, &one, ALL_MAPS, &before);
    let old = bookmarks(&all, every_widget);
    assert_eq!(names(&all.get(&ways(every_widget, &old)[0]).expect(200)), ["w", "x"]);
    tenant.delete(&format!("{API_BINDINGS}/widgets")).expect(200);
    until("the binding is gone", || {
        (tenant.get(&format!("{API_BINDINGS}/widgets")).code == 404).then_some(())
    });
    assert_nothing_is_visible(&all, &one, every_widget, &old);
}

/// A watch open while rights change reports the objects that appear and disappear with them.
#[test]
fn a_virtual_workspace_watch_follows_claim_changes() {
    let server = shared();
    let Shared { tenant, all, one } = share(&server);
    tenant.post(MAPS, &map("shared", json!({"share": "yes"}))).expect(201);
    let (now, _) = bookmarks(&all, ALL_MAPS);
    let binding = format!("{API_BINDINGS}/widgets");
    // A watch is read on a runtime, where no other request can be waited for.
    let answer = |state: &str| {
        let claims = json!({"spec": {"permissionClaims": [claim(state)]}});
        std::thread::scope(|scope| {
            let merged = scope.spawn(|| tenant.merge(&binding, &claims));
            merged.join().unwrap().expect(200);
        });
    };
    for view in [all, one] {
        let mut seen = Vec::new();
        let from =
            format!("{ALL_MAPS}?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersion={now}");
        let from = format!("{from}&resourceVersionMatch=NotOlderThan&timeoutSeconds=60");
        view.watch_for(Duration::from_secs(60), &from, &mut |event| {
            seen.push(event["type"].as_str().unwrap_or_default().to_owned());
            match seen.len() {
                // The watch has sent the initial state: the change is live.
                2 => answer("Rejected"),
                3 => answer("Accepted"),
                _ => {}
            }
            (seen.len() == 4).then_some(())
        });
        assert_eq!(seen, ["ADDED", "BOOKMARK", "DELETED", "ADDED"]);
    }
}
