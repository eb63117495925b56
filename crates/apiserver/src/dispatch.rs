//! Dispatch of requests: from the HTTP request through all stages to the handler that answers it.

use crate::{
    aggregation, audit, discovery, documents, gzip, metered, mounts,
    negotiate::{self, Representation, Supported},
    path::{ResourcePath, Rest, Route},
    reply::{self, Lasting},
    request::{Answer, Parsed, RequestKind, ResourceClass, VirtualWorkspace},
    request_stages::{Authenticated, Authorized, Destination},
    server::ApiServer,
    third_party,
    verbs::{ResourceRequest, own, scale, watch},
    virtual_workspace::{Resolution, ResolvedResource},
};
use axum::body::Body;
use http::{HeaderValue, Request, Response, header};
use insula_access::{
    Target,
    view::{AllClusters, ViewScope},
};
use insula_api::{ClusterName, LabelSelector, Verb, measure::TRACE};
use insula_auth::audit::Record;
use insula_catalog::{Error, Named, Origin, Part, ScopeKind, Served, exports};
use insula_pipeline::{
    Clusters, Refusal,
    fair_share::{ConnectionMeter, Tenant, ThrottleSlot},
    limits::{Held, InFlightPermit},
};
use insula_registry::Deps;
use std::{pin::pin, sync::Arc};
use tracing::Instrument;

impl ApiServer {
    /// Serves one request over HTTP.
    pub async fn serve(&self, request: Request<Body>) -> Response<Body> {
        let headers = request.headers().clone();
        let record = request.extensions().get::<Record>().cloned().unwrap_or_default();
        let mut kind = RequestKind::default();
        let time = self.limits.settings.request_time;
        let answer = {
            let served = pin!(serve(self, request, &mut kind));
            self.guarded(time, &record, served).await
        };
        let response = answer.unwrap_or_else(|refusal| reply::refuse(&refusal, &headers));
        let response = audit::record_response(&record, response).await;
        let mut response = gzip::compress(response, &headers);
        let no_cache = HeaderValue::from_static("no-cache, private");
        response.headers_mut().entry(header::CACHE_CONTROL).or_insert(no_cache);
        response.extensions_mut().insert(kind);
        response
    }
}

/// Serves a request through all stages, and notes its kind on the way.
async fn serve(server: &ApiServer, request: Request<Body>, kind: &mut RequestKind) -> Answer {
    let meter = request.extensions().get::<Arc<ConnectionMeter>>().cloned();
    let (authenticated, permit) = server.admit(Parsed::new(request)?).await?;
    serve_authenticated(server, authenticated, (Some(permit), meter), kind).await
}

/// Serves a request whose sender is known: through all further stages, within the limits of its
/// workspace. A request of an admitted call has no permit of its own.
pub(crate) async fn serve_authenticated(
    server: &ApiServer,
    authenticated: Authenticated,
    (permit, meter): (Option<InFlightPermit>, Option<Arc<ConnectionMeter>>),
    kind: &mut RequestKind,
) -> Answer {
    let mut authorized = match authenticated.locate(&server.registry).await? {
        Destination::Here(located) => {
            let authorizing = located.authorize(server.authenticator.delegate.as_deref());
            authorizing
                .instrument(tracing::info_span!(target: TRACE, "authorize"))
                .await?
        }
        Destination::Mounted(mounted) => return mounts::forward(&server.limits, &*server.mounts, *mounted).await,
    };
    refuse_inactive(&authorized)?;
    let (tenant, in_workspace) = match &authorized.scope.cluster {
        Some(cluster) => {
            let permit = server.limits.in_workspace(cluster, authorized.scope.own_limits())?;
            (Tenant::Workspace(cluster.clone()), Some(permit))
        }
        None => (Tenant::User(authorized.parsed.payer.clone()), None),
    };
    let slot = match meter {
        Some(meter) => server.fair_share.throttle_slot(&meter, &tenant).await,
        None => Ok(ThrottleSlot::default()),
    };
    let slot = slot.map_err(|refusal| server.limits.over_compute(&refusal.to_string()))?;
    let parsed = &mut authorized.parsed;
    parsed.budget = server.limits.budget(&parsed.payer, in_workspace.as_ref());
    // A watch takes a permit of its own instead.
    let held = Held::new((permit, in_workspace, parsed.budget.clone()));
    let cluster = authorized.scope.cluster.clone();
    let answered = slot.run(pin!(answer(server, authorized, kind))).await;
    let metering = &server.registry.cache.metering;
    let counters = cluster.and_then(|cluster| metering.request(&cluster, kind.verb));
    let mut response = answered?;
    if kind.verb != Some(Verb::Watch) && response.extensions().get::<Lasting>().is_none() {
        response.extensions_mut().insert(held);
    }
    Ok(match counters {
        Some(counters) => metered::counted(response, counters),
        None => response,
    })
}

