//! A freeze of a workspace, as the value of an annotation of its LogicalCluster.

use crate::{ClusterName, Json};
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
        let Freeze { workspace, reason, .. } = self;
        let since = self.since();
        let frozen = if workspace.is_empty() { of } else { workspace };
        let above = match frozen == of {
            true => String::new(),
            false => format!(" with {frozen} above it"),
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

    /// Returns the refusal of a write from outside, by the workspace's cluster. Providers know
    /// neither the paths nor the affairs of their tenants.
    pub fn refusal_from_outside(&self, cluster: &ClusterName) -> String {
        let since = self.since();
        format!("workspace {cluster} is frozen{since} and read-only: try again when its administrators have thawed it")
    }

    /// Returns the time as part of a refusal; empty if it is not known.
    fn since(&self) -> String {
        match self.at.as_str() {
            "" => String::new(),
            at => format!(" since {at}"),
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
        let outside = own.refusal_from_outside(&ClusterName::root());
        assert_eq!(
            outside,
            "workspace root is frozen since 2026-01-02T03:04:05Z and read-only: try again when its administrators \
             have thawed it"
        );
        let bare = Freeze::default().refusal("user:bob");
        assert!(bare.contains("no reason is given"), "{bare}");
    }
}
