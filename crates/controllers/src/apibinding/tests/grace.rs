//! Grace period of deleted bindings.

use super::*;
use insula_api::names::annotations::UNBIND_GRACE_SECONDS;
use insula_catalog::Error;
use insula_registry::undelete::{Undeleted, undelete};

const EXPORTS: (&str, &str) = ("apis.kcp.io/v1alpha2", "apiexports");
const CLUSTERS: (&str, &str) = ("core.kcp.io/v1alpha1", "logicalclusters");
const CONTENT_DELETED: &str = "BindingResourceDeleteSuccess";

/// A tenant with a bound widget, whose export and workspace give these seconds.
async fn tenant(export: Option<&str>, workspace: Option<&str>) -> TestControlPlane {
    let rig = provider_and_tenant().await;
    for (path, (version, plural), name, seconds) in [
        ("root:provider", EXPORTS, "widgets", export),
        ("root:tenant", CLUSTERS, "cluster", workspace),
    ] {
        let annotated = json!({"metadata": {"annotations": {UNBIND_GRACE_SECONDS: seconds}}});
        rig.patch(path, version, plural, name, annotated).await.unwrap();
    }
    rig.create("root:tenant", "apibindings", &binding("widgets", "root:provider"))
        .await;
    rig.settle().await;
    rig.create("root:tenant", "widgets", WIDGET).await;
    rig
}

async fn unbind(rig: &TestControlPlane) {
    rig.delete("root:tenant", BINDINGS.0, BINDINGS.1, "widgets")
        .await
        .unwrap();
    rig.settle().await;
}

fn shown(rig: &TestControlPlane, name: &str) -> Option<Json> {
    rig.get("root:tenant", BINDINGS.0, BINDINGS.1, name)
}

fn widget(rig: &TestControlPlane) -> Option<Json> {
    rig.get("root:tenant", WIDGETS.0, WIDGETS.1, "default/a")
}

async fn taken_back(rig: &TestControlPlane) -> Result<Undeleted, Error> {
    let cluster = rig.cluster("root:tenant");
    let key = insula_api::ObjectKey::cluster_scoped(ids::apibindings(), cluster, "widgets");
    undelete(&rig.registry, &key, None, false).await
}

#[tokio::test]
async fn the_longer_period_of_export_and_workspace_counts() {
    for (export, workspace, want) in [
        (Some("60"), None, Some(60)),
        (None, Some("60"), Some(60)),
        (Some("60"), Some("600"), Some(600)),
        (Some("600"), Some("60"), Some(600)),
        (Some("0"), None, None),
        (None, None, None),
    ] {
        let rig = tenant(export, workspace).await;
        unbind(&rig).await;
        let seconds = shown(&rig, "widgets").map(|it| it["metadata"]["deletionGracePeriodSeconds"].clone());
        assert_eq!(seconds, want.map(|want| json!(want)), "{export:?} {workspace:?}");
        assert_eq!(widget(&rig).is_some(), want.is_some());
    }
}

#[tokio::test]
async fn objects_stay_until_the_end_of_the_period_and_none_is_created() {
    let mut rig = tenant(Some("600"), None).await;
    let before = widget(&rig);
    unbind(&rig).await;
    let (reason, message) = says(&rig, "root:tenant", "widgets", CONTENT_DELETED);
    assert_eq!(reason, "GracePeriod");
    let end = shown(&rig, "widgets").unwrap()["metadata"]["deletionTimestamp"].take();
    for part in [end.as_str().unwrap(), "`insula unbind widgets --undelete`", "--now"] {
        assert!(message.contains(part), "{message}");
    }
    let late = WIDGET.replace("name: a,", "name: late,");
    let refused = rig.try_create("root:tenant", "widgets", &late).await.unwrap_err();
    assert!(refused.to_string().contains("create not allowed"), "{refused}");
    rig.tick(599);
    rig.settle().await;
    assert_eq!(widget(&rig), before);
    rig.tick(1);
    rig.settle().await;
    assert_eq!(
        (shown(&rig, "widgets"), rig.keys(ids::resource_routes()).len()),
        (None, 0)
    );
}

