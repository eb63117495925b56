//! Decisions about workspaces, in worlds of YAML documents; the plans are in `plans/`.

use crate::testing::plan;
use crate::workspace::Workspaces;
use expect_test::expect_file;
use insula_api::{ClusterName, ObjectKey};
use insula_catalog::ids;

const ROOT: &str = "
apiVersion: core.kcp.io/v1alpha1
kind: LogicalCluster
metadata: {name: cluster, annotations: {kcp.io/path: root}}
status: {phase: Ready}
---
apiVersion: core.kcp.io/v1alpha1
kind: Shard
metadata: {name: root}
---
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceType
metadata: {name: slow, annotations: {kcp.io/path: root}}
spec: {initializer: true}
";

const NEW: &str = "
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: a, uid: 00000000-0000-0000-0000-00000000000a}
spec: {type: {name: slow, path: root}}
";

const SCHEDULED: &str = "
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: a, finalizers: [core.kcp.io/logicalcluster]}
spec: {cluster: child}
";

const GOING: &str = "
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: a, finalizers: [core.kcp.io/logicalcluster], deletionTimestamp: '2026-01-01T00:00:00Z'}
spec: {cluster: child}
";

/// The LogicalCluster of the child, with a status.
fn child(status: &str) -> String {
    format!(
        "{{apiVersion: core.kcp.io/v1alpha1, kind: LogicalCluster, metadata: {{name: cluster, generation: 1, \
         annotations: {{kcp.io/cluster: child}}}}, status: {status}}}\n"
    )
}

async fn decide(documents: &[&str]) -> String {
    let key = ObjectKey::cluster_scoped(ids::workspaces(), ClusterName::root(), "a");
    plan(Workspaces::new, &key, &documents.join("\n---\n")).await
}

#[tokio::test]
async fn a_new_workspace_begins_with_its_logical_cluster() {
    expect_file!["../plans/new.yaml"].assert_eq(&decide(&[ROOT, NEW]).await);
}

#[tokio::test]
async fn without_its_type_a_workspace_is_not_scheduled() {
    let untyped = NEW.replace("slow", "missing");
    expect_file!["../plans/no_type.yaml"].assert_eq(&decide(&[ROOT, &untyped]).await);
}

#[tokio::test]
async fn a_workspace_mirrors_its_logical_cluster() {
    let initializing = child("{phase: Initializing, initializers: ['root:slow']}");
    let plan = decide(&[ROOT, SCHEDULED, &initializing]).await;
    expect_file!["../plans/mirror.yaml"].assert_eq(&plan);
}

#[tokio::test]
async fn the_deletion_of_a_workspace_is_passed_on() {
    let ready = child("{phase: Ready, terminators: ['root:careful']}");
    let plan = decide(&[ROOT, GOING, &ready]).await;
    expect_file!["../plans/delete.yaml"].assert_eq(&plan);
    expect_file!["../plans/released.yaml"].assert_eq(&decide(&[ROOT, GOING]).await);
}

/// While a deletion may be taken back, the workspace says so, and the logical cluster is not
/// touched. After that the deletion goes on as any other, and requests find the workspace again.
#[tokio::test]
async fn a_grace_period_passes_before_the_deletion() {
    let ready = child("{phase: Ready}");
    let at = |time: &str| {
        let grace = format!("deletionGracePeriodSeconds: 60, deletionTimestamp: '{time}'");
        GOING.replace("deletionTimestamp: '2026-01-01T00:00:00Z'", &grace)
    };
    let waiting = decide(&[ROOT, &at("2999-01-01T00:00:00Z"), &ready]).await;
    for part in [
        "phase: Deleting",
        "reason: GracePeriod",
        "kept until 2999-01-01T00:00:00Z",
    ] {
        assert!(waiting.contains(part), "{part} in {waiting}");
    }
    assert!(!waiting.contains("logicalclusters"), "{waiting}");
    let over = decide(&[ROOT, &at("2026-01-01T00:00:00Z"), &ready]).await;
    for part in [
        "update: logicalclusters.core.kcp.io child/cluster",
        "deletionGracePeriodSeconds: 0",
    ] {
        assert!(over.contains(part), "{part} in {over}");
    }
    assert!(!over.contains("GracePeriod\n"), "{over}");
}

/// A deletion that was taken back leaves no condition.
#[tokio::test]
async fn a_workspace_that_is_back_is_ready() {
    let back = format!(
        "{SCHEDULED}status: {{phase: Deleting, conditions: [{{type: WorkspaceContentDeleted, status: 'False'}}]}}\n"
    );
    let plan = decide(&[ROOT, &back, &child("{phase: Ready}")]).await;
    assert!(plan.contains("phase: Ready"), "{plan}");
    assert!(!plan.contains("type: WorkspaceContentDeleted"), "{plan}");
}
