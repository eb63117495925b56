//! Usage of versions, from the notes of requests to the status of the export.

use crate::testing::TestControlPlane;
use insula_api::{Json, Timestamp};
use insula_catalog::ids;
use insula_registry::store_uses;
use serde_json::json;

const EXPORTS: (&str, &str) = ("apis.kcp.io/v1alpha2", "apiexports");
const SCHEMA: &str = "{apiVersion: apis.kcp.io/v1alpha1, kind: APIResourceSchema, metadata: {name: \
    today.widgets.example.io}, spec: {group: example.io, scope: Namespaced, names: {plural: widgets, singular: widget, \
    kind: Widget, listKind: WidgetList}, versions: [{name: v1, served: true, storage: false, schema: {type: object}}, \
    {name: v2, served: true, storage: true, schema: {type: object}}, \
    {name: v3, served: false, storage: false, schema: {type: object}}]}}";
const EXPORT: &str = "{apiVersion: apis.kcp.io/v1alpha2, kind: APIExport, metadata: {name: widgets}, spec: {resources: \
    [{name: widgets, group: example.io, schema: today.widgets.example.io}]}}";
const BINDING: &str = "{apiVersion: apis.kcp.io/v1alpha2, kind: APIBinding, metadata: {name: widgets}, spec: \
    {reference: {export: {path: root:provider, name: widgets}}}}";
const DAY: i64 = 86_400;

/// A provider, and two tenants who bind its export.
async fn provider_and_tenants() -> TestControlPlane {
    let rig = TestControlPlane::new().await;
    for name in ["provider", "one", "two"] {
        rig.workspace("root", name).await;
    }
    rig.create("root:provider", "apiresourceschemas", SCHEMA).await;
    rig.create("root:provider", "apiexports", EXPORT).await;
    for tenant in ["root:one", "root:two"] {
        rig.create(tenant, "apibindings", BINDING).await;
    }
    rig.settle().await;
    rig
}

/// Notes the use of a version, as a request does.
fn note(rig: &TestControlPlane, tenant: &str, version: &str) {
    let target = rig
        .target(tenant, &format!("example.io/{version}"), "widgets", "default")
        .expect("it is bound");
    let registry = &rig.registry;
    registry
        .uses
        .note(&target.served, &target.cluster, version, registry.clock.now());
}

fn usage(rig: &TestControlPlane) -> Json {
    let export = rig.get("root:provider", EXPORTS.0, EXPORTS.1, "widgets");
    export.expect("the export is there")["status"]["usage"].take()
}

fn row(version: &str, tenants: u32, last_used: Option<Timestamp>) -> Json {
    let mut row = json!({"group": "example.io", "resource": "widgets", "version": version, "tenants": tenants});
    if let Some(at) = last_used {
        row["lastUsed"] = json!(at.to_string());
    }
    row
}

#[tokio::test]
async fn an_export_shows_who_uses_its_versions() {
    let mut rig = provider_and_tenants().await;
    assert_eq!(usage(&rig), json!([row("v1", 0, None), row("v2", 0, None)]));

    let first = rig.registry.clock.now();
    note(&rig, "root:one", "v1");
    note(&rig, "root:one", "v2");
    note(&rig, "root:two", "v2");
    assert_eq!(store_uses(&rig.registry).await, 0);
    rig.settle().await;
    assert_eq!(
        usage(&rig),
        json!([row("v1", 1, Some(first)), row("v2", 2, Some(first))])
    );

    // The count forgets tenants after 30 days; the time of the last use stays.
    rig.tick(31 * DAY);
    let later = rig.registry.clock.now();
    note(&rig, "root:two", "v2");
    assert_eq!(store_uses(&rig.registry).await, 0);
    rig.settle().await;
    assert_eq!(
        usage(&rig),
        json!([row("v1", 0, Some(first)), row("v2", 1, Some(later))])
    );
}

#[tokio::test]
async fn a_record_is_written_once_an_hour() {
    let mut rig = provider_and_tenants().await;
    let revision = |rig: &TestControlPlane| rig.registry.store.latest().revision();
    for _ in 0..3 {
        note(&rig, "root:one", "v1");
    }
    assert_eq!(store_uses(&rig.registry).await, 0);
    let stored = revision(&rig);
    note(&rig, "root:one", "v1");
    store_uses(&rig.registry).await;
    assert_eq!(revision(&rig), stored, "the hour has its use");
    rig.tick(3_600);
    note(&rig, "root:one", "v1");
    store_uses(&rig.registry).await;
    assert!(revision(&rig) > stored, "the next hour");
}

/// Of two servers on one store each has notes of its own.
#[tokio::test]
async fn notes_of_two_servers_are_merged() {
    let rig = provider_and_tenants().await;
    note(&rig, "root:one", "v1");
    let mine = rig.registry.uses.noted(None, 9);
    rig.registry.uses.forget(&mine);
    let (route, noted) = mine[0].clone();
    let mut other = noted.clone();
    other.versions = [("v2".into(), Timestamp(rig.registry.clock.now().0 - DAY))].into();
    rig.registry.uses.add(vec![(route.clone(), other)]);
    store_uses(&rig.registry).await;
    // An older use of the other server changes nothing.
    let mut older = noted;
    older
        .versions
        .insert("v2".into(), Timestamp(rig.registry.clock.now().0 - 2 * DAY));
    rig.registry.uses.add(vec![(route, older)]);
    store_uses(&rig.registry).await;
    rig.settle().await;
    let now = rig.registry.clock.now();
    let want = json!([row("v1", 1, Some(now)), row("v2", 1, Some(Timestamp(now.0 - DAY)))]);
    assert_eq!(usage(&rig), want);
}

#[tokio::test]
async fn a_tenant_that_leaves_is_not_counted() {
    let rig = provider_and_tenants().await;
    note(&rig, "root:one", "v1");
    note(&rig, "root:two", "v1");
    let late = rig.registry.uses.noted(None, 9);
    store_uses(&rig.registry).await;
    rig.settle().await;
    assert_eq!(rig.keys(ids::version_uses()).len(), 2);
    rig.delete("root:one", "apis.kcp.io/v1alpha2", "apibindings", "widgets")
        .await
        .expect("it is deleted");
    rig.settle().await;
    // Notes that come too late change nothing.
    rig.registry.uses.add(late);
    store_uses(&rig.registry).await;
    rig.settle().await;
    assert_eq!(usage(&rig)[0]["tenants"], 1);
    assert_eq!(rig.keys(ids::version_uses()).len(), 1);

    rig.delete("root", "tenancy.kcp.io/v1alpha1", "workspaces", "two")
        .await
        .expect("it is deleted");
    rig.settle().await;
    assert_eq!(rig.keys(ids::version_uses()).len(), 0);
    assert_eq!(usage(&rig)[0]["tenants"], 0);
}