#[tokio::test]
async fn a_deletion_is_taken_back_with_all_objects() {
    let mut rig = tenant(Some("600"), None).await;
    let refused = taken_back(&rig).await.unwrap_err().to_string();
    assert!(
        refused.contains("apibinding widgets of workspace root:tenant is not deleted"),
        "{refused}"
    );
    let before = (widget(&rig), status(&rig, "root:tenant", "widgets"));
    unbind(&rig).await;
    taken_back(&rig).await.unwrap();
    rig.settle().await;
    assert_eq!((widget(&rig), status(&rig, "root:tenant", "widgets")), before);
    rig.tick(6000);
    rig.settle().await;
    let late = WIDGET.replace("name: a,", "name: late,");
    rig.create("root:tenant", "widgets", &late).await;
    unbind(&rig).await;
    rig.tick(600);
    rig.settle().await;
    assert!(matches!(taken_back(&rig).await, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn a_removal_that_has_begun_is_not_taken_back() {
    let mut rig = tenant(Some("600"), None).await;
    let held = WIDGET.replace("name: a,", "name: held, finalizers: [a.io/hold],");
    rig.create("root:tenant", "widgets", &held).await;
    unbind(&rig).await;
    rig.tick(600);
    rig.settle().await;
    assert_eq!(
        says(&rig, "root:tenant", "widgets", CONTENT_DELETED).0,
        "SomeFinalizersRemain"
    );
    let refused = taken_back(&rig).await.unwrap_err().to_string();
    assert!(refused.contains("is being removed"), "{refused}");
}

/// The period is for objects: a binding whose last one is deleted goes.
#[tokio::test]
async fn a_binding_without_objects_goes_at_once() {
    let rig = tenant(Some("600"), None).await;
    unbind(&rig).await;
    assert!(shown(&rig, "widgets").is_some());
    rig.delete("root:tenant", WIDGETS.0, WIDGETS.1, "default/a")
        .await
        .unwrap();
    rig.settle().await;
    assert!(shown(&rig, "widgets").is_none());
}

/// A new binding to the same export takes the objects over, and loses nothing by it.
#[tokio::test]
async fn a_successor_ends_the_period() {
    let rig = tenant(Some("600"), None).await;
    let before = widget(&rig);
    unbind(&rig).await;
    rig.create("root:tenant", "apibindings", &binding("again", "root:provider"))
        .await;
    rig.settle().await;
    assert!(shown(&rig, "widgets").is_none());
    assert_eq!(widget(&rig), before);
    assert_eq!(says(&rig, "root:tenant", "again", "BindingUpToDate").0, "True");
}

/// Another export with the same resource waits, and is told for what.
#[tokio::test]
async fn the_names_stay_taken() {
    let rig = tenant(Some("600"), None).await;
    unbind(&rig).await;
    rig.workspace("root", "rival").await;
    let schema = schema("today", "widgets", "Widget", V1);
    rig.create("root:rival", "apiresourceschemas", &schema).await;
    rig.create("root:rival", "apiexports", &export(&[("widgets", "today")]))
        .await;
    rig.settle().await;
    rig.create("root:tenant", "apibindings", &binding("rival", "root:rival"))
        .await;
    rig.settle().await;
    let (reason, message) = says(&rig, "root:tenant", "rival", "BindingUpToDate");
    assert_eq!(reason, "NamingConflicts");
    let named = "APIBinding \"widgets\" is deleted and keeps its objects and names until";
    assert!(message.contains(named), "{message}");
    assert!(message.contains("`insula unbind widgets --now`"), "{message}");
    taken_back(&rig).await.unwrap();
    rig.settle().await;
    let (_, message) = says(&rig, "root:tenant", "rival", "BindingUpToDate");
    assert!(message.contains("delete one of the two bindings"), "{message}");
}

/// The end of a workspace is the end of its bindings, whatever their periods.
#[tokio::test]
async fn a_workspace_does_not_wait_for_its_bindings() {
    let rig = tenant(Some("600"), None).await;
    unbind(&rig).await;
    rig.delete("root", "tenancy.kcp.io/v1alpha1", "workspaces", "tenant")
        .await
        .unwrap();
    rig.settle().await;
    assert!(rig.keys(ids::apibindings()).iter().all(|key| &*key.name != "widgets"));
    assert_eq!(rig.keys(ids::resource_routes()).len(), 0);
}

#[tokio::test]
async fn only_seconds_up_to_a_year_are_taken() {
    let rig = provider_and_tenant().await;
    for (path, (version, plural), name) in [
        ("root:provider", EXPORTS, "widgets"),
        ("root:tenant", CLUSTERS, "cluster"),
    ] {
        let wrong = json!({"metadata": {"annotations": {UNBIND_GRACE_SECONDS: "1d"}}});
        let refused = rig
            .patch(path, version, plural, name, wrong)
            .await
            .unwrap_err()
            .to_string();
        for part in [
            "metadata.annotations[apis.insula.io/unbind-grace-seconds]",
            "from 0 to 31622400",
        ] {
            assert!(refused.contains(part), "{refused}");
        }
    }
}
