//! Attacks by a tenant, and by a reader, in the tenant's own workspace.

use super::{row::sends, *};

const GADGETS: &str = "/apis/doors.example.io/v1/namespaces/default/gadgets";
const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition(plural: &str, group: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": "Gadget"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema,
                    "subresources": {"status": {}, "scale": scale}},
                {"name": "v0", "served": false, "storage": false, "schema": schema},
            ],
        },
    })
}

/// Creates a gadget, and a service account that may read everything but secrets.
fn furnish(scene: &Scene) -> String {
    let admin = scene.server.admin();
    let mine = admin.in_workspace(&scene.mine.path);
    mine.post(DEFINITIONS, &definition("gadgets", "doors.example.io"))
        .expect(201);
    until("gadgets are served", || (mine.get(GADGETS).code == 200).then_some(()));
    let gadget = json!({"apiVersion": "doors.example.io/v1", "kind": "Gadget", "metadata": {"name": "g"},
        "spec": {"replicas": 1}});
    mine.post(GADGETS, &gadget).expect(201);
    let reader = token(&mine, "reader");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
    });
    mine.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding)
        .expect(201);
    let reads = scene
        .server
        .client(Who::Token(reader.clone()))
        .in_workspace(&scene.mine.path);
    reads.get(MAPS).expect(200);
    reader
}

fn binding(path: &str, export: &str) -> Value {
    json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "forced"},
        "spec": {"reference": {"export": {"path": path, "name": export}}}})
}

#[test]
fn a_reader_cannot_write_by_any_verb() {
    let scene = Scene::new();
    let reader = furnish(&scene);
    let gadget = format!("{GADGETS}/g");
    let yes = [
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    ];
    let applied = [("content-type", "application/apply-patch+yaml")];
    let mut requests = vec![
        (33, format!("POST /clusters/{{mine}}{MAPS}")),
        (33, format!("PUT /clusters/{{mine}}{MAPS}/kube-root-ca.crt")),
        (33, format!("PATCH /clusters/{{mine}}{MAPS}/kube-root-ca.crt")),
        (33, format!("DELETE /clusters/{{mine}}{MAPS}/kube-root-ca.crt")),
        (33, format!("DELETE /clusters/{{mine}}{MAPS}")),
        (37, format!("POST /clusters/{{mine}}{MAPS}?dryRun=All")),
        (37, format!("PATCH /clusters/{{mine}}{gadget}?dryRun=All")),
        (38, "GET /clusters/{mine}/api/v1/namespaces/default/secrets".to_owned()),
        (
            40,
            "POST /clusters/{mine}/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(),
        ),
        (
            41,
            "POST /clusters/{mine}/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(),
        ),
        (
            42,
            "DELETE /clusters/{mine}/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin".to_owned(),
        ),
    ];
    for part in ["", "/status", "/scale"] {
        for method in ["PUT", "PATCH"] {
            requests.push((35, format!("{method} /clusters/{{mine}}{gadget}{part}")));
        }
    }
    let mut rows: Vec<Row<'_>> = requests
        .iter()
        .map(|(number, request)| row(*number, &reader, request, &[403]))
        .collect();
    let (apply, secrets) = (
        format!("PATCH /clusters/{{mine}}{MAPS}/applied?fieldManager=x"),
        "GET /clusters/{mine}/api/v1/namespaces/default/secrets",
    );
    rows.push(with(row(34, &reader, &apply, &[403]), &applied));
    for accept in yes {
        rows.push(with(row(38, &reader, secrets, &[403]), &[("accept", accept)]));
    }
    refuse(&scene, &rows);
}

