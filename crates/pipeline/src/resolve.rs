//! The last stage of a [`crate::Call`] for objects: the resource that it is about. Virtual
//! workspaces, all clusters and the paths of ThirdPartyResources are cases of one function.

use crate::{
    Authorized, Clusters, Refusal,
    call::{self, ObjectPath},
    third_party,
    virtual_workspace::{Resolution, ResolvedResource, VirtualWorkspace},
};
use insula_access::{
    Target,
    view::{AllClusters, ViewScope},
};
use insula_api::{ClusterName, LabelSelector, Verb};
use insula_auth::Permit;
use insula_catalog::{Error, Named, Origin, ScopeKind, Served, exports};
use insula_edge::port::ClientKind;
use insula_meter::Meter;
use insula_registry::Deps;
use std::sync::Arc;

/// A resource in a version, as a request sees it.
pub struct Resolved<'a> {
    resource: ResolvedResource,
    version: Arc<str>,
    /// True for a viewer who looks at objects by the console.
    is_look: bool,
    permit: &'a Permit,
    meter: &'a Meter,
}

impl Authorized {
    /// Resolves the path of a request for objects. `is_metadata_alone` is true for a client who
    /// takes the metadata of objects whatever their API, across all clusters.
    ///
    /// # Errors
    /// A resource or version that is not served, and verbs that the wildcard does not have.
    pub fn resolve(
        &self,
        registry: &Deps,
        path: &ObjectPath,
        third_party_resources: bool,
        is_metadata_alone: &dyn Fn() -> bool,
    ) -> Result<Resolved<'_>, Refusal> {
        let resource = resolve(registry, self, path, is_metadata_alone)?;
        third_party::check(third_party_resources, path, &resource.served)?;
        let version = resource.served.served_versions().find(|v| *v.name == *path.version);
        let version = version.map(|v| v.name.clone()).ok_or_else(|| unknown(path))?;
        let reads = call::verb(self.attributes()).is_some_and(Verb::reads);
        Ok(Resolved {
            resource,
            version,
            is_look: reads && self.client() == ClientKind::Session,
            permit: self.permit(),
            meter: &self.scope().meter,
        })
    }
}

impl Resolved<'_> {
    /// The resource.
    pub fn served(&self) -> &Served {
        &self.resource.served
    }

    /// Returns the target of a verb at the path, and notes the use of the version. `lists` is true
    /// for a verb that reads all namespaces where the path has none.
    ///
    /// # Errors
    /// A path that does not fit the resource's scope.
    pub fn target(self, registry: &Deps, path: &ObjectPath, lists: bool) -> Result<Target, Refusal> {
        let Resolved {
            resource,
            version,
            is_look,
            permit,
            meter,
        } = self;
        let ResolvedResource {
            cluster,
            served,
            view_scope,
        } = resource;
        let namespace = namespace_of(&served, path).ok_or_else(|| unknown(path))?;
        if served.api.scope == ScopeKind::Namespaced && namespace.is_none() && !lists {
            return Err(unknown(path));
        }
        // A provider sees its tenants through a view scope: what it uses is no use of theirs. A
        // page of the console shows any version: who looks at a workspace does not depend on it.
        // Its writes do count, and so does what comes without a session, which any client can send.
        if matches!(view_scope, ViewScope::Within) && !is_look {
            let (uses, clock) = (&registry.uses, &registry.clock);
            uses.note(&served, &cluster, &version, clock.now());
        }
        Ok(Target::permitted(
            permit,
            (cluster, namespace),
            (served, version),
            (view_scope, meter),
        ))
    }
}

