//! Metrics and traces of requests to other servers.

use std::time::Instant;

use http::{HeaderMap, Method, StatusCode, Uri};
use insula_api::measure::TRACE;
use tracing::{Instrument, Span};

use crate::{
    metrics::{CallOutcome, Metrics, Purpose},
    telemetry::{context, spans::Recorded},
};

/// Makes a request: counts it, and records it as a span of the present trace. The path of its URL
/// may be a secret of a tenant, and is in neither.
pub(super) async fn measured<T>(
    metrics: &Metrics,
    purpose: Purpose,
    method: &Method,
    uri: &Uri,
    call: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let begun = Instant::now();
    let span = tracing::info_span!(
        target: TRACE,
        "outbound",
        otel.kind = "client",
        insula.purpose = purpose.name(),
        http.request.method = method.as_str(),
        server.address = uri.host().unwrap_or_default(),
        server.port = uri.port_u16().unwrap_or(443),
    );
    let called = call.instrument(span.clone()).await;
    let outcome = match &called {
        Ok(_) => CallOutcome::Answered,
        Err(why) => {
            Recorded(&span).fail(why);
            CallOutcome::Failed
        }
    };
    metrics.called(purpose, outcome, begun.elapsed());
    called
}

/// Adds the headers by which the other server continues the present trace.
pub(super) fn continue_trace(headers: &mut HeaderMap) {
    context::continue_in(headers);
}

/// Records the status of an answer.
pub(super) fn answered(status: StatusCode) {
    Recorded(&Span::current()).number("http.response.status_code", status.as_u16().into());
}
