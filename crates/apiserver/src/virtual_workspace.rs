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
pub(crate) use outcome::{NotShown, ResolvedResource};

use crate::{
    path::ResourcePath,
    request::{RequestScope, VirtualWorkspace, without_identity},
};
use insula_api::{Json, Verb};
use insula_auth::{Attributes, UserInfo};
use insula_catalog::Served;
use insula_pipeline::Refusal;
use insula_registry::Deps;

impl VirtualWorkspace {
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
    pub(crate) fn check(&self, scope: &RequestScope, user: &UserInfo, attributes: &Attributes) -> Result<(), NotShown> {
        match self {
            VirtualWorkspace::Export(export) => export::check(export, scope, user, attributes),
            VirtualWorkspace::Schemas(_) => schemas::check(attributes),
            VirtualWorkspace::LifecycleController(lifecycle) => lifecycle::check(lifecycle, scope, user, attributes),
            VirtualWorkspace::Unknown => Err(NotShown::Absent),
        }
    }

    /// Returns the user as the clusters see them that the virtual workspace shows.
    pub(crate) fn warranted(&self, scope: &RequestScope, user: &UserInfo, attributes: &Attributes) -> UserInfo {
        match self {
            VirtualWorkspace::Export(_) => export::warranted(scope, user),
            VirtualWorkspace::LifecycleController(lifecycle) => lifecycle::user(lifecycle, scope, user, attributes),
            VirtualWorkspace::Schemas(_) | VirtualWorkspace::Unknown => user.clone(),
        }
    }

    /// Returns the APIs of the virtual workspace.
    pub(crate) fn served(&self, registry: &Deps, scope: &RequestScope) -> Vec<Served> {
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
        scope: &RequestScope,
        (path, plural): (&ResourcePath, &str),
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

    /// Adapts a discovery document: verbs in alphabetical order, and only those that may be used.
    pub(crate) fn adapt_discovery(&self, scope: &RequestScope, served: &[Served], document: &mut Json) {
        // Within a cluster the document is that of the cluster.
        if matches!(self, VirtualWorkspace::LifecycleController(_)) && scope.cluster.is_some() {
            return;
        }
        let read_only = |served: &&Served| match self {
            VirtualWorkspace::Export(export) => export.only_reads(&scope.snapshot, served),
            VirtualWorkspace::Schemas(_) | VirtualWorkspace::LifecycleController(_) | VirtualWorkspace::Unknown => true,
        };
        let read_only: Vec<&str> = served
            .iter()
            .filter(read_only)
            .map(|served| &*served.names().plural)
            .collect();
        sort_verbs(document, &read_only);
        if matches!(self, VirtualWorkspace::LifecycleController(_)) {
            hide_verbs_of_subresources(document);
        }
    }
}

/// Lists subresources without verbs, as kcp's lifecycle views do.
fn hide_verbs_of_subresources(document: &mut Json) {
    let resources = document["resources"].as_array_mut();
    for entry in resources.into_iter().flatten() {
        if entry["name"].as_str().is_some_and(|name| name.contains('/')) {
            entry["verbs"] = Json::Null;
        }
    }
}

fn sort_verbs(document: &mut Json, read_only: &[&str]) {
    match document {
        Json::Object(fields) => {
            let named = |field: &str| fields.get(field).and_then(Json::as_str);
            let reads = named("name")
                .or(named("resource"))
                .is_some_and(|name| read_only.contains(&without_identity(name.split('/').next().unwrap_or(name))));
            if let Some(Json::Array(verbs)) = fields.get_mut("verbs") {
                verbs.retain(|verb| !reads || verb.as_str().and_then(Verb::named).is_some_and(Verb::reads));
                verbs.sort_unstable_by(|a, b| a.as_str().cmp(&b.as_str()));
            }
            fields.values_mut().for_each(|value| sort_verbs(value, read_only));
        }
        Json::Array(items) => items.iter_mut().for_each(|item| sort_verbs(item, read_only)),
        _ => {}
    }
}

/// Returns the prefix of a scope's paths, for documents that name paths.
pub(crate) fn base(scope: &RequestScope) -> String {
    match (&scope.view, &scope.path) {
        (Some(VirtualWorkspace::Export(export)), _) => export::base(export, scope.cluster.as_ref()),
        (Some(VirtualWorkspace::Schemas(consumer)), _) => format!("/services/apiresourceschema/{consumer}/clusters/*"),
        (Some(VirtualWorkspace::LifecycleController(lifecycle)), _) => {
            lifecycle::base(lifecycle, scope.cluster.as_ref())
        }
        (None, Some(path)) => format!("/clusters/{path}"),
        (Some(VirtualWorkspace::Unknown), _) | (None, None) => String::new(),
    }
}