/// Resolves a path: in the request's cluster, through its virtual workspace, or in all clusters.
///
/// # Errors
/// A resource that is not served, and verbs that the wildcard does not have.
fn resolve(
    registry: &Deps,
    request: &Authorized,
    path: &ObjectPath,
    is_metadata_alone: &dyn Fn() -> bool,
) -> Result<ResolvedResource, Refusal> {
    let verb = call::verb(request.attributes());
    let (plural, identity) = match path.resource.split_once(':') {
        Some((plural, "")) => {
            let why = format!("invalid resource {plural:?}: missing identity");
            return Err(Refusal::Verb(Error::Internal(why)));
        }
        Some((plural, identity)) => (plural, Some(identity)),
        None => (&*path.resource, None),
    };
    let (view, cluster) = (&request.scope().view, &request.scope().cluster);
    let reads_many =
        matches!(verb, Some(Verb::List | Verb::Watch)) || matches!(view, Some(VirtualWorkspace::Schemas(_)));
    if cluster.is_none() && !reads_many {
        return Err(across_only_reads(path, plural, verb, view.as_ref()));
    }
    let found = match (view, cluster) {
        (None, Some(cluster)) => {
            let served = registry
                .catalog
                .resolve(&request.scope().snapshot, cluster, &path.group, plural);
            served.map(|served| ResolvedResource {
                cluster: cluster.clone(),
                served,
                view_scope: ViewScope::Within,
            })
        }
        (None, None) => everywhere(registry, request, (path, plural), (identity, is_metadata_alone)),
        (Some(view), _) => {
            let resolution = Resolution {
                verb,
                user: request.user(),
                attributes: request.attributes(),
                permitted: request.permit().attributes(),
            };
            view.resolve(registry, request.scope(), (path, plural), &resolution)?
        }
    };
    let snapshot = &request.scope().snapshot;
    let is_meant = |identity: &str, served: &Served| {
        let is_root_export = || exports::is_identity_of(snapshot, (&path.group, plural), identity);
        *served.identity == *identity || matches!(served.origin, Origin::System) && is_root_export()
    };
    found
        .filter(|found| identity.is_none_or(|identity| is_meant(identity, &found.served)))
        .ok_or_else(|| unknown(path))
}

/// The refusal of a path that nothing is served at.
fn unknown(path: &ObjectPath) -> Refusal {
    match path.group.is_empty() && path.version == "v1" {
        true => Refusal::Verb(Error::UnknownResource),
        false => Refusal::NotServed,
    }
}

/// Returns the resource of a request to all clusters: a built-in, that of an exporter's identity,
/// or, for metadata alone, all of that name.
fn everywhere(
    registry: &Deps,
    request: &Authorized,
    (path, plural): (&ObjectPath, &str),
    (identity, is_metadata_alone): (Option<&str>, &dyn Fn() -> bool),
) -> Option<ResolvedResource> {
    let (catalog, snapshot) = (&registry.catalog, &request.scope().snapshot);
    let group = path.group.as_str();
    let routed = || catalog.routed_anywhere(snapshot, (group, &path.version, plural), identity);
    let of_one = || AllClusters::everywhere(LabelSelector::default());
    let (served, view_scope) = match (catalog.system().get(group, plural), identity) {
        (Some(served), _) => (served.clone(), of_one()),
        (None, Some(_)) => (routed()?, of_one()),
        (None, None) if is_metadata_alone() => (routed()?, AllClusters::of_all_exporters()),
        (None, None) => return None,
    };
    Some(ResolvedResource {
        cluster: ClusterName::root(),
        served,
        view_scope,
    })
}

/// The refusal of a verb across clusters, in kcp's words. Virtual workspaces answer a GET as one of
/// an object that does not exist.
fn across_only_reads(path: &ObjectPath, plural: &str, verb: Option<Verb>, view: Option<&VirtualWorkspace>) -> Refusal {
    let named = Named {
        group: path.group.as_str().into(),
        resource: plural.into(),
    };
    match (verb, &path.name, view) {
        (Some(Verb::Get), Some(name), Some(_)) => Refusal::Verb(Error::NotFound {
            resource: named,
            name: name.clone(),
        }),
        _ => Refusal::NotSupported {
            resource: named,
            verb,
            clusters: Clusters::All,
        },
    }
}

/// Returns the namespace of a path; `None` where the path does not fit the resource's scope.
fn namespace_of(served: &Served, path: &ObjectPath) -> Option<Option<Arc<str>>> {
    match (served.api.scope, &path.namespace) {
        (ScopeKind::Namespaced, namespace) => Some(namespace.as_deref().map(Arc::from)),
        (ScopeKind::Cluster, None) => Some(None),
        (ScopeKind::Cluster, Some(_)) => None,
    }
}
