//! W3C Trace Context: the headers `traceparent` and `tracestate`, of requests to this server and of
//! requests that it sends.
//!
//! With a collector, a request has a span of OpenTelemetry, and requests that the server sends
//! continue it. Without one, they continue the caller's.

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    Context,
    propagation::{Extractor, Injector, TextMapPropagator},
    trace::{SpanContext, TraceContextExt},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Registry, registry::LookupSpan};

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
/// Bytes of `00-<trace>-<span>-<flags>`.
const PARENT_BYTES: usize = 55;
/// Maximum number of bytes of a `tracestate`. A longer one is dropped, as the recommendation
/// allows.
const STATE_BYTES_MAX: usize = 512;

/// Returns the position of a request's caller in a trace. A malformed `traceparent` is ignored, and
/// with it the `tracestate`; so is a `tracestate` that is malformed or too long.
pub(crate) fn of_caller(headers: &HeaderMap) -> Option<SpanContext> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let (parent, None) = (parents.next()?, parents.next()) else {
        return None;
    };
    let received = Received {
        parent: parent
            .to_str()
            .ok()
            .filter(|parent| is_well_formed(parent.as_bytes()))?,
        state: state(headers),
    };
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &received);
    let caller = context.span().span_context().clone();
    caller.is_valid().then_some(caller)
}

/// Returns true for `<version>-<trace>-<span>-<flags>` in lower-case digits. The propagator takes
/// shorter numbers as well.
fn is_well_formed(text: &[u8]) -> bool {
    let Some((known, rest)) = text.split_at_checked(PARENT_BYTES) else {
        return false;
    };
    let digits = known.iter().enumerate().all(|(at, letter)| match at {
        2 | 35 | 52 => *letter == b'-',
        _ => matches!(letter, b'0'..=b'9' | b'a'..=b'f'),
    });
    // Later versions may append fields; the first one has none.
    let ends = match known {
        [b'0', b'0', ..] => rest.is_empty(),
        _ => matches!(rest, [] | [b'-', ..]),
    };
    digits && ends
}

fn state(headers: &HeaderMap) -> Option<String> {
    let mut joined = String::new();
    for value in headers.get_all(TRACESTATE) {
        // Visible ASCII alone.
        let text = value.to_str().ok()?.trim();
        if joined.len() + text.len() >= STATE_BYTES_MAX {
            return None;
        }
        if !joined.is_empty() && !text.is_empty() {
            joined.push(',');
        }
        joined.push_str(text);
    }
    Some(joined)
}

/// Headers of a request to this server.
struct Received<'a> {
    parent: &'a str,
    state: Option<String>,
}

impl Extractor for Received<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            TRACEPARENT => Some(self.parent),
            TRACESTATE => self.state.as_deref(),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT, TRACESTATE]
    }
}

/// Headers of a request that this server sends.
struct Sent<'a>(&'a mut HeaderMap);

impl Injector for Sent<'_> {
    fn set(&mut self, key: &str, value: String) {
        let name = HeaderName::from_bytes(key.as_bytes());
        if let (Ok(name), Ok(value), false) = (name, HeaderValue::try_from(&value), value.is_empty()) {
            self.0.insert(name, value);
        }
    }
}

/// The caller's position, kept in the span of a request that is not recorded.
struct Caller(SpanContext);

/// Keeps the caller's position in the span of its request.
pub(crate) fn keep(span: &Span, caller: SpanContext) {
    span.with_subscriber(|(id, dispatch)| {
        let registry = dispatch.downcast_ref::<Registry>()?;
        registry.span(id)?.extensions_mut().replace(Caller(caller));
        Some(())
    });
}

/// Sets the headers by which the receiver of a request continues the trace of the present span.
pub(crate) fn continue_in(headers: &mut HeaderMap) {
    let span = Span::current();
    let context = span.context();
    if context.span().span_context().is_valid() {
        TraceContextPropagator::new().inject_context(&context, &mut Sent(headers));
    } else if let Some(caller) = kept(&span) {
        let context = Context::new().with_remote_span_context(caller);
        TraceContextPropagator::new().inject_context(&context, &mut Sent(headers));
    }
}

/// Returns the position that the nearest span around has kept.
fn kept(span: &Span) -> Option<SpanContext> {
    let found = span.with_subscriber(|(id, dispatch)| {
        let span = dispatch.downcast_ref::<Registry>()?.span(id)?;
        span.scope()
            .find_map(|span| span.extensions().get::<Caller>().map(|Caller(caller)| caller.clone()))
    });
    found.flatten()
}

#[cfg(test)]
mod tests {
    use tracing::info_span;

    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn read(headers: &[(&'static str, &str)]) -> Option<SpanContext> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().expect("a value"));
        }
        of_caller(&map)
    }

    #[test]
    fn a_context_is_read_and_passed_on() {
        let plain = tracing_subscriber::registry();
        let _here = tracing::subscriber::set_default(plain);
        for (flags, is_sampled) in [("01", true), ("00", false), ("03", true), ("fe", false)] {
            let parent = format!("00-{TRACE}-b7ad6b7169203331-{flags}");
            let caller = read(&[("traceparent", &parent), ("tracestate", "a=1"), ("tracestate", " b=2")]);
            let caller = caller.expect("a context");
            assert_eq!(caller.trace_id().to_string(), TRACE);
            assert_eq!(caller.is_sampled(), is_sampled);
            let request = info_span!("request");
            keep(&request, caller);
            let mut headers = HeaderMap::new();
            request.in_scope(|| info_span!("inner").in_scope(|| continue_in(&mut headers)));
            let flags = if is_sampled { "01" } else { "00" };
            assert_eq!(headers["traceparent"], format!("00-{TRACE}-b7ad6b7169203331-{flags}"));
            assert_eq!(headers["tracestate"], "a=1,b=2");
            let mut headers = HeaderMap::new();
            info_span!("other").in_scope(|| continue_in(&mut headers));
            assert!(headers.is_empty(), "{headers:?}");
        }
        let later = format!("01-{TRACE}-b7ad6b7169203331-01-more");
        assert!(read(&[("traceparent", &later)]).is_some(), "a later version");
    }

    #[test]
    fn malformed_contexts_are_ignored() {
        let span = "b7ad6b7169203331";
        let zeros = "0".repeat(32);
        for parent in [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-{span}"),
            format!("00-{TRACE}-{span}-0"),
            format!("00-{TRACE}-{span}-01-more"),
            format!("00-{TRACE}-{span}-0g"),
            format!("00-{TRACE}-{span}_01"),
            format!("ff-{TRACE}-{span}-01"),
            format!("0x-{TRACE}-{span}-01"),
            format!("01-{TRACE}-{span}-01more"),
            format!("00-{zeros}-{span}-01"),
            format!("00-{TRACE}-{}-01", &zeros[..16]),
            format!("00-{}-{span}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{span}-01").replace('b', "é"),
        ] {
            let Ok(value) = HeaderValue::from_bytes(parent.as_bytes()) else {
                continue;
            };
            let headers = HeaderMap::from_iter([(HeaderName::from_static(TRACEPARENT), value)]);
            assert_eq!(of_caller(&headers), None, "{parent}");
        }
        let parent = format!("00-{TRACE}-{span}-01");
        let twice = [("traceparent", &*parent), ("traceparent", &*parent)];
        assert_eq!(read(&twice), None);
        for state in ["", "nonsense", &"a=1,".repeat(200)] {
            let caller = read(&[("traceparent", &parent), ("tracestate", state)]).expect("a context");
            assert_eq!(caller.trace_state().header(), "", "{state}");
        }
    }
}
