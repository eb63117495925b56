//! Edge of the server: the steps of every request between the port and its handler.
//!
//! ```text
//! answer    id and span of the request
//! audited   its line in the audit log
//! measured  its host, metrics ──> health | in flight
//! in_flight its gauge, the rest of its body ──> HTTP: ApiServer::serve | gRPC: Calls::answer
//! ```
//! Both protocols go on to the same stages in [`ApiServer`]: authentication, permits, timeout,
//! panic guard.
//!
//! One function calls the next, instead of a stack of layers: each layer would move the request and
//! the future of its answer once more.

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
use tracing::Instrument;

use crate::{
    audit::RequestAudit,
    authority,
    drain_body::UnreadBody,
    grpc::{self, Calls},
    health,
    listen::Answer,
    metrics::{Class, Effect, Metrics},
    trace::Trace,
};

/// Handlers of requests, and the observers of each request.
pub(crate) struct Edge {
    /// Source of request ids.
    pub(crate) rng: Arc<dyn Rng>,
    /// Audit log.
    pub(crate) audit: Arc<Log>,
    /// Metrics of requests.
    pub(crate) metrics: Arc<Metrics>,
    /// Routes of health, version, metrics and backups.
    pub(crate) health: Router,
    /// gRPC services of administrators.
    pub(crate) calls: Calls,
    /// The API, for all other requests.
    pub(crate) api: Arc<ApiServer>,
}

impl Edge {
    /// Returns the edge as the function that the port calls.
    pub(crate) fn into_answer(self) -> Answer {
        let edge = Arc::new(self);
        Arc::new(move |request| {
            let edge = Arc::clone(&edge);
            Box::pin(async move { Ok(edge.answer(request).await) })
        })
    }

    async fn answer(&self, mut request: Request) -> Response {
        let trace = Trace::begin(&*self.rng, &mut request);
        let answered = self.audited(request).instrument(trace.traced.clone());
        let mut response = answered.instrument(trace.span.clone()).await;
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
            Protocol::Health => grpc::call_router(&self.health, request).await,
            protocol => self.in_flight(protocol, request).await,
        };
        let kind = response.extensions().get::<RequestKind>().copied().unwrap_or_default();
        self.metrics
            .request(kind.verb, class(kind), code(&response), started.elapsed());
        response
    }

    /// Returns the effect of a request.
    fn effect(&self, protocol: Protocol, request: &Request) -> Effect {
        let mutates = match (protocol, request.method()) {
            (Protocol::Grpc, _) => self.calls.mutates(request.uri().path()),
            (_, &Method::GET | &Method::HEAD | &Method::OPTIONS) => false,
            _ => true,
        };
        match mutates {
            true => Effect::Mutating,
            false => Effect::ReadOnly,
        }
    }

    /// Answers a request by the API or a service. The gauge counts it meanwhile.
    async fn in_flight(&self, protocol: Protocol, mut request: Request) -> Response {
        let _in_flight = self.metrics.in_flight(self.effect(protocol, &request));
        let only_head = *request.method() == Method::HEAD;
        let unread = UnreadBody::track(&mut request);
        let response = match protocol {
            Protocol::Grpc => self.calls.answer(&self.api, request).await,
            // Boxed, so that the stages above move a pointer.
            Protocol::Http | Protocol::Health => Box::pin(self.api.serve(request)).await,
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

/// Protocol of a request. All protocols share one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// Health probes, version, metrics and backups, recognized by their paths.
    Health,
    Http,
    /// gRPC, recognized by the content type.
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

/// Returns the HTTP status for metrics, which for gRPC follows from `grpc-status`.
fn code(response: &Response) -> StatusCode {
    match grpc::ended(response.headers()) {
        Some(status) => {
            let code = insula_admin::status::http_code(status.code());
            StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        }
        None => response.status(),
    }
}

/// Returns the answer to a HEAD: the headers and length of the answer to a GET.
fn without_body(mut response: Response) -> Response {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(length.into());
    }
    response.map(|_| Body::empty())
}

fn class(kind: RequestKind) -> Class {
    match kind.class {
        ResourceClass::NonResource => Class::NonResource,
        ResourceClass::System => Class::System,
        ResourceClass::Bound => Class::Bound,
        ResourceClass::Local => Class::Local,
        ResourceClass::Aggregated => Class::Aggregated,
        ResourceClass::Call => Class::Call,
    }
}
