use crate::testing::TestControlPlane;
use insula_meter::ServerWork;
use serde_json::json;

const WORKSPACES: (&str, &str) = ("tenancy.kcp.io/v1alpha1", "workspaces");

#[tokio::test]
async fn a_workspace_waits_for_its_initializers() {
    let rig = TestControlPlane::new().await;
    let slow = "{apiVersion: tenancy.kcp.io/v1alpha1, kind: WorkspaceType, metadata: {name: slow}, \
                spec: {initializer: true, extend: {with: [{name: universal, path: root}]}}}";
    rig.create("root", "workspacetypes", slow).await;
    let workspace =
        "{apiVersion: tenancy.kcp.io/v1alpha1, kind: Workspace, metadata: {name: a}, spec: {type: {name: slow}}}";
    rig.create("root", "workspaces", workspace).await;
    rig.settle().await;
    let waiting = rig.get("root", WORKSPACES.0, WORKSPACES.1, "a").unwrap();
    assert_eq!(waiting["status"]["phase"], "Initializing");
    assert_eq!(waiting["status"]["initializers"], json!(["root:slow"]));
    let condition = insula_api::condition(&waiting, "WorkspaceInitialized").unwrap();
    assert_eq!(condition["message"], "Initializers still exist: [root:slow]");

    let done = json!({"status": {"initializers": null}});
    rig.patch("root:a", "core.kcp.io/v1alpha1", "logicalclusters", "cluster", done)
        .await
        .unwrap();
    rig.settle().await;
    let ready = rig.get("root", WORKSPACES.0, WORKSPACES.1, "a").unwrap();
    assert_eq!(ready["status"]["phase"], "Ready");
    assert!(ready["status"].get("initializers").is_none());

    let inactive = json!({"metadata": {"annotations": {"core.kcp.io/inactive": "true"}}});
    rig.patch("root:a", "core.kcp.io/v1alpha1", "logicalclusters", "cluster", inactive)
        .await
        .unwrap();
    rig.settle().await;
    assert_eq!(
        rig.get("root", WORKSPACES.0, WORKSPACES.1, "a").unwrap()["status"]["phase"],
        "Inactive"
    );
}

#[tokio::test]
async fn types_without_a_shard_that_fits_wait_for_one() {
    let rig = TestControlPlane::new().await;
    let workspace = "{apiVersion: tenancy.kcp.io/v1alpha1, kind: Workspace, metadata: {name: a}, \
                     spec: {location: {selector: {matchLabels: {region: moon}}}}}";
    rig.create("root", "workspaces", workspace).await;
    rig.settle().await;
    let waiting = rig.get("root", WORKSPACES.0, WORKSPACES.1, "a").unwrap();
    assert_eq!(waiting["status"]["phase"], "Scheduling");
    let why = insula_api::condition(&waiting, "WorkspaceScheduled").unwrap();
    assert_eq!(
        (&why["status"], &why["reason"]),
        (&json!("False"), &json!("Unschedulable"))
    );
    assert_eq!(why["message"], "No available shards to schedule the workspace.");
    let moved = json!({"metadata": {"labels": {"region": "moon"}}});
    let shard = ("core.kcp.io/v1alpha1", "shards");
    rig.patch("root", shard.0, shard.1, "root", moved).await.unwrap();
    rig.settle().await;
    let ready = |name: &str| rig.get("root", WORKSPACES.0, WORKSPACES.1, name).unwrap()["status"]["phase"] == "Ready";
    assert!(ready("a"));

    let closed = json!({"metadata": {"annotations": {"experimental.core.kcp.io/unschedulable": "true"}}});
    rig.patch("root", shard.0, shard.1, "root", closed).await.unwrap();
    let other = "{apiVersion: tenancy.kcp.io/v1alpha1, kind: Workspace, metadata: {name: b}}";
    rig.create("root", "workspaces", other).await;
    rig.settle().await;
    assert!(!ready("b") && ready("a"));
}

#[tokio::test]
async fn a_workspace_waits_for_its_terminators() {
    let rig = TestControlPlane::new().await;
    let careful = "{apiVersion: tenancy.kcp.io/v1alpha1, kind: WorkspaceType, metadata: {name: careful}, \
                   spec: {terminator: true, extend: {with: [{name: universal, path: root}]}}}";
    rig.create("root", "workspacetypes", careful).await;
    let workspace =
        "{apiVersion: tenancy.kcp.io/v1alpha1, kind: Workspace, metadata: {name: a}, spec: {type: {name: careful}}}";
    rig.create("root", "workspaces", workspace).await;
    rig.settle().await;
    let logical = rig
        .get("root:a", "core.kcp.io/v1alpha1", "logicalclusters", "cluster")
        .unwrap();
    assert_eq!(logical["spec"]["terminators"], json!(["root:careful"]));
    assert_eq!(logical["status"]["phase"], "Ready");
    rig.delete("root", WORKSPACES.0, WORKSPACES.1, "a").await.unwrap();
    rig.settle().await;
    let dying = rig.get("root", WORKSPACES.0, WORKSPACES.1, "a").unwrap();
    assert_eq!(dying["status"]["phase"], "Terminating");
    assert_eq!(dying["status"]["terminators"], json!(["root:careful"]));
    assert!(
        rig.get("root:a", "v1", "namespaces", "default").is_some(),
        "its content waits too"
    );
    let done = json!({"status": {"terminators": null}});
    rig.patch("root:a", "core.kcp.io/v1alpha1", "logicalclusters", "cluster", done)
        .await
        .unwrap();
    rig.settle().await;
    assert!(rig.get("root", WORKSPACES.0, WORKSPACES.1, "a").is_none());
}

#[tokio::test]
async fn a_broken_workspace_is_unavailable_until_it_is_not() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "a").await;
    let broken = |status: &str| {
        let conditions = json!([{"type": "WorkspaceReachable", "status": status, "reason": "Fire", "message": "it \
            burns",
            "severity": "Error", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        json!({"status": {"conditions": conditions}})
    };
    let phase = || rig.get("root", WORKSPACES.0, WORKSPACES.1, "a").unwrap()["status"]["phase"].clone();
    for (status, want) in [("False", "Unavailable"), ("True", "Ready")] {
        rig.patch("root", WORKSPACES.0, WORKSPACES.1, "a", broken(status))
            .await
            .unwrap();
        rig.settle().await;
        assert_eq!(phase(), want);
        let path = insula_api::ClusterPath::parse(&org).unwrap();
        let found = insula_catalog::locate::locate(&rig.registry.store.latest().for_server(ServerWork::Tool), &path);
        assert_eq!(found.is_ok(), want == "Ready");
    }
}
