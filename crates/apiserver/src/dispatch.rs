//! Dispatch of requests: from the HTTP request through all stages to the handler that answers it.

use crate::{
    aggregation, audit, discovery, documents, gzip, health, hosts, measured, metered, mounts,
    negotiate::{self, Representation, Supported},
    no_workspace,
    path::{Rest, Route},
    query::Query,
    reply::{self, Form, Replied, Reply},
    request::{Answer, Parsed},
    request_stages::{Authenticated, Permitted},
    server::ApiServer,
    verbs::{ResourceRequest, own, scale, watch},
};
use axum::body::Body;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, header};
use insula_api::{Verb, measure::TRACE};
use insula_catalog::{Error, Origin, Part, Served};
use insula_edge::{
    guard::limits::{Held, InFlightPermit},
    port::{Answered, Arrival, RequestKind, ResourceClass},
};
use insula_meter::Bounds;
use insula_pipeline::{Destination, Entered, ObjectPath, Refusal};
use std::pin::pin;
use tracing::Instrument;

impl ApiServer {
    /// Serves one request over HTTP. Boxed, so that its code is compiled here and not where it is
    /// awaited.
    pub fn serve(&self, request: Request<Body>, arrival: Arrival) -> BoxFuture<'_, Answered> {
        Box::pin(async move {
            let (headers, uri) = (request.headers().clone(), request.uri().clone());
            let (record, meter) = (arrival.record.clone(), arrival.work.clone());
            let mut kind = RequestKind::default();
            let time = self.limits.settings.request_time;
            let answer = {
                let served = pin!(serve(self, request, arrival, &mut kind));
                self.guarded(time, (&record, &meter), served).await
            };
            let reply = answer.unwrap_or_else(|refusal| {
                let query = Query::parse(uri.query().unwrap_or_default());
                reply::refuse(&refusal, &query, &headers).into()
            });
            let Reply { response, form, held } = audit::record_response(&record, reply).await;
            let mut response = gzip::compress(response, form, &headers);
            let no_cache = HeaderValue::from_static("no-cache, private");
            response.headers_mut().entry(header::CACHE_CONTROL).or_insert(no_cache);
            Answered { response, kind, held }
        })
    }
}

/// Serves a request through all stages, and notes its kind on the way.
async fn serve(server: &ApiServer, request: Request<Body>, arrival: Arrival, kind: &mut RequestKind) -> Replied {
    let request = hosts::located(server.hosts.as_ref(), arrival.server_name.as_deref(), request)?;
    // Shares its bytes: only a refusal looks at it.
    let uri = request.uri().clone();
    let parsed = Parsed::new(request, arrival)?;
    // A watch has `timeoutSeconds` instead, as in Kubernetes.
    let timeout = match parsed.verb {
        Some(Verb::Watch) => None,
        _ => parsed.query.timeout()?,
    };
    let settings = &server.limits.settings;
    if let Some(time) = timeout.filter(|time| *time < settings.request_time) {
        let compute = settings.compute_time;
        parsed.work.bound(Some(Bounds { time, compute }));
    }
    let served = pin!(async {
        let (authenticated, permit) = server.admit(parsed).await?;
        serve_authenticated(server, authenticated, Some(permit), kind).await
    });
    let answer = match timeout {
        Some(time) => tokio::time::timeout(time, served)
            .await
            .unwrap_or(Err(Refusal::Timeout)),
        None => served.await,
    };
    answer.map_err(|refusal| no_workspace::explained(uri.path(), refusal))
}

/// Serves a request whose sender is known: through all further stages, within the limits of its
/// workspace. A request of an admitted call has no permit of its own.
pub(crate) async fn serve_authenticated(
    server: &ApiServer,
    authenticated: Authenticated,
    permit: Option<InFlightPermit>,
    kind: &mut RequestKind,
) -> Replied {
    let (mut parsed, destination) = authenticated.locate(&server.registry).await?;
    let authorized = match destination {
        Destination::Here(located) => {
            let authorizing = located.authorize(server.authenticator.delegate.as_deref(), &parsed.record);
            authorizing
                .instrument(tracing::info_span!(target: TRACE, "authorize"))
                .await?
        }
        Destination::Mounted(mounted) => {
            let answer = mounts::forward(&server.limits, &*server.mounts, parsed, *mounted).await;
            return answer.map(Reply::from);
        }
    };
    let entering = authorized.enter(server.tenants(), &parsed.payer, parsed.meter.as_deref());
    let Entered {
        permit: in_workspace,
        budget,
        slot,
    } = entering.await?;
    parsed.budget = budget;
    // A watch takes a permit of its own instead.
    let held = Held::new((permit, in_workspace, parsed.budget.clone()));
    let cluster = authorized.scope().cluster.clone();
    let request = Permitted { parsed, authorized };
    let answered = slot.run(pin!(answer(server, request, kind))).await;
    let metering = &server.registry.cache.metering;
    let counters = cluster.and_then(|cluster| metering.request(&cluster, kind.verb));
    let mut reply = answered?;
    if kind.verb != Some(Verb::Watch) && reply.form != Form::Lasting {
        reply.held = Some(held);
    }
    if let Some(counters) = counters {
        reply.response = metered::counted(reply.response, counters);
    }
    Ok(reply)
}

