//! Resolution of a path to objects: the API that serves them, and the objects of it that the
//! request sees.

use crate::{
    negotiate::{self, Representation, Supported},
    path::ResourcePath,
    reply::{self, Reply},
    request::VirtualWorkspace,
    request_stages::Authorized,
    status,
    virtual_workspace::{Resolution, ResolvedResource},
};
use insula_access::view::{AllClusters, ViewScope};
use insula_api::{ClusterName, LabelSelector};
use insula_catalog::{Error, Named, Served};
use insula_registry::Deps;

/// Resolves a path: in the request's cluster, through its virtual workspace, or in all clusters.
///
/// # Errors
/// 404 for a resource that is not served, 405 for verbs that the wildcard does not have.
pub(crate) fn resolve(registry: &Deps, request: &Authorized, path: &ResourcePath) -> Result<ResolvedResource, Reply> {
    let verb = request.parsed.verb;
    let (plural, identity) = match path.resource.split_once(':') {
        Some((plural, "")) => {
            let why = format!("invalid resource {plural:?}: missing identity");
            return Err(Reply::error(&Error::Internal(why)));
        }
        Some((plural, identity)) => (plural, Some(identity)),
        None => (&*path.resource, None),
    };
    let (view, cluster) = (&request.scope.view, &request.scope.cluster);
    let reads_many = matches!(verb, "list" | "watch") || matches!(view, Some(VirtualWorkspace::Schemas(_)));
    if cluster.is_none() && !reads_many {
        return Err(across_only_reads(path, plural, verb, view.as_ref()));
    }
    let found = match (view, cluster) {
        (None, Some(cluster)) => {
            let served = registry
                .catalog
                .resolve(&request.scope.snapshot, cluster, &path.group, plural);
            served.map(|served| ResolvedResource {
                cluster: cluster.clone(),
                served,
                view_scope: ViewScope::Within,
            })
        }
        (None, None) => everywhere(registry, request, (&path.group, plural), identity).map(|served| ResolvedResource {
            cluster: ClusterName::root(),
            served,
            view_scope: AllClusters::everywhere(LabelSelector::default()),
        }),
        (Some(view), _) => {
            let resolution = Resolution {
                verb,
                user: &request.user,
                attributes: &request.attributes,
                permitted: request.permit.attributes(),
            };
            view.resolve(registry, &request.scope, (path, plural), &resolution)?
        }
    };
    found
        .filter(|found| identity.is_none_or(|identity| *found.served.identity == *identity))
        .ok_or_else(|| unknown(path))
}

/// The refusal of a path that nothing is served at.
pub(crate) fn unknown(path: &ResourcePath) -> Reply {
    match path.group.is_empty() && path.version == "v1" {
        true => Reply::error(&Error::UnknownResource),
        false => Reply::NotFoundPage,
    }
}

/// Returns the API of a request to all clusters: a built-in, an API by its exporter's identity, or,
/// for metadata alone, any API of that name.
fn everywhere(
    registry: &Deps,
    request: &Authorized,
    (group, plural): (&str, &str),
    identity: Option<&str>,
) -> Option<Served> {
    let (catalog, snapshot) = (&registry.catalog, &request.scope.snapshot);
    if let Some(served) = catalog.system().get(group, plural) {
        return Some(served.clone());
    }
    let header = reply::accept_header(&request.parsed.headers);
    let is_metadata = |supported: &Supported| {
        let form = negotiate::accept(header.as_deref(), *supported).ok();
        form.is_some_and(|form| {
            matches!(
                form.representation,
                Representation::PartialMetadata(_) | Representation::PartialMetadataList(_)
            )
        })
    };
    // Lists and watches have different names for it.
    let metadata_alone = || [Supported::List, Supported::Watch].iter().any(is_metadata);
    (identity.is_some() || metadata_alone()).then(|| catalog.claimed_by(snapshot, (group, plural), identity))?
}

/// The refusal of a verb across clusters, in kcp's words. Virtual workspaces answer a GET as one of
/// an object that does not exist.
fn across_only_reads(path: &ResourcePath, plural: &str, verb: &str, view: Option<&VirtualWorkspace>) -> Reply {
    let named = Named {
        group: path.group.as_str().into(),
        resource: plural.into(),
    };
    match (verb, &path.name, view) {
        ("get", Some(name), Some(_)) => Reply::error(&Error::NotFound {
            resource: named,
            name: name.clone(),
        }),
        _ => status::across_not_supported(&named, verb).into(),
    }
}
