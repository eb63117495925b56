//! A write under review, and the form of a kind's rules.

use insula_access::{WorkspaceNames, facts};
use insula_api::{ClusterName, ClusterPath, Json, ObjectKey, Timestamp, Verb};
use insula_auth::{Attributes, ClusterFacts, RoleVerb, UserInfo};
use insula_catalog::{Catalog, Error, Part, Result, Served, ids, locate};
use insula_store::Snapshot;
use std::cell::RefCell;

/// Operation on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Creation of a new object.
    Create,
    /// Update of an existing object.
    Update,
    /// Deletion of an existing object.
    Delete,
}

/// A write under review, with the state that decides it.
pub struct Review<'a> {
    /// Snapshot that decides the write.
    pub snapshot: &'a Snapshot,
    /// Catalog of the APIs that clusters serve.
    pub catalog: &'a Catalog,
    /// The caller.
    pub user: &'a UserInfo,
    /// Logical cluster of the object.
    pub cluster: &'a ClusterName,
    /// Resource as the cluster serves it.
    pub served: &'a Served,
    /// Operation on the object.
    pub operation: Operation,
    /// Part of the object that changes.
    pub part: Part,
    /// Time of the request.
    pub now: Timestamp,
    /// Warnings for the caller, about a write that is allowed.
    pub warnings: RefCell<Vec<String>>,
}

impl Review<'_> {
    /// Returns true for callers in a privileged group: `system:masters` or the administrators of
    /// kcp.
    pub fn privileged(&self) -> bool {
        self.is_master() || self.own().is_in(insula_auth::GROUP_KCP_ADMIN)
    }

    /// Returns true for callers in `system:masters`.
    pub(super) fn is_master(&self) -> bool {
        self.own().is_in(insula_auth::GROUP_MASTERS)
    }

    /// Returns the caller as this cluster sees them: a group that does not count here makes nobody
    /// privileged.
    fn own(&self) -> UserInfo {
        self.user.within(Some(self.cluster))
    }

    /// Checks whether the caller has a right on an object of another cluster. The caller need not
    /// have access to that cluster, because an offer is authorized where it is published. The
    /// object need not exist, so the answer does not reveal whether it does.
    pub(super) fn may(
        &self,
        verb: impl Into<RoleVerb>,
        cluster: &ClusterName,
        group: &str,
        resource: &str,
        name: &str,
    ) -> bool {
        let facts = ClusterFacts {
            entered: true,
            unfinished: false,
            ..facts(self.snapshot, cluster)
        };
        self.has_right(verb.into(), cluster, [group, resource, name], &facts)
    }

    /// Checks whether the caller would get a list of all objects of a resource in a cluster.
    pub(super) fn may_list(&self, cluster: &ClusterName, group: &str, resource: &str) -> bool {
        self.has_right(
            Verb::List.into(),
            cluster,
            [group, resource, ""],
            &facts(self.snapshot, cluster),
        )
    }

    fn has_right(&self, verb: RoleVerb, cluster: &ClusterName, object: [&str; 3], facts: &ClusterFacts) -> bool {
        let [group, resource, name] = object;
        let attributes = Attributes {
            verb,
            group: group.into(),
            resource: resource.into(),
            name: name.into(),
            cluster: Some(cluster.clone()),
            is_resource_request: true,
            ..Attributes::default()
        };
        insula_auth::permit(self.user, attributes, facts).is_ok()
    }

    /// Returns the cluster that a reference leads to; an empty path means the cluster of the write.
    pub(super) fn place_of(&self, path: &str) -> Option<ClusterName> {
        if path.is_empty() {
            return Some(self.cluster.clone());
        }
        let path = ClusterPath::parse(path).ok()?;
        locate::locate(self.snapshot, &path).ok()
    }

    /// Checks whether the caller may bind an export, which need not exist.
    pub(super) fn may_bind(&self, cluster: &ClusterName, export: &str) -> bool {
        self.may("bind", cluster, "apis.kcp.io", "apiexports", export)
    }

    /// Returns true if an export exists.
    pub(super) fn has_export(&self, cluster: &ClusterName, name: &str) -> bool {
        let key = ObjectKey::cluster_scoped(ids::apiexports(), cluster.clone(), name);
        self.snapshot.get(&key).is_some()
    }

    /// Returns the names of workspaces that a message to the caller may have.
    pub(super) fn names(&self) -> WorkspaceNames {
        WorkspaceNames::new(self.snapshot, self.user)
    }

    /// Adds a warning for the caller.
    pub(super) fn warn(&self, text: impl Into<String>) {
        self.warnings.borrow_mut().push(text.into());
    }

    /// Returns the refusal of a write.
    pub(super) fn forbid(&self, object: &Json, why: impl Into<String>) -> Error {
        self.served
            .api
            .forbidden(object["metadata"]["name"].as_str().unwrap_or_default(), why)
    }

    /// Returns `WrongValue` for a field, which the caller can correct.
    pub(super) fn wrong_value(&self, object: &Json, field: &'static str, why: impl Into<String>) -> Error {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        self.served.api.wrong_value(name, field, why)
    }
}

/// Reviews a create or update and may complete the new object.
pub(super) type WriteRule = fn(&Review<'_>, new: &mut Json, old: Option<&Json>) -> Result<()>;

/// The admission rules of some kinds.
pub(super) struct Rules {
    /// API group and plurals of the kinds.
    pub(super) group: &'static str,
    pub(super) resources: &'static [&'static str],
    /// Reviews a create or update.
    pub(super) write: WriteRule,
    /// Reviews a deletion.
    pub(super) deletion: fn(&Review<'_>, old: &Json) -> Result<()>,
    /// Adds details from the snapshot to a refusal by the kind's strategy.
    pub(super) explain: fn(&Review<'_>, Error) -> Error,
}

impl Rules {
    /// Returns rules that allow everything.
    pub(super) const fn new(group: &'static str, resources: &'static [&'static str]) -> Self {
        Rules {
            group,
            resources,
            write: |_, _, _| Ok(()),
            deletion: |_, _| Ok(()),
            explain: |_, refusal| refusal,
        }
    }
}

/// Sets `kcp.io/path`, the canonical path of the object's workspace.
pub(super) fn annotate_path(review: &Review<'_>, new: &mut Json) {
    let path = locate::path_of(review.snapshot, review.cluster);
    new["metadata"]["annotations"]["kcp.io/path"] = Json::String(path.to_string());
}

/// Joins errors with spaces in brackets, as Go prints a list and kcp's plugins do.
pub(super) fn spaced(errors: &[insula_api::FieldError]) -> String {
    let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
    format!("[{}]", words.join(" "))
}
