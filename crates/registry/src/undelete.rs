//! Deletions of workspaces and APIBindings that are taken back within their grace period.

use crate::{
    client::{Intent, Plan, commit},
    deps::Deps,
    grace,
};
use insula_api::{ClusterName, ObjectKey, Revision, Timestamp};
use insula_catalog::{Error, Named, Result, freeze, ids, locate};
use insula_store::{Entry, Pinned};

/// Attempts to take a deletion back, while others write the object.
const ATTEMPTS: usize = 16;

/// A deletion that was taken back, or would be.
#[derive(Debug)]
pub struct Undeleted {
    /// The object as it is now; as it was for a check alone.
    pub object: Entry,
    /// Time at which the deletion would have gone on.
    pub deadline: Timestamp,
}

/// Takes the deletion of a Workspace or an APIBinding back. `etag` is the revision that it must
/// have.
///
/// # Errors
/// [`Error::NotFound`] without the object, [`Error::Conflict`] for another revision,
/// [`Error::BadRequest`] for an object whose deletion cannot be taken back, or whose workspace
/// takes no writes, and the error of the store.
pub async fn undelete(deps: &Deps, key: &ObjectKey, etag: Option<&str>, check_only: bool) -> Result<Undeleted> {
    let missing = || Error::NotFound {
        resource: named(key),
        name: key.name.to_string(),
    };
    let mut attempts = 0;
    loop {
        let snapshot = deps.store.snapshot(Revision(0)).await;
        let snapshot = snapshot.map_err(|error| Error::Unavailable(error.to_string()))?;
        let entry = snapshot.get(key).ok_or_else(missing)?;
        if etag.is_some_and(|etag| etag != entry.revision.to_string()) {
            return Err(Error::Conflict {
                resource: named(key),
                name: key.name.to_string(),
                detail: format!("the {} changed: read it again", noun(key)),
            });
        }
        let guards = guards(&snapshot, &entry)?;
        let deadline = entry.object.meta.deletion_timestamp.unwrap_or_default();
        if check_only {
            return Ok(Undeleted {
                object: entry,
                deadline,
            });
        }
        let mut value = entry.object.body_value();
        grace::take_back(&mut value);
        let intents = guards.into_iter().chain([Intent::Update(entry, value)]).collect();
        match commit(deps, &Plan::new(intents)).await {
            Ok(_) => {
                let object = deps.store.latest().get(key).ok_or_else(missing)?;
                return Ok(Undeleted { object, deadline });
            }
            Err(Error::Conflict { .. }) if attempts < ATTEMPTS => attempts += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Checks that a deletion can be taken back. Returns the guards that keep it so: on the
/// LogicalCluster of the object, and on that of a Workspace.
fn guards(snapshot: &Pinned, entry: &Entry) -> Result<Vec<Intent>> {
    let key = &entry.key;
    let refused = |why: &str| {
        let path = locate::path_of(snapshot, &key.cluster);
        Error::BadRequest(match noun(key) {
            "workspace" => format!("workspace {} {why}", path.join(&key.name)),
            noun => format!("{noun} {} of workspace {path} {why}", key.name),
        })
    };
    let meta = &entry.object.meta;
    if !meta.is_deleting() {
        return Err(refused("is not deleted: there is nothing to take back"));
    }
    let too_late =
        || refused("is being removed, which cannot be taken back: restore it from a backup, if there is one");
    if !meta.awaits_deletion() {
        return Err(too_late());
    }
    let mut guards = Vec::new();
    if key.resource == ids::workspaces() {
        let cluster = locate::cluster_of(snapshot, &key.cluster, &key.name);
        let cluster = cluster.and_then(|cluster| living(snapshot, &cluster));
        guards.push(cluster.ok_or_else(too_late)?);
    }
    let Some(around) = living(snapshot, &key.cluster) else {
        return Err(refused(match noun(key) {
            "workspace" => "goes with the workspace above it",
            _ => "goes with its workspace",
        }));
    };
    guards.push(around);
    if let Err(freeze) = freeze::open(snapshot, &key.cluster) {
        let known = locate::path_of(snapshot, &key.cluster);
        return Err(Error::BadRequest(freeze.refusal(known.as_str())));
    }
    Ok(guards)
}

/// Returns the guard that a LogicalCluster stays as it is; `None` for one that is deleted.
fn living(snapshot: &Pinned, cluster: &ClusterName) -> Option<Intent> {
    let logical = snapshot.get(&ids::logical_cluster(cluster))?;
    let is_living = !logical.object.meta.is_deleting();
    is_living.then_some(Intent::Expect(logical.key, Some(logical.revision)))
}

/// Returns the word by which messages name the object.
fn noun(key: &ObjectKey) -> &'static str {
    if key.resource == ids::workspaces() {
        "workspace"
    } else {
        "apibinding"
    }
}

fn named(key: &ObjectKey) -> Named {
    Named {
        group: key.resource.group.clone(),
        resource: key.resource.resource.clone(),
    }
}
