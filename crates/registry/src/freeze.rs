//! Freezing and thawing of workspaces, alone or with the workspaces below them.
//!
//! A freeze takes the LogicalCluster of the workspace first, then those below it, a level after the
//! other. A frozen parent takes no new child, and a child that gets its logical cluster meanwhile
//! begins with the freeze, so that the walk ends with the whole subtree. A call that breaks off is
//! completed by its repetition.

use crate::{
    client::{Intent, Plan, commit},
    deps::Deps,
};
use insula_api::{ClusterName, Freeze, Json, ObjectKey, Revision, Scope, names::annotations};
use insula_catalog::{Error, Named, Result, freeze, ids, locate};
use insula_meter::ServerWork;
use insula_store::{Entry, Snapshot};
use std::ops::ControlFlow;

/// Workspaces below one that are frozen with it.
pub const SUBTREE_MAX: usize = 20_000;
/// LogicalClusters that one transaction writes: each takes two operations.
const BATCH: usize = 50;
/// Attempts at one level, which others write at the same time.
const ATTEMPTS: usize = 16;

/// A workspace to freeze or to thaw.
pub struct Frozen<'a> {
    /// Its Workspace in the parent, which must not change meanwhile.
    pub workspace: &'a ObjectKey,
    /// Its logical cluster.
    pub cluster: &'a ClusterName,
    /// The freeze of its own that it must still have (`Some(None)`: none); `None` if that does not
    /// matter.
    pub seen: Option<Option<&'a Freeze>>,
}

/// Freezes a workspace, or thaws it (`None`). Returns the number of workspaces that changed.
///
/// # Errors
/// The workspace is gone, its freeze is not the one that was seen ([`Error::Conflict`]), others
/// write at every attempt, or the store refuses.
pub async fn set(deps: &Deps, of: &Frozen<'_>, wanted: Option<&Freeze>) -> Result<usize> {
    let mut changed = 0;
    for attempt in 0.. {
        let snapshot = latest(deps).await?;
        let Some((workspace, logical)) = snapshot
            .get(of.workspace)
            .zip(snapshot.get(&ids::logical_cluster(of.cluster)))
        else {
            return Err(gone(of.workspace));
        };
        let view = locate::logical_cluster(&snapshot, of.cluster);
        let present = view.as_ref().and_then(|view| view.frozen.as_deref());
        if of.seen.is_some_and(|seen| seen != present) {
            return Err(changed_meanwhile(of.workspace));
        }
        let mut intents = vec![Intent::Expect(workspace.key, Some(workspace.revision))];
        let update = rewritten(&logical, annotations::FROZEN, wanted);
        let is_new = update.is_some();
        intents.extend(update);
        match commit(deps, &Plan::new(intents)).await {
            Ok(_) => {
                changed += usize::from(is_new);
                break;
            }
            Err(Error::Conflict { .. }) if attempt < ATTEMPTS => {}
            Err(error) => return Err(error),
        }
    }
    Ok(changed + hand_down(deps, of.cluster).await?)
}

/// Returns the number of workspaces below one; at most one more than [`SUBTREE_MAX`].
pub fn count_below(snapshot: &Snapshot, cluster: &ClusterName) -> usize {
    let mut level = vec![cluster.clone()];
    let mut count = 0;
    while count <= SUBTREE_MAX && !level.is_empty() {
        level = level.iter().flat_map(|cluster| children(snapshot, cluster)).collect();
        count += level.len();
    }
    count
}

/// Writes into all workspaces below one the freeze that holds for them.
async fn hand_down(deps: &Deps, top: &ClusterName) -> Result<usize> {
    let mut level = vec![top.clone()];
    let mut changed = 0;
    let mut attempts = ATTEMPTS;
    while !level.is_empty() {
        let snapshot = latest(deps).await?;
        let (intents, below) = of_children(&snapshot, &level);
        let mut conflict = None;
        for batch in intents.chunks(BATCH) {
            match commit(deps, &Plan::new(batch.to_vec())).await {
                Ok(_) => changed += batch.len(),
                Err(error @ Error::Conflict { .. }) => conflict = Some(error),
                Err(error) => return Err(error),
            }
        }
        match conflict {
            None => {
                level = below;
                attempts = ATTEMPTS;
            }
            Some(error) if attempts == 0 => return Err(error),
            // What was written is not written again.
            Some(_) => attempts -= 1,
        }
    }
    Ok(changed)
}

/// Returns the writes of the children of some clusters, and the clusters of the children.
fn of_children(snapshot: &Snapshot, level: &[ClusterName]) -> (Vec<Intent>, Vec<ClusterName>) {
    let (mut intents, mut below) = (Vec::new(), Vec::new());
    for parent in level {
        let view = locate::logical_cluster(snapshot, parent);
        let wanted = view.as_ref().and_then(|view| view.handed_down());
        for child in children(snapshot, parent) {
            if let Some(logical) = snapshot.get(&ids::logical_cluster(&child)) {
                intents.extend(rewritten(&logical, annotations::FROZEN_ABOVE, wanted));
                below.push(child);
            }
        }
    }
    (intents, below)
}

fn children(snapshot: &Snapshot, cluster: &ClusterName) -> Vec<ClusterName> {
    let mut found = Vec::new();
    snapshot.for_each(&Scope::cluster(ids::workspaces(), cluster.clone()), |entry| {
        found.extend(locate::cluster_of(snapshot, cluster, &entry.key.name));
        ControlFlow::Continue(())
    });
    found
}

/// Returns the write of a LogicalCluster with another freeze; `None` if it has it.
fn rewritten(logical: &Entry, key: &str, wanted: Option<&Freeze>) -> Option<Intent> {
    let mut value = logical.object.body_value();
    let known = value["metadata"]["annotations"].get(key).and_then(Json::as_str);
    if known.map(Freeze::read).as_ref() == wanted {
        return None;
    }
    freeze::set(&mut value, key, wanted);
    Some(Intent::Update(logical.clone(), value))
}

async fn latest(deps: &Deps) -> Result<Snapshot> {
    let snapshot = deps.store.snapshot(Revision(0)).await;
    let snapshot = snapshot.map_err(|error| Error::Unavailable(error.to_string()))?;
    // The workspaces below get the freeze, even if the caller has left.
    Ok(snapshot.for_server(ServerWork::Operation))
}

fn gone(workspace: &ObjectKey) -> Error {
    Error::NotFound {
        resource: named(workspace),
        name: workspace.name.to_string(),
    }
}

fn changed_meanwhile(workspace: &ObjectKey) -> Error {
    Error::Conflict {
        resource: named(workspace),
        name: workspace.name.to_string(),
        detail: "its freeze changed: read it again".to_owned(),
    }
}

fn named(workspace: &ObjectKey) -> Named {
    Named {
        group: workspace.resource.group.clone(),
        resource: workspace.resource.resource.clone(),
    }
}
