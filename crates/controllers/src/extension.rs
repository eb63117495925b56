//! The ConfigMap by which extension servers recognise proxied requests
//! (`extension-apiserver-authentication` in `kube-system`), and the Role that reads it, in every
//! workspace with an APIService that has a service
//! (`pkg/controlplane/controller/clusterauthenticationtrust`).

use crate::{namespace::fresh_namespace, runtime::Reconciler, write::alive};
use insula_api::{
    ClusterName, Json, ObjectKey, ResourceId, front_proxy_name,
    names::well_known::{AUTHENTICATION_CONFIG, AUTHENTICATION_CONFIG_READER, KUBE_SYSTEM},
};
use insula_catalog::{aggregation, ids};
use insula_registry::{Deps, ExtensionTrust, Intent, Plan};
use insula_store::{Change, Entry, Snapshot};
use serde_json::json;
use std::sync::Arc;

/// Beginning of a certificate in PEM.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
/// Largest bundle, in bytes, that may hold the CAs of several servers.
const BUNDLE_BYTES_MAX: usize = 32 * 1024;
/// Keys of the bundles in the ConfigMap.
const FRONT_PROXY_CA: &str = "requestheader-client-ca-file";
const CLIENT_CA: &str = "client-ca-file";

/// Reconciles the trust of extension servers.
pub(crate) struct ExtensionTrusts {
    registry: Arc<Deps>,
}

/// World of a workspace with extension servers.
pub(crate) struct World {
    cluster: ClusterName,
    trust: Arc<ExtensionTrust>,
    namespace: Option<Entry>,
    map: Option<Entry>,
    role: Option<Entry>,
    alive: Vec<Intent>,
}

impl ExtensionTrusts {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        ExtensionTrusts { registry }
    }
}

impl Reconciler for ExtensionTrusts {
    type Key = ClusterName;
    type World = Option<World>;

    fn name(&self) -> &'static str {
        "extension"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::apiservices(), ids::configmaps()]
    }

    fn keys(&self, change: &Change, _: &Snapshot) -> Vec<ClusterName> {
        let key = &change.key;
        let is_map = || *key.namespace == *KUBE_SYSTEM && *key.name == *AUTHENTICATION_CONFIG;
        match key.resource == ids::apiservices() || is_map() {
            true => vec![key.cluster.clone()],
            false => Vec::new(),
        }
    }

    fn observe(&self, cluster: &ClusterName, snapshot: &Snapshot) -> Option<World> {
        let trust = self.registry.extension_trust.clone()?;
        if aggregation::count(snapshot, cluster) == 0 {
            return None;
        }
        Some(World {
            alive: alive(snapshot, cluster)?,
            trust,
            namespace: snapshot.get(&namespace(cluster)),
            map: snapshot.get(&within(cluster, ids::configmaps(), AUTHENTICATION_CONFIG)),
            role: snapshot.get(&within(cluster, ids::roles(), AUTHENTICATION_CONFIG_READER)),
            cluster: cluster.clone(),
        })
    }

    fn decide(&self, world: &Option<World>) -> Plan {
        let Some(world) = world else {
            return Plan::rest();
        };
        let mut intents = Vec::new();
        match &world.namespace {
            Some(found) if found.object.meta.is_deleting() => return Plan::rest(),
            Some(_) => {}
            None => intents.push(Intent::Create(namespace(&world.cluster), fresh_namespace(KUBE_SYSTEM))),
        }
        intents.extend(published(world));
        if world.role.is_none() {
            let key = within(&world.cluster, ids::roles(), AUTHENTICATION_CONFIG_READER);
            let mut role = fresh("rbac.authorization.k8s.io/v1", "Role", &key);
            role["rules"] = json!([{"apiGroups": [""], "resources": ["configmaps"],
                "resourceNames": [AUTHENTICATION_CONFIG], "verbs": ["get", "list", "watch"]}]);
            intents.push(Intent::Create(key, role));
        }
        if !intents.is_empty() {
            // Guards against a concurrent deletion of the workspace.
            intents.extend(world.alive.iter().cloned());
        }
        Plan::new(intents)
    }
}

