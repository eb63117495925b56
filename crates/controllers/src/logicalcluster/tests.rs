use crate::testing::Rig;
use serde_json::json;

const WORKSPACES: (&str, &str) = ("tenancy.kcp.io/v1alpha1", "workspaces");

#[tokio::test]
async fn a_workspace_waits_for_its_initializers() {
    let rig = Rig::new().await;
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
