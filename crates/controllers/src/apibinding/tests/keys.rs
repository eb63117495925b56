//! Bindings that a change leads to.

use crate::apibinding::ApiBindings;
use crate::{runtime::Reconciler, testing::TestControlPlane};
use insula_api::{ClusterName, Object, ObjectKey, Revision, names::labels};
use insula_catalog::{digest, ids};
use insula_store::{Change, MemoryStore, Prior, Store};
use serde_json::json;
use std::sync::Arc;

fn binding(cluster: &str, name: &str) -> ObjectKey {
    let cluster = ClusterName::parse(cluster).expect("a cluster");
    ObjectKey::cluster_scoped(ids::apibindings(), cluster, name)
}

/// A change of an export looks only at its own bindings, however many there are: the snapshot that
/// the keys are taken from is empty, so nothing but the index is visited.
#[tokio::test]
async fn a_change_of_an_export_visits_its_bindings_alone() {
    let rig = TestControlPlane::new().await;
    let reconciler = ApiBindings::new(rig.registry.clone());
    let nothing = MemoryStore::new().latest();
    let object = |value| Arc::new(Object::new(&value, None).expect("an object"));
    let change = |key: &ObjectKey, old: Option<Arc<Object>>, new: Option<Arc<Object>>| Change {
        key: key.clone(),
        revision: Revision(2),
        old: old.map(|object| Prior {
            object,
            revision: Revision(1),
        }),
        new,
    };
    let bound_to = |name: &str, export: &str| {
        let label = digest::export_label(&ClusterName::root(), export);
        object(json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
            "metadata": {"name": name, "labels": {labels::EXPORT: label}}}))
    };
    let export = |size: i64| {
        object(
            json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "ours"},
            "spec": {"size": size}}),
        )
    };
    let created = |key: &ObjectKey, export: &str| change(key, None, Some(bound_to(&key.name, export)));
    let key = ObjectKey::cluster_scoped(ids::apiexports(), ClusterName::root(), "ours");
    let visited = || reconciler.keys(&change(&key, Some(export(1)), Some(export(2))), &nothing);

    let ours: Vec<ObjectKey> = (0..3).map(|i| binding(&format!("t{i}"), "b")).collect();
    for i in 0..10_000 {
        let other = format!("other-{}", i % 100);
        reconciler.keys(&created(&binding(&format!("t{i}"), "a"), &other), &nothing);
    }
    for key in &ours {
        reconciler.keys(&created(key, "ours"), &nothing);
    }
    assert_eq!(visited(), ours);

    let moved = change(&ours[0], Some(bound_to("b", "ours")), Some(bound_to("b", "other-1")));
    reconciler.keys(&moved, &nothing);
    reconciler.keys(&change(&ours[1], Some(bound_to("b", "ours")), None), &nothing);
    assert_eq!(visited(), ours[2..]);

    // After a restart of the loop the index is of what exists then.
    reconciler.restart();
    reconciler.keys(&created(&ours[1], "ours"), &nothing);
    assert_eq!(visited(), ours[1..2]);
}
