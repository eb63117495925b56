//! Annotations by which the platform sets the limits of a workspace.

use crate::{
    client::{Intent, Plan, commit},
    deps::Deps,
};
use insula_api::{ClusterName, Revision};
use insula_catalog::{Error, Named, Result, ids};
use insula_store::Entry;
use serde_json::json;

/// Attempts at a LogicalCluster that others write at the same time.
const ATTEMPTS: usize = 8;

/// Writes limits of a workspace into its LogicalCluster: annotations by key, `None` to remove one.
/// Returns the LogicalCluster as it is then.
///
/// # Errors
/// The LogicalCluster is gone or is not at the revision that the caller names, or the store
/// refuses.
pub async fn set_annotations(
    deps: &Deps,
    cluster: &ClusterName,
    at_revision: Option<Revision>,
    annotations: &[(&str, Option<String>)],
) -> Result<Entry> {
    let key = ids::logical_cluster(cluster);
    let named = || Named {
        group: key.resource.group.clone(),
        resource: key.resource.resource.clone(),
    };
    let mut outcome = Err(Error::NotFound {
        resource: named(),
        name: cluster.to_string(),
    });
    for _ in 0..ATTEMPTS {
        let snapshot = deps.store.snapshot(Revision(0)).await;
        let snapshot = snapshot.map_err(|error| Error::Unavailable(error.to_string()))?;
        let Some(entry) = snapshot.get(&key) else { break };
        if at_revision.is_some_and(|revision| revision != entry.revision) {
            return Err(Error::Conflict {
                resource: named(),
                name: cluster.to_string(),
                detail: "the etag is not that of the present limits; read them again".into(),
            });
        }
        let mut value = entry.object.body_value();
        let held = &mut value["metadata"]["annotations"];
        for (key, wanted) in annotations {
            match wanted {
                Some(wanted) => held[*key] = json!(wanted),
                None => {
                    held.as_object_mut().map(|held| held.remove(*key));
                }
            }
        }
        match commit(deps, &Plan::new(vec![Intent::Update(entry.clone(), value)])).await {
            Ok(None) => return Ok(entry),
            Ok(Some(revision)) => {
                // As it was written: others may have changed it since.
                let written = deps.store.at_revision(revision).ok();
                let entry = written.and_then(|snapshot| snapshot.get(&key));
                return entry.ok_or_else(|| Error::Internal("the history of the write is gone".into()));
            }
            Err(error @ Error::Conflict { .. }) => outcome = Err(error),
            Err(error) => return Err(error),
        }
    }
    outcome
}
