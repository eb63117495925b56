//! One request, from its bytes to its answer.

use crate::{
    ApiServer, body,
    fair_share::{ConnectionMeter, Tenant, ThrottleSlot},
    home,
    limits::{Budget, Held},
    mounts,
    negotiate::{self, Negotiated, Offer},
    path::{ResourcePath, Rest, Route},
    render::Renderer,
    reply::{self, Reply},
    scale,
    stage::{self, Authorized, Destination, Parsed},
    status, stream,
    views::{self, Found},
};
use axum::body::Body;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use insula_api::Json;
use insula_registry::{Error, Origin, Part, ScopeKind, Served, Target, ids};
use std::sync::Arc;

/// What handlers give.
pub type Answer = Result<Response<Body>, Reply>;

/// What a request turned out to be, for those who count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kind {
    /// Kubernetes' verb; empty for what is not about objects.
    pub verb: &'static str,
    /// Where the resource comes from.
    pub class: Class,
}

/// Whose resource a request is about. A closed set: it labels metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Class {
    /// Discovery, OpenAPI, or nothing that is served.
    #[default]
    NonResource,
    /// A built-in.
    System,
    /// Bound from an export.
    Bound,
    /// Defined in the cluster.
    Local,
    /// No resource's: a gRPC call.
    Call,
}

/// Serves a request through all stages.
pub async fn serve(server: &ApiServer, request: Request<Body>, kind: &mut Kind) -> Answer {
    let meter = request.extensions().get::<Arc<ConnectionMeter>>().cloned();
    let (authenticated, permit) = server.admit(Parsed::new(request)?).await?;
    let mut authorized = match authenticated.locate(&server.registry).await? {
        Destination::Here(located) => located.authorize()?,
        Destination::Mounted(mounted) => return mounts::forward(server, *mounted).await,
    };
    refuse_inactive(&authorized)?;
    let (tenant, in_workspace) = match &authorized.place.cluster {
        Some(cluster) => {
            let place = server.limits.in_workspace(cluster).map_err(Reply::from)?;
            (Tenant::Workspace(cluster.clone()), Some(place))
        }
        None => (Tenant::User(authorized.parsed.payer.clone()), None),
    };
    let turn = match meter {
        Some(meter) => server.fair_share.turn(&meter, &tenant).await,
        None => Ok(ThrottleSlot::default()),
    };
    let turn = turn.map_err(|spent| status::too_many_requests(&spent.to_string()))?;
    let parsed = &mut authorized.parsed;
    parsed.budget = server.limits.budget(&parsed.payer, in_workspace.as_ref());
    // A watch takes a place of its own in theirs.
    let held = Held::new((permit, in_workspace, parsed.budget.clone()));
    let mut response = turn.hold(answer(server, authorized, kind)).await?;
    if kind.verb != "watch" {
        response.extensions_mut().insert(held);
    }
    Ok(response)
}

async fn answer(server: &ApiServer, authorized: Authorized, kind: &mut Kind) -> Answer {
    match authorized.place.rest.clone() {
        Rest::Resource(path) => resource(server, authorized, path, kind).await,
        Rest::CoreVersions => crate::documents::core_versions(server, &authorized),
        Rest::Groups => crate::documents::groups(server, &authorized),
        Rest::Group(group) => crate::documents::group(server, &authorized, &group),
        Rest::GroupVersion { group, version } => crate::documents::group_version(server, &authorized, &group, &version),
        Rest::OpenApiV2 => crate::documents::openapi_v2(server, &authorized),
        Rest::OpenApiV3(None) => crate::documents::openapi_v3_index(server, &authorized),
        Rest::OpenApiV3(Some(path)) => crate::documents::openapi_v3(server, &authorized, &path),
        Rest::Other(path) => other(&authorized, &path),
    }
}

