//! Freezes of workspaces: a frozen workspace answers reads and refuses writes. A freeze is an
//! annotation of the LogicalCluster, so that a write guarded by the LogicalCluster's revision
//! cannot commit after it.
//!
//! ```text
//! insula.io/frozen        the workspace itself was frozen
//! insula.io/frozen-above  a workspace above it was frozen with its subtree
//! ```
//! The deletion of the workspace ends the freeze: its finalizers need writes.

use crate::{
    ids,
    locate::{self, LogicalClusterView},
};
use insula_api::{ClusterName, Freeze, Json, ObjectKey, Revision, names::annotations};
use insula_store::Pinned;
use serde_json::json;

/// Returns the LogicalCluster and its revision, by which a write is guarded against a freeze;
/// `None` for clusters without one.
///
/// # Errors
/// The workspace is frozen.
pub fn open(snapshot: &Pinned, cluster: &ClusterName) -> Result<Option<(ObjectKey, Revision)>, Freeze> {
    let key = ids::logical_cluster(cluster);
    let Some(entry) = snapshot.get(&key) else {
        return Ok(None);
    };
    let view = entry
        .object
        .parsed(|object| LogicalClusterView::read(&object.body_value()));
    match view.freeze() {
        Some(freeze) => Err(freeze.clone()),
        None => Ok(Some((key, entry.revision))),
    }
}

/// Returns the freeze that a new workspace in a cluster begins with, as the value of
/// [`annotations::FROZEN_ABOVE`].
pub fn of_child(snapshot: &Pinned, parent: &ClusterName) -> Option<String> {
    let parent = locate::logical_cluster(snapshot, parent)?;
    parent.handed_down().map(Freeze::write)
}

/// Sets or removes a freeze in a LogicalCluster.
pub fn set(logical: &mut Json, key: &str, freeze: Option<&Freeze>) {
    debug_assert!(key == annotations::FROZEN || key == annotations::FROZEN_ABOVE);
    let annotations = &mut logical["metadata"]["annotations"];
    match freeze {
        Some(freeze) => annotations[key] = json!(freeze.write()),
        None => {
            annotations.as_object_mut().map(|annotations| annotations.remove(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn freeze(workspace: &str, subtree: bool) -> Freeze {
        Freeze {
            workspace: workspace.to_owned(),
            reason: "audit".to_owned(),
            by: "carol".to_owned(),
            at: "2026-01-02T03:04:05Z".to_owned(),
            subtree,
        }
    }

    #[test]
    fn only_a_freeze_with_its_subtree_is_handed_down() {
        let view = |own: Option<Freeze>, above: Option<Freeze>, deleting: bool| {
            let mut object = json!({"metadata": {"annotations": {}}});
            set(&mut object, annotations::FROZEN, own.as_ref());
            set(&mut object, annotations::FROZEN_ABOVE, above.as_ref());
            if deleting {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
            }
            LogicalClusterView::read(&object)
        };
        let (org, team) = (freeze("root:org", true), freeze("root:org:team", false));
        let one = view(Some(team.clone()), Some(org.clone()), false);
        assert_eq!((one.freeze(), one.handed_down()), (Some(&team), Some(&org)));
        let alone = view(Some(team.clone()), None, false);
        assert_eq!((alone.freeze(), alone.handed_down()), (Some(&team), None));
        assert_eq!(view(None, None, false).freeze(), None);
        assert_eq!(view(Some(team), None, true).freeze(), None, "deletion ends it");
    }
}
