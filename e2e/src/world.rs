//! Workspaces for tests.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::{Client, Server, Who, until};

const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";

/// Returns a name that no other test has.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "{prefix}-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// Creates a workspace below `root` and waits until it is ready. Returns its path, and the name of
/// its logical cluster.
pub fn workspace(admin: &Client, prefix: &str) -> (String, String) {
    ready_workspace(admin, "root", &unique(prefix), json!({}))
}

/// Creates a workspace administered by a user. Only masters create workspaces for others.
pub fn workspace_owned_by(server: &Server, user: &str) -> (String, String) {
    let owner = json!({"experimental.tenancy.kcp.io/owner": json!({"username": user}).to_string()});
    ready_workspace(&server.client(Who::ShardAdmin), "root", &unique(user), owner)
}

/// Creates a workspace of this name and with these annotations, and waits until it is ready.
pub fn ready_workspace(admin: &Client, parent: &str, name: &str, annotations: Value) -> (String, String) {
    let parent_of = admin.in_workspace(parent);
    let wanted = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
        "metadata": {"name": name, "annotations": annotations},
    });
    parent_of.post(WORKSPACES, &wanted).expect(201);
    let cluster = until("the workspace is ready", || {
        let found = parent_of.get(&format!("{WORKSPACES}/{name}")).expect(200);
        (found["status"]["phase"] == "Ready").then(|| found["spec"]["cluster"].as_str().unwrap().to_owned())
    });
    (format!("{parent}:{name}"), cluster)
}

/// Publishes the seed's widgets in a workspace: v1 has `spec.firstName`, v2 `spec.name.first` and
/// `spec.more`, which v1 cannot see.
pub fn publish_widgets(client: &Client) {
    let text = json!({"type": "string"});
    let version = |name: &str, spec: Value| {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": schema})
    };
    let v1 = version("v1", json!({"firstName": text}));
    let v2 = version(
        "v2",
        json!({"name": {"type": "object", "properties": {"first": text}}, "more": text}),
    );
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let rules = |from: &str, to: &str, field: &str, destination: &str| {
        let rule = json!({"field": field, "destination": destination});
        json!({"from": from, "to": to, "rules": [rule]})
    };
    let schema = json!({"group": "example.io", "scope": "Namespaced", "names": names, "versions": [v1, v2]});
    let conversions = json!([
        rules("v1", "v2", ".spec.firstName", ".spec.name.first"),
        rules("v2", "v1", ".spec.name.first", ".spec.firstName"),
    ]);
    let name = "v1.widgets.example.io";
    for (resource, kind, name, spec) in [
        ("apiresourceschemas", "APIResourceSchema", name, schema),
        (
            "apiconversions",
            "APIConversion",
            name,
            json!({ "conversions": conversions }),
        ),
        (
            "apiexports",
            "APIExport",
            "widgets",
            json!({"latestResourceSchemas": [name]}),
        ),
    ] {
        let object =
            json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        client
            .post(&format!("/apis/apis.kcp.io/v1alpha1/{resource}"), &object)
            .expect(201);
    }
}

/// Creates a workspace that exports the seed's widgets to itself, and binds them.
pub fn with_widgets(server: &Server) -> String {
    let admin = server.admin();
    let (path, _) = workspace(&admin, "kube");
    let client = admin.in_workspace(&path);
    publish_widgets(&client);
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "widgets"},
        "spec": {"reference": {"export": {"name": "widgets"}}}});
    client
        .post("/apis/apis.kcp.io/v1alpha2/apibindings", &binding)
        .expect(201);
    until("widgets are served", || {
        (client.get("/apis/example.io/v2/widgets").code == 200).then_some(())
    });
    path
}
