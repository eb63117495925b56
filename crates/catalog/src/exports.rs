//! What requests for a bound resource have to know of its export.

pub mod offer;
mod right;
mod schemas;
mod served;

pub use crate::routes::ExportName;
pub use right::{AccessRequest, Denied, Grant};
pub use schemas::{schemas_behind, schemas_of};

use crate::{Origin, Served, ids, routes::ResourceRoute};
use insula_api::{ClusterName, Object};
use insula_store::Snapshot;
use offer::{Binding, ExportOffer};
use std::sync::Arc;

/// What an APIExport says, read once for each state of it.
#[derive(Debug)]
pub struct ExportView {
    /// Its owner limits by roles in the export's cluster what consumers may do.
    pub has_local_policy: bool,
    /// What it offers and claims.
    pub offer: ExportOffer,
}

impl ExportName {
    /// What it offers and claims.
    pub fn said(&self, snapshot: &Snapshot) -> Option<Arc<ExportView>> {
        Some(snapshot.get(&self.key())?.object.parsed(ExportView::read))
    }

    /// Whether there is such an export.
    pub fn exists(&self, snapshot: &Snapshot) -> bool {
        snapshot.get(&self.key()).is_some()
    }

    /// Returns true for a binding of this export.
    pub fn is_bound_by(&self, binding: &Binding) -> bool {
        binding.cluster == *self.cluster.as_str() && binding.export == *self.name
    }
}

impl ExportView {
    /// Whether it has this identity.
    pub fn has_identity(&self, identity: &str) -> bool {
        self.offer.identity == identity
    }

    /// Reads an APIExport.
    pub fn read(object: &Object) -> Self {
        let value = object.body_value();
        ExportView {
            has_local_policy: value["spec"]["maximalPermissionPolicy"]["local"].is_object(),
            offer: ExportOffer::read(&value),
        }
    }
}

/// The cluster whose roles say what consumers may do with a resource at most. None for what is not
/// bound, and where the export's owner says nothing; a policy ends with its export.
pub fn policy_of(snapshot: &Snapshot, cluster: &ClusterName, group: &str, resource: &str) -> Option<ClusterName> {
    let claim = snapshot.get(&ids::claim(cluster, group, resource))?;
    let claim = claim.object.parsed(ResourceRoute::read);
    let export = claim.export.as_ref()?;
    let found = snapshot.get(&export.key())?;
    let view = found.object.parsed(ExportView::read);
    view.has_local_policy.then(|| export.cluster.clone())
}

/// The clusters whose policies and webhooks are about writes of a resource in a cluster: that of
/// the export which it is bound from, if it is, and its own. What the owner of an API says of its
/// objects holds for all who bind it, as long as there is the export.
pub fn homes_of_hooks(snapshot: &Snapshot, cluster: &ClusterName, served: &Served) -> Vec<ClusterName> {
    let exporter = || {
        let (claim, _) = served.guard.as_ref()?;
        let claim = snapshot.get(claim)?.object.parsed(ResourceRoute::read);
        let export = claim.export.as_ref()?;
        snapshot.get(&export.key())?;
        (export.cluster != *cluster).then(|| export.cluster.clone())
    };
    let is_bound = matches!(served.origin, Origin::Bound { .. });
    let exporter = is_bound.then(exporter).flatten();
    exporter.into_iter().chain([cluster.clone()]).collect()
}
