//! Fields that only the server or the platform sets. The owner of an object cannot set them by any
//! verb on any subresource (GHSA-q6hv-wcjr-wp8h came in by an unexpected update). Values that a
//! permitted caller sets there harm no other tenant.

use bytes::Bytes;
use insula_e2e::Client;

use super::*;

const CLUSTER: &str = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster";
const WORKSPACE: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces/child";
const BINDING: &str = "/apis/apis.kcp.io/v1alpha2/apibindings/own";
const EXPORT: &str = "/apis/apis.kcp.io/v1alpha2/apiexports/private";

/// Returns paths of objects, with pointers to protected fields and forged values.
fn forged_fields(theirs: &str) -> Vec<(&'static str, &'static str, Value)> {
    let owner = json!(json!({"username": "bob"}).to_string());
    let metadata = [
        ("/metadata/uid", json!("00000000-0000-4000-8000-000000000000")),
        ("/metadata/creationTimestamp", json!("2001-01-01T00:00:00Z")),
        ("/metadata/deletionTimestamp", json!("2001-01-01T00:00:00Z")),
        ("/metadata/annotations/kcp.io~1cluster", json!(theirs)),
        ("/metadata/labels/internal.apis.kcp.io~1export", json!("forged")),
        ("/metadata/annotations/internal.tenancy.kcp.io~1cluster", json!(theirs)),
    ];
    let all = [CLUSTER, WORKSPACE, BINDING, EXPORT]
        .into_iter()
        .flat_map(|path| metadata.clone().map(|(at, value)| (path, at, value)));
    let own = [
        (CLUSTER, "/metadata/annotations/kcp.io~1path", json!("root:forged")),
        (CLUSTER, "/metadata/annotations/core.kcp.io~1inactive", json!("true")),
        (
            CLUSTER,
            "/metadata/annotations/core.kcp.io~1max-total-objects",
            json!("7"),
        ),
        (
            CLUSTER,
            "/metadata/annotations/authorization.kcp.io~1required-groups",
            json!("team"),
        ),
        (
            CLUSTER,
            "/metadata/annotations/experimental.tenancy.kcp.io~1owner",
            owner.clone(),
        ),
        (CLUSTER, "/metadata/finalizers", json!([])),
        (
            CLUSTER,
            "/spec/owner",
            json!({"apiVersion": "v1", "resource": "namespaces", "name": "default", "uid": "a"}),
        ),
        (CLUSTER, "/spec/createdBy", json!({"username": "bob"})),
        (CLUSTER, "/spec/directlyDeletable", json!(true)),
        (CLUSTER, "/spec/initializers", json!(["root:forged"])),
        (CLUSTER, "/spec/terminators", json!(["root:forged"])),
        (CLUSTER, "/status/initializers", json!(["root:forged"])),
        (CLUSTER, "/status/terminators", json!(["root:forged"])),
        (CLUSTER, "/status/phase", json!("Initializing")),
        (WORKSPACE, "/spec/cluster", json!(theirs)),
        (WORKSPACE, "/spec/URL", json!("https://example.com")),
        (WORKSPACE, "/spec/type/name", json!("root")),
        (
            WORKSPACE,
            "/metadata/annotations/experimental.tenancy.kcp.io~1owner",
            owner,
        ),
        (BINDING, "/spec/reference/export/path", json!(theirs)),
        (BINDING, "/status/apiExportClusterName", json!(theirs)),
        (BINDING, "/status/phase", json!("Binding")),
        (
            BINDING,
            "/status/boundResources",
            json!([{"group": "", "resource": "secrets", "schema": {"name": "a", "UID": "b", "identityHash": "c"}}]),
        ),
        (
            BINDING,
            "/status/appliedPermissionClaims",
            json!([{"resource": "secrets", "verbs": ["*"], "selector": {"matchAll": true}}]),
        ),
        (EXPORT, "/status/identityHash", json!("forged")),
    ];
    all.chain(own).collect()
}

/// Returns an object with the value at the pointer.
fn with_field(object: &Value, at: &str, value: &Value) -> Value {
    let mut object = object.clone();
    let (mut place, steps) = (&mut object, at.split('/').skip(1));
    for step in steps.map(|step| step.replace("~1", "/")) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[step.as_str()];
    }
    *place = value.clone();
    object
}

fn says(client: &Client, path: &str, at: &str) -> Value {
    client.get(path).expect(200).pointer(at).cloned().unwrap_or_default()
}

fn furnish(scene: &Scene) -> Client {
    let [alice, _] = scene.clients_of("tA");
    let alice = alice.in_workspace(&scene.mine.path);
    let child = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "child"}});
    alice
        .post("/apis/tenancy.kcp.io/v1alpha1/workspaces", &child)
        .expect(201);
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "own"},
        "spec": {"reference": {"export": {"path": scene.mine.path, "name": "private"}}}});
    alice
        .post("/apis/apis.kcp.io/v1alpha2/apibindings", &binding)
        .expect(201);
    until("all is there", || {
        let is_there =
            says(&alice, WORKSPACE, "/status/phase") == "Ready" && says(&alice, BINDING, "/status/phase") == "Bound";
        is_there.then_some(())
    });
    scene.settle();
    alice
}

const APPLY: &str = "application/apply-patch+yaml";

