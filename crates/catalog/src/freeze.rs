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
use insula_api::{ClusterName, Json, ObjectKey, Revision, names::annotations};
use insula_store::Snapshot;
use serde_json::json;

/// A freeze of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Freeze {
    /// Path of the workspace that was frozen: this one, or one above it.
    pub workspace: String,
    /// Reason, for people.
    pub reason: String,
    /// Name of the user who froze it.
    pub by: String,
    /// Time in RFC 3339.
    pub at: String,
    /// True if it holds for the subtree.
    pub subtree: bool,
}

impl Freeze {
    /// Reads the value of an annotation. Text that is no freeze still freezes: administrators may
    /// write the reason alone.
    pub fn read(text: &str) -> Self {
        let value: Json = serde_json::from_str(text).unwrap_or_default();
        let field = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        match value.is_object() {
            true => Freeze {
                workspace: field("workspace"),
                reason: field("reason"),
                by: field("by"),
                at: field("at"),
                subtree: value["subtree"] == true,
            },
            false => Freeze {
                reason: text.to_owned(),
                ..Freeze::default()
            },
        }
    }

    /// Returns the value of the annotation.
    pub fn write(&self) -> String {
        let Freeze {
            workspace,
            reason,
            by,
            at,
            subtree,
        } = self;
        json!({"workspace": workspace, "reason": reason, "by": by, "at": at, "subtree": subtree}).to_string()
    }

    /// Returns the refusal of a write in a workspace, by its path or name.
    pub fn refusal(&self, of: &str) -> String {
        let Freeze {
            workspace, reason, at, ..
        } = self;
        let frozen = if workspace.is_empty() { of } else { workspace };
        let above = match frozen == of {
            true => String::new(),
            false => format!(" with {frozen} above it"),
        };
        let since = if at.is_empty() {
            String::new()
        } else {
            format!(" since {at}")
        };
        let reason = if reason.is_empty() {
            "no reason is given"
        } else {
            reason
        };
        let thaw = match frozen.rsplit_once(':') {
            Some((parent, name)) => {
                format!("who has the verb \"freeze\" on the workspace {name:?} in {parent} thaws it")
            }
            None => "platform administrators thaw it".to_owned(),
        };
        format!("workspace {of} is frozen{above}{since} and read-only: {reason}; {thaw}")
    }
}

impl LogicalClusterView {
    /// Returns the freeze of the cluster: its own, or one from above. None while it is being
    /// deleted.
    pub fn freeze(&self) -> Option<&Freeze> {
        let freeze = self.frozen.as_deref().or(self.frozen_above.as_deref());
        freeze.filter(|_| !self.deleting)
    }

    /// Returns the freeze that the cluster hands on to the workspaces below it.
    pub fn handed_down(&self) -> Option<&Freeze> {
        let own = self.frozen.as_deref().filter(|freeze| freeze.subtree);
        own.or(self.frozen_above.as_deref())
    }
}

/// Returns the LogicalCluster and its revision, by which a write is guarded against a freeze;
/// `None` for clusters without one.
///
/// # Errors
/// The workspace is frozen.
pub fn open(snapshot: &Snapshot, cluster: &ClusterName) -> Result<Option<(ObjectKey, Revision)>, Freeze> {
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
pub fn of_child(snapshot: &Snapshot, parent: &ClusterName) -> Option<String> {
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
    fn a_freeze_reads_as_it_was_written() {
        let own = freeze("root:org", true);
        assert_eq!(Freeze::read(&own.write()), own);
        assert_eq!(Freeze::read("moving house").reason, "moving house");
        assert_eq!(Freeze::read("true").reason, "true");
    }

    #[test]
    fn a_refusal_names_the_workspace_the_reason_and_who_thaws_it() {
        let own = freeze("root:org:team", false);
        assert_eq!(
            own.refusal("root:org:team"),
            "workspace root:org:team is frozen since 2026-01-02T03:04:05Z and read-only: audit; \
             who has the verb \"freeze\" on the workspace \"team\" in root:org thaws it"
        );
        let above = freeze("root:org", true).refusal("root:org:team");
        assert!(
            above.contains("root:org:team is frozen with root:org above it since"),
            "{above}"
        );
        let bare = Freeze::default().refusal("user:bob");
        assert!(bare.contains("no reason is given"), "{bare}");
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
