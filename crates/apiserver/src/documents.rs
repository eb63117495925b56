//! Documents about the served APIs: discovery, OpenAPI, the version. They are made from the catalog
//! at the request's snapshot.

use crate::{
    VERSION, aggregation, discovery,
    negotiate::{Negotiated, Representation, Supported},
    openapi::{self, serve::Payer},
    reply::{self, header_text},
    request::Answer,
    request_stages::Permitted,
    server::ApiServer,
    third_party, virtual_workspace,
};
use axum::body::Body;
use http::{HeaderValue, Response, header};
use insula_api::Json;
use insula_catalog::{Error, Served};
use insula_pipeline::Refusal;
use insula_pipeline::VirtualWorkspace;

/// Bytes in memory of a version of a resource in a document, without its lists: as a value, and as
/// text.
const RESOURCE_BYTES: usize = 4 << 10;
/// Bytes in memory of each text of a list.
const TEXT_BYTES: usize = 64;
/// Bytes in memory that are made in a unit of work.
const BYTES_PER_UNIT: u64 = 8;
/// Copies of a text while a document is made.
const VALUES: usize = 3;

fn accept(request: &Permitted, supported: Supported) -> Result<Negotiated, Refusal> {
    reply::form(&request.parsed, supported, true)
}

/// Returns the APIs of the cluster. The memory of a document about them is reserved.
fn served(server: &ApiServer, request: &Permitted) -> Result<Vec<Served>, Refusal> {
    if let Some(view) = &request.authorized.scope().view {
        let served = view.served(&server.registry, request.authorized.scope());
        hold(request, &served)?;
        return Ok(served);
    }
    let cluster = request.authorized.scope().cluster.as_ref().ok_or(Refusal::NotServed)?;
    let served = server
        .registry
        .catalog
        .served(&request.authorized.scope().snapshot, cluster);
    let served = third_party::without_switched_off(server.third_party_resources, served);
    hold(request, &served)?;
    Ok(served)
}

/// Reserves the memory of a document about APIs before it is made, and pays for the work.
fn hold(request: &Permitted, served: &[Served]) -> Result<(), Refusal> {
    let bytes = |one: &Served| {
        let names = one.names();
        let lists = names.short_names.iter().chain(&names.categories);
        let texts: usize = lists.map(|text| TEXT_BYTES + text.len() * VALUES).sum();
        one.served_versions().count() * (RESOURCE_BYTES + texts)
    };
    let bytes = served.iter().map(bytes).sum();
    request.parsed.budget.hold(bytes)?;
    let paid = request.authorized.scope().meter.spend(bytes as u64 / BYTES_PER_UNIT);
    Ok(paid.map_err(Error::Ended)?)
}

/// Adapts a discovery document to the request's virtual workspace.
fn viewed(request: &Permitted, served: &[Served], mut document: Json) -> Json {
    if let Some(view) = &request.authorized.scope().view {
        virtual_workspace::adapt_discovery(view, request.authorized.scope(), served, &mut document);
    }
    document
}

/// Returns the APIs of one group, in time that does not depend on the other groups of the cluster.
fn served_in(server: &ApiServer, request: &Permitted, group: &str) -> Result<Vec<Served>, Refusal> {
    if request.authorized.scope().view.is_some() {
        return served(server, request);
    }
    let cluster = request.authorized.scope().cluster.as_ref().ok_or(Refusal::NotServed)?;
    let catalog = &server.registry.catalog;
    let served = catalog.served_in(&request.authorized.scope().snapshot, cluster, group);
    let served = third_party::without_switched_off(server.third_party_resources, served);
    hold(request, &served)?;
    Ok(served)
}

