//! What requests for a bound resource have to know of its export.

use crate::{Origin, ResourceRoute, Served, ids, view::ExportOffer};
use insula_api::{ClusterName, Json, Object, ObjectKey};
use insula_store::Snapshot;
use std::sync::Arc;

/// An export by where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportName {
    /// Its cluster.
    pub cluster: ClusterName,
    /// Its name.
    pub name: Arc<str>,
}

/// What an APIExport says, read once for each state of it.
#[derive(Debug)]
pub struct ExportView {
    /// Its owner limits by roles in the export's cluster what consumers may do.
    pub has_local_policy: bool,
    /// What it offers and claims.
    pub(crate) offer: ExportOffer,
}

impl ExportName {
    /// The export's key.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::cluster_scoped(ids::apiexports(), self.cluster.clone(), &self.name)
    }

    /// As a claim tells it.
    pub(crate) fn read(value: &Json) -> Option<Self> {
        Some(ExportName {
            cluster: ClusterName::parse(value["cluster"].as_str()?).ok()?,
            name: value["name"].as_str()?.into(),
        })
    }

    pub(crate) fn write(&self) -> Json {
        serde_json::json!({"cluster": self.cluster.as_str(), "name": &*self.name})
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
pub(crate) fn policy_of(
    snapshot: &Snapshot,
    cluster: &ClusterName,
    group: &str,
    resource: &str,
) -> Option<ClusterName> {
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
pub(crate) fn homes_of_hooks(snapshot: &Snapshot, cluster: &ClusterName, served: &Served) -> Vec<ClusterName> {
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
