//! Standard objects of every namespace: the ServiceAccount `default`, and the ConfigMap
//! `kube-root-ca.crt` with the CA that programs trust (`pkg/controller/serviceaccount`,
//! `pkg/controller/certificates/rootcacertpublisher`).

use crate::{runtime::Reconciler, write::alive};
use insula_api::{
    Json, ObjectKey, ResourceId,
    names::{
        annotations,
        well_known::{DEFAULT_ACCOUNT, ROOT_CA},
    },
};
use insula_catalog::ids;
use insula_registry::{Deps, Intent, Plan};
use insula_store::{Change, Entry, Snapshot};
use serde_json::json;
use std::sync::Arc;

/// Beginning of a certificate in PEM.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
/// Largest ConfigMap data, in bytes, that may hold the CAs of several servers.
const TRUST_BYTES_MAX: usize = 16 * 1024;

/// Reconciles the standard objects of namespaces.
pub(crate) struct Accounts {
    registry: Arc<Deps>,
}

/// World of a namespace that is not being deleted.
pub(crate) struct World {
    namespace: Entry,
    account: Option<Entry>,
    /// The ConfigMap and the CA, if the server has one.
    trust: Option<(Option<Entry>, Arc<str>)>,
}

impl Accounts {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        Accounts { registry }
    }
}

impl Reconciler for Accounts {
    type Key = ObjectKey;
    type World = Option<World>;

    fn name(&self) -> &'static str {
        "account"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::namespaces(), ids::serviceaccounts(), ids::configmaps()]
    }

    /// Returns the namespace of a change of a standard object. The creation of an account needs no
    /// reaction.
    fn keys(&self, change: &Change, _snapshot: &Snapshot) -> Vec<ObjectKey> {
        let key = &change.key;
        if key.resource == ids::namespaces() {
            return vec![key.clone()];
        }
        let lost = *key.name == *DEFAULT_ACCOUNT && change.new.is_none();
        match lost || *key.name == *ROOT_CA {
            true => vec![ObjectKey::cluster_scoped(
                ids::namespaces(),
                key.cluster.clone(),
                &key.namespace,
            )],
            false => Vec::new(),
        }
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> Option<World> {
        alive(snapshot, &key.cluster)?;
        let namespace = snapshot.get(key).filter(|entry| !entry.object.meta.is_deleting())?;
        let trust = self.registry.trust.present();
        Some(World {
            account: snapshot.get(&within(&namespace.key, ids::serviceaccounts(), DEFAULT_ACCOUNT)),
            trust: (!trust.is_empty()).then(|| {
                let map = snapshot.get(&within(&namespace.key, ids::configmaps(), ROOT_CA));
                (map, trust)
            }),
            namespace,
        })
    }

    fn decide(&self, world: &Option<World>) -> Plan {
        let Some(world) = world else {
            return Plan::rest();
        };
        let namespace = &world.namespace;
        let mut intents = Vec::new();
        if world.account.is_none() {
            let key = within(&namespace.key, ids::serviceaccounts(), DEFAULT_ACCOUNT);
            intents.push(Intent::Create(key.clone(), fresh("ServiceAccount", &key)));
        }
        if let Some((map, trust)) = &world.trust {
            intents.extend(published(&namespace.key, map.as_ref(), trust));
        }
        if !intents.is_empty() {
            // Guard against a concurrent deletion of the namespace.
            intents.push(Intent::Expect(namespace.key.clone(), Some(namespace.revision)));
        }
        Plan::new(intents)
    }
}

/// Returns the standard objects of a new namespace, for the transaction that creates it with its
/// workspace.
pub(crate) fn of_fresh_namespace(namespace: &ObjectKey, trust: &str) -> Vec<Intent> {
    let key = within(namespace, ids::serviceaccounts(), DEFAULT_ACCOUNT);
    let account = Intent::Create(key.clone(), fresh("ServiceAccount", &key));
    let trust = (!trust.is_empty()).then(|| published(namespace, None, trust)).flatten();
    std::iter::once(account).chain(trust).collect()
}

