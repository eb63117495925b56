//! Bindings that a change leads to.

use crate::apibinding::ApiBindings;
use crate::{runtime::Reconciler, testing::TestControlPlane};
use futures_util::FutureExt;
use insula_api::{ClusterName, Object, ObjectKey, Revision, names::labels};
use insula_catalog::{digest, ids};
use insula_meter::ServerWork;
use insula_store::{Change, MemoryStore, Prior, Store, Txn, Write};
use serde_json::json;
use std::sync::Arc;

fn binding(cluster: &str, name: &str) -> ObjectKey {
    let cluster = ClusterName::parse(cluster).expect("a cluster");
    ObjectKey::cluster_scoped(ids::apibindings(), cluster, name)
}

/// A change of an export concerns the bindings that are to it in the snapshot, and no others.
#[tokio::test]
async fn a_change_of_an_export_concerns_its_bindings_alone() {
    let rig = TestControlPlane::new().await;
    let reconciler = ApiBindings::new(rig.registry.clone());
    let store = MemoryStore::new();
    let write = |write: Write| {
        let writes = vec![write];
        let guards = Vec::new();
        let committed = store.commit(Txn { guards, writes }).now_or_never();
        committed.expect("at once").expect("it is stored");
    };
    let bind = |key: &ObjectKey, export: &str| {
        let label = digest::export_label(&ClusterName::root(), export);
        let object = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
            "metadata": {"name": &*key.name, "labels": {labels::EXPORT: label}}});
        let object = Object::new(&object, None).expect("an object");
        write(Write::Put(key.clone(), object.into()));
    };
    let export = |size: i64| {
        let export = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "ours"},
            "spec": {"size": size}});
        Arc::new(Object::new(&export, None).expect("an object"))
    };
    let concerned = || {
        let change = Change {
            key: ObjectKey::cluster_scoped(ids::apiexports(), ClusterName::root(), "ours"),
            revision: Revision(2),
            old: Some(Prior {
                object: export(1),
                revision: Revision(1),
            }),
            new: Some(export(2)),
        };
        reconciler.keys(&change, &store.latest().for_server(ServerWork::Tool))
    };

    let ours: Vec<ObjectKey> = (0..3).map(|i| binding(&format!("t{i}"), "b")).collect();
    for i in 0..300 {
        bind(&binding(&format!("t{i}"), "a"), &format!("other-{}", i % 10));
    }
    assert!(concerned().is_empty());
    ours.iter().for_each(|key| bind(key, "ours"));
    assert_eq!(concerned(), ours);
    bind(&ours[0], "other-1");
    write(Write::Delete(ours[1].clone()));
    assert_eq!(concerned(), ours[2..]);
}