/// Returns the write of the ConfigMap, unless it is up to date. It holds the CAs of other servers
/// on the same store as well: servers that replaced each other's would never come to rest.
fn published(world: &World) -> Option<Intent> {
    let known = world.map.as_ref().map(|entry| entry.object.body_value());
    let known_data = known.as_ref().map(|value| value["data"].clone()).unwrap_or_default();
    let ExtensionTrust { front_proxy, clients } = &*world.trust;
    let mut data = json!({
        "requestheader-allowed-names": json!([front_proxy_name(world.cluster.as_str())]).to_string(),
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
    });
    for (key, own) in [(FRONT_PROXY_CA, front_proxy), (CLIENT_CA, clients)] {
        data[key] = json!(with(known_data[key].as_str().unwrap_or_default(), own));
    }
    let Some((entry, mut value)) = world.map.as_ref().zip(known) else {
        let key = within(&world.cluster, ids::configmaps(), AUTHENTICATION_CONFIG);
        let mut value = fresh("v1", "ConfigMap", &key);
        value["data"] = data;
        return Some(Intent::Create(key, value));
    };
    if value["data"] == data || entry.object.meta.is_deleting() {
        return None;
    }
    value["data"] = data;
    Some(Intent::Update(entry.clone(), value))
}

/// Returns a bundle with our CA in it.
fn with(known: &str, own: &str) -> String {
    if known.contains(own.trim()) {
        known.to_owned()
    } else if known.contains(CERTIFICATE) && known.len() < BUNDLE_BYTES_MAX {
        format!("{}\n{own}", known.trim())
    } else {
        own.to_owned()
    }
}

fn namespace(cluster: &ClusterName) -> ObjectKey {
    ObjectKey::cluster_scoped(ids::namespaces(), cluster.clone(), KUBE_SYSTEM)
}

fn within(cluster: &ClusterName, resource: ResourceId, name: &str) -> ObjectKey {
    ObjectKey {
        resource,
        cluster: cluster.clone(),
        namespace: KUBE_SYSTEM.into(),
        name: name.into(),
    }
}

fn fresh(api_version: &str, kind: &str, key: &ObjectKey) -> Json {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": *key.name, "namespace": *key.namespace}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestControlPlane;

    const SERVICE: &str = "{apiVersion: apiregistration.k8s.io/v1, kind: APIService, \
        metadata: {name: v1.example.com}, spec: {group: example.com, version: v1, groupPriorityMinimum: 1, \
        versionPriority: 1, service: {namespace: default, name: api}}}";

    #[tokio::test]
    async fn a_workspace_with_extension_servers_publishes_whom_they_trust() {
        let mut rig = TestControlPlane::new().await;
        let trust = ExtensionTrust {
            front_proxy: "the front proxies' CA".into(),
            clients: "the clients' CA".into(),
        };
        Arc::get_mut(&mut rig.registry).expect("one owner").extension_trust = Some(Arc::new(trust));
        let org = rig.workspace("root", "org").await;
        let map = format!("{KUBE_SYSTEM}/{AUTHENTICATION_CONFIG}");
        assert!(rig.get(&org, "v1", "configmaps", &map).is_none());
        rig.create(&org, "apiservices", SERVICE).await;
        rig.settle().await;
        let data = |rig: &TestControlPlane| rig.get(&org, "v1", "configmaps", &map).expect("is there")["data"].clone();
        let first = data(&rig);
        assert_eq!(first[FRONT_PROXY_CA], "the front proxies' CA");
        let names = first["requestheader-allowed-names"].as_str().expect("a list");
        assert_eq!(names, format!("[\"front-proxy-client:{}\"]", rig.cluster(&org)));
        let lie = json!({"data": {"requestheader-allowed-names": "[]"}});
        rig.patch(&org, "v1", "configmaps", &map, lie)
            .await
            .expect("is written");
        rig.settle().await;
        assert_eq!(data(&rig), first);
        let other = format!("{CERTIFICATE}\nof another server");
        let beside = json!({"data": {FRONT_PROXY_CA: &other}});
        rig.patch(&org, "v1", "configmaps", &map, beside)
            .await
            .expect("is written");
        rig.settle().await;
        assert_eq!(data(&rig)[FRONT_PROXY_CA], format!("{other}\nthe front proxies' CA"));
        assert_eq!(rig.settle().await, 0, "servers on one store come to rest");
    }
}
