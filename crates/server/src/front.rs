//! Every request, from the port to whoever answers it: traced, recorded, told apart, counted.
//!
//! One function around the other instead of a stack of layers: a layer moves the request, and what its answer grows in, once
//! more for everybody.

use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    body::{Body, HttpBody},
    extract::Request,
    response::Response,
};
use http::{
    Method,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use insula_api::Rng;
use insula_apiserver::{ApiServer, handle};
use insula_auth::audit::Log;
use tower::ServiceExt;
use tracing::Instrument;

use crate::{
    audit::Asking,
    authority, health,
    listen::Answer,
    metrics::{Class, Effect, Metrics, Verb},
    trace::Trace,
    unread::Unread,
};

/// Who answers, and who is told.
pub(crate) struct Front {
    /// Makes the ids of requests.
    pub(crate) rng: Arc<dyn Rng>,
    /// Where requests are recorded.
    pub(crate) audit: Arc<Log>,
    /// Where they are counted.
    pub(crate) metrics: Arc<Metrics>,
    /// Health, version, metrics.
    pub(crate) health: Router,
    /// The administrators' services.
    pub(crate) grpc: Router,
    /// Everything else.
    pub(crate) api: Arc<ApiServer>,
}

impl Front {
    /// As what the port asks.
    pub(crate) fn into_answer(self) -> Answer {
        let front = Arc::new(self);
        Arc::new(move |request| {
            let front = Arc::clone(&front);
            Box::pin(async move { Ok(front.answer(request).await) })
        })
    }

    async fn answer(&self, mut request: Request) -> Response {
        let trace = Trace::begin(&*self.rng, &mut request);
        let mut response = self.recorded(request).instrument(trace.span.clone()).await;
        trace.end(&mut response);
        response
    }

    async fn recorded(&self, mut request: Request) -> Response {
        let asking = Asking::begin(&self.audit, &mut request);
        let response = self.told_apart(request).await;
        asking.end(&response);
        response
    }

    /// One port for all: gRPC says so in its content type, and health has paths of its own. What is no gRPC is counted.
    async fn told_apart(&self, request: Request) -> Response {
        if let Some(refusal) = authority::refuse(&request) {
            return refusal;
        }
        if is_grpc(&request) {
            return routed(&self.grpc, request).await;
        }
        let started = Instant::now();
        let response = match health::is(request.uri().path()) {
            true => routed(&self.health, request).await,
            false => self.held(request).await,
        };
        let kind = response.extensions().get::<handle::Kind>().copied().unwrap_or_default();
        self.metrics
            .request(verb(kind), class(kind), response.status(), started.elapsed());
        response
    }

    /// What the API answers, counted while it does.
    async fn held(&self, mut request: Request) -> Response {
        let _held = self.metrics.in_flight(match *request.method() {
            Method::GET | Method::HEAD | Method::OPTIONS => Effect::ReadOnly,
            _ => Effect::Mutating,
        });
        let only_head = *request.method() == Method::HEAD;
        let unread = Unread::watch(&mut request);
        let response = self.api.serve(request).await;
        if let Some(unread) = unread {
            unread.finish(self.api.limits.settings.body_bytes).await;
        }
        match only_head {
            true => without_body(response),
            false => response,
        }
    }
}

async fn routed(router: &Router, request: Request) -> Response {
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

fn verb(kind: handle::Kind) -> Verb {
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

fn class(kind: handle::Kind) -> Class {
    match kind.class {
        handle::Class::NonResource => Class::NonResource,
        handle::Class::System => Class::System,
        handle::Class::Bound => Class::Bound,
        handle::Class::Local => Class::Local,
    }
}

fn is_grpc(request: &Request) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    // Not a prefix alone: gRPC-Web (`application/grpc-web`) is another protocol.
    kind.and_then(|kind| kind.strip_prefix(b"application/grpc"))
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_says_so_in_its_content_type() {
        for (content_type, want) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            let request = Request::post("/x")
                .header(CONTENT_TYPE, content_type)
                .body(Body::empty());
            assert_eq!(is_grpc(&request.expect("a request")), want, "{content_type}");
        }
    }
}
