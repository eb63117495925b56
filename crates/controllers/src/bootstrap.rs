//! First objects of an installation: the root workspace, its types, exports and access rules, and
//! one shard.

use crate::namespace::fresh_namespace;
use insula_api::{
    ClusterName, Condition, Json, ObjectKey, Timestamp,
    names::{annotations, api_versions, labels, well_known},
    set_condition,
};
use insula_catalog::{Error, ids};
use insula_meter::ServerWork;
use insula_registry::{Deps, Intent, Plan};
use serde_json::json;

/// Documents in `config/bootstrap`.
const TYPES: &str = include_str!("../../../config/bootstrap/workspacetypes.yaml");
const ACCESS: &str = include_str!("../../../config/bootstrap/access.yaml");
const EXPORTS: &str = include_str!("../../../config/bootstrap/apiexports.yaml");
/// Attempts after conflicts with other servers that start at the same time.
const ATTEMPTS_MAX: usize = 8;

/// Error of writing the first objects.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// A document in `config/bootstrap` does not parse.
    #[error("config/bootstrap: {0}")]
    Document(String),
    /// The store refused the transaction.
    #[error("writing the root workspace: {0}")]
    Store(#[from] Error),
}

/// Creates the first objects that are missing, in one transaction. Existing ones stay:
/// administrators may have changed them.
///
/// # Errors
/// Fails if the store does, except for lack of space once the root workspace exists.
pub async fn bootstrap(registry: &Deps) -> Result<(), BootstrapError> {
    let wanted = objects(registry)?;
    for _ in 0..ATTEMPTS_MAX {
        let snapshot = registry.store.latest().for_server(ServerWork::Reconciler);
        let missing = wanted.iter().filter(|(key, _)| snapshot.get(key).is_none());
        let mut intents: Vec<Intent> = missing
            .map(|(key, value)| Intent::Create(key.clone(), value.clone()))
            .collect();
        intents.extend(moved_shard(registry, &snapshot, &wanted));
        match insula_registry::commit(registry, &Plan::new(intents)).await {
            Ok(_) => return Ok(()),
            Err(Error::Conflict { .. }) => {}
            // Administrators need a running server to free space. The next start writes the rest.
            Err(Error::InsufficientStorage(_)) if is_there(&snapshot) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns true when an earlier start made the root workspace.
fn is_there(snapshot: &insula_store::Snapshot) -> bool {
    snapshot.get(&ids::logical_cluster(&ClusterName::root())).is_some()
}

/// Returns the update of the shard if the address of the server changed since the last start.
fn moved_shard(registry: &Deps, snapshot: &insula_store::Snapshot, wanted: &[(ObjectKey, Json)]) -> Option<Intent> {
    let (key, shard) = wanted.iter().find(|(key, _)| key.resource == ids::shards())?;
    let entry = snapshot.get(key)?;
    let mut value = entry.object.body_value();
    if value["spec"]["baseURL"] == json!(registry.external_url) {
        return None;
    }
    value["spec"] = shard["spec"].clone();
    Some(Intent::Update(entry, value))
}

fn objects(registry: &Deps) -> Result<Vec<(ObjectKey, Json)>, BootstrapError> {
    let root = ClusterName::root();
    let url = &registry.external_url;
    let mut objects = vec![(ids::logical_cluster(&root), root_cluster(url, registry.clock.now()))];
    for name in well_known::NAMESPACES {
        objects.push((
            ObjectKey::cluster_scoped(ids::namespaces(), root.clone(), name),
            fresh_namespace(name),
        ));
    }
    let shard = json!({
        "apiVersion": api_versions::CORE, "kind": "Shard",
        "metadata": {"name": well_known::SHARD, "labels": {"name": well_known::SHARD}},
        "spec": {"baseURL": url, "externalURL": url, "virtualWorkspaceURL": url},
    });
    objects.push((
        ObjectKey::cluster_scoped(ids::shards(), root.clone(), well_known::SHARD),
        shard,
    ));
    for value in documents(ACCESS)? {
        let id = match value["kind"].as_str() {
            Some("ClusterRole") => ids::clusterroles(),
            _ => ids::clusterrolebindings(),
        };
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        objects.push((ObjectKey::cluster_scoped(id, root.clone(), &name), value));
    }
    for (id, text) in [(ids::workspacetypes(), TYPES), (ids::apiexports(), EXPORTS)] {
        for mut value in documents(text)? {
            value["metadata"]["annotations"][annotations::PATH] = json!(well_known::ROOT);
            let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            objects.push((ObjectKey::cluster_scoped(id.clone(), root.clone(), &name), value));
        }
    }
    Ok(objects)
}

fn documents(text: &str) -> Result<Vec<Json>, BootstrapError> {
    serde_saphyr::from_multiple(text).map_err(|error| BootstrapError::Document(error.to_string()))
}

fn root_cluster(url: &str, now: Timestamp) -> Json {
    let mut value = json!({
        "apiVersion": api_versions::CORE, "kind": "LogicalCluster",
        "metadata": {
            "name": well_known::LOGICAL_CLUSTER, "labels": {labels::PHASE: "Ready"},
            "annotations": {annotations::PATH: well_known::ROOT, annotations::WORKSPACE_TYPE: "root:root"},
        },
        "spec": {"directlyDeletable": false},
        "status": {"phase": "Ready", "URL": format!("{url}/clusters/root")},
    });
    set_condition(&mut value, &Condition::holds("WorkspaceInitialized"), now);
    value
}