async fn answer(server: &ApiServer, authorized: Authorized, kind: &mut RequestKind) -> Answer {
    match authorized.scope.rest.clone() {
        Rest::Resource(path) => resource(server, authorized, path, kind).await,
        Rest::CoreVersions => documents::core_versions(server, &authorized),
        Rest::Groups => documents::groups(server, &authorized),
        Rest::Group(group) => documents::group(server, &authorized, &group),
        Rest::GroupVersion { group, version } => match aggregation::find(server, &authorized, &group, &version) {
            Some(to) => {
                kind.class = ResourceClass::Aggregated;
                aggregation::proxy(server, authorized, to, &format!("/apis/{group}/{version}")).await
            }
            None => documents::group_version(server, &authorized, &group, &version),
        },
        Rest::ThirdParty { group, version } => {
            documents::third_party(server, &authorized, group.as_deref(), version.as_deref())
        }
        Rest::OpenApiV2 => documents::openapi_v2(server, &authorized).await,
        Rest::OpenApiV3(None) => documents::openapi_v3_index(server, &authorized),
        Rest::OpenApiV3(Some(path)) => match aggregation::document(server, &authorized, &path) {
            Some(to) => {
                let path = format!("/openapi/v3/apis/{}", to.service.api_version());
                aggregation::proxy(server, authorized, to, &path).await
            }
            None => documents::openapi_v3(server, &authorized, &path).await,
        },
        Rest::Other(path) => other(&authorized, &path),
    }
}

/// Refuses requests to a cluster that is switched off, except for those about its LogicalCluster,
/// by which it is switched on again.
fn refuse_inactive(request: &Authorized) -> Result<(), Refusal> {
    let Some(cluster) = &request.scope.cluster else {
        return Ok(());
    };
    let about_itself = match &request.scope.rest {
        Rest::Resource(path) => path.group == "core.kcp.io" && path.resource == "logicalclusters",
        Rest::OpenApiV2 | Rest::OpenApiV3(_) => true,
        _ => false,
    };
    if about_itself || !request.scope.is_inactive() {
        return Ok(());
    }
    let named = Named {
        group: "core.kcp.io".into(),
        resource: "logicalclusters".into(),
    };
    Err(Refusal::Verb(Error::Forbidden {
        resource: named,
        name: cluster.as_str().to_owned(),
        why: "logical cluster is marked inactive".to_owned(),
        cause: None,
    }))
}

fn other(request: &Authorized, path: &str) -> Answer {
    match (path, &request.parsed.route) {
        ("/version", _) => documents::version(request),
        ("/healthz" | "/livez" | "/readyz", Route::Cluster { .. }) => {
            Ok(reply::bytes(200, b"ok".to_vec(), "text/plain; charset=utf-8"))
        }
        ("/metrics", Route::Cluster { .. }) => Err(Refusal::NotInWorkspaces),
        _ => Err(Refusal::NotServed),
    }
}

/// Answers a request for objects.
async fn resource(server: &ApiServer, request: Authorized, path: ResourcePath, kind: &mut RequestKind) -> Answer {
    let verb = request.parsed.verb;
    let (resolved, version) = match served_at(server, &request, &path) {
        Ok(found) => found,
        // Extension servers are asked for what the cluster does not serve by itself.
        Err(refusal) => {
            let to = (!path.third_party).then(|| aggregation::find(server, &request, &path.group, &path.version));
            let to = to.flatten().ok_or(refusal)?;
            (kind.verb, kind.class) = (verb, ResourceClass::Aggregated);
            return aggregation::proxy(server, request, to, &aggregation::path_of(&path)).await;
        }
    };
    let ResolvedResource {
        cluster,
        served,
        view_scope,
    } = resolved;
    kind.verb = verb;
    kind.class = match served.origin {
        Origin::System => ResourceClass::System,
        Origin::Bound { .. } => ResourceClass::Bound,
        Origin::Local { .. } => ResourceClass::Local,
    };
    let namespace = namespace_of(&served, &path).ok_or_else(|| unknown(&path))?;
    if served.api.scope == ScopeKind::Namespaced
        && namespace.is_none()
        && !(request.parsed.method == http::Method::GET && path.name.is_none())
    {
        return Err(unknown(&path));
    }
    // A provider sees its tenants through a view scope: what it uses is no use of theirs.
    if matches!(view_scope, ViewScope::Within) {
        let (uses, clock) = (&server.registry.uses, &server.registry.clock);
        uses.note(&served, &cluster, &version, clock.now());
    }
    let warnings = deprecation(&served, &version);
    let mut request = ResourceRequest {
        server,
        request,
        target: Target {
            cluster,
            served,
            version,
            namespace,
            view_scope,
        },
        name: path.name.unwrap_or_default(),
        names_creation: false,
        warnings: warnings.clone(),
    };
    request.names_creation = path.third_party;
    let Some(verb) = verb else {
        return Err(request.not_supported(None).warn(warnings));
    };
    let span =
        tracing::info_span!(target: TRACE, "registry", insula.verb = verb.name(), insula.class = kind.class.name());
    let answer = subresource(&mut request, path.subresource.as_deref().unwrap_or_default(), verb);
    let answer = answer.instrument(span).await;
    answer.map_err(|refusal| refusal.warn(warnings))
}

