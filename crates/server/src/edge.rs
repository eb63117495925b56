//! The edge of the server: every request, from the port to whoever answers it.
//!
//! ```text
//! answer    its id and span
//! recorded  its line in the audit log
//! counted   whom it is for, metrics ──> health | in flight
//! in_flight its gauge, its body to the end ──> HTTP: ApiServer::serve | gRPC: Calls::answer
//! ```
//! Both protocols go on to the same stages in [`ApiServer`]: who sends it, permits, time, a guard
//! against panics.
//!
//! One function around the other instead of a stack of layers: a layer moves the request, and what
//! its answer grows in, once more for everybody.

use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    body::{Body, HttpBody},
    extract::Request,
    response::Response,
};
use http::{Method, StatusCode, header::CONTENT_LENGTH};
use insula_api::Rng;
use insula_apiserver::{ApiServer, RequestKind, ResourceClass};
use insula_auth::audit::Log;
use tower::ServiceExt;
use tracing::Instrument;

use crate::{
    audit::RequestAudit,
    authority,
    drain_body::UnreadBody,
    grpc::{self, Calls},
    health,
    listen::Answer,
    metrics::{Class, Effect, Metrics, Verb},
    trace::Trace,
};

/// Who answers, and who is told.
pub(crate) struct Edge {
    /// Makes the ids of requests.
    pub(crate) rng: Arc<dyn Rng>,
    /// Where requests are recorded.
    pub(crate) audit: Arc<Log>,
    /// Where they are counted.
    pub(crate) metrics: Arc<Metrics>,
    /// Health, version, metrics.
    pub(crate) health: Router,
    /// The administrators' services.
    pub(crate) calls: Calls,
    /// Everything else.
    pub(crate) api: Arc<ApiServer>,
}

impl Edge {
    /// As what the port asks.
    pub(crate) fn into_answer(self) -> Answer {
        let edge = Arc::new(self);
        Arc::new(move |request| {
            let edge = Arc::clone(&edge);
            Box::pin(async move { Ok(edge.answer(request).await) })
        })
    }

    async fn answer(&self, mut request: Request) -> Response {
        let trace = Trace::begin(&*self.rng, &mut request);
        let mut response = self.audited(request).instrument(trace.span.clone()).await;
        trace.end(&mut response);
        response
    }

    async fn audited(&self, mut request: Request) -> Response {
        let asking = RequestAudit::begin(&self.audit, &mut request);
        let response = self.measured(request).await;
        asking.end(&response);
        response
    }

    async fn measured(&self, request: Request) -> Response {
        if let Some(refusal) = authority::refuse(&request) {
            return refusal;
        }
        let started = Instant::now();
        let response = match Protocol::from_request(&request) {
            Protocol::Health => call_router(&self.health, request).await,
            protocol => self.in_flight(protocol, request).await,
        };
        let kind = response.extensions().get::<RequestKind>().copied().unwrap_or_default();
        self.metrics
            .request(verb(kind), class(kind), code(&response), started.elapsed());
        response
    }

    /// The answer of the API or of a service, counted while it is made.
    async fn in_flight(&self, protocol: Protocol, mut request: Request) -> Response {
        let _in_flight = self.metrics.in_flight(effect(protocol, request.method()));
        let only_head = *request.method() == Method::HEAD;
        let unread = UnreadBody::track(&mut request);
        let response = match protocol {
            Protocol::Grpc => self.calls.answer(&self.api, request).await,
            Protocol::Http | Protocol::Health => self.api.serve(request).await,
        };
        if let Some(unread) = unread {
            unread.drain(self.api.limits.settings.body_bytes).await;
        }
        match only_head {
            true => without_body(response),
            false => response,
        }
    }
}

/// How a request wants to be answered: all come to one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// Probes, the version and metrics, which have paths of their own.
    Health,
    Http,
    /// The content type says so.
    Grpc,
}

impl Protocol {
    fn from_request(request: &Request) -> Self {
        if grpc::is_call(request.headers()) {
            return Protocol::Grpc;
        }
        match health::serves(request.uri().path()) {
            true => Protocol::Health,
            false => Protocol::Http,
        }
    }
}

/// No service changes anything.
fn effect(protocol: Protocol, method: &Method) -> Effect {
    match (protocol, method) {
        (Protocol::Grpc, _) | (_, &Method::GET | &Method::HEAD | &Method::OPTIONS) => Effect::ReadOnly,
        _ => Effect::Mutating,
    }
}

/// The code that an answer counts with.
fn code(response: &Response) -> StatusCode {
    match grpc::ended(response.headers()) {
        Some(status) => grpc::http_code(status.code()),
        None => response.status(),
    }
}

pub(crate) async fn call_router(router: &Router, request: Request) -> Response {
    let answered = router.clone().oneshot(request).await;
    answered.unwrap_or_else(|never| match never {})
}

/// The answer to a HEAD: what it would be, and how long.
fn without_body(mut response: Response) -> Response {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(length.into());
    }
    response.map(|_| Body::empty())
}

fn verb(kind: RequestKind) -> Verb {
    match kind.verb {
        "get" => Verb::Get,
        "list" => Verb::List,
        "watch" => Verb::Watch,
        "create" => Verb::Create,
        "update" => Verb::Update,
        "patch" => Verb::Patch,
        "delete" => Verb::Delete,
        "deletecollection" => Verb::DeleteCollection,
        _ => Verb::Other,
    }
}

fn class(kind: RequestKind) -> Class {
    match kind.class {
        ResourceClass::NonResource => Class::NonResource,
        ResourceClass::System => Class::System,
        ResourceClass::Bound => Class::Bound,
        ResourceClass::Local => Class::Local,
        ResourceClass::Call => Class::Call,
    }
}
