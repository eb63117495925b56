use crate::testing::TestControlPlane;
use insula_catalog::ids;
use insula_meter::ServerWork;
use serde_json::json;

const WORKSPACES: (&str, &str) = ("tenancy.kcp.io/v1alpha1", "workspaces");
const LOGICAL: (&str, &str) = ("core.kcp.io/v1alpha1", "logicalclusters");

#[tokio::test]
async fn a_new_workspace_is_ready_after_one_transaction() {
    let rig = TestControlPlane::new().await;
    let yaml = "{apiVersion: tenancy.kcp.io/v1alpha1, kind: Workspace, metadata: {name: org}}";
    let created = rig.create("root", "workspaces", yaml).await;
    assert_eq!(created["status"], json!({"phase": "Scheduling"}));
    assert_eq!(
        created["spec"],
        json!({"type": {"name": "organization", "path": "root"}})
    );
    assert_eq!(rig.settle().await, 1);

    let workspace = rig.get("root", WORKSPACES.0, WORKSPACES.1, "org").unwrap();
    assert_eq!(workspace["spec"]["URL"], "https://server:6443/clusters/root:org");
    assert_eq!(workspace["status"]["phase"], "Ready");
    assert_eq!(workspace["metadata"]["generation"], 2);
    assert_eq!(
        workspace["metadata"]["finalizers"],
        json!(["core.kcp.io/logicalcluster"])
    );
    assert_eq!(
        workspace["metadata"]["labels"],
        json!({"tenancy.kcp.io/phase": "Ready"})
    );
    let conditions: Vec<_> = workspace["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (&c["type"], &c["status"]))
        .collect();
    assert_eq!(
        json!(conditions),
        json!([["WorkspaceInitialized", "True"], ["WorkspaceScheduled", "True"]])
    );

    let cluster = rig.cluster("root:org");
    let logical = rig.get("root:org", LOGICAL.0, LOGICAL.1, "cluster").unwrap();
    assert_eq!(
        logical["spec"]["initializers"],
        json!(["root:universal", "system:apibindings"])
    );
    assert_eq!(logical["spec"]["createdBy"]["username"], "alice");
    assert_eq!(
        logical["status"]["URL"],
        format!("https://server:6443/clusters/{cluster}")
    );
    assert_eq!(logical["metadata"]["annotations"]["kcp.io/path"], "root:org");
    for namespace in ["default", "kube-system"] {
        assert!(rig.get("root:org", "v1", "namespaces", namespace).is_some());
    }
    let bytes: usize = [ids::logicalclusters(), ids::namespaces(), ids::workspaces()]
        .into_iter()
        .flat_map(|id| {
            rig.registry
                .store
                .latest()
                .for_server(ServerWork::Tool)
                .range(&insula_api::Scope::everywhere(id), None, 99)
        })
        .filter(|entry| entry.key.cluster == cluster || &*entry.key.name == "org")
        .map(|entry| entry.object.size())
        .sum();
    assert!(bytes < 8 * 1024, "an empty workspace takes {bytes} bytes of objects");
}

#[tokio::test]
async fn a_workspace_that_goes_leaves_nothing() {
    let rig = TestControlPlane::new().await;
    let everything = |rig: &TestControlPlane| -> Vec<_> {
        let kinds = rig.registry.catalog.system().iter().map(|served| served.resource_id());
        kinds
            .chain([ids::resource_routes()])
            .flat_map(|id| rig.keys(id))
            .collect()
    };
    let before = everything(&rig);
    let org = rig.workspace("root", "org").await;
    rig.workspace(&org, "child").await;
    let held = "{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: default, finalizers: [a.io/hold]}}";
    rig.create("root:org:child", "configmaps", held).await;

    rig.delete("root", WORKSPACES.0, WORKSPACES.1, "org").await.unwrap();
    rig.settle().await;
    let child = rig.get("root:org:child", LOGICAL.0, LOGICAL.1, "cluster").unwrap();
    let condition = insula_api::condition(&child, "WorkspaceContentDeleted").unwrap();
    assert_eq!(
        condition["message"],
        "Some content in the logical cluster has finalizers remaining: a.io/hold in 1 resource instances"
    );
    assert_eq!(
        rig.get("root", WORKSPACES.0, WORKSPACES.1, "org").unwrap()["status"]["phase"],
        "Deleting"
    );

    let release = json!({"metadata": {"finalizers": null}});
    rig.patch("root:org:child", "v1", "configmaps", "default/held", release)
        .await
        .unwrap();
    rig.settle().await;
    assert_eq!(everything(&rig), before);
}

#[tokio::test]
async fn types_limit_parents_and_children() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    let yaml = |name: &str| {
        format!(
            "{{apiVersion: tenancy.kcp.io/v1alpha1, kind: Workspace, metadata: {{name: a}}, spec: {{type: {name}}}}}"
        )
    };
    let cases = [
        ("{name: nothing}", "workspace type \"nothing\" cannot be resolved"),
        (
            "{name: home, path: root}",
            "workspace type root:home cannot have any parent",
        ),
        (
            "{name: organization}",
            "workspace type root:organization only allows [root:root] parent workspaces, but parent type \
                root:universal only implements [root:universal]",
        ),
    ];
    for (workspace_type, why) in cases {
        let error = rig
            .try_create(&org, "workspaces", &yaml(workspace_type))
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("workspaces.tenancy.kcp.io \"a\" is forbidden: {why}")
        );
    }
    let cluster = "{apiVersion: tenancy.kcp.io/v1alpha1, kind: Workspace, metadata: {name: a}, spec: {cluster: mine}}";
    let error = rig.try_create(&org, "workspaces", cluster).await.unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("spec.Cluster can only be set by system privileged users"),
        "{error}"
    );
}
