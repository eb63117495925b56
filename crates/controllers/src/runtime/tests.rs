//! The loops as the server runs them.

use super::{QueueMeasures, Reconciler, Sleep, run};
use crate::{Controllers, testing::TestControlPlane};
use insula_api::{ObjectKey, ResourceId};
use insula_catalog::ids;
use insula_registry::{Intent, Plan};
use insula_store::{Change, Entry, Snapshot};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A hundredth of the time.
fn sleep() -> Sleep {
    Arc::new(|seconds| Box::pin(tokio::time::sleep(Duration::from_millis(seconds * 10))))
}

/// Waits until something holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}

#[tokio::test]
async fn many_workspaces_come_and_go() {
    let rig = TestControlPlane::new().await;
    let controllers = Controllers::new(rig.registry.clone());
    let sleep = sleep();
    tokio::select! {
        () = controllers.run(move |seconds| sleep(seconds)) => unreachable!("loops never end"),
        () = come_and_go(&rig) => {}
    }
    assert_eq!(rig.keys(ids::logicalclusters()).len(), 1);
}

async fn come_and_go(rig: &TestControlPlane) {
    let name = |i: usize| format!("w{i}");
    for i in 0..200 {
        let yaml = format!(
            "{{apiVersion: tenancy.kcp.io/v1alpha1, kind: Workspace, metadata: {{name: {}}}}}",
            name(i)
        );
        rig.create("root", "workspaces", &yaml).await;
    }
    let phase = |i: usize| {
        let workspace = rig.get("root", "tenancy.kcp.io/v1alpha1", "workspaces", &name(i));
        workspace.map(|workspace| workspace["status"]["phase"].as_str().unwrap_or_default().to_owned())
    };
    until("all are ready", || {
        (0..200).all(|i| phase(i).as_deref() == Some("Ready"))
    })
    .await;
    for i in 0..200 {
        rig.delete("root", "tenancy.kcp.io/v1alpha1", "workspaces", &name(i))
            .await
            .unwrap();
    }
    until("all are gone", || (0..200).all(|i| phase(i).is_none())).await;
}

/// Panics at every third look, and otherwise labels ConfigMaps.
struct Clumsy(AtomicUsize);

impl Reconciler for Clumsy {
    type Key = ObjectKey;
    type World = Option<Entry>;

    fn name(&self) -> &'static str {
        "clumsy"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::configmaps()]
    }

    fn keys(&self, change: &Change, _snapshot: &Snapshot) -> Vec<ObjectKey> {
        vec![change.key.clone()]
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> Option<Entry> {
        assert!(!self.0.fetch_add(1, Ordering::Relaxed).is_multiple_of(3), "on purpose");
        snapshot.get(key)
    }

    fn decide(&self, world: &Option<Entry>) -> Plan {
        let Some(entry) = world else { return Plan::rest() };
        let mut value = entry.object.body_value();
        value["metadata"]["labels"] = json!({"seen": "yes"});
        Plan::new(vec![Intent::Update(entry.clone(), value)])
    }
}

#[tokio::test]
async fn a_panic_is_an_error_like_any_other() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    let clumsy = Arc::new(Clumsy(AtomicUsize::new(0)));
    let measures = Arc::new(QueueMeasures::new("clumsy"));
    tokio::select! {
        () = run(rig.registry.clone(), clumsy, measures.clone(), sleep()) => unreachable!("loops never end"),
        () = label_all(&rig, &org) => {}
    }
    assert!(measures.retries.get() > 0 && measures.adds.get() >= 9, "{measures:?}");
    assert!(measures.queue_seconds.read().count() > 0 && measures.work_seconds.read().count() > 0);
}

/// A wake-up that is lost shows where nothing else wakes the loop.
#[tokio::test]
async fn changes_that_come_one_by_one_are_all_noticed() {
    let rig = TestControlPlane::new().await;
    let org = rig.workspace("root", "org").await;
    let measures = Arc::new(QueueMeasures::new("clumsy"));
    let one_by_one = async {
        for i in 0..150 {
            label(&rig, &org, i).await;
        }
    };
    tokio::select! {
        () = run(rig.registry.clone(), Arc::new(Clumsy(AtomicUsize::new(0))), measures, sleep()) => unreachable!(),
        () = one_by_one => {}
    }
}

async fn label(rig: &TestControlPlane, org: &str, i: usize) {
    let yaml = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c{i}, namespace: default}}}}");
    rig.create(org, "configmaps", &yaml).await;
    let seen = || {
        let found = rig.get(org, "v1", "configmaps", &format!("default/c{i}"));
        found.is_some_and(|map| map["metadata"]["labels"]["seen"] == "yes")
    };
    until("it is labelled", seen).await;
}

async fn label_all(rig: &TestControlPlane, org: &str) {
    for i in 0..9 {
        let yaml = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c{i}, namespace: default}}}}");
        rig.create(org, "configmaps", &yaml).await;
    }
    let seen = |i| {
        let found = rig.get(org, "v1", "configmaps", &format!("default/c{i}"));
        found.unwrap()["metadata"]["labels"]["seen"] == "yes"
    };
    until("all are labelled", || (0..9).all(seen)).await;
}
