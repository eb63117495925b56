//! gRPC calls from the port to the services, and refusals of the edge as gRPC statuses.
//!
//! The edge finds the method of a call by its path and reads no byte of its message before the
//! caller is admitted. Every answer is HTTP 200. The header or trailer `grpc-status` has the
//! outcome; it is a header if no message comes before it.

mod completion;
mod json;
mod message;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    response::Response,
};
use http::{HeaderMap, HeaderValue, header::HeaderName};
use http_body::Frame;
use http_body_util::BodyExt;
use insula_admin::{Method, status};
use insula_api::ClusterPath;
use insula_apiserver::{
    ApiServer,
    call::{Access, Admitted, Call},
};
use insula_auth::audit::Record;
use insula_edge::port::{Answered, Arrival, Lifecycle, PriorityRuntimes, RequestKind, ResourceClass, is_protobuf};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tonic::Status;
use tower::ServiceExt;

pub(crate) use self::message::MessageBytes;
use self::{completion::Completion, message::Message};
use crate::trace;

/// Header with the workspace whose issuers may authenticate the caller. The message names its
/// workspace, too, but is read later.
const WORKSPACE: HeaderName = HeaderName::from_static("insula-workspace");
const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// Name of a request: that of the client, or one made up. Answers have it, too.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Warnings of the requests that a call made: one value each, with the bytes
/// outside of printable ASCII, and `%`, as `%` and two digits.
const WARNING: HeaderName = HeaderName::from_static("insula-warning");
/// Maximum number of bytes of all warnings of an answer: most clients take 8 KiB of headers.
const WARNINGS_BYTES_MAX: usize = 2048;
/// Maximum number of characters of a client's name of a request.
const REQUEST_ID_CHARS_MAX: usize = 128;
/// Annotation of audit events with the client's name of a request.
const REQUEST_ID_NOTE: &str = "insula.io/request-id";
/// Digits of a time (gRPC over HTTP/2: `TimeoutValue`).
const TIMEOUT_DIGITS_MAX: usize = 8;

/// Longest time of a call that receives a stream.
const UPLOAD_TIME_MAX: Duration = Duration::from_secs(3600);

/// A method that no service has.
const UNKNOWN: Method = Method {
    access: Access::Authenticated,
    verb: None,
    mutates: true,
    streams: false,
    uploads: false,
    bytes: 0,
};

/// The services behind the edge.
pub(crate) struct Calls {
    pub(crate) services: Router,
    pub(crate) methods: BTreeMap<String, Method>,
    pub(crate) bytes: Arc<MessageBytes>,
    /// Lifecycle of the server, which refuses new calls when it closes.
    pub(crate) lifecycle: Lifecycle,
    /// Threads for writes whose callers are gone.
    pub(crate) runtimes: Arc<PriorityRuntimes>,
}

impl Calls {
    /// Returns true if the method of a path may change something.
    pub(crate) fn mutates(&self, path: &str) -> bool {
        self.methods.get(path).is_some_and(|method| method.mutates)
    }

    /// Returns true for a call of a known method with a message in JSON.
    pub(crate) fn takes_json(&self, request: &Request) -> bool {
        json::is_json(request) && self.methods.contains_key(request.uri().path())
    }

    /// Answers a call, in the form of its messages.
    pub(crate) async fn answer(&self, api: &ApiServer, request: Request, arrival: Arrival) -> Answered {
        if !json::is_json(&request) {
            return self.answer_call(api, (request, arrival), None).await;
        }
        let method = self.methods.get(request.uri().path());
        match json::into_call(request, method.map_or(0, |method| method.bytes)) {
            Ok((call, form)) => {
                let mut answered = self.answer_call(api, (call, arrival), Some(&form)).await;
                answered.response = form.answered(answered.response).await;
                answered
            }
            Err(refusal) => json::refused(&refusal).into(),
        }
    }

