//! Id and span of each request: log lines of a request name the request and its workspace.
//!
//! The header `Audit-Id` carries the id, on the request for its handlers and on the answer for the
//! client.

mod route;

use std::time::Instant;

use axum::{body::Bytes, extract::Request, response::Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body::Frame;
use insula_api::{Rng, measure::TRACE};
use insula_edge::port::{Answered, ObservedBody, Observer, RequestKind, ResourceClass, is_call};
use opentelemetry::{Context as Position, trace::TraceContextExt};
use tonic::Code;
use tracing::{Span, field::Empty};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::{
    grpc,
    telemetry::{context, spans::Recorded},
};

/// Kubernetes' header for the id of a request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("audit-id");

/// Maximum number of characters of a workspace path in logs.
const WORKSPACE_CHARS_MAX: usize = 128;

/// Id and span of a request that is being answered.
pub(crate) struct Trace {
    header: HeaderValue,
    /// Span of the log lines of the request.
    pub(crate) span: Span,
    /// Span of the request in its trace, inside the other one. Disabled without a collector.
    pub(crate) traced: Span,
    path: String,
    started: Instant,
    /// True if the trace goes to a collector.
    is_recorded: bool,
    method: Method,
    is_call: bool,
}

impl Trace {
    /// Assigns the id of a request, and continues its caller's trace.
    pub(crate) fn begin(rng: &dyn Rng, request: &mut Request) -> Self {
        // Never that of the client: a chosen id could point an investigation at a request of
        // somebody else.
        let id = request_id(rng);
        let header = HeaderValue::from_str(&id).expect("hexadecimal digits are a header's value");
        request.headers_mut().insert(REQUEST_ID, header.clone());
        let span = tracing::info_span!(
            "request",
            id = %id,
            workspace = workspace(request.uri().path()),
            method = %request.method(),
            trace_id = Empty,
        );
        let (traced, is_recorded) = continue_trace(&span, request.headers());
        if is_recorded {
            Recorded(&traced).text("insula.request.id", &id);
        }
        Trace {
            header,
            span,
            traced,
            path: request.uri().path().to_owned(),
            started: Instant::now(),
            is_recorded,
            method: request.method().clone(),
            is_call: is_call(request.headers()),
        }
    }

    /// Records the status of the response, and sets its id header.
    pub(crate) fn end(self, answered: &mut Answered) {
        let Answered { response, kind, .. } = answered;
        let (code, milliseconds) = (response.status().as_u16(), self.started.elapsed().as_secs_f64() * 1e3);
        let path = &self.path;
        self.span.in_scope(|| match code {
            500.. => tracing::warn!(code, milliseconds, path, "answered"),
            _ => tracing::debug!(code, milliseconds, path, "answered"),
        });
        match (self.is_recorded, self.is_call) {
            (false, _) => {}
            (true, false) => self.record_http(response, kind),
            (true, true) => self.record_call(response, kind),
        }
        response.headers_mut().insert(REQUEST_ID, self.header);
    }

    /// Names the span by OpenTelemetry's conventions for servers of HTTP.
    fn record_http(&self, response: &Response, kind: &RequestKind) {
        let span = Recorded(&self.traced);
        let method = match self.method.as_str() {
            known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" | "CONNECT" | "TRACE") => known,
            _ => "_OTHER",
        };
        let route = route::template(&self.path);
        span.name(format!("{method} {route}"));
        span.text("http.request.method", method);
        span.text("http.route", &route);
        if let Some(verb) = kind.verb {
            span.text("insula.verb", verb.name());
        }
        let code = response.status();
        span.number("http.response.status_code", code.as_u16().into());
        if code.is_server_error() {
            span.fail(code.canonical_reason().unwrap_or_default());
        }
    }

    /// Names the span by OpenTelemetry's conventions for servers of gRPC. Its status comes with the
    /// end of the answer.
    fn record_call(&self, response: &mut Response, kind: &RequestKind) {
        let span = Recorded(&self.traced);
        let is_known = kind.class == ResourceClass::Call;
        let named = self.path.trim_start_matches('/').rsplit_once('/').filter(|_| is_known);
        // A client can call any name.
        let (service, method) = named.unwrap_or(("_OTHER", "_OTHER"));
        span.name(format!("{service}/{method}"));
        span.text("rpc.system", "grpc");
        span.text("rpc.service", service);
        span.text("rpc.method", method);
        if record_status(&self.traced, response.headers()) {
            return;
        }
        let body = std::mem::take(response.body_mut());
        *response.body_mut() = ObservedBody::wrap(body, Recording(Some(self.traced.clone())));
    }
}

/// Begins the span of a request in its caller's trace, or in a new one. Returns true beside it if
/// it is recorded. Without a collector the span is disabled, and the caller's trace is passed on.
fn continue_trace(log: &Span, headers: &HeaderMap) -> (Span, bool) {
    let caller = context::of_caller(headers);
    let traced = tracing::info_span!(target: TRACE, parent: log, "request", otel.kind = "server");
    if traced.is_disabled() {
        if let Some(caller) = caller {
            log.record("trace_id", tracing::field::display(caller.trace_id()));
            context::keep(log, caller);
        }
        return (traced, false);
    }
    if let Some(caller) = caller {
        // The span has just begun, so it takes a parent.
        drop(traced.set_parent(Position::new().with_remote_span_context(caller)));
    }
    let position = traced.context();
    let position = position.span().span_context().clone();
    log.record("trace_id", tracing::field::display(position.trace_id()));
    (traced, position.is_sampled())
}

/// Records the status of a gRPC call, if the headers or trailers have it.
fn record_status(span: &Span, headers: &HeaderMap) -> bool {
    let Some(status) = grpc::ended(headers) else {
        return false;
    };
    let code = status.code();
    Recorded(span).number("rpc.grpc.status_code", i64::from(i32::from(code)));
    // Those that OpenTelemetry counts as errors of the server.
    let is_error = matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    );
    if is_error {
        Recorded(span).fail(code.description());
    }
    true
}