/// A cluster that is switched off answers only about itself, so that it can be switched on.
fn refuse_inactive(request: &Authorized) -> Result<(), Reply> {
    let Some(cluster) = &request.place.cluster else {
        return Ok(());
    };
    let about_itself = match &request.place.rest {
        Rest::Resource(path) => path.group == "core.kcp.io" && path.resource == "logicalclusters",
        Rest::OpenApiV2 | Rest::OpenApiV3(_) => true,
        _ => false,
    };
    if about_itself || !insula_registry::locate::is_inactive(&request.place.snapshot, cluster) {
        return Ok(());
    }
    let named = insula_registry::Named {
        group: "core.kcp.io".into(),
        resource: "logicalclusters".into(),
    };
    Err(status::forbidden(&named, cluster.as_str(), "logical cluster is marked inactive").into())
}

fn other(request: &Authorized, path: &str) -> Answer {
    match (path, &request.parsed.route) {
        ("/version", _) => crate::documents::version(request),
        ("/healthz" | "/livez" | "/readyz", Route::Cluster { .. }) => {
            Ok(reply::bytes(200, b"ok".to_vec(), "text/plain; charset=utf-8"))
        }
        ("/metrics", Route::Cluster { .. }) => Err(status::not_in_workspaces().into()),
        _ => Err(Reply::NotFoundPage),
    }
}

/// A request for objects of one resource.
pub struct ResourceRequest<'a> {
    /// The server.
    pub server: &'a ApiServer,
    /// Who and where.
    pub request: Authorized,
    /// The resource, version, cluster and namespace.
    pub target: Target,
    /// Object name; empty for collections.
    pub name: String,
    /// Warnings that are due whatever happens.
    pub warnings: Vec<String>,
}

async fn resource(server: &ApiServer, request: Authorized, path: ResourcePath, kind: &mut Kind) -> Answer {
    let unknown = || match path.group.is_empty() && path.version == "v1" {
        true => Reply::error(&Error::UnknownResource),
        false => Reply::NotFoundPage,
    };
    let Found {
        cluster,
        served,
        view_scope,
    } = views::find(server, &request, &path)?;
    kind.verb = stage::verb(&request.parsed, &path);
    kind.class = match served.origin {
        Origin::System => Class::System,
        Origin::Bound { .. } => Class::Bound,
        Origin::Local { .. } => Class::Local,
    };
    let version = served
        .served_versions()
        .find(|v| *v.name == *path.version)
        .map(|v| v.name.clone())
        .ok_or_else(unknown)?;
    let namespace = namespace_of(&served, &path).ok_or_else(unknown)?;
    if served.api.scope == ScopeKind::Namespaced
        && namespace.is_none()
        && !(request.parsed.method == Method::GET && path.name.is_none())
    {
        return Err(unknown());
    }
    let warnings = deprecation(&served, &version);
    let target = Target {
        cluster,
        served,
        version,
        namespace,
        view_scope,
    };
    let name = path.name.clone().unwrap_or_default();
    let verb = stage::verb(&request.parsed, &path);
    let subresource = path.subresource.clone().unwrap_or_default();
    let mut request = ResourceRequest {
        server,
        request,
        target,
        name,
        warnings,
    };
    let late = request.warnings.clone();
    let answer = match &*subresource {
        "" if request.target.served.api.strategy.traits().review => request.review(verb).await,
        "" => request.main(verb).await,
        "status" if request.target.api_version()?.status => request.status(verb).await,
        "approval" if request.is_certificate_request() => request.approval(verb).await,
        "scale" if request.target.api_version()?.scale.is_some() => scale::handle(&mut request, verb).await,
        "token" if request.target.served.resource_id() == ids::serviceaccounts() => request.token(verb).await,
        "finalize" if request.is_namespaces() => request.finalize(verb).await,
        _ => Err(Reply::error(&request.target.served.api.not_found(&request.name))),
    };
    answer.map_err(|refusal| refusal.warn(late))
}

