//! Deletions of workspaces that are taken back within their grace period.

use crate::{
    client::{Intent, Plan, commit},
    deps::Deps,
    grace,
};
use insula_api::{ObjectKey, Revision, Timestamp};
use insula_catalog::{Error, Named, Result, freeze, ids, locate};
use insula_store::{Entry, Snapshot};

/// Attempts to take a deletion back, while others write the workspace.
const ATTEMPTS: usize = 16;

/// A deletion that was taken back, or would be.
#[derive(Debug)]
pub struct Undeleted {
    /// The Workspace as it is now; as it was for a check alone.
    pub workspace: Entry,
    /// Time at which the deletion would have gone on.
    pub deadline: Timestamp,
}

/// Takes the deletion of a workspace back. `etag` is the revision that it must have.
///
/// # Errors
/// [`Error::NotFound`] without a Workspace, [`Error::Conflict`] for another revision,
/// [`Error::BadRequest`] for a workspace whose deletion cannot be taken back, or whose parent takes
/// no writes, and the error of the store.
pub async fn undelete(deps: &Deps, workspace: &ObjectKey, etag: Option<&str>, check_only: bool) -> Result<Undeleted> {
    let mut attempts = 0;
    loop {
        let snapshot = deps.store.snapshot(Revision(0)).await;
        let snapshot = snapshot.map_err(|error| Error::Unavailable(error.to_string()))?;
        let entry = snapshot.get(workspace).ok_or_else(|| Error::NotFound {
            resource: named(workspace),
            name: workspace.name.to_string(),
        })?;
        if etag.is_some_and(|etag| etag != entry.revision.to_string()) {
            return Err(Error::Conflict {
                resource: named(workspace),
                name: workspace.name.to_string(),
                detail: "the workspace changed: read it again".to_owned(),
            });
        }
        let guards = guards(&snapshot, &entry)?;
        let deadline = entry.object.meta.deletion_timestamp.unwrap_or_default();
        if check_only {
            return Ok(Undeleted {
                workspace: entry,
                deadline,
            });
        }
        let mut value = entry.object.body_value();
        grace::take_back(&mut value);
        let intents = guards.into_iter().chain([Intent::Update(entry, value)]).collect();
        match commit(deps, &Plan::new(intents)).await {
            Ok(_) => {
                let workspace = deps.store.latest().get(workspace).ok_or_else(|| Error::NotFound {
                    resource: named(workspace),
                    name: workspace.name.to_string(),
                })?;
                return Ok(Undeleted { workspace, deadline });
            }
            Err(Error::Conflict { .. }) if attempts < ATTEMPTS => attempts += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Checks that the deletion of a workspace can be taken back. Returns the guards that keep it so:
/// on its LogicalCluster and on its parent.
fn guards(snapshot: &Snapshot, entry: &Entry) -> Result<Vec<Intent>> {
    let refused = |why: &str| {
        let path = locate::path_of(snapshot, &entry.key.cluster).join(&entry.key.name);
        Error::BadRequest(format!("workspace {path} {why}"))
    };
    let meta = &entry.object.meta;
    if !meta.is_deleting() {
        return Err(refused("is not deleted: there is nothing to take back"));
    }
    let cluster = locate::cluster_of(snapshot, &entry.key.cluster, &entry.key.name);
    let logical = cluster.and_then(|cluster| snapshot.get(&ids::logical_cluster(&cluster)));
    let logical = logical.filter(|logical| meta.awaits_deletion() && !logical.object.meta.is_deleting());
    let Some(logical) = logical else {
        return Err(refused(
            "is being removed, which cannot be taken back: restore it from a backup, if there is one",
        ));
    };
    let parent = snapshot.get(&ids::logical_cluster(&entry.key.cluster));
    let Some(parent) = parent.filter(|parent| !parent.object.meta.is_deleting()) else {
        return Err(refused("goes with the workspace above it"));
    };
    if let Err(freeze) = freeze::open(snapshot, &entry.key.cluster) {
        let known = locate::path_of(snapshot, &entry.key.cluster);
        return Err(Error::BadRequest(freeze.refusal(known.as_str())));
    }
    let guard = |entry: Entry| Intent::Expect(entry.key, Some(entry.revision));
    Ok(vec![guard(logical), guard(parent)])
}

fn named(workspace: &ObjectKey) -> Named {
    Named {
        group: workspace.resource.group.clone(),
        resource: workspace.resource.resource.clone(),
    }
}
