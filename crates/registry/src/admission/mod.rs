//! What a write to one of our kinds must find in its surroundings: one file a kind. Runs on the storage version, after
//! the strategy and before the commit, and reads the same snapshot as the rest of the request.

pub mod bundle;
pub mod digest;
pub mod types;

use crate::{Catalog, Error, Part, Result, Served};
use insula_api::{ClusterName, Json, Timestamp};
use insula_auth::UserInfo;
use insula_store::Snapshot;

/// What is done to the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// It is new.
    Create,
    /// It changes.
    Update,
    /// Its deletion is asked for.
    Delete,
}

/// A write and its surroundings.
pub struct Review<'a> {
    /// The present.
    pub snapshot: &'a Snapshot,
    /// What clusters serve.
    pub catalog: &'a Catalog,
    /// Who asks.
    pub user: &'a UserInfo,
    /// Where.
    pub cluster: &'a ClusterName,
    /// The resource.
    pub served: &'a Served,
    /// What is done.
    pub operation: Operation,
    /// Which part changes.
    pub part: Part,
    /// When.
    pub now: Timestamp,
}

impl Review<'_> {
    /// Whether the caller is one of the groups that may do what tenants may not.
    pub fn privileged(&self) -> bool {
        self.user
            .groups
            .iter()
            .any(|group| group == "system:masters" || group == "system:kcp:admin")
    }

    fn forbid(&self, object: &Json, why: impl Into<String>) -> Error {
        self.served
            .api
            .forbidden(object["metadata"]["name"].as_str().unwrap_or_default(), why)
    }
}

/// Looks at a write and may complete `new`. Refusals are kcp's: 403 for what its admission plugins refuse, 422 for what
/// a kind's own rules do.
pub fn review(review: Review<'_>, new: Option<&mut Json>, old: Option<&Json>) -> Result<()> {
    let id = (&*review.served.api.group, &*review.served.api.names.plural);
    match (id, review.operation, old) {
        (("", "namespaces"), Operation::Delete, Some(old)) => {
            let name = old["metadata"]["name"].as_str().unwrap_or_default();
            match name {
                "default" | "kube-system" => Err(review.forbid(old, "this namespace may not be deleted")),
                _ => Ok(()),
            }
        }
        _ => {
            let _ = new;
            Ok(())
        }
    }
}