    /// Answers a call. Refusals have details, and every answer the id of its request.
    async fn answer_call(
        &self,
        api: &ApiServer,
        (mut request, arrival): (Request, Arrival),
        form: Option<&json::Form>,
    ) -> Answered {
        let known = self.methods.get(request.uri().path());
        let id = name_request(&mut request, &arrival.record);
        let answered = match known {
            Some(method) if method.access != Access::Open && self.lifecycle.is_closing() => Err(status::closing()),
            known => self.called(api, (known, form), (request, arrival)).await,
        };
        let mut response = match answered {
            Ok(response) => response,
            Err(refusal) => refusal.into_http(),
        };
        if let Some(refusal) = ended(response.headers()).filter(|status| status.code() != tonic::Code::Ok) {
            *response.headers_mut() = status::completed(refusal).into_http::<()>().into_parts().0.headers;
        }
        response.headers_mut().extend(id.map(|id| (REQUEST_ID, id)));
        let response = response.map(|body| Body::new(body.map_frame(with_details)));
        let kind = match known {
            Some(method) => RequestKind {
                verb: method.verb,
                class: ResourceClass::Call,
                resource: None,
            },
            None => RequestKind {
                verb: None,
                class: ResourceClass::UnknownCall,
                resource: None,
            },
        };
        Answered {
            response,
            kind,
            held: None,
        }
    }

    async fn called(
        &self,
        api: &ApiServer,
        (known, form): (Option<&Method>, Option<&json::Form>),
        (request, arrival): (Request, Arrival),
    ) -> Result<Response, Status> {
        let method = known.unwrap_or(&UNKNOWN);
        let (workspace, time) = (workspace(request.headers())?, timeout(request.headers())?);
        let stall = api.limits.settings.request_time;
        let call = Call {
            request,
            arrival,
            workspace,
            time,
            access: method.access,
            streams: method.streams,
            longest: method.uploads.then_some(UPLOAD_TIME_MAX),
        };
        let serve = |request: Request, admitted: Option<Admitted>| async move {
            if known.is_none() {
                let text = format!("no service has a method {}", request.uri().path());
                return Status::unimplemented(text).into_http();
            }
            if !is_protobuf(request.headers()) {
                let text = "messages are in protobuf: use application/grpc or application/grpc+proto";
                return Status::unimplemented(text).into_http();
            }
            // Counted for as long as the service works: its objects are larger than the message.
            let caller = admitted.as_ref().map(|admitted| Arc::clone(&admitted.caller));
            let counted = caller.as_ref().map(|caller| self.bytes.for_caller(caller.payer()));
            let message = match method.uploads {
                true => Message::of_upload(request, method.bytes, stall, counted.clone()),
                false => Ok(request.map(|body| {
                    let message = Body::new(Message::new(body, method.bytes, stall, counted.clone()));
                    match form {
                        Some(form) => json::encoded(message, form),
                        None => message,
                    }
                })),
            };
            let mut response = match message {
                Ok(request) if method.mutates && !method.streams && !method.uploads => {
                    let services = self.services.clone();
                    let work = async move { call_router(&services, request).await };
                    Completion::new(work, admitted, stall, &self.runtimes).await
                }
                Ok(request) => call_router(&self.services, request).await,
                Err(refusal) => refusal.into_http(),
            };
            if let Some(caller) = caller {
                add_warnings(response.headers_mut(), &caller.take_warnings());
            }
            response
        };
        let answered = api.call(call, serve).await;
        answered.map_err(|refusal| status::refused(&refusal))
    }
}

/// Completes the status in the trailers of an answer.
fn with_details(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(trailers) => {
            let refusal = ended(&trailers).filter(|status| status.code() != tonic::Code::Ok);
            let mut complete = HeaderMap::new();
            let told = refusal.map(|refusal| status::completed(refusal).add_header(&mut complete));
            Frame::trailers(match told {
                Some(Ok(())) => complete,
                Some(Err(_)) | None => trailers,
            })
        }
        Err(frame) => frame,
    }
}

/// Adds warnings to the metadata of an answer, as long as they fit.
fn add_warnings(headers: &mut HeaderMap, warnings: &[String]) {
    let mut left = WARNINGS_BYTES_MAX;
    for warning in warnings {
        let value = utf8_percent_encode(warning, ENCODED).to_string();
        let Some(rest) = left.checked_sub(value.len()) else {
            return;
        };
        left = rest;
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.append(WARNING, value);
        }
    }
}

/// Bytes that gRPC encodes in a `grpc-message`.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// Hands a request to a router, which is always ready.
pub(crate) async fn call_router(router: &Router, request: Request) -> Response {
    let answered = router.clone().oneshot(request).await;
    answered.unwrap_or_else(|never| match never {})
}

