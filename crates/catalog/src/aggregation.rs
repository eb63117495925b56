//! APIServices of a cluster, parsed: the group versions that extension servers serve for it, its
//! own and those that bound exports offer.
//!
//! ```text
//! APIService in the cluster                        its own extension server
//! APIBinding ─▶ APIExport ─▶ APIService beside it  the provider's, under its certificate
//! ```

use crate::{
    Catalog,
    exports::{ExportName, offer::Binding},
    ids,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::{ClusterName, Json, Object, ObjectKey, Scope, condition, names::annotations};
use insula_store::Snapshot;
use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

/// Type of the condition that tells if requests are proxied.
pub const AVAILABLE: &str = "Available";
/// Extension servers of one workspace.
pub const SERVERS_MAX: usize = 32;

/// The parsed form of an APIService, cached with the stored object.
#[derive(Debug, PartialEq, Eq)]
pub struct ApiService {
    /// Group.
    pub group: Arc<str>,
    /// Version.
    pub version: Arc<str>,
    /// Place of the group; larger ones come first.
    pub group_priority: i64,
    /// Place of the version in its group; larger ones come first.
    pub version_priority: i64,
    /// The extension server; `None` for a local APIService.
    pub backend: Option<Backend>,
    /// True if the last check of the extension server passed.
    pub available: bool,
    /// Reason of the last check.
    pub reason: String,
}

/// The address of an extension server and the trust in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Backend {
    /// URL before `/apis`, without a slash at its end.
    pub url: Arc<str>,
    /// Certificate authorities for the server's certificate, as PEM; `None` trusts those of the
    /// machine.
    pub ca_bundle: Option<Arc<[u8]>>,
    /// True if any certificate is accepted.
    pub insecure: bool,
    /// Namespace and name of the service.
    pub service: (Arc<str>, Arc<str>),
    /// True if the URL follows from the service.
    pub by_name: bool,
}

/// A group version that an extension server serves for a cluster.
#[derive(Debug, Clone)]
pub struct Aggregated {
    /// Key of the APIService. Its cluster is that of the extension server's owner.
    pub key: ObjectKey,
    /// The APIService.
    pub service: Arc<ApiService>,
    /// The extension server.
    pub backend: Backend,
}

impl ApiService {
    /// Reads an APIService.
    pub fn read(object: &Object) -> Self {
        let value = object.body_value();
        let spec = &value["spec"];
        let text = |field: &str| spec[field].as_str().unwrap_or_default().into();
        let state = condition(&value, AVAILABLE);
        ApiService {
            group: text("group"),
            version: text("version"),
            group_priority: spec["groupPriorityMinimum"].as_i64().unwrap_or_default(),
            version_priority: spec["versionPriority"].as_i64().unwrap_or_default(),
            backend: Backend::read(&value),
            available: state.is_some_and(|state| state["status"] == "True"),
            reason: state
                .and_then(|state| state["reason"].as_str())
                .unwrap_or_default()
                .to_owned(),
        }
    }

    /// Returns group and version as an `apiVersion`.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }
}

impl Backend {
    /// Reads the server of an APIService. A service is addressed by its DNS name, as that of a
    /// webhook is, unless an annotation has its URL.
    fn read(value: &Json) -> Option<Self> {
        let (spec, service) = (&value["spec"], value["spec"].get("service")?);
        let (name, namespace) = (service["name"].as_str()?, service["namespace"].as_str()?);
        let given = value["metadata"]["annotations"][annotations::SERVICE_URL].as_str();
        let url = match given {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!(
                "https://{name}.{namespace}.svc:{}",
                service["port"].as_i64().unwrap_or(443)
            ),
        };
        let bundle = spec["caBundle"].as_str().filter(|bundle| !bundle.is_empty());
        Some(Backend {
            url: url.into(),
            // Invalid base64 becomes a bundle without certificates, which trusts no server.
            ca_bundle: bundle.map(|bundle| STANDARD.decode(bundle).unwrap_or_default().into()),
            insecure: spec["insecureSkipTLSVerify"] == true,
            service: (namespace.into(), name.into()),
            by_name: given.is_none(),
        })
    }
}

