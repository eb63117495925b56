//! Admission rules of the server's own kinds, one file a kind. They run on the storage version,
//! after the strategy and before the commit, and read the same snapshot as the rest of the request.

mod apibinding;
mod apiconversion;
mod apiexport;
mod apiresourceschema;
mod certificate;
mod definition;
mod endpointslice;
mod logicalcluster;
mod rbac;
mod reserved;
mod usage;
mod workspace;
mod workspacetype;

#[cfg(test)]
mod tests;

pub use apiresourceschema::check as check_schema;
pub use workspace::user_json;

use insula_access::facts;
use insula_api::{ClusterName, ClusterPath, Json, ObjectKey, Timestamp};
use insula_auth::{Attributes, ClusterFacts, UserInfo};
use insula_catalog::{Catalog, Error, Part, Result, Served, builtin, ids, locate, object::refuse};
use insula_store::Snapshot;

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
}

impl Review<'_> {
    /// Returns true for callers in a privileged group: `system:masters` or the administrators of
    /// kcp.
    pub fn privileged(&self) -> bool {
        self.is_master() || self.own().is_in(insula_auth::GROUP_KCP_ADMIN)
    }

    /// Returns true for callers in `system:masters`.
    fn is_master(&self) -> bool {
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
    fn may(&self, verb: &str, cluster: &ClusterName, group: &str, resource: &str, name: &str) -> bool {
        let attributes = Attributes {
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            name: name.into(),
            cluster: Some(cluster.clone()),
            is_resource_request: true,
            ..Attributes::default()
        };
        let facts = ClusterFacts {
            entered: true,
            unfinished: false,
            ..facts(self.snapshot, cluster)
        };
        insula_auth::permit(self.user, attributes, &facts).is_ok()
    }

    /// Returns the cluster that a reference leads to; an empty path means the cluster of the write.
    fn place_of(&self, path: &str) -> Option<ClusterName> {
        if path.is_empty() {
            return Some(self.cluster.clone());
        }
        let path = ClusterPath::parse(path).ok()?;
        locate::locate(self.snapshot, &path).ok()
    }

    /// Checks whether the caller may bind an export, which need not exist.
    fn may_bind(&self, cluster: &ClusterName, export: &str) -> bool {
        self.may("bind", cluster, "apis.kcp.io", "apiexports", export)
    }

    fn has_export(&self, cluster: &ClusterName, name: &str) -> bool {
        let key = ObjectKey::cluster_scoped(ids::apiexports(), cluster.clone(), name);
        self.snapshot.get(&key).is_some()
    }

    fn forbid(&self, object: &Json, why: impl Into<String>) -> Error {
        self.served
            .api
            .forbidden(object["metadata"]["name"].as_str().unwrap_or_default(), why)
    }
}

/// Reviews a write and may complete `new`. Refusals have kcp's codes: 403 where its admission
/// plugins refuse, 422 where the rules of a kind do.
pub fn review(review: Review<'_>, new: Option<&mut Json>, old: Option<&Json>) -> Result<()> {
    let review = &review;
    let Some(new) = new else {
        return review_deletion(review, old);
    };
    reserved::review(review, new, old)?;
    let api = &review.served.api;
    match (&*api.group, &*api.names.plural) {
        ("tenancy.kcp.io", "workspaces") => workspace::review(review, new, old),
        ("tenancy.kcp.io", "workspacetypes") => {
            workspacetype::review(review, new, old)?;
            annotate_path(review, new);
            Ok(())
        }
        ("core.kcp.io", "logicalclusters") => logicalcluster::review(review, Some(new), old),
        ("apis.kcp.io", "apiresourceschemas") => apiresourceschema::review(review, new, old),
        ("apis.kcp.io", "apiconversions") => apiconversion::review(review, new, old),
        ("apis.kcp.io", "apiexports") => {
            apiexport::review(review, new)?;
            apiexport::review_change(review, new, old)?;
            annotate_path(review, new);
            Ok(())
        }
        ("apis.kcp.io", "apibindings") => {
            apibinding::review(review, new, old)?;
            annotate_path(review, new);
            Ok(())
        }
        ("apis.kcp.io", "apiexportendpointslices") => endpointslice::review(review, new),
        ("apiextensions.k8s.io", "customresourcedefinitions") => definition::review(review, new, old),
        ("certificates.k8s.io", "certificatesigningrequests") => certificate::review(review, new, old),
        ("", "events") => {
            let errors = builtin::review_event(new, old, review.served.alias.is_some());
            refuse(
                review.served,
                new["metadata"]["name"].as_str().unwrap_or_default(),
                errors,
            )
        }
        (ids::RBAC, _) => rbac::review(review, new, old),
        _ => Ok(()),
    }
}

/// Adds details from the snapshot to a refusal by a kind's own rules.
pub fn explain(review: &Review<'_>, refusal: Error) -> Error {
    let api = &review.served.api;
    match (&*api.group, &*api.names.plural, refusal) {
        ("apiextensions.k8s.io", "customresourcedefinitions", Error::Invalid { subject, name, errors }) => {
            let errors = definition::explain(review, &name, errors);
            Error::Invalid { subject, name, errors }
        }
        (_, _, refusal) => refusal,
    }
}

fn review_deletion(review: &Review<'_>, old: Option<&Json>) -> Result<()> {
    let Some(old) = old else { return Ok(()) };
    let api = &review.served.api;
    let name = old["metadata"]["name"].as_str().unwrap_or_default();
    match (&*api.group, &*api.names.plural, name) {
        ("", "namespaces", "default" | "kube-system" | "kube-public") => {
            Err(review.forbid(old, "this namespace may not be deleted"))
        }
        ("core.kcp.io", "logicalclusters", _) if *review.cluster == ClusterName::root() => {
            Err(review.forbid(old, "LogicalCluster cannot be deleted"))
        }
        ("core.kcp.io", "logicalclusters", _) => logicalcluster::review(review, None, Some(old)),
        ("apis.kcp.io", "apiresourceschemas", _) => apiresourceschema::review_deletion(review, old),
        ("apis.kcp.io", "apiconversions", _) => apiconversion::review_deletion(review, old),
        _ => Ok(()),
    }
}

/// Sets `kcp.io/path`, the canonical path of the object's workspace.
fn annotate_path(review: &Review<'_>, new: &mut Json) {
    let path = locate::path_of(review.snapshot, review.cluster);
    new["metadata"]["annotations"]["kcp.io/path"] = Json::String(path.to_string());
}

/// Joins errors with spaces in brackets, as Go prints a list and kcp's plugins do.
fn spaced(errors: &[insula_api::FieldError]) -> String {
    let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
    format!("[{}]", words.join(" "))
}
