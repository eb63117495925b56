//! Home workspaces: one workspace for each user, without a parent. A home has no stored Workspace
//! object. Reads return one that is derived from its LogicalCluster.

use crate::{
    client::{Intent, Plan, commit},
    deps::Deps,
};
use insula_admission::kinds::user_json;
use insula_api::{ClusterName, ClusterPath, Json, Object, ObjectKey, kinds::WorkspacePhase};
use insula_auth::UserInfo;
use insula_catalog::{
    Result, digest, ids,
    locate::{self, HOMES},
};
use insula_store::{Entry, Snapshot};
use serde_json::json;
use std::sync::Arc;

/// Seconds after which a home that is not ready is reported as late.
const CREATION_SECONDS_MAX: i64 = 60;

/// The state of a user's home.
#[derive(Debug)]
pub enum Home {
    /// There is none yet.
    Absent,
    /// It is being made, or restored from a backup.
    Coming,
    /// It is not ready after 60 seconds.
    Late,
    /// Another user's workspace has its name.
    Taken,
    /// It is ready, as the Workspace that represents it.
    There(Box<Entry>),
}

/// Returns the state of a user's home.
pub fn find(deps: &Deps, snapshot: &Snapshot, user: &UserInfo) -> Home {
    let cluster = digest::home_cluster(&user.name);
    let Some(entry) = snapshot.get(&ids::logical_cluster(&cluster)) else {
        return match snapshot.get(&ids::closed_home(&cluster)) {
            None => Home::Absent,
            Some(_) => Home::Coming,
        };
    };
    let view = locate::logical_cluster(snapshot, &cluster);
    if view.as_ref().and_then(|view| view.owner.as_deref()) != Some(&*user.name) {
        return Home::Taken;
    }
    match view.map(|view| view.phase) {
        Some(WorkspacePhase::Scheduling | WorkspacePhase::Initializing) | None => {
            let since = entry.object.meta.creation_timestamp;
            let waited = since.map_or(0, |since| deps.clock.now().since(since));
            if waited > CREATION_SECONDS_MAX {
                Home::Late
            } else {
                Home::Coming
            }
        }
        Some(_) => shown(&cluster, &entry).map_or(Home::Late, |entry| Home::There(Box::new(entry))),
    }
}

/// Creates the LogicalCluster of a user's home. Controllers do the rest. A conflict with a
/// concurrent creation is no error.
///
/// # Errors
/// The store refused the commit.
pub async fn create(deps: &Deps, user: &UserInfo) -> Result<()> {
    let cluster = digest::home_cluster(&user.name);
    let owner = user_json(user);
    let mut logical = json!({
        "apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster",
        "metadata": {
            "name": "cluster",
            "annotations": {
                "experimental.tenancy.kcp.io/owner": owner.to_string(),
                "internal.tenancy.kcp.io/type": "root:home",
            },
        },
        "spec": {"directlyDeletable": false, "createdBy": owner},
        "status": {"phase": "Scheduling"},
    });
    // A user name that is not a valid path segment gets no path annotation.
    if let Ok(path) = ClusterPath::parse(&format!("{HOMES}:{}", user.name)) {
        logical["metadata"]["annotations"]["kcp.io/path"] = json!(path.as_str());
    }
    let plan = Plan::new(vec![
        Intent::Create(ids::logical_cluster(&cluster), logical),
        Intent::Expect(ids::closed_home(&cluster), None),
    ]);
    match commit(deps, &plan).await {
        Ok(_) | Err(insula_catalog::Error::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the Workspace that represents a home, as kcp shows it.
fn shown(cluster: &ClusterName, logical: &Entry) -> Option<Entry> {
    let value = logical.object.body_value();
    let mut workspace = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
        "metadata": {"name": "cluster", "creationTimestamp": value["metadata"]["creationTimestamp"]},
        "spec": {"cluster": cluster.as_str(), "URL": value["status"]["URL"]},
        "status": {"phase": value["status"]["phase"]},
    });
    for field in ["conditions", "initializers"] {
        if let Some(list) = value["status"].get(field) {
            workspace["status"][field] = list.clone();
        }
    }
    let object: Json = workspace;
    Some(Entry {
        key: ObjectKey::cluster_scoped(ids::workspaces(), ClusterName::root(), "cluster"),
        object: Arc::new(Object::new(&object, None).ok()?),
        ..logical.clone()
    })
}