/// The namespace of a path, if it fits the resource's scope: `None` where it does not.
fn namespace_of(served: &Served, path: &ResourcePath) -> Option<Option<Arc<str>>> {
    match (served.api.scope, &path.namespace) {
        (ScopeKind::Namespaced, namespace) => Some(namespace.as_deref().map(Arc::from)),
        (ScopeKind::Cluster, None) => Some(None),
        (ScopeKind::Cluster, Some(_)) => None,
    }
}

/// The warning that users of a deprecated version get: its author's words, or the best version to
/// use in its place.
fn deprecation(served: &Served, version: &str) -> Vec<String> {
    let Some(text) = served.version(version).and_then(|v| v.deprecated.clone()) else {
        return Vec::new();
    };
    if text != format!("{} {} is deprecated", served.api_version(version), served.names().kind) {
        return vec![text];
    }
    let ranked = crate::discovery::versions(std::slice::from_ref(served), served.group());
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

impl ResourceRequest<'_> {
    async fn main(&mut self, verb: &str) -> Answer {
        match (verb, self.name.is_empty()) {
            ("get", _) => self.get().await,
            ("list", _) => self.list().await,
            ("watch", _) => stream::watch(self).await,
            ("create", true) => self.create().await,
            ("update", false) => self.update(Part::Main).await,
            ("patch", false) => self.patch(Part::Main).await,
            ("delete", false) => self.delete().await,
            // A namespace takes everything in it along, so that they go one at a time.
            ("deletecollection", _) if self.is_namespaces() => Err(self.not_supported(verb)),
            ("deletecollection", _) => self.delete_collection().await,
            ("patch", true) => Err(Reply::error(&Error::BadRequest("name must be provided".into()))),
            _ => Err(self.not_supported(verb)),
        }
    }

    fn is_namespaces(&self) -> bool {
        let api = &self.target.served.api;
        api.group.is_empty() && &*api.names.plural == "namespaces"
    }

    /// Custom resources name the verb and the resource in a 405, built-ins do not.
    pub fn not_supported(&self, verb: &str) -> Reply {
        let api = &self.target.served.api;
        match api.strategy.traits().built_in {
            true => Reply::error(&Error::MethodNotAllowed),
            false => status::not_supported(&api.named(), verb).into(),
        }
    }

    async fn status(&mut self, verb: &str) -> Answer {
        match verb {
            "get" => self.get().await,
            "update" => self.update(Part::Status).await,
            "patch" => self.patch(Part::Status).await,
            _ => Err(self.not_supported(verb)),
        }
    }

    fn is_certificate_request(&self) -> bool {
        crate::discovery::has_approval(&self.target.served)
    }

    /// The verdict on a request for a certificate.
    async fn approval(&mut self, verb: &str) -> Answer {
        match verb {
            "get" => self.get().await,
            "update" => self.update(Part::Approval).await,
            "patch" => self.patch(Part::Approval).await,
            _ => Err(self.not_supported(verb)),
        }
    }

    /// A namespace's `/finalize`: the only way for a client to change `spec.finalizers`.
    async fn finalize(&mut self, verb: &str) -> Answer {
        match verb {
            "update" => self.update(Part::Finalizers).await,
            _ => Err(Reply::error(&Error::MethodNotAllowed)),
        }
    }

    /// The form of the answer.
    pub fn negotiate(&self, offer: Offer) -> Result<Negotiated, Reply> {
        let headers = &self.request.parsed.headers;
        negotiate::accept(reply::accept_header(headers).as_deref(), offer).map_err(Reply::from)
    }

    /// Writes objects in the form that was negotiated.
    pub fn renderer(&self, negotiated: Negotiated) -> Result<Renderer, Reply> {
        Renderer::new(self, negotiated)
    }

    async fn get(&mut self) -> Answer {
        let renderer = self.renderer(self.negotiate(Offer::Object)?)?;
        let (registry, snapshot) = (&self.server.registry, &self.request.place.snapshot);
        let entry = match home::is_asked(self) {
            true => home::find(self).await?,
            false => registry.get(snapshot, &self.target, &self.name)?,
        };
        renderer.object(200, &entry, &self.warnings).await
    }

    async fn list(&mut self) -> Answer {
        let renderer = self.renderer(self.negotiate(Offer::List)?)?;
        let (options, _) = self.request.parsed.query.list()?;
        let (registry, place) = (&self.server.registry, &self.request.place);
        let target = registry.asking(&self.target);
        registry.prepare_to_select(&target, &place.read, &options.fields).await;
        let list = registry.list_at(&place.snapshot, &place.read, &target, &options)?;
        renderer.list(list, &self.warnings).await
    }

    pub(crate) fn header(&self, name: header::HeaderName) -> Option<String> {
        header_text(&self.request.parsed.headers, name)
    }

    /// The body's bytes, up to the limit.
    pub async fn read_body(&mut self) -> Result<Vec<u8>, Reply> {
        let body = std::mem::take(&mut self.request.parsed.body);
        read_limited(
            body,
            &self.request.parsed.headers,
            self.server.limits.settings.body_bytes,
            &self.request.parsed.budget,
        )
        .await
    }

    /// The body as an object of the resource.
    pub(crate) async fn body(&mut self) -> Result<body::Decoded, Reply> {
        let served = &self.target.served;
        let kind = served.names().kind.clone();
        let implied = crate::discovery::is_built_in(served).then(|| served.api_version(&self.target.version));
        let expected = body::Expected {
            kind: &kind,
            implied: implied.as_deref(),
        };
        self.body_of(expected).await
    }

    /// The body as an object of a kind.
    pub async fn body_of(&mut self, expected: body::Expected<'_>) -> Result<body::Decoded, Reply> {
        let bytes = self.read_body().await?;
        let format = negotiate::body_format(self.header(header::CONTENT_TYPE).as_deref())?;
        let decoded = body::decode_object(&bytes, format, expected).map_err(Reply::from)?;
        self.request.parsed.record.sent(&decoded.value);
        Ok(decoded)
    }

    pub(crate) async fn optional_body(&mut self) -> Result<Option<Json>, Reply> {
        let bytes = self.read_body().await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let format = negotiate::body_format(self.header(header::CONTENT_TYPE).as_deref())?;
        let sent = body::decode(&bytes, format).map_err(Reply::from)?.value;
        self.request.parsed.record.sent(&sent);
        Ok(Some(sent))
    }
}

