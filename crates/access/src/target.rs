//! The target of a verb.

use crate::view::ViewScope;
use insula_api::ClusterName;
use insula_catalog::{ApiVersion, Error, Result, Served};
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
}

impl Target {
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

    /// Returns true for the key of the route that the target was resolved by. Its revision is fixed
    /// for the request, so a write that conflicts on it conflicts at every attempt.
    pub fn is_routed_by(&self, key: &insula_api::ObjectKey) -> bool {
        self.served.guard.as_ref().is_some_and(|(route, _)| route == key)
    }

    /// The keys that a list covers.
    pub fn scope(&self) -> insula_api::Scope {
        match self.is_across() {
            true => insula_api::Scope::everywhere(self.served.resource_id()),
            false => insula_api::Scope {
                resource: Some(self.served.resource_id()),
                cluster: Some(self.cluster.clone()),
                namespace: self.namespace.clone(),
            },
        }
    }
}