/// Returns every form of a write of the value.
fn forms(object: &Value, at: &str, value: &Value) -> [(&'static str, &'static str, Value); 4] {
    let all = with_field(object, at, value);
    let alone = with_field(&json!({}), at, value);
    let mut applied = alone.clone();
    for at in ["apiVersion", "kind"] {
        applied[at] = object[at].clone();
    }
    applied["metadata"]["name"] = object["metadata"]["name"].clone();
    let operations = [("test", "/kind", &object["kind"]), ("add", at, value)];
    let operations = operations.map(|(op, path, value)| json!({"op": op, "path": path, "value": value}));
    [
        ("PUT", "application/json", all),
        ("PATCH", "application/merge-patch+json", alone),
        ("PATCH", "application/json-patch+json", json!(operations)),
        ("PATCH", APPLY, applied),
    ]
}

fn send(client: &Client, path: &str, (method, kind, body): &(&str, &str, Value)) -> Answer {
    let query = if *kind == APPLY {
        "?fieldManager=forger&force=true"
    } else {
        ""
    };
    let body = Bytes::from(body.to_string());
    let headers = [("content-type", *kind)];
    client
        .try_send(method, &format!("{path}{query}"), &headers, body)
        .unwrap()
}

#[test]
fn no_verb_writes_fields_of_the_server() {
    let scene = Scene::new();
    let alice = furnish(&scene);
    let admin = scene.clients_of("masters")[0].in_workspace(&scene.mine.path);
    let mut changed = Vec::new();
    for (path, at, value) in forged_fields(&scene.theirs.cluster) {
        let was = says(&admin, path, at);
        for part in ["", "/status"] {
            let sent = forms(&alice.get(path).expect(200), at, &value).map(|form| {
                let answer = send(&alice, &format!("{path}{part}"), &form);
                assert!(answer.code < 500, "{form:?} {path}{part} {at}: {}", answer.text);
                format!("{} {}: {}", form.0, form.1, answer.code)
            });
            let now = says(&admin, path, at);
            if now != was {
                changed.push(format!("{path}{part} {at}: {was} -> {now} by one of {sent:?}"));
                // Restores the previous value for the next writes.
                let back = with_field(&json!({}), at, &was);
                admin.merge(path, &back);
                admin.merge(&format!("{path}/status"), &back);
            }
        }
    }
    assert!(changed.is_empty(), "{changed:#?}");
    // Alice sets her own fields in each of these forms.
    for path in [CLUSTER, WORKSPACE, BINDING, EXPORT] {
        for i in 0..4 {
            let (at, value) = ("/metadata/labels/mine", json!(format!("v{i}")));
            let form = &forms(&alice.get(path).expect(200), at, &value)[i];
            send(&alice, path, form).expect(200);
            assert_eq!(says(&admin, path, at), value, "{form:?}");
        }
    }
}

/// A malformed annotation stops no reconciler (Argo's CVE-2026-40886): it still processes later
/// objects.
#[test]
fn malformed_annotations_do_not_affect_other_tenants() {
    let scene = Scene::new();
    furnish(&scene);
    let master = scene.clients_of("masters")[0].in_workspace(&scene.mine.path);
    let long = "x".repeat(10_000);
    let keys = [
        "kcp.io/path",
        "kcp.io/cluster",
        "core.kcp.io/max-total-objects",
        "core.kcp.io/inactive",
        "core.kcp.io/shard",
        "authorization.kcp.io/required-groups",
        "experimental.tenancy.kcp.io/owner",
        "internal.tenancy.kcp.io/cluster",
        "internal.apis.kcp.io/export",
        "experimental.quota.kcp.io/cluster-scoped",
        "apis.kcp.io/skip-endpointslice",
        "kubectl.kubernetes.io/last-applied-configuration",
    ];
    for path in [CLUSTER, WORKSPACE, BINDING, EXPORT] {
        let before = master.get(path).expect(200)["metadata"]["annotations"].clone();
        for nonsense in ["", "{", "\u{0}\u{1b}[2J\u{202e}", "-9223372036854775809", long.as_str()] {
            for key in keys {
                let answer = master.merge(path, &json!({"metadata": {"annotations": {key: nonsense}}}));
                assert!(
                    answer.code < 500 || answer.code == 503,
                    "{path} {key} {nonsense:.20}: {}",
                    answer.text
                );
            }
            let back: serde_json::Map<String, Value> = keys
                .iter()
                .map(|key| ((*key).to_owned(), before[key].clone()))
                .collect();
            assert!(master.merge(path, &json!({"metadata": {"annotations": back}})).code < 500);
        }
    }
    // Another tenant's workspace, binding and quota go on.
    let [admin, _] = scene.clients_of("pA");
    let (path, _) = workspace(&admin, "after-nonsense");
    let there = admin.in_workspace(&path);
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "own"},
        "spec": {"reference": {"export": {"path": scene.theirs.path, "name": "private"}}}});
    there
        .post("/apis/apis.kcp.io/v1alpha2/apibindings", &binding)
        .expect(201);
    until("it is bound", || {
        (says(&there, BINDING, "/status/phase") == "Bound").then_some(())
    });
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"configmaps": "5"}}});
    there
        .post("/api/v1/namespaces/default/resourcequotas", &quota)
        .expect(201);
    until("it is counted", || {
        (says(
            &there,
            "/api/v1/namespaces/default/resourcequotas/q",
            "/status/hard/configmaps",
        ) == "5")
            .then_some(())
    });
    assert!(!scene.server.log().contains("panicked"), "{}", scene.server.log());
}