/// Resolves a path to a resource and the name of its version.
fn served_at(
    server: &ApiServer,
    request: &Authorized,
    path: &ResourcePath,
) -> Result<(ResolvedResource, Arc<str>), Refusal> {
    let found = resolve(&server.registry, request, path)?;
    third_party::check(server.third_party_resources, path, &found.served)?;
    let version = found.served.served_versions().find(|v| *v.name == *path.version);
    let version = version.map(|v| v.name.clone()).ok_or_else(|| unknown(path))?;
    Ok((found, version))
}

/// Resolves a path: in the request's cluster, through its virtual workspace, or in all clusters.
///
/// # Errors
/// 404 for a resource that is not served, 405 for verbs that the wildcard does not have.
fn resolve(registry: &Deps, request: &Authorized, path: &ResourcePath) -> Result<ResolvedResource, Refusal> {
    let verb = request.parsed.verb;
    let (plural, identity) = match path.resource.split_once(':') {
        Some((plural, "")) => {
            let why = format!("invalid resource {plural:?}: missing identity");
            return Err(Refusal::from(Error::Internal(why)));
        }
        Some((plural, identity)) => (plural, Some(identity)),
        None => (&*path.resource, None),
    };
    let (view, cluster) = (&request.scope.view, &request.scope.cluster);
    let reads_many =
        matches!(verb, Some(Verb::List | Verb::Watch)) || matches!(view, Some(VirtualWorkspace::Schemas(_)));
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
        (None, None) => everywhere(registry, request, (path, plural), identity).map(|served| ResolvedResource {
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
    let snapshot = &request.scope.snapshot;
    let is_meant = |identity: &str, served: &Served| {
        let is_root_export = || exports::is_identity_of(snapshot, (&path.group, plural), identity);
        *served.identity == *identity || matches!(served.origin, Origin::System) && is_root_export()
    };
    found
        .filter(|found| identity.is_none_or(|identity| is_meant(identity, &found.served)))
        .ok_or_else(|| unknown(path))
}

/// The refusal of a path that nothing is served at.
fn unknown(path: &ResourcePath) -> Refusal {
    match path.group.is_empty() && path.version == "v1" {
        true => Refusal::from(Error::UnknownResource),
        false => Refusal::NotServed,
    }
}

/// Returns the API of a request to all clusters: a built-in, an API by its exporter's identity, or,
/// for metadata alone, any API of that name.
fn everywhere(
    registry: &Deps,
    request: &Authorized,
    (path, plural): (&ResourcePath, &str),
    identity: Option<&str>,
) -> Option<Served> {
    let (catalog, snapshot) = (&registry.catalog, &request.scope.snapshot);
    let group = path.group.as_str();
    if let Some(served) = catalog.system().get(group, plural) {
        return Some(served.clone());
    }
    let header = reply::accept_header(&request.parsed.headers);
    let is_metadata = |supported: &Supported| {
        let form = negotiate::accept(header.as_deref(), *supported, false).ok();
        form.is_some_and(|form| {
            matches!(
                form.representation,
                Representation::PartialMetadata(_) | Representation::PartialMetadataList(_)
            )
        })
    };
    // Lists and watches have different names for it.
    let metadata_alone = || [Supported::List, Supported::Watch].iter().any(is_metadata);
    (identity.is_some() || metadata_alone())
        .then(|| catalog.routed_anywhere(snapshot, (group, &path.version, plural), identity))?
}

/// The refusal of a verb across clusters, in kcp's words. Virtual workspaces answer a GET as one of
/// an object that does not exist.
fn across_only_reads(
    path: &ResourcePath,
    plural: &str,
    verb: Option<Verb>,
    view: Option<&VirtualWorkspace>,
) -> Refusal {
    let named = Named {
        group: path.group.as_str().into(),
        resource: plural.into(),
    };
    match (verb, &path.name, view) {
        (Some(Verb::Get), Some(name), Some(_)) => Refusal::from(Error::NotFound {
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

/// Calls the verb of an object's subresource; the empty one is the object itself.
async fn subresource(request: &mut ResourceRequest<'_>, subresource: &str, verb: Verb) -> Answer {
    let served = &request.target.served;
    let of_kind = served.api.subresource(subresource).is_some();
    match subresource {
        "" if served.api.strategy.traits().review => request.review(verb).await,
        "" => main(request, verb).await,
        "status" if request.target.api_version()?.status => part(request, verb, Part::Status).await,
        "approval" if of_kind => part(request, verb, Part::Approval).await,
        "scale" if request.target.api_version()?.scale.is_some() => scale::serve(request, verb).await,
        "token" if of_kind => request.token(verb).await,
        "finalize" if of_kind => finalize(request, verb).await,
        _ => match (served.api.subresource(subresource), served.api.handler(subresource)) {
            (Some(known), Some(handler)) if known.verbs.contains(&verb) => own::serve(request, verb, handler).await,
            (Some(_), Some(_)) => Err(request.not_supported(verb)),
            _ => Err(Refusal::from(served.api.not_found(&request.name))),
        },
    }
}

async fn main(request: &mut ResourceRequest<'_>, verb: Verb) -> Answer {
    let deletes_collection = request.target.served.api.strategy.traits().deletes_collection;
    match (verb, request.name.is_empty()) {
        (Verb::Get, _) => request.get().await,
        (Verb::List, _) => request.list().await,
        (Verb::Watch, _) => watch::watch(request).await,
        (Verb::Create, true) => request.create().await,
        (Verb::Create, false) if request.names_creation => request.create().await,
        (Verb::Update, false) => request.update(Part::Main).await,
        (Verb::Patch, false) => request.patch(Part::Main).await,
        (Verb::Delete, false) => request.delete().await,
        (Verb::DeleteCollection, _) if deletes_collection => request.delete_collection().await,
        (Verb::Patch, true) => Err(Refusal::from(Error::BadRequest("name must be provided".into()))),
        _ => Err(request.not_supported(verb)),
    }
}

/// Calls a verb on a part of an object that is read and written by itself: its status, or the
/// approval of a CertificateSigningRequest.
async fn part(request: &mut ResourceRequest<'_>, verb: Verb, part: Part) -> Answer {
    match verb {
        Verb::Get => request.get().await,
        Verb::Update => request.update(part).await,
        Verb::Patch => request.patch(part).await,
        _ => Err(request.not_supported(verb)),
    }
}

/// Answers a namespace's `/finalize`: the only way for a client to change `spec.finalizers`.
async fn finalize(request: &mut ResourceRequest<'_>, verb: Verb) -> Answer {
    match verb {
        Verb::Update => request.update(Part::Finalizers).await,
        _ => Err(Refusal::from(Error::MethodNotAllowed)),
    }
}

/// Returns the namespace of a path; `None` where the path does not fit the resource's scope.
fn namespace_of(served: &Served, path: &ResourcePath) -> Option<Option<Arc<str>>> {
    match (served.api.scope, &path.namespace) {
        (ScopeKind::Namespaced, namespace) => Some(namespace.as_deref().map(Arc::from)),
        (ScopeKind::Cluster, None) => Some(None),
        (ScopeKind::Cluster, Some(_)) => None,
    }
}

/// Returns the warning about a deprecated version: its author's text, or the best version to use
/// instead.
fn deprecation(served: &Served, version: &str) -> Vec<String> {
    let Some(text) = served.version(version).and_then(|v| v.deprecated.clone()) else {
        return Vec::new();
    };
    if text != format!("{} {} is deprecated", served.api_version(version), served.names().kind) {
        return vec![text];
    }
    let ranked = discovery::versions(std::slice::from_ref(served), served.group());
    let usable = |candidate: &&str| served.version(candidate).is_some_and(|v| v.deprecated.is_none());
    match ranked.into_iter().take_while(|ranked| *ranked != version).find(usable) {
        Some(better) => vec![format!(
            "{text}; use {} {}",
            served.api_version(better),
            served.names().kind
        )],
        None => vec![text],
    }
}
