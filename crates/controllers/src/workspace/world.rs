//! World of the Workspace reconciler: everything that the decision about one workspace looks at.

use crate::{loaded::Loaded, partition, write::alive};
use insula_access::workspace_types;
use insula_api::{
    ClusterName, ClusterPath, Json, ObjectKey, Timestamp,
    kinds::{LogicalCluster, Workspace},
    names::{annotations, well_known},
};
use insula_catalog::{digest, freeze, ids, locate};
use insula_registry::{Deps, Intent};
use insula_store::Snapshot;
use std::sync::Arc;

/// World of a workspace.
pub(crate) struct World {
    /// The Workspace, if it exists.
    pub(crate) workspace: Option<Loaded<Workspace>>,
    /// Guards on the parent; `None` while the parent is being deleted.
    pub(crate) parent: Option<Vec<Intent>>,
    /// Freeze that the parent hands down, as the value of an annotation.
    pub(crate) freeze: Option<String>,
    /// Path of the parent.
    pub(crate) parent_path: ClusterPath,
    /// The LogicalCluster that it stands for.
    pub(crate) child: Option<Loaded<LogicalCluster>>,
    /// Its type and all that the type extends, until it is scheduled; empty if there is no such
    /// type.
    pub(crate) types: Vec<workspace_types::Resolved>,
    /// The reason why no shard takes it, if none does.
    pub(crate) shard: Result<(), String>,
    /// Base URL of the shard of a scheduled workspace. All servers on one store agree about it.
    pub(crate) shard_url: Option<String>,
    /// The user who created it.
    pub(crate) creator: Option<Creator>,
    /// A name that no cluster has.
    pub(crate) fresh_name: ClusterName,
    /// Base URL.
    pub(crate) external_url: String,
    /// CA certificates that programs in the workspace trust.
    pub(crate) trust: Arc<str>,
    pub(crate) now: Timestamp,
}

/// User who created a workspace.
pub(crate) struct Creator {
    /// The annotation that admission wrote.
    pub(crate) annotation: String,
    /// The annotation, parsed.
    pub(crate) user: Json,
}

pub(super) fn observe(registry: &Deps, key: &ObjectKey, snapshot: &Snapshot) -> World {
    let workspace = Loaded::<Workspace>::get(snapshot, key);
    let cluster = workspace
        .as_ref()
        .and_then(|workspace| ClusterName::parse(&workspace.view.spec.cluster).ok());
    let types = match (&workspace, &cluster) {
        (Some(workspace), None) => workspace_types::TypeReference::read(&workspace.value["spec"]["type"])
            .and_then(|reference| workspace_types::resolve(snapshot, &reference))
            .map(|found| workspace_types::closure(snapshot, found))
            .unwrap_or_default(),
        _ => Vec::new(),
    };
    let view = workspace.as_ref().map(|workspace| &workspace.view);
    World {
        shard: view.map_or(Ok(()), |workspace| find_shard(snapshot, workspace)),
        creator: view.and_then(creator),
        shard_url: cluster.as_ref().and_then(|_| shard_url(snapshot)),
        workspace,
        parent: alive(snapshot, &key.cluster),
        freeze: freeze::of_child(snapshot, &key.cluster),
        parent_path: locate::path_of(snapshot, &key.cluster),
        child: cluster.and_then(|cluster| Loaded::get(snapshot, &ids::logical_cluster(&cluster))),
        types,
        fresh_name: fresh_name(registry, snapshot),
        external_url: base_url(registry, snapshot),
        trust: registry.trust.present(),
        now: registry.clock.now(),
    }
}

fn creator(workspace: &Workspace) -> Option<Creator> {
    let annotation = workspace.metadata.annotation(annotations::WORKSPACE_OWNER)?;
    Some(Creator {
        annotation: annotation.to_owned(),
        user: serde_json::from_str(annotation).ok()?,
    })
}

fn find_shard(snapshot: &Snapshot, workspace: &Workspace) -> Result<(), String> {
    let selector = partition::selector(&workspace.spec.location.selector)
        .map_err(|error| format!("spec.location.selector is invalid: {error}"))?;
    let key = ObjectKey::cluster_scoped(ids::shards(), ClusterName::root(), well_known::SHARD);
    let takes_it = snapshot.get(&key).is_some_and(|shard| {
        let annotations = &shard.object.body_value()["metadata"]["annotations"];
        annotations.get(annotations::UNSCHEDULABLE).is_none() && selector.matches(&shard.object.meta.labels)
    });
    match takes_it {
        true => Ok(()),
        false => Err("No available shards to schedule the workspace.".to_owned()),
    }
}

/// Returns the URL of the shard, which the server that started last wrote.
pub(crate) fn shard_url(snapshot: &Snapshot) -> Option<String> {
    let key = ObjectKey::cluster_scoped(ids::shards(), ClusterName::root(), well_known::SHARD);
    let shard = snapshot.get(&key)?.object.body_value();
    shard["spec"]["externalURL"].as_str().map(str::to_owned)
}

/// Returns the base URL of objects that a server writes: that of the shard, so that servers with
/// several URLs on one store do not replace each other's for ever.
pub(crate) fn base_url(registry: &Deps, snapshot: &Snapshot) -> String {
    shard_url(snapshot).unwrap_or_else(|| registry.external_url.clone())
}

/// Replaces the shard's part of the URL in a field. The path stays: that of a workspace whose
/// parents are not there, as during a restore, cannot be found. An object without a URL gets none.
pub(crate) fn move_url(value: &mut Json, field: &str, shard_url: Option<&str>) {
    if let (Some(url), Some(shard_url)) = (value.pointer_mut(field), shard_url)
        && let Some(path) = url
            .as_str()
            .and_then(|url| url.find("/clusters/").map(|at| url[at..].to_owned()))
    {
        *url = Json::String(format!("{shard_url}{path}"));
    }
}

fn fresh_name(registry: &Deps, snapshot: &Snapshot) -> ClusterName {
    loop {
        let mut random = [0; 32];
        registry.rng.fill(&mut random);
        let name = digest::cluster_name(&random);
        if snapshot.get(&ids::logical_cluster(&name)).is_none() {
            return name;
        }
    }
}
