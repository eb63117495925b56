//! Decisions about logical clusters, in worlds of YAML documents; the plans are in `plans/`.

use super::LogicalClusters;
use crate::testing::plan;
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
    assert_eq!(plan, include_str!("plans/ready.yaml"));
}

#[tokio::test]
async fn an_annotation_makes_a_cluster_inactive() {
    let inactive = cluster(
        "labels: {tenancy.kcp.io/phase: Ready}, annotations: {core.kcp.io/inactive: 'true'}",
        "{phase: Ready}",
    );
    assert_eq!(decide(&[&inactive]).await, include_str!("plans/inactive.yaml"));
}

#[tokio::test]
async fn terminators_come_before_content() {
    let going = "finalizers: [core.kcp.io/logicalcluster-deletion, kcp.io/has-terminators], \
                 deletionTimestamp: '2026-01-01T00:00:00Z'";
    let content = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: default}}";
    let shell = "{apiVersion: v1, kind: Namespace, metadata: {name: default}}";
    let held = cluster(going, "{phase: Terminating, terminators: ['root:careful']}");
    let plan = decide(&[&held, content, shell]).await;
    assert_eq!(plan, include_str!("plans/terminating.yaml"));
    let released = cluster(going, "{phase: Terminating}");
    let plan = decide(&[&released, content, shell]).await;
    assert_eq!(plan, include_str!("plans/delete.yaml"));
}