#[test]
fn ambiguous_paths_are_refused() {
    let scene = Scene::new();
    furnish(&scene);
    let theirs = scene.server.admin().in_workspace(&scene.theirs.path);
    let page = theirs.get("/api/v1/configmaps?limit=1").expect(200);
    let token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    assert!(!token.is_empty(), "{page}");
    let revision = page["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut requests: Vec<(u8, String, &[u16])> = vec![
        (20, "GET /clusters/ROOT:B/api/v1/configmaps".to_owned(), &[400, 403, 404]),
        (20, "GET /clusters/{mine}%C0%AF/api/v1/configmaps".to_owned(), &[400]),
        // A continue token, whatever its origin, moves only within the requested list and shows
        // nothing else.
        (22, format!("GET /clusters/{{mine}}/api/v1/configmaps?continue={token}"), &[200, 400, 410]),
        (22, format!("GET /clusters/{{mine}}/api/v1/configmaps?watch=true&timeoutSeconds=1&resourceVersion={revision}"), &[200, 410]),
        (23, "GET /clusters/{mine}/api/v1/configmaps?continue=e30".to_owned(), &[400]),
        (23, "GET /clusters/{mine}/api/v1/configmaps?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi9tYXAifQ".to_owned(), &[400]),
        (24, "GET /clusters/{mine}/api/v1/configmaps?labelSelector=a%2F..%2Fb%3Dc".to_owned(), &[400]),
        (24, "GET /clusters/{mine}/api/v1/configmaps?fieldSelector=data.a%3Dx".to_owned(), &[400]),
        (25, "GET /clusters/{mine}/apis/doors.example.io/v1/gadgets/g".to_owned(), &[404]),
        (25, "GET /clusters/{mine}/apis/rbac.authorization.k8s.io/v1/namespaces/default/clusterroles/x".to_owned(), &[404]),
        (27, "GET /clusters/{mine}/apis/other.example.io/v1/namespaces/default/gadgets".to_owned(), &[404]),
        (27, "GET /clusters/{mine}/apis/apis.kcp.io/v1alpha2/gadgets".to_owned(), &[404]),
        (28, "GET /clusters/{mine}/apis/doors.example.io/v0/namespaces/default/gadgets/g".to_owned(), &[404]),
        (39, "GET /clusters/{mine}/openapi/v3/apis/other.example.io/v1".to_owned(), &[404]),
        (54, "GET /services/apiexport/{theirs}/private/clusters/*/api/v1/configmaps".to_owned(), &[403, 404]),
    ];
    for namespace in ["..", ".", "%2e%2e", "a%2Fb", "..%2Fx"] {
        requests.push((
            26,
            format!("GET /clusters/{{mine}}/api/v1/namespaces/{namespace}/configmaps"),
            &[400],
        ));
    }
    let rows: Vec<Row<'_>> = requests
        .iter()
        .map(|(number, request, expect)| row(*number, "tA", request, expect))
        .collect();
    refuse(&scene, &rows);
    refuse_workspace_names(&scene);
}

/// Sends names that no workspace may have, and requests to workspaces that do not exist.
fn refuse_workspace_names(scene: &Scene) {
    let long = "a".repeat(300);
    let (make, workspace) = (
        format!("POST /clusters/{{mine}}{WORKSPACES}"),
        |name: &str| json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}}),
    );
    let names = [
        "system:x",
        "system:bound-crds",
        "a:b",
        "root:a",
        "user:alice",
        "*",
        "~",
        "Upper",
        "..",
        "a/b",
        "-a",
        "a_b",
        "",
        long.as_str(),
    ];
    let mut rows: Vec<Row<'_>> = names
        .iter()
        .map(|name| sends(row(31, "tA", &make, &[422]), workspace(name)))
        .collect();
    let nowhere = [
        format!("POST /clusters/root:nowhere{MAPS}"),
        format!("POST /clusters/{{mine}}:nowhere{MAPS}"),
        format!("POST /clusters/nowhere{MAPS}"),
    ];
    for request in &nowhere {
        rows.extend(["tA", "pA"].map(|actor| row(32, actor, request, &[403, 404])));
    }
    refuse(scene, &rows);
}

#[test]
fn an_owner_has_no_platform_rights() {
    let scene = Scene::new();
    furnish(&scene);
    let (bind, define) = (
        format!("POST /clusters/{{mine}}{BINDINGS}"),
        format!("POST /clusters/{{mine}}{DEFINITIONS}"),
    );
    let status = format!("PATCH /clusters/{{mine}}{BINDINGS}/any/status");
    let own = "/clusters/{mine}/apis/core.kcp.io/v1alpha1/logicalclusters/cluster";
    let (delete, finish) = (format!("DELETE {own}"), format!("PATCH {own}"));
    let switched_off = json!({"metadata": {"annotations": {"core.kcp.io/inactive": "true"}}});
    let rows = [
        sends(row(43, "tA", &bind, &[403]), binding("{theirs}", "private")),
        sends(row(44, "tA", &bind, &[403]), binding("{theirs}", "absent")),
        sends(row(44, "tA", &bind, &[403]), binding("root:nowhere", "private")),
        sends(
            row(45, "tA", &status, &[403]),
            json!({"status": {"phase": "Bound", "apiExportClusterName": "root"}}),
        ),
        sends(row(47, "tA", &define, &[422]), definition("gadgets", "storage.k8s.io")),
        sends(
            row(47, "tA", &define, &[403, 422]),
            definition("gadgets", "apis.kcp.io"),
        ),
        row(51, "tA", &delete, &[403]),
        sends(row(51, "tA", &finish, &[403]), switched_off),
    ];
    refuse(&scene, &rows);
    // No text reveals the existence of objects that alice may not read.
    let alice = scene.server.client(scene.who("tA")).in_workspace(&scene.mine.path);
    let texts = [
        (scene.theirs.path.as_str(), "private"),
        (&scene.theirs.path, "absent"),
        ("root:nowhere", "private"),
    ]
    .map(|(path, export)| {
        let answer = alice.post(BINDINGS, &binding(path, export)).expect(403);
        answer["message"]
            .as_str()
            .unwrap()
            .replace(path, "PATH")
            .replace(export, "EXPORT")
    });
    assert_eq!(texts[0], texts[1]);
    assert_eq!(texts[0], texts[2]);
}
