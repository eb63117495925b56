//! Usage in the status of ResourceQuotas. Creations keep it up to date by themselves
//! ([`insula_admission::quota`]); this reconciler counts deletions, and objects that the server
//! itself creates.

use crate::runtime::Reconciler;
use insula_admission::quota;
use insula_api::{Json, ObjectKey, ResourceId, Scope};
use insula_catalog::ids;
use insula_registry::{Deps, Intent, Plan};
use insula_store::{Change, Entry, Snapshot};
use std::sync::Arc;

/// Reconciles the status of quotas.
pub(crate) struct Quotas {
    registry: Arc<Deps>,
}

impl Quotas {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        Quotas { registry }
    }
}

impl Reconciler for Quotas {
    type Key = ObjectKey;
    /// The quota, and its status as it should be.
    type World = Option<(Entry, Json)>;

    fn name(&self) -> &'static str {
        "quota"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::resourcequotas()]
    }

    fn scopes(&self) -> Vec<Scope> {
        vec![Scope::everything()]
    }

    /// Returns a changed quota, and all quotas that count a created or deleted object.
    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let comes_or_goes = change.old.is_some() != change.new.is_some();
        let mut keys = match comes_or_goes {
            true => quota::concerned(snapshot, &change.key),
            false => Vec::new(),
        };
        if change.key.resource == ids::resourcequotas() {
            keys.push(change.key.clone());
        }
        keys
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> Self::World {
        let entry = snapshot.get(key)?;
        let status = quota::recount(&self.registry.catalog, snapshot, &entry);
        Some((entry, status))
    }

    fn decide(&self, world: &Self::World) -> Plan {
        let Some((entry, status)) = world else {
            return Plan::rest();
        };
        let mut value = entry.object.body_value();
        value["status"] = status.clone();
        Plan::new(vec![Intent::Update(entry.clone(), value)])
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestControlPlane;
    use insula_api::{ObjectKey, Scope};
    use insula_catalog::ids;
    use insula_store::{Txn, Write};
    use serde_json::json;

    #[tokio::test]
    async fn a_deletion_frees_quota() {
        let rig = TestControlPlane::new().await;
        let org = rig.workspace("root", "org").await;
        let quota = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: few, namespace: default}, \
                     spec: {hard: {secrets: 1, count/configmaps: 5, pods: 3}}}";
        rig.create(&org, "resourcequotas", quota).await;
        rig.settle().await;
        let used = |rig: &TestControlPlane| {
            rig.get(&org, "v1", "resourcequotas", "default/few").expect("is there")["status"].clone()
        };
        assert_eq!(
            used(&rig),
            json!({"hard": {"secrets": "1", "count/configmaps": "5", "pods": "3"},
                "used": {"secrets": "0", "count/configmaps": "0"}})
        );
        let secret = "{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: default}}";
        rig.create(&org, "secrets", secret).await;
        assert_eq!(used(&rig)["used"]["secrets"], "1", "with the very write");
        assert_eq!(rig.settle().await, 0, "there is nothing to correct");
        rig.delete(&org, "v1", "secrets", "default/a").await.expect("goes");
        rig.settle().await;
        assert_eq!(used(&rig)["used"]["secrets"], "0");
        assert_eq!(rig.settle().await, 0);
    }

    /// Every creation reads all quotas of the workspace.
    #[tokio::test]
    async fn the_number_of_quotas_of_a_workspace_is_limited() {
        let rig = TestControlPlane::new().await;
        let org = rig.workspace("root", "org").await;
        let quota = |name: &str| {
            format!(
                "{{apiVersion: v1, kind: ResourceQuota, metadata: {{name: {name}, namespace: default}}, spec: {{hard: \
                    {{secrets: 1}}}}}}"
            )
        };
        rig.create(&org, "resourcequotas", &quota("first")).await;
        let store = &rig.registry.store;
        let scope = Scope::cluster(ids::resourcequotas(), rig.cluster(&org));
        let first = store
            .latest()
            .for_server(insula_meter::ServerWork::Tool)
            .range(&scope, None, 1)
            .remove(0);
        let places: Vec<usize> = (1..5_000).collect();
        for some in places.chunks(100) {
            let put = |i: &usize| {
                let key = ObjectKey {
                    namespace: format!("n-{i}").into(),
                    ..first.key.clone()
                };
                Write::Put(key, first.object.clone())
            };
            let writes = some.iter().map(put).collect();
            store
                .commit(Txn {
                    guards: Vec::new(),
                    writes,
                })
                .await
                .expect("is written");
        }
        let refused = rig
            .try_create(&org, "resourcequotas", &quota("more"))
            .await
            .expect_err("is one too many");
        let why = refused.to_string();
        assert!(why.contains("the workspace has 5000 quotas in its namespaces"), "{why}");
    }
}
