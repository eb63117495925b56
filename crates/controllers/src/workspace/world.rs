//! What is known about one workspace.

use crate::{
    partition,
    write::{alive, text},
};
use insula_api::{
    ClusterName, ClusterPath, Json, ObjectKey, Timestamp,
    names::{annotations, well_known},
};
use insula_registry::{
    Intent, Registry,
    admission::{digest, types},
    ids, locate,
};
use insula_store::{Entry, Snapshot};
use std::sync::Arc;

/// The world of a workspace.
pub(crate) struct World {
    /// The Workspace, if it still exists.
    pub(crate) workspace: Option<(Entry, Json)>,
    /// Guards on the parent; nothing when it goes away.
    pub(crate) parent: Option<Vec<Intent>>,
    /// Path of the parent.
    pub(crate) parent_path: ClusterPath,
    /// The LogicalCluster that it stands for.
    pub(crate) child: Option<(Entry, Json)>,
    /// Its type and all that the type extends; empty if it cannot be found.
    pub(crate) types: Vec<types::Resolved>,
    /// Whether the shard takes it, or why not.
    pub(crate) place: Result<(), String>,
    /// Who made it: as it is annotated, and read.
    pub(crate) owner: Option<(String, Json)>,
    /// A name that no cluster has.
    pub(crate) fresh_name: ClusterName,
    /// Base URL.
    pub(crate) external_url: String,
    /// The CA that its programs trust.
    pub(crate) trust: Arc<str>,
    /// Now.
    pub(crate) now: Timestamp,
}

pub(super) fn observe(registry: &Registry, key: &ObjectKey, snapshot: &Snapshot) -> World {
    let load = |key: &ObjectKey| {
        snapshot.get(key).map(|entry| {
            let value = entry.object.body_value();
            (entry, value)
        })
    };
    let workspace = load(key);
    let cluster = workspace
        .as_ref()
        .and_then(|(_, value)| ClusterName::parse(text(value, "/spec/cluster")).ok());
    let types = match (&workspace, &cluster) {
        (Some((_, value)), None) => types::TypeReference::read(&value["spec"]["type"])
            .and_then(|reference| types::at(snapshot, &reference))
            .map(|found| types::closure(snapshot, found))
            .unwrap_or_default(),
        _ => Vec::new(),
    };
    let value = workspace.as_ref().map(|(_, value)| value);
    World {
        place: value.map_or(Ok(()), |value| place(snapshot, value)),
        owner: value.and_then(owner),
        workspace,
        parent: alive(snapshot, &key.cluster),
        parent_path: locate::path_of(snapshot, &key.cluster),
        child: cluster
            .as_ref()
            .and_then(|cluster| load(&ids::logical_cluster(cluster))),
        types,
        fresh_name: fresh_name(registry, snapshot),
        external_url: registry.external_url.clone(),
        trust: registry.trust.clone(),
        now: registry.clock.now(),
    }
}

/// Who made it, as admission wrote it down.
fn owner(workspace: &Json) -> Option<(String, Json)> {
    let said = workspace["metadata"]["annotations"][annotations::WORKSPACE_OWNER].as_str()?;
    let user = serde_json::from_str(said).ok()?;
    Some((said.to_owned(), user))
}

fn place(snapshot: &Snapshot, workspace: &Json) -> Result<(), String> {
    let selector = partition::selector(&workspace["spec"]["location"]["selector"])
        .map_err(|error| format!("spec.location.selector is invalid: {error}"))?;
    let shard = snapshot.get(&ObjectKey::cluster_scoped(
        ids::shards(),
        ClusterName::root(),
        well_known::SHARD,
    ));
    let takes = shard.is_some_and(|shard| {
        let annotations = &shard.object.body_value()["metadata"]["annotations"];
        annotations.get(annotations::UNSCHEDULABLE).is_none() && selector.matches(&shard.object.meta.labels)
    });
    match takes {
        true => Ok(()),
        false => Err("No available shards to schedule the workspace.".to_owned()),
    }
}

fn fresh_name(registry: &Registry, snapshot: &Snapshot) -> ClusterName {
    loop {
        let mut random = [0; 32];
        registry.rng.fill(&mut random);
        let name = digest::cluster_name(&random);
        if snapshot.get(&ids::logical_cluster(&name)).is_none() {
            return name;
        }
    }
}
