//! What programs find in every namespace: the ServiceAccount `default`, and the ConfigMap
//! `kube-root-ca.crt` with the CA that they trust (`pkg/controller/serviceaccount`,
//! `pkg/controller/certificates/rootcacertpublisher`).

use crate::{runtime::Reconciler, write::alive};
use insula_api::{
    Json, ObjectKey, ResourceId,
    names::{
        annotations,
        well_known::{DEFAULT_ACCOUNT, ROOT_CA},
    },
};
use insula_registry::{Intent, Plan, Registry, ids};
use insula_store::{Change, Entry, Snapshot};
use serde_json::json;
use std::sync::Arc;

/// What a text begins with that holds certificates.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
/// More than so many bytes are the CAs of no servers of ours.
const TRUST_BYTES_MAX: usize = 16 * 1024;

/// Reconciles what is in every namespace.
pub(crate) struct Accounts {
    registry: Arc<Registry>,
}

/// A namespace that stays, and what it has.
pub(crate) struct World {
    namespace: Entry,
    account: Option<Entry>,
    /// The ConfigMap; only where there is a CA to tell of.
    trust: Option<(Option<Entry>, Arc<str>)>,
}

impl Accounts {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
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

    /// The namespace of a change. Others' objects, and an account that is there, say nothing new of
    /// it.
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
        let trust = &self.registry.trust;
        Some(World {
            account: snapshot.get(&within(&namespace.key, ids::serviceaccounts(), DEFAULT_ACCOUNT)),
            trust: (!trust.is_empty()).then(|| {
                let map = snapshot.get(&within(&namespace.key, ids::configmaps(), ROOT_CA));
                (map, trust.clone())
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
            // Nothing appears in a namespace that goes.
            intents.push(Intent::Expect(namespace.key.clone(), Some(namespace.revision)));
        }
        Plan::of(intents)
    }
}

/// What a namespace begins with, for whoever makes one together with its workspace: that takes no
/// second transaction.
pub(crate) fn of_fresh_namespace(namespace: &ObjectKey, trust: &str) -> Vec<Intent> {
    let key = within(namespace, ids::serviceaccounts(), DEFAULT_ACCOUNT);
    let account = Intent::Create(key.clone(), fresh("ServiceAccount", &key));
    let trust = (!trust.is_empty()).then(|| published(namespace, None, trust)).flatten();
    std::iter::once(account).chain(trust).collect()
}

/// The ConfigMap as it should be, unless it is: with our CA, beside those of other servers on the
/// same store. Servers that replaced each other's would never come to rest.
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
    use std::sync::Arc;

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
    async fn every_namespace_tells_whom_to_trust_and_keeps_telling() {
        let mut rig = TestControlPlane::new().await;
        Arc::get_mut(&mut rig.registry).expect("one owner").trust = "the CA".into();
        let org = rig.workspace("root", "org").await;
        let map = "default/kube-root-ca.crt";
        let told = |rig: &TestControlPlane| rig.get(&org, "v1", "configmaps", map).expect("is there")["data"].clone();
        assert_eq!(told(&rig), json!({"ca.crt": "the CA"}));
        let lie = json!({"data": {"ca.crt": "another", "more": "yes"}});
        rig.patch(&org, "v1", "configmaps", map, lie).await.expect("is written");
        rig.settle().await;
        assert_eq!(told(&rig), json!({"ca.crt": "the CA"}));
        let other = format!("{}\nof another server", super::CERTIFICATE);
        let beside = json!({"data": {"ca.crt": &other}});
        rig.patch(&org, "v1", "configmaps", map, beside)
            .await
            .expect("is written");
        rig.settle().await;
        assert_eq!(told(&rig), json!({"ca.crt": format!("{other}\nthe CA")}));
        assert_eq!(rig.settle().await, 0, "servers on one store come to rest");
        rig.delete(&org, "v1", "configmaps", map).await.expect("goes");
        assert_eq!(
            pass(&rig.registry, &super::Accounts::new(rig.registry.clone())).await,
            1
        );
        assert_eq!(told(&rig), json!({"ca.crt": "the CA"}));
    }
}
