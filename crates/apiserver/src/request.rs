//! Requests as every stage sees them: the parsed request line, and the answer.
//!
//! These types are below the stages and the verbs, which add their own methods to them. The query
//! is decoded, and the verb and the attributes are derived, once for each route: see
//! `Parsed::set_route`.

use crate::{
    path::{BadPath, Rest, Route, Virtual, is_ambiguous, parse},
    query::Query,
    websocket::Upgrade,
};
use axum::body::Body;
use http::{HeaderMap, Method, Request, Response, Uri};
use insula_access::{
    OnAuthenticated, PeerCertificate,
    lifecycle::{LifecycleController, LifecyclePhase},
};
use insula_api::{ClusterPath, Verb};
use insula_auth::{Attributes, audit::Record};
use insula_catalog::{Error, exports::ExportName};
use insula_edge::{
    guard::{fair_share::ConnectionMeter, limits::Budget},
    port::{Arrival, ClientKind},
};
use insula_meter::Meter;
use insula_pipeline::{ObjectPath, Refusal, VirtualWorkspace};
use insula_registry::ListOptions;
use std::sync::Arc;

/// The result of a handler.
pub type Answer = Result<Response<Body>, Refusal>;

/// A request whose path makes sense.
pub struct Parsed {
    /// HTTP method.
    pub method: Method,
    /// Path and query as they came.
    pub uri: Uri,
    /// The target that the path names.
    pub route: Route,
    /// The verb; `None` for requests that are not about objects, and for methods without one.
    pub verb: Option<Verb>,
    /// Attributes for authorisation, without a cluster, until the request is located.
    pub(crate) attributes: Attributes,
    /// Query parameters.
    pub query: Query,
    /// Parameters of a GET of a collection, parsed when it is located.
    pub(crate) list_options: Option<ListOptions>,
    /// Headers.
    pub headers: HeaderMap,
    /// Body, unread.
    pub body: Body,
    /// The certificate that came with the connection.
    pub(crate) peer: Option<PeerCertificate>,
    pub(crate) connection: Option<OnAuthenticated>,
    /// Charges the tenant of the connection.
    pub(crate) meter: Option<Arc<ConnectionMeter>>,
    /// The upgrade to a WebSocket, if the client asks for one.
    pub(crate) upgrade: Option<Upgrade>,
    /// The request's record in the audit log.
    pub(crate) record: Record,
    /// Kind of the client.
    pub(crate) client: ClientKind,
    /// Pays for the work of the request.
    pub(crate) work: Meter,
    /// The account whose limits the request counts against: that of the credential, whomever its
    /// owner acts as. Empty until the request is authenticated.
    pub(crate) payer: Arc<str>,
    /// True for a request within a stream that counts as a watch of the payer already.
    pub(crate) within_watch: bool,
    /// Bytes in flight of the request.
    pub(crate) budget: Budget,
}

impl Parsed {
    /// Reads the request line.
    ///
    /// # Errors
    /// 400 for a path that cannot be a request.
    pub fn new(request: Request<Body>, arrival: Arrival) -> Result<Parsed, Refusal> {
        let route = parse(request.uri().path()).map_err(|BadPath(text)| Refusal::from(Error::BadRequest(text)))?;
        Ok(Self::routed(request, arrival, route))
    }

    /// Reads the head of a gRPC call. The call names its workspace in its message; one whose
    /// credential counts in that workspace alone names it in a header as well.
    pub(crate) fn call(request: Request<Body>, arrival: Arrival, workspace: Option<ClusterPath>) -> Parsed {
        let path = request.uri().path().to_owned();
        let route = match workspace {
            Some(workspace) => Route::Cluster {
                path: Some(workspace),
                rest: Rest::Other(path),
            },
            None => Route::Service(path),
        };
        Self::routed(request, arrival, route)
    }

    fn routed(request: Request<Body>, arrival: Arrival, route: Route) -> Parsed {
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let Arrival {
            address: _,
            server_name: _,
            certificate,
            authenticated,
            meter,
            work,
            upgrade,
            record,
            client,
        } = arrival;
        let upgrade = upgrade.and_then(|upgrade| Upgrade::from_arrival(&parts.headers, upgrade));
        let mut parsed = Parsed {
            method: parts.method,
            uri: parts.uri,
            route: Route::NoCluster,
            verb: None,
            attributes: Attributes::default(),
            query,
            list_options: None,
            headers: parts.headers,
            body,
            peer: certificate,
            connection: authenticated,
            meter,
            work,
            upgrade,
            record,
            client,
            payer: Arc::default(),
            within_watch: false,
            budget: Budget::default(),
        };
        parsed.set_route(route);
        parsed
    }

    /// Returns the account whose watches a watch counts against, unless it is part of one.
    pub(crate) fn watch_payer(&self) -> Option<&str> {
        (!self.within_watch).then_some(&*self.payer)
    }