/// Records the status of a gRPC answer, which its trailers have: the span ends with them.
struct Recording(Option<Span>);

impl Observer for Recording {
    fn frame(&mut self, frame: &Frame<Bytes>) {
        if let Some(trailers) = frame.trailers_ref()
            && let Some(span) = self.0.take()
        {
            record_status(&span, trailers);
        }
    }

    fn end(&mut self) {
        self.0 = None;
    }
}

/// Returns a random UUID (version 4), as Kubernetes' ids are.
fn request_id(rng: &dyn Rng) -> String {
    let mut bytes = [0; 16];
    rng.fill(&mut bytes);
    let whole = u128::from_be_bytes(bytes);
    let whole = (whole & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let digits = format!("{whole:032x}");
    [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..],
    ]
    .join("-")
}

/// Returns the workspace as the client wrote it. It need not exist.
fn workspace(path: &str) -> Option<&str> {
    let rest = path.split("/clusters/").nth(1)?;
    let name = rest.split('/').next()?;
    (!name.is_empty() && name.len() <= WORKSPACE_CHARS_MAX).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_read_from_the_path() {
        for (path, want) in [
            ("/clusters/root:a/api/v1", Some("root:a")),
            ("/clusters/root", Some("root")),
            ("/services/apiexport/x/y/clusters/*/api", Some("*")),
            ("/clusters/", None),
            ("/readyz", None),
        ] {
            assert_eq!(workspace(path), want, "{path}");
        }
    }

    #[test]
    fn ids_are_random_uuids() {
        struct Ones;
        impl Rng for Ones {
            fn fill(&self, buffer: &mut [u8]) {
                buffer.fill(0xff);
            }
        }
        assert_eq!(request_id(&Ones), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
