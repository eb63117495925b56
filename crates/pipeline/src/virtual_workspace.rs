//! Virtual workspaces: views of clusters from outside.
//!
//! Requests for them pass all stages. Two questions differ: the right to use the virtual workspace,
//! which is granted in its [home](VirtualWorkspace::home), and the check that the cluster shows
//! what the request is about. Each kind of virtual workspace answers both in a file of its own.

mod export;
mod lifecycle;
mod outcome;
mod schemas;

pub(crate) use export::Resolution;
pub(crate) use outcome::NotShown;
pub(crate) use outcome::ResolvedResource;

use crate::{Refusal, call::ObjectPath, scope::Scope};
use insula_access::lifecycle::LifecycleController;
use insula_api::ClusterName;
use insula_auth::{Attributes, UserInfo};
use insula_catalog::{Served, exports::ExportName};
use insula_registry::Deps;

/// A virtual workspace: a view of clusters from outside, as its path names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VirtualWorkspace {
    /// An export: the objects that its consumers show its provider.
    Export(ExportName),
    /// The schemas behind the bindings of a cluster, to read.
    Schemas(ClusterName),
    /// An initializer or terminator: the workspaces that wait for it.
    LifecycleController(LifecycleController),
    /// A path under `/services` that names none.
    Unknown,
}

impl VirtualWorkspace {
    /// The cluster in which the right to use the virtual workspace is granted.
    pub fn home(&self) -> Option<&ClusterName> {
        match self {
            VirtualWorkspace::Export(export) => Some(&export.cluster),
            VirtualWorkspace::Schemas(consumer) => Some(consumer),
            VirtualWorkspace::LifecycleController(lifecycle) => lifecycle.cluster.as_ref(),
            VirtualWorkspace::Unknown => None,
        }
    }

    /// Returns the right that users need in the home of the virtual workspace; `None` where there
    /// is no such virtual workspace.
    pub(crate) fn required_right(&self, attributes: &Attributes) -> Option<Attributes> {
        match self {
            VirtualWorkspace::Export(export) => Some(export::required_right(export, attributes)),
            VirtualWorkspace::Schemas(consumer) => Some(schemas::required_right(consumer)),
            VirtualWorkspace::LifecycleController(lifecycle) => Some(lifecycle::required_right(lifecycle)),
            VirtualWorkspace::Unknown => None,
        }
    }

    /// Checks that the cluster shows what the request is about. Writes that turn out to create are
    /// checked once more, as creations.
    pub(crate) fn check(&self, scope: &Scope, user: &UserInfo, attributes: &Attributes) -> Result<(), NotShown> {
        match self {
            VirtualWorkspace::Export(export) => export::check(export, scope, user, attributes),
            VirtualWorkspace::Schemas(_) => schemas::check(attributes),
            VirtualWorkspace::LifecycleController(lifecycle) => lifecycle::check(lifecycle, scope, user, attributes),
            VirtualWorkspace::Unknown => Err(NotShown::Absent),
        }
    }

    /// Returns the user as the clusters see them that the virtual workspace shows.
    pub(crate) fn warranted(&self, scope: &Scope, user: &UserInfo, attributes: &Attributes) -> UserInfo {
        match self {
            VirtualWorkspace::Export(_) => export::warranted(scope, user),
            VirtualWorkspace::LifecycleController(lifecycle) => lifecycle::user(lifecycle, scope, user, attributes),
            VirtualWorkspace::Schemas(_) | VirtualWorkspace::Unknown => user.clone(),
        }
    }

    /// Returns the APIs of the virtual workspace.
    pub fn served(&self, registry: &Deps, scope: &Scope) -> Vec<Served> {
        match self {
            VirtualWorkspace::Export(export) => export.served(&registry.catalog, &scope.snapshot),
            VirtualWorkspace::Schemas(_) => schemas::served(registry).into_iter().collect(),
            VirtualWorkspace::LifecycleController(_) => lifecycle::served(registry, scope),
            VirtualWorkspace::Unknown => Vec::new(),
        }
    }

    /// Resolves a resource through the virtual workspace; `None` where it serves no such resource.
    pub(crate) fn resolve(
        &self,
        registry: &Deps,
        scope: &Scope,
        (path, plural): (&ObjectPath, &str),
        request: &Resolution<'_>,
    ) -> Result<Option<ResolvedResource>, Refusal> {
        match self {
            VirtualWorkspace::Export(export) => export::resolve(registry, export, scope, (path, plural), request),
            VirtualWorkspace::Schemas(consumer) => Ok(schemas::resolve(registry, consumer, scope, (path, plural))),
            VirtualWorkspace::LifecycleController(lifecycle) => {
                Ok(lifecycle::resolve(registry, lifecycle, scope, path))
            }
            VirtualWorkspace::Unknown => Ok(None),
        }
    }
}
