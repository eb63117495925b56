//! Decisions about logical clusters, in worlds of YAML documents; the plans are in `plans/`.

use crate::logicalcluster::LogicalClusters;
use crate::testing::plan;
use expect_test::expect_file;
use insula_api::ClusterName;

/// A LogicalCluster with more metadata and a status.
fn cluster(metadata: &str, status: &str) -> String {
    format!(
        "{{apiVersion: core.kcp.io/v1alpha1, kind: LogicalCluster, metadata: {{name: cluster, {metadata}}}, \
         status: {status}}}\n"
    )
}

async fn decide(documents: &[&str]) -> String {
    plan(LogicalClusters::new, &ClusterName::root(), &documents.join("\n---\n")).await
}

#[tokio::test]
async fn a_cluster_is_ready_without_initializers() {
    let plan = decide(&[&cluster("", "{phase: Initializing}")]).await;
    expect_file!["../plans/ready.yaml"].assert_eq(&plan);
}

#[tokio::test]
async fn an_annotation_makes_a_cluster_inactive() {
    let inactive = cluster(
        "labels: {tenancy.kcp.io/phase: Ready}, annotations: {core.kcp.io/inactive: 'true'}",
        "{phase: Ready}",
    );
    expect_file!["../plans/inactive.yaml"].assert_eq(&decide(&[&inactive]).await);
}

#[tokio::test]
async fn terminators_come_before_content() {
    let going = "finalizers: [core.kcp.io/logicalcluster-deletion, kcp.io/has-terminators], \
                 deletionTimestamp: '2026-01-01T00:00:00Z'";
    let content = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: default}}";
    let shell = "{apiVersion: v1, kind: Namespace, metadata: {name: default}}";
    let held = cluster(going, "{phase: Terminating, terminators: ['root:careful']}");
    let plan = decide(&[&held, content, shell]).await;
    expect_file!["../plans/terminating.yaml"].assert_eq(&plan);
    let released = cluster(going, "{phase: Terminating}");
    let plan = decide(&[&released, content, shell]).await;
    expect_file!["../plans/delete.yaml"].assert_eq(&plan);
}