    /// Sets the route, and derives the verb and the attributes from it.
    pub(crate) fn set_route(&mut self, route: Route) {
        self.route = route;
        self.verb = self.resource_path().and_then(|path| self.verb_for(path));
        self.attributes = self.derive_attributes();
    }

    /// Returns the part of the path behind the cluster.
    pub(crate) fn rest(&self) -> Rest {
        match &self.route {
            Route::Server(path) | Route::Service(path) => Rest::Other(path.clone()),
            Route::NoCluster => Rest::Other(self.uri.path().to_owned()),
            Route::Cluster { rest, .. } | Route::Virtual { rest, .. } => rest.clone(),
        }
    }

    /// Refuses a request that another server is to answer, for an object whose name that server may
    /// read as a longer path than the one that was authorized.
    ///
    /// # Errors
    /// 400 for such a name.
    pub(crate) fn check_forwarded(&self) -> Result<(), Refusal> {
        let name = self.resource_path().and_then(|path| path.name.as_deref());
        match name.filter(|name| is_ambiguous(name)) {
            Some(name) => {
                let why = format!("the name {name:?} is not passed on to another server: it may be a path there");
                Err(Refusal::from(Error::BadRequest(why)))
            }
            None => Ok(()),
        }
    }

    /// The path to objects, of a request that is about objects.
    pub(crate) fn resource_path(&self) -> Option<&ObjectPath> {
        match &self.route {
            Route::Cluster {
                rest: Rest::Resource(path),
                ..
            }
            | Route::Virtual {
                rest: Rest::Resource(path),
                ..
            } => Some(path),
            _ => None,
        }
    }

    /// Returns the verb of a request for objects.
    fn verb_for(&self, path: &ObjectPath) -> Option<Verb> {
        Some(match self.method {
            Method::GET | Method::HEAD if path.watch_prefix || (path.name.is_none() && self.query.flag("watch")) => {
                Verb::Watch
            }
            Method::GET | Method::HEAD if path.name.is_none() => Verb::List,
            Method::GET | Method::HEAD => Verb::Get,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if path.name.is_none() => Verb::DeleteCollection,
            Method::DELETE => Verb::Delete,
            _ => return None,
        })
    }

    /// The request in the terms of authorisation.
    fn derive_attributes(&self) -> Attributes {
        let Some(path) = self.resource_path() else {
            return Attributes {
                verb: self.method.as_str().to_ascii_lowercase().into(),
                path: self.non_resource_path(),
                ..Attributes::default()
            };
        };
        let reads_many = path.name.is_none() && matches!(self.verb, Some(Verb::List | Verb::Watch));
        let selected = reads_many.then(|| self.query.selected_name()).flatten();
        path.attributes(self.verb, selected)
    }

    /// The path that rules for non-resource URLs are compared with.
    fn non_resource_path(&self) -> String {
        match &self.route {
            Route::Cluster { rest, .. } | Route::Virtual { rest, .. } => path_of(rest),
            Route::Server(path) | Route::Service(path) => path.clone(),
            Route::NoCluster => self.uri.path().to_owned(),
        }
    }
}

fn path_of(rest: &Rest) -> String {
    match rest {
        Rest::CoreVersions => "/api".into(),
        Rest::Groups => "/apis".into(),
        Rest::Group(group) => format!("/apis/{group}"),
        Rest::GroupVersion { group, version } if group.is_empty() => format!("/api/{version}"),
        Rest::GroupVersion { group, version } => format!("/apis/{group}/{version}"),
        // The right to discovery covers every way to ask for it.
        Rest::ThirdParty { group, version } => {
            let parts = [group, version].into_iter().flatten();
            parts.fold("/apis".to_owned(), |path, part| format!("{path}/{part}"))
        }
        Rest::OpenApiV2 => "/openapi/v2".into(),
        Rest::OpenApiV3(None) => "/openapi/v3".into(),
        Rest::OpenApiV3(Some(path)) => format!("/openapi/v3/{path}"),
        Rest::Other(path) => path.clone(),
        Rest::Resource(_) => String::new(),
    }
}

impl From<&Virtual> for VirtualWorkspace {
    fn from(workspace: &Virtual) -> Self {
        let controller = |phase, name| {
            LifecycleController::parse(phase, name)
                .map_or(VirtualWorkspace::Unknown, VirtualWorkspace::LifecycleController)
        };
        match workspace {
            Virtual::ApiExport { cluster, name } => VirtualWorkspace::Export(ExportName {
                cluster: cluster.clone(),
                name: name.as_str().into(),
            }),
            Virtual::ApiResourceSchemas { cluster } => VirtualWorkspace::Schemas(cluster.clone()),
            Virtual::Initializing(name) => controller(LifecyclePhase::Initializing, name),
            Virtual::Terminating(name) => controller(LifecyclePhase::Terminating, name),
        }
    }
}