/// A header's text.
pub fn header_text(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned)
}

/// Bytes held at once for a body of unknown length: more than is left uncounted.
const BODY_STEP_BYTES: usize = 256 << 10;

async fn read_limited(body: Body, headers: &HeaderMap, max: usize, budget: &Budget) -> Result<Vec<u8>, Reply> {
    let max = max.min(body::BODY_BYTES_MAX);
    let too_large = || Reply::error(&Error::TooLarge(format!("limit is {max}")));
    let announced = header_text(headers, header::CONTENT_LENGTH).and_then(|text| text.parse::<usize>().ok());
    if announced.is_some_and(|length| length > max) {
        return Err(too_large());
    }
    if headers
        .get(header::CONTENT_ENCODING)
        .is_some_and(|encoding| encoding != "identity")
    {
        return Err(status::unsupported_among("identity encoding").into());
    }
    let mut body = Limited::new(body, max);
    let mut held = announced.unwrap_or_default();
    budget.hold(held)?;
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error.is::<http_body_util::LengthLimitError>() {
            true => too_large(),
            false => Reply::error(&Error::BadRequest(format!("the body could not be read: {error}"))),
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > held {
            // A length that nobody announced is held in steps.
            budget.hold(BODY_STEP_BYTES)?;
            held += BODY_STEP_BYTES;
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}