/// Answers with a document that clients cache: with a tag, and 304 for clients that have it.
fn tagged(request: &Permitted, document: &Json, content_type: &'static str) -> Response<Body> {
    let bytes = discovery::text(document);
    let tag = discovery::etag(&bytes);
    let known = header_text(&request.parsed.headers, header::IF_NONE_MATCH);
    let mut response = match discovery::etag_matches(known.as_deref(), &tag) {
        true => reply::bytes(304, Vec::new(), content_type),
        false => reply::bytes(200, bytes, content_type),
    };
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&format!("\"{tag}\"")) {
        headers.insert(header::ETAG, value);
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

/// Returns `host:port` as clients reach this server.
fn address(server: &ApiServer) -> &str {
    server.registry.external_url.trim_start_matches("https://")
}

/// Returns the forms of the lists of groups. Lifecycle views across clusters have no aggregated
/// form, as in kcp.
fn discovery_forms(request: &Permitted) -> Supported {
    match (&request.authorized.scope().view, &request.authorized.scope().cluster) {
        (Some(VirtualWorkspace::LifecycleController(_)), None) => Supported::Document,
        _ => Supported::Discovery,
    }
}

/// Answers `/api`
pub(crate) fn core_versions(server: &ApiServer, request: &Permitted) -> Answer {
    let form = accept(request, discovery_forms(request))?;
    if form.representation == Representation::AggregatedDiscovery {
        let served = served_in(server, request, "")?;
        let body = viewed(request, &served, discovery::aggregated_core(&served));
        return Ok(tagged(request, &body, form.content_type()));
    }
    Ok(reply::discovery(&discovery::core_versions(address(server)), form))
}

/// Answers `/apis`
pub(crate) fn groups(server: &ApiServer, request: &Permitted) -> Answer {
    let form = accept(request, discovery_forms(request))?;
    let served = served(server, request)?;
    let extensions = aggregation::services(server, request);
    if form.representation == Representation::AggregatedDiscovery {
        let mut body = viewed(request, &served, discovery::aggregated_groups(&served));
        aggregation::add_to_aggregated(server, &mut body, &extensions);
        return Ok(tagged(request, &body, form.content_type()));
    }
    let mut body = discovery::groups(&served, address(server));
    aggregation::add_to_groups(&mut body, &extensions);
    Ok(reply::discovery(&body, form))
}

/// Answers `/apis/<group>`
pub(crate) fn group(server: &ApiServer, request: &Permitted, group: &str) -> Answer {
    let form = accept(request, Supported::Document)?;
    let own = discovery::group(&served_in(server, request, group)?, group);
    let body = aggregation::with_group(own, group, &aggregation::services(server, request));
    let body = body.ok_or(Refusal::NotServed)?;
    Ok(reply::discovery(&body, form))
}

/// Answers `/api/v1`, `/apis/<group>/<version>`
pub(crate) fn group_version(server: &ApiServer, request: &Permitted, group: &str, version: &str) -> Answer {
    let form = accept(request, Supported::Document)?;
    let served = served_in(server, request, group)?;
    let body = discovery::resources(&served, group, version).ok_or(Refusal::NotServed)?;
    Ok(reply::discovery(&viewed(request, &served, body), form))
}

/// Answers `/thirdparty`, `/thirdparty/<group>` and `/thirdparty/<group>/<version>`
pub(crate) fn third_party(
    server: &ApiServer,
    request: &Permitted,
    group: Option<&str>,
    version: Option<&str>,
) -> Answer {
    let form = accept(request, Supported::Document)?;
    let served = match group {
        Some(group) => served_in(server, request, group)?,
        None => served(server, request)?,
    };
    let is_on = server.third_party_resources && request.authorized.scope().view.is_none();
    let body = is_on.then(|| third_party::document(&served, group, version)).flatten();
    Ok(reply::discovery(&body.ok_or(Refusal::NotServed)?, form))
}

/// Answers `/version` in a cluster.
pub(crate) fn version(request: &Permitted) -> Answer {
    let form = reply::form(&request.parsed, Supported::Document, false)?;
    Ok(reply::document(200, &discovery::version(VERSION), form))
}

/// Answers `/openapi/v3`
pub(crate) fn openapi_v3_index(server: &ApiServer, request: &Permitted) -> Answer {
    let served = served(server, request)?;
    let mut index = openapi::index(&served, request.authorized.scope().view.is_some());
    aggregation::add_to_index(server, &mut index, &aggregation::services(server, request));
    Ok(openapi::serve::index(index.to_string().into(), &request.parsed.headers))
}

/// Answers `/openapi/v3/<path>`. Nothing of the request's body is held while the document is made.
pub(crate) fn openapi_v3<'a>(
    server: &'a ApiServer,
    request: &Permitted,
    path: &'a str,
) -> impl Future<Output = Answer> + use<'a> {
    let served = served_in(server, request, openapi::group_of(path));
    let (headers, payer) = (request.parsed.headers.clone(), Payer::from_request(request));
    let hash = request.parsed.query.get("hash").map(str::to_owned);
    let base = virtual_workspace::base(request.authorized.scope());
    let all_groups = request.authorized.scope().view.is_some();
    async move {
        let conditions = openapi::serve::Conditions {
            payer: &payer,
            headers: &headers,
            hash: hash.as_deref(),
            base: &base,
            all_groups,
            now: server.registry.clock.now(),
        };
        let found = openapi::serve::v3(&server.openapi, &served?, path, conditions).await?;
        found.ok_or(Refusal::NotServed)
    }
}

/// Answers `/openapi/v2`. Nothing of the request's body is held while the document is made.
pub(crate) fn openapi_v2<'a>(server: &'a ApiServer, request: &Permitted) -> impl Future<Output = Answer> + use<'a> {
    let served = served(server, request);
    let extensions = aggregation::openapi_v2(server, &aggregation::services(server, request));
    let (headers, payer) = (request.parsed.headers.clone(), Payer::from_request(request));
    async move { openapi::serve::v2(&server.openapi, &served?, &extensions, &headers, &payer).await }
}

impl Payer {
    fn from_request(request: &Permitted) -> Self {
        Payer {
            user: request.parsed.payer.clone(),
            budget: request.parsed.budget.clone(),
            meter: request.authorized.scope().meter.clone(),
        }
    }
}
