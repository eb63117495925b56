//! Edge of the server: the steps of every request between the port and its handler.
//!
//! ```text
//! answer    the console: its pages, and requests of its sessions as ordinary ones; id and span
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
    body::{Body, HttpBody},
    extract::Request,
    response::Response,
};
use http::{Method, StatusCode, header::CONTENT_LENGTH};
use insula_api::Rng;
use insula_apiserver::ApiServer;
use insula_auth::audit::Log;
use insula_console::{Console, Route, guard_answer, serves};
use insula_edge::port::{Answered, Arrival, UnreadBody, is_call, listen::Answer};
use tracing::Instrument;

use crate::{
    audit::RequestAudit,
    authority,
    grpc::{self, Calls},
    health::{self, Health},
    metrics::{Effect, Measured, Metrics},
    trace::Trace,
};

/// Handlers of requests, and the observers of each request.
pub(crate) struct Edge {
    /// The web console, if the settings want one.
    pub(crate) console: Option<Console>,
    /// Source of request ids.
    pub(crate) rng: Arc<dyn Rng>,
    /// Audit log.
    pub(crate) audit: Arc<Log>,
    /// Metrics of requests.
    pub(crate) metrics: Arc<Metrics>,
    /// Health, version, metrics and backups.
    pub(crate) health: Health,
    /// gRPC services of administrators.
    pub(crate) calls: Calls,
    /// The API, for all other requests.
    pub(crate) api: Arc<ApiServer>,
}

/// An answer of the console, with the reason if it is a refusal.
type Given = (Response, Option<&'static str>);

impl Edge {
    /// Returns the edge as the function that the port calls.
    pub(crate) fn into_answer(self) -> Answer {
        let edge = Arc::new(self);
        Arc::new(move |request, arrival| {
            let edge = Arc::clone(&edge);
            Box::pin(async move { edge.answer(request, arrival).await })
        })
    }

    async fn answer(&self, mut request: Request, mut arrival: Arrival) -> Answered {
        let console = self.console.as_ref();
        let is_console = console.is_some() && serves(request.uri().path());
        // Before everything else: from here on a request of a session is an ordinary one.
        let route = match console {
            Some(console) => console.route(&mut request, &mut arrival).await,
            None => Route::Ordinary,
        };
        let (sign_in, given) = match route {
            Route::Ordinary => (None, None),
            Route::SignIn(sign_in) => (Some(sign_in), None),
            Route::Answered(response, refused) => (None, Some((response, refused))),
        };
        let trace = Trace::begin(&*self.rng, &mut request);
        let answering = self.audited(request, arrival, given).instrument(trace.traced.clone());
        let mut answered = answering.instrument(trace.span.clone()).await;
        if let Some((console, sign_in)) = console.zip(sign_in) {
            console.signed_in(sign_in, &mut answered.response);
        }
        if is_console {
            guard_answer(answered.response.headers_mut());
        }
        trace.end(&mut answered);
        answered
    }

    /// Answers a request, for which the console may have `given` the answer.
    async fn audited(&self, request: Request, mut arrival: Arrival, given: Option<Given>) -> Answered {
        let audit = RequestAudit::begin(&self.audit, &request, &mut arrival);
        let answered = self.measured(request, arrival, given).await;
        audit.end(&answered.response);
        answered
    }

    async fn measured(&self, request: Request, arrival: Arrival, given: Option<Given>) -> Answered {
        if let Some(refusal) = authority::refuse(&request, &arrival.record) {
            return refusal.into();
        }
        let (started, method) = (Instant::now(), request.method().clone());
        let check = health::check(request.uri().path());
        let protocol = Protocol::from_request(&request, &self.calls);
        let mut answered = match (given, protocol) {
            (Some((response, refused)), _) => {
                if let Some(why) = refused {
                    arrival.record.refused(why);
                }
                response.into()
            }
            (None, Protocol::Health) => health::answer(&self.health, &arrival, request).await.into(),
            (None, protocol) => self.in_flight(protocol, request, arrival).await,
        };
        if method == Method::HEAD {
            answered.response = without_body(answered.response);
        }
        let Answered { response, kind, .. } = &answered;
        let request = Measured {
            kind,
            method: &method,
            check,
        };
        self.metrics.request(request, code(response), started.elapsed());
        answered
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
    async fn in_flight(&self, protocol: Protocol, mut request: Request, arrival: Arrival) -> Answered {
        let _in_flight = self.metrics.in_flight(self.effect(protocol, &request));
        let unread = UnreadBody::track(&mut request);
        let answered = match protocol {
            Protocol::Grpc => self.calls.answer(&self.api, request, arrival).await,
            Protocol::Http | Protocol::Health => self.api.serve(request, arrival).await,
        };
        if let Some(unread) = unread {
            let most = self.api.limits.settings.body_bytes;
            unread.drain(most, answered.response.status()).await;
        }
        answered
    }
}

/// Protocol of a request. All protocols share one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// Health probes, version, metrics and backups, recognized by their paths.
    Health,
    Http,
    /// gRPC, recognized by the content type; its methods take JSON, too.
    Grpc,
}

impl Protocol {
    fn from_request(request: &Request, calls: &Calls) -> Self {
        if is_call(request.headers()) || calls.takes_json(request) {
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
