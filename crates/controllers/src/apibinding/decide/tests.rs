//! Decisions about bindings, in worlds of YAML documents; the plans are in `plans/`.

use crate::apibinding::ApiBindings;
use crate::testing::plan;
use expect_test::expect_file;
use insula_api::{ClusterName, ObjectKey};
use insula_catalog::ids;

const EXPORT: &str = "
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: widgets}
spec: {resources: [{group: example.io, name: widgets, schema: today.widgets.example.io}]}
status: {identityHash: abc}
";

const BINDING: &str = "
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: widgets, finalizers: [apis.kcp.io/apibinding-finalizer], annotations: {kcp.io/cluster: tenant}}
spec: {reference: {export: {path: root, name: widgets}}}
";

const TENANT: &str = "
apiVersion: core.kcp.io/v1alpha1
kind: LogicalCluster
metadata: {name: cluster, annotations: {kcp.io/cluster: tenant}}
status: {phase: Ready}
---
apiVersion: core.kcp.io/v1alpha1
kind: LogicalCluster
metadata: {name: cluster}
status: {phase: Ready}
";

fn binding(cluster: &str, name: &str) -> ObjectKey {
    let cluster = ClusterName::parse(cluster).expect("a cluster");
    ObjectKey::cluster_scoped(ids::apibindings(), cluster, name)
}

async fn decide(documents: &[&str]) -> String {
    plan(ApiBindings::new, &binding("tenant", "widgets"), &documents.join("---")).await
}

#[tokio::test]
async fn without_its_export_a_binding_waits() {
    let plan = decide(&[TENANT, BINDING]).await;
    expect_file!["../plans/no_export.yaml"].assert_eq(&plan);
}

#[tokio::test]
async fn without_a_schema_of_its_export_a_binding_tells_whom_to_contact() {
    let plan = decide(&[TENANT, BINDING, EXPORT]).await;
    expect_file!["../plans/no_schema.yaml"].assert_eq(&plan);
}

#[tokio::test]
async fn a_binding_that_goes_leaves_its_routes_to_its_successor() {
    let going = BINDING.replace(
        "{name: widgets,",
        "{name: widgets, deletionTimestamp: 2026-01-01T00:00:00Z, labels: {internal.apis.kcp.io/export: x},",
    );
    let going = going
        + "status: {phase: Bound, boundResources: [{group: example.io, resource: widgets, schema: \
        {name: today.widgets.example.io, UID: u, identityHash: abc}, storageVersions: [v1]}]}\n";
    let successor = BINDING.replace(
        "{name: widgets, f",
        "{name: other, labels: {internal.apis.kcp.io/export: x}, f",
    );
    let route = "
apiVersion: internal.insula.io/v1
kind: ResourceRoute
metadata: {name: widgets.example.io, annotations: {kcp.io/cluster: tenant}}
spec: {binding: widgets, bundle: b, identity: abc}
";
    let plan = decide(&[TENANT, &going, &successor, EXPORT, route]).await;
    expect_file!["../plans/successor.yaml"].assert_eq(&plan);
}
