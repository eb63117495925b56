//! The target of a verb.

use crate::view::ViewScope;
use insula_api::ClusterName;
use insula_auth::Permit;
use insula_catalog::{ApiVersion, Catalog, Error, Result, Served};
use insula_meter::Meter;
use insula_store::Pinned;
use std::sync::Arc;

/// Target of a verb: a resource in a version, in one cluster and, for namespaced objects, one
/// namespace or all.
#[derive(Debug, Clone)]
pub struct Target {
    /// The logical cluster.
    pub cluster: ClusterName,
    /// The resource as the cluster serves it.
    pub served: Served,
    /// The request's version.
    pub version: Arc<str>,
    /// The namespace; `None` for cluster-scoped resources and for lists over all namespaces.
    pub namespace: Option<Arc<str>>,
    /// View scope. Across all clusters, the cluster is the caller's.
    pub view_scope: ViewScope,
    _grant: Grant,
}

/// The mark of a target whose right was granted. Only this file makes one, so that whoever has a
/// target has shown a [`Permit`], or has said in so many words that the server acts by itself.
#[derive(Debug, Clone)]
struct Grant;

impl Target {
    /// Returns the target of a request that was permitted, with the meter that pays for it.
    pub fn permitted(
        _permit: &Permit,
        (cluster, namespace): (ClusterName, Option<Arc<str>>),
        (served, version): (Served, Arc<str>),
        (view_scope, meter): (ViewScope, &Meter),
    ) -> Self {
        let served = Served {
            meter: meter.clone(),
            ..served
        };
        Target {
            cluster,
            served,
            version,
            namespace,
            view_scope,
            _grant: Grant,
        }
    }

    /// Returns the target of work that the server does by itself, and for no user.
    pub fn for_the_server(cluster: ClusterName, served: Served, version: Arc<str>) -> Self {
        Target {
            cluster,
            served,
            version,
            namespace: None,
            view_scope: ViewScope::Within,
            _grant: Grant,
        }
    }

    /// Returns the target as another cluster serves the same resource.
    pub(crate) fn served_as(self, served: Served) -> Self {
        let meter = self.served.meter;
        Target {
            served: Served { meter, ..served },
            ..self
        }
    }

    /// Returns the target in one namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: Arc<str>) -> Self {
        Target {
            namespace: Some(namespace),
            ..self
        }
    }

    /// The version's schema and subresources.
    #[inline]
    pub fn api_version(&self) -> Result<&ApiVersion> {
        self.served.version(&self.version).ok_or(Error::UnknownResource)
    }

    /// The key of an object.
    pub fn key(&self, name: &str) -> insula_api::ObjectKey {
        insula_api::ObjectKey {
            resource: self.served.resource_id(),
            cluster: self.cluster.clone(),
            namespace: self.namespace.clone().unwrap_or_else(|| "".into()),
            name: name.into(),
        }
    }

    /// Returns true for the key of the route that the target was resolved by. A write that
    /// conflicts on it needs another target ([`Target::rerouted`]).
    pub fn is_routed_by(&self, key: &insula_api::ObjectKey) -> bool {
        self.served.guard.as_ref().is_some_and(|(route, _)| route == key)
    }

    /// Returns the target as its cluster serves it now, after its definition or binding changed.
    /// `None` if it is not the same resource any more, or does not serve the version. The request
    /// was authorized for the resource, so the same origin and identity need no new permission.
    pub fn rerouted(&self, catalog: &Catalog, snapshot: &Pinned) -> Option<Self> {
        let ViewScope::Within = self.view_scope else {
            return None;
        };
        let old = &self.served;
        let snapshot = &snapshot.charged_to(&old.meter);
        let served = catalog.resolve(snapshot, &self.cluster, &old.api.group, &old.api.names.plural)?;
        let is_same = served.origin == old.origin
            && served.identity == old.identity
            && served.api.scope == old.api.scope
            && served.served_versions().any(|version| version.name == self.version);
        is_same.then(|| Target {
            served: Served {
                pending_calls: old.pending_calls.clone(),
                ..served
            },
            ..self.clone()
        })
    }

    /// The keys that a list covers.
    pub fn scope(&self) -> insula_api::Scope {
        let resource = self.served.resource_id();
        if self.is_of_all_exporters() {
            insula_api::Scope::named(resource.group, resource.resource)
        } else if self.is_across() {
            insula_api::Scope::everywhere(resource)
        } else {
            insula_api::Scope {
                resources: insula_api::Resources::One(resource),
                cluster: Some(self.cluster.clone()),
                namespace: self.namespace.clone(),
            }
        }
    }
}
