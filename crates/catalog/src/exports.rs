//! APIExports from the view of requests: offered resources, permission claims, permission policies
//! and schemas.

pub mod bind_grant;
pub mod bind_request;
mod history;
pub mod offer;
mod release;
mod right;
mod root;
mod schemas;
mod served;
pub mod unbind;

pub use crate::routes::ExportName;
pub use history::{Replaced, end_release, history_value};
pub use release::{release_id, release_on_offer};
pub use right::{AccessRequest, Denied, Grant};
pub use root::is_identity_of;
pub use schemas::{schemas_behind, schemas_of};

use crate::{Origin, Served, ids, routes::ResourceRoute};
use insula_api::{ClusterName, Json, Object, Scope, names::annotations};
use insula_store::{Entry, Pinned, Snapshot};
use offer::{Binding, ExportOffer};
use std::{collections::BTreeSet, ops::ControlFlow, sync::Arc};

/// APIServices that one export offers.
const AGGREGATED_MAX: usize = 16;

/// The parsed form of an APIExport, cached with the stored object.
#[derive(Debug)]
pub struct ExportView {
    /// True if RBAC roles in the export's cluster limit the permissions of consumers.
    pub has_local_policy: bool,
    /// Identity, offered resources and permission claims.
    pub offer: ExportOffer,
    /// Names of the APIServices of its workspace that it offers.
    pub aggregated: Vec<String>,
    /// True if its owner shows it to everybody who looks for APIs.
    pub is_listed: bool,
    /// Seconds that a request to bind it waits for a decision, if its owner allows requests.
    pub request_seconds: Option<i64>,
    /// Groups of which a user needs one to ask for it; empty for none.
    pub request_groups: Vec<String>,
    /// Seconds for which the deletion of its bindings may be taken back, from an annotation.
    pub unbind_grace_seconds: u64,
}

impl ExportName {
    /// Returns the parsed APIExport, or None if it does not exist.
    pub fn spec(&self, snapshot: &Pinned) -> Option<Arc<ExportView>> {
        Some(snapshot.get(&self.key())?.object.parsed(ExportView::read))
    }

    /// Returns true if the APIExport exists.
    pub fn exists(&self, snapshot: &Pinned) -> bool {
        snapshot.get(&self.key()).is_some()
    }

    /// Returns true for a binding of this export.
    pub fn is_bound_by(&self, binding: &Binding) -> bool {
        binding.cluster == *self.cluster.as_str() && binding.export == *self.name
    }
}

impl ExportView {
    /// Returns true for an export with this identity.
    pub fn has_identity(&self, identity: &str) -> bool {
        self.offer.identity == identity
    }

    /// Returns true if it offers the APIResourceSchema of this name.
    pub fn offers_schema(&self, name: &str) -> bool {
        self.offer.resources.iter().any(|offered| offered.schema == name)
    }

    /// Reads an APIExport.
    pub fn read(object: &Object) -> Self {
        let value = object.body_value();
        ExportView {
            has_local_policy: value["spec"]["maximalPermissionPolicy"]["local"].is_object(),
            offer: ExportOffer::read(&value),
            aggregated: aggregated(&value),
            is_listed: value["metadata"]["annotations"][annotations::API_LISTED] == "true",
            request_seconds: bind_request::allowed_seconds(&value["metadata"]["annotations"]),
            request_groups: bind_request::allowed_groups(&value["metadata"]["annotations"]),
            unbind_grace_seconds: unbind::grace_seconds_in(&value),
        }
    }
}

/// Returns the exports of a cluster that offer one of these schemas, by name.
pub fn offering(snapshot: &Snapshot, cluster: &ClusterName, schemas: &BTreeSet<String>) -> Vec<Entry> {
    let scope = Scope::cluster(ids::apiexports(), cluster.clone());
    let mut found = Vec::new();
    snapshot.for_each(&scope, |export| {
        let offered = export.object.parsed(ExportView::read);
        if schemas.iter().any(|schema| offered.offers_schema(schema)) {
            found.push(export.clone());
        }
        ControlFlow::Continue(())
    });
    found
}

/// Reads the APIServices that an APIExport offers; those beyond the limit are left out.
fn aggregated(export: &Json) -> Vec<String> {
    let names = export["metadata"]["annotations"][annotations::AGGREGATED_APIS].as_str();
    let names = names.unwrap_or_default().split(',').map(str::trim);
    let named = names.filter(|name| !name.is_empty());
    named.take(AGGREGATED_MAX).map(str::to_owned).collect()
}

/// Returns the cluster whose roles limit the permissions of consumers on a resource. Returns None
/// for resources that are not bound and for exports without a maximal permission policy. The policy
/// ends with its export.
pub fn policy_of(snapshot: &Snapshot, cluster: &ClusterName, group: &str, resource: &str) -> Option<ClusterName> {
    let route = snapshot.get(&ids::resource_route(cluster, group, resource))?;
    let route = route.object.parsed(ResourceRoute::read);
    let export = route.export.as_ref()?;
    let found = snapshot.get(&export.key())?;
    let view = found.object.parsed(ExportView::read);
    view.has_local_policy.then(|| export.cluster.clone())
}

/// Returns the clusters whose admission policies and webhooks apply to writes of a resource in a
/// cluster: the cluster of its export, if it is bound, and the cluster itself. An export's policies
/// apply to all consumers while the export exists.
pub fn homes_of_hooks(snapshot: &Snapshot, cluster: &ClusterName, served: &Served) -> Vec<ClusterName> {
    let exporter = || {
        let (route, _) = served.guard.as_ref()?;
        let route = snapshot.get(route)?.object.parsed(ResourceRoute::read);
        let export = route.export.as_ref()?;
        snapshot.get(&export.key())?;
        (export.cluster != *cluster).then(|| export.cluster.clone())
    };
    let is_bound = matches!(served.origin, Origin::Bound { .. });
    let exporter = is_bound.then(exporter).flatten();
    exporter.into_iter().chain([cluster.clone()]).collect()
}