/// Returns the write of the ConfigMap, unless it is up to date. It holds our CA beside those of
/// other servers on the same store: servers that replaced each other's CA would never come to rest.
fn published(namespace: &ObjectKey, map: Option<&Entry>, trust: &str) -> Option<Intent> {
    let mut data = json!({"ca.crt": trust});
    let Some(entry) = map else {
        let key = within(namespace, ids::configmaps(), ROOT_CA);
        let mut value = fresh("ConfigMap", &key);
        value["metadata"]["annotations"] = json!({annotations::DESCRIPTION:
            "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as \
             the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of \
             Kubernetes clusters."});
        value["data"] = data;
        return Some(Intent::Create(key, value));
    };
    let mut value = entry.object.body_value();
    let known = value["data"]["ca.crt"].as_str().unwrap_or_default();
    if known.contains(trust.trim()) {
        data["ca.crt"] = json!(known);
    } else if known.contains(CERTIFICATE) && known.len() < TRUST_BYTES_MAX {
        data["ca.crt"] = json!(format!("{}\n{trust}", known.trim()));
    }
    if value["data"] == data || entry.object.meta.is_deleting() {
        return None;
    }
    value["data"] = data;
    Some(Intent::Update(entry.clone(), value))
}

fn within(namespace: &ObjectKey, resource: ResourceId, name: &str) -> ObjectKey {
    ObjectKey {
        resource,
        cluster: namespace.cluster.clone(),
        namespace: namespace.name.clone(),
        name: name.into(),
    }
}

fn fresh(kind: &str, key: &ObjectKey) -> Json {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": *key.name, "namespace": *key.namespace}})
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestControlPlane, pass};
    use serde_json::json;

    const NAMESPACE: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: team}}";

    #[tokio::test]
    async fn every_namespace_has_a_default_account_until_it_goes() {
        let rig = TestControlPlane::new().await;
        let org = rig.workspace("root", "org").await;
        rig.create(&org, "namespaces", NAMESPACE).await;
        rig.settle().await;
        for account in ["default/default", "kube-system/default", "team/default"] {
            assert!(rig.get(&org, "v1", "serviceaccounts", account).is_some(), "{account}");
        }
        let before = rig
            .get(&org, "v1", "serviceaccounts", "team/default")
            .expect("is there");
        rig.delete(&org, "v1", "serviceaccounts", "team/default")
            .await
            .expect("goes");
        rig.settle().await;
        let after = rig.get(&org, "v1", "serviceaccounts", "team/default").expect("is back");
        assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
        rig.delete(&org, "v1", "namespaces", "team").await.expect("goes");
        rig.settle().await;
        assert!(rig.get(&org, "v1", "serviceaccounts", "team/default").is_none());
        assert_eq!(rig.settle().await, 0, "and then it rests");
    }

    #[tokio::test]
    async fn every_namespace_publishes_the_ca() {
        let rig = TestControlPlane::new().await;
        rig.registry.trust.set("the CA");
        let org = rig.workspace("root", "org").await;
        let map = "default/kube-root-ca.crt";
        let data = |rig: &TestControlPlane| rig.get(&org, "v1", "configmaps", map).expect("is there")["data"].clone();
        assert_eq!(data(&rig), json!({"ca.crt": "the CA"}));
        let lie = json!({"data": {"ca.crt": "another", "more": "yes"}});
        rig.patch(&org, "v1", "configmaps", map, lie).await.expect("is written");
        rig.settle().await;
        assert_eq!(data(&rig), json!({"ca.crt": "the CA"}));
        let other = format!("{}\nof another server", super::CERTIFICATE);
        let beside = json!({"data": {"ca.crt": &other}});
        rig.patch(&org, "v1", "configmaps", map, beside)
            .await
            .expect("is written");
        rig.settle().await;
        assert_eq!(data(&rig), json!({"ca.crt": format!("{other}\nthe CA")}));
        assert_eq!(rig.settle().await, 0, "servers on one store come to rest");
        rig.delete(&org, "v1", "configmaps", map).await.expect("goes");
        assert_eq!(
            pass(&rig.registry, &super::Accounts::new(rig.registry.clone())).await,
            1
        );
        assert_eq!(data(&rig), json!({"ca.crt": "the CA"}));
    }
}