async fn answer(server: &ApiServer, request: Permitted, kind: &mut RequestKind) -> Replied {
    let answer = match request.parsed.rest() {
        Rest::Resource(path) => return resource(server, request, path, kind).await,
        Rest::CoreVersions => documents::core_versions(server, &request),
        Rest::Groups => documents::groups(server, &request),
        Rest::Group(group) => documents::group(server, &request, &group),
        Rest::GroupVersion { group, version } => match aggregation::find(server, &request, &group, &version) {
            Some(to) => {
                kind.class = ResourceClass::Aggregated;
                return aggregation::proxy(server, request, to, &format!("/apis/{group}/{version}")).await;
            }
            None => documents::group_version(server, &request, &group, &version),
        },
        Rest::ThirdParty { group, version } => {
            documents::third_party(server, &request, group.as_deref(), version.as_deref())
        }
        Rest::OpenApiV2 => documents::openapi_v2(server, &request).await,
        Rest::OpenApiV3(None) => documents::openapi_v3_index(server, &request),
        Rest::OpenApiV3(Some(path)) => match aggregation::document(server, &request, &path) {
            Some(to) => {
                let path = format!("/openapi/v3/apis/{}", to.service.api_version());
                return aggregation::proxy(server, request, to, &path).await;
            }
            None => documents::openapi_v3(server, &request, &path).await,
        },
        Rest::Other(path) if health::serves(&path) && matches!(request.parsed.route, Route::Cluster { .. }) => {
            let query = request.parsed.uri.query().map(str::to_owned);
            Ok(server.health.report(&path, query.as_deref()).await)
        }
        Rest::Other(path) => other(&request, &path),
    };
    answer.map(Reply::from)
}

fn other(request: &Permitted, path: &str) -> Answer {
    match (path, &request.parsed.route) {
        ("/version", _) => documents::version(request),
        ("/metrics", Route::Cluster { .. }) => Err(Refusal::NotInWorkspaces),
        _ => Err(Refusal::NotServed),
    }
}

/// Answers a request for objects.
async fn resource(server: &ApiServer, request: Permitted, path: ObjectPath, kind: &mut RequestKind) -> Replied {
    let verb = request.parsed.verb;
    let resolved = request
        .authorized
        .resolve(&server.registry, &path, server.third_party_resources, &|| {
            takes_metadata_alone(&request.parsed)
        });
    let resolved = match resolved {
        Ok(found) => found,
        // Extension servers are asked for what the cluster does not serve by itself.
        Err(refusal) => {
            let to = (!path.third_party).then(|| aggregation::find(server, &request, &path.group, &path.version));
            let to = to.flatten().ok_or(refusal)?;
            (kind.verb, kind.class) = (verb, ResourceClass::Aggregated);
            return aggregation::proxy(server, request, to, &aggregation::path_of(&path)).await;
        }
    };
    kind.verb = verb;
    kind.class = match resolved.served().origin {
        Origin::System => ResourceClass::System,
        Origin::Bound { .. } => ResourceClass::Bound,
        Origin::Local { .. } => ResourceClass::Local,
    };
    kind.resource = measured::requested(&request.parsed, &path, &resolved.served().api);
    let lists = request.parsed.method == http::Method::GET && path.name.is_none();
    let target = resolved.target(&server.registry, &path, lists)?;
    let warnings = deprecation(&target.served, &target.version);
    let mut request = ResourceRequest {
        server,
        request,
        target,
        name: path.name.unwrap_or_default(),
        names_creation: false,
        body_bytes: 0,
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

/// Returns true for a client who is answered with the metadata of objects, whatever their API.
fn takes_metadata_alone(request: &Parsed) -> bool {
    // Lists and watches have different names for it.
    let supported = match request.verb {
        Some(Verb::Watch) => Supported::Watch,
        _ => Supported::List,
    };
    let header = reply::accept_header(&request.headers);
    let form = negotiate::accept(header.as_deref(), supported, false).ok();
    form.is_some_and(|form| {
        matches!(
            form.representation,
            Representation::PartialMetadata(_) | Representation::PartialMetadataList(_)
        )
    })
}

/// Calls the verb of an object's subresource; the empty one is the object itself.
async fn subresource(request: &mut ResourceRequest<'_>, subresource: &str, verb: Verb) -> Replied {
    let served = &request.target.served;
    let of_kind = served.api.subresource(subresource).is_some();
    let answer = match subresource {
        "" if served.api.strategy.traits().review => request.review(verb).await,
        "" if verb == Verb::List => return request.list().await,
        "" => main(request, verb).await,
        "status" if request.target.api_version()?.status => part(request, verb, Part::Status).await,
        "approval" if of_kind => part(request, verb, Part::Approval).await,
        "scale" if request.target.api_version()?.scale.is_some() => scale::serve(request, verb).await,
        "token" if of_kind => request.token(verb).await,
        "finalize" if of_kind => finalize(request, verb).await,
        _ => match (served.api.subresource(subresource), served.api.handler(subresource)) {
            (Some(known), Some(handler)) if known.verbs.contains(&verb) => {
                return own::serve(request, verb, handler).await;
            }
            (Some(_), Some(_)) => Err(request.not_supported(verb)),
            _ => Err(Refusal::from(served.api.not_found(&request.name))),
        },
    };
    answer.map(Reply::from)
}

async fn main(request: &mut ResourceRequest<'_>, verb: Verb) -> Answer {
    let deletes_collection = request.target.served.api.strategy.traits().deletes_collection;
    match (verb, request.name.is_empty()) {
        (Verb::Get, _) => request.get().await,
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

/// Returns the warning about a deprecated version: its author's text, or the best version to use
/// instead.
pub(crate) fn deprecation(served: &Served, version: &str) -> Vec<String> {
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