impl Aggregated {
    fn find(snapshot: &Snapshot, key: ObjectKey) -> Option<Self> {
        let entry = snapshot.get(&key)?;
        let service = entry.object.parsed(ApiService::read);
        let backend = service.backend.clone()?;
        Some(Aggregated { key, service, backend })
    }

    /// Returns the cluster of the extension server's owner.
    pub fn home(&self) -> &ClusterName {
        &self.key.cluster
    }
}

/// Returns the key of the APIService of a group version.
pub fn key(cluster: &ClusterName, group: &str, version: &str) -> ObjectKey {
    ObjectKey::cluster_scoped(ids::apiservices(), cluster.clone(), &format!("{version}.{group}"))
}

/// Returns the extension server that serves a group version for a cluster, unless the cluster
/// serves it by itself. Its own APIServices come before those of its bindings.
pub fn find(
    catalog: &Catalog,
    snapshot: &Snapshot,
    cluster: &ClusterName,
    (group, version): (&str, &str),
) -> Option<Aggregated> {
    if serves(catalog, snapshot, cluster, (group, version)) {
        return None;
    }
    Aggregated::find(snapshot, key(cluster, group, version)).or_else(|| {
        let name = format!("{version}.{group}");
        let offered = offered(snapshot, cluster);
        let key = offered.into_iter().find(|key| *key.name == *name)?;
        Aggregated::find(snapshot, key)
    })
}

/// Returns all group versions that extension servers serve for a cluster, by group and version.
pub fn of_cluster(catalog: &Catalog, snapshot: &Snapshot, cluster: &ClusterName) -> Vec<Aggregated> {
    let mut found: BTreeMap<(Arc<str>, Arc<str>), Aggregated> = BTreeMap::new();
    let own = keys(snapshot, cluster);
    let all = own.into_iter().chain(offered(snapshot, cluster));
    for one in all.filter_map(|key| Aggregated::find(snapshot, key)) {
        let name = (one.service.group.clone(), one.service.version.clone());
        found.entry(name).or_insert(one);
    }
    let is_free = |one: &Aggregated| !serves(catalog, snapshot, cluster, (&one.service.group, &one.service.version));
    found.into_values().filter(is_free).collect()
}

/// Returns the keys of the APIServices of a cluster.
fn keys(snapshot: &Snapshot, cluster: &ClusterName) -> Vec<ObjectKey> {
    let mut found = Vec::new();
    let scope = Scope::cluster(ids::apiservices(), cluster.clone());
    snapshot.for_each(&scope, |entry| {
        found.push(entry.key.clone());
        ControlFlow::Continue(())
    });
    found
}

/// Returns the keys of the APIServices that the bound exports of a cluster offer, by binding.
fn offered(snapshot: &Snapshot, cluster: &ClusterName) -> Vec<ObjectKey> {
    let mut found = Vec::new();
    let scope = Scope::cluster(ids::apibindings(), cluster.clone());
    snapshot.for_each(&scope, |entry| {
        let binding = entry.object.parsed(Binding::read);
        if entry.object.meta.is_deleting() {
            return ControlFlow::Continue(());
        }
        let Ok(provider) = ClusterName::parse(&binding.cluster) else {
            return ControlFlow::Continue(());
        };
        let export = ExportName {
            cluster: provider,
            name: binding.export.as_str().into(),
        };
        let view = export.spec(snapshot);
        let names = view.iter().flat_map(|view| &view.aggregated);
        found.extend(names.map(|name| ObjectKey::cluster_scoped(ids::apiservices(), export.cluster.clone(), name)));
        ControlFlow::Continue(())
    });
    found
}

/// Returns true if a cluster serves a group version without an extension server. Groups of built-in
/// kinds are the server's own, in all versions.
pub fn serves(catalog: &Catalog, snapshot: &Snapshot, cluster: &ClusterName, (group, version): (&str, &str)) -> bool {
    if catalog.system().iter().any(|served| **served.group() == *group) {
        return true;
    }
    let served = catalog.served_in(snapshot, cluster, group);
    let mut versions = served.iter().flat_map(|served| served.served_versions());
    versions.any(|served| *served.name == *version)
}

/// Returns the number of extension servers of a cluster.
pub fn count(snapshot: &Snapshot, cluster: &ClusterName) -> usize {
    let keys = keys(snapshot, cluster).into_iter();
    keys.filter_map(|key| Aggregated::find(snapshot, key)).count()
}