/// Names a request: by the id of the client if that is printable and short, else by the id of the
/// audit record.
fn name_request(request: &mut Request, record: &Record) -> Option<HeaderValue> {
    let given = request.headers().get(REQUEST_ID).cloned();
    let given = given.filter(|id| is_request_id(id.as_bytes()));
    if let Some(id) = &given {
        record.note(REQUEST_ID_NOTE, id.to_str().unwrap_or_default());
    }
    let id = given.or_else(|| request.headers().get(trace::REQUEST_ID).cloned())?;
    request.headers_mut().insert(REQUEST_ID, id.clone());
    Some(id)
}

fn is_request_id(id: &[u8]) -> bool {
    (1..=REQUEST_ID_CHARS_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

fn workspace(headers: &HeaderMap) -> Result<Option<ClusterPath>, Status> {
    let Some(given) = headers.get(WORKSPACE) else {
        return Ok(None);
    };
    let path = given.to_str().ok().and_then(|text| ClusterPath::parse(text).ok());
    let path = path.ok_or_else(|| Status::invalid_argument("insula-workspace: write a path such as root:org:team"));
    path.map(Some)
}

/// Reads the timeout that the client set: digits and a unit.
fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(given) = headers.get(TIMEOUT) else {
        return Ok(None);
    };
    let parsed = given.to_str().ok().and_then(parse_timeout);
    let parsed = parsed.ok_or_else(|| Status::invalid_argument("grpc-timeout: write up to 8 digits and one of HMSmun"));
    parsed.map(Some)
}

fn parse_timeout(text: &str) -> Option<Duration> {
    let digits = text.get(..text.len().checked_sub(1)?)?;
    if digits.len() > TIMEOUT_DIGITS_MAX || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match text.as_bytes().last()? {
        b'H' => Duration::from_secs(count * 3_600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

/// Returns the status of an answered call, if it is in the headers.
pub(crate) fn ended(headers: &HeaderMap) -> Option<Status> {
    Status::from_header_map(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_ascii_and_bounded() {
        let mut headers = HeaderMap::new();
        let long = "a".repeat(WARNINGS_BYTES_MAX - 20);
        add_warnings(
            &mut headers,
            &["50 % é".to_owned(), long.clone(), "does not fit any more".to_owned()],
        );
        let values: Vec<&[u8]> = headers.get_all(WARNING).iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(values, [b"50 %25 %C3%A9", long.as_bytes()]);
    }

    #[test]
    fn trailers_of_refusals_have_details() {
        let trailers = |status: &'static str| {
            HeaderMap::from_iter([("grpc-status".parse().expect("a name"), status.parse().expect("a value"))])
        };
        let complete = |status: &'static str| {
            with_details(Frame::trailers(trailers(status)))
                .into_trailers()
                .expect("trailers")
        };
        assert!(complete("4").contains_key("grpc-status-details-bin"));
        assert_eq!(complete("0"), trailers("0"));
        let data = with_details(Frame::data(Bytes::from_static(b"a")));
        assert_eq!(data.into_data().expect("data"), "a");
    }

    #[test]
    fn names_of_requests_are_printable_and_short() {
        for (id, fits) in [
            ("build-17/step:3", true),
            ("", false),
            ("a b", false),
            ("a\tb", false),
            ("é", false),
        ] {
            assert_eq!(is_request_id(id.as_bytes()), fits, "{id:?}");
        }
        assert!(is_request_id(&[b'a'; 128]) && !is_request_id(&[b'a'; 129]));
    }

    #[test]
    fn timeouts_are_digits_and_a_unit() {
        for (text, want) in [
            ("1S", Some(Duration::from_secs(1))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("2M", Some(Duration::from_secs(120))),
            ("0m", Some(Duration::ZERO)),
            ("7u", Some(Duration::from_micros(7))),
            ("7n", Some(Duration::from_nanos(7))),
            ("100000000S", None),
            ("+1S", None),
            ("S", None),
            ("1", None),
            ("1s", None),
            ("", None),
            ("1é", None),
        ] {
            assert_eq!(parse_timeout(text), want, "{text:?}");
        }
    }
}
