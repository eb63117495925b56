//! gRPC calls: from the port to the services, and refusals of the edge in gRPC's form.
//!
//! The edge knows a call's method from its path and reads no byte of its message before the caller
//! is admitted. Every answer is HTTP 200; how a call ended stands in `grpc-status`, in the headers
//! where no message comes before.

use std::{
    collections::BTreeMap,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    response::Response,
};
use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_TYPE, HeaderName},
};
use http_body::{Body as HttpBody, Frame, SizeHint};
use insula_admin::{Method, Services, status};
use insula_api::ClusterPath;
use insula_apiserver::{
    ApiServer,
    call::{Access, Call},
    handle,
};
use tokio::time::{Instant, Sleep, sleep};
use tonic::{Code, Status};

use crate::front::routed;

/// The workspace whose own issuers vouch for the caller. A message names its workspace, too, but is
/// read afterwards.
const WORKSPACE: HeaderName = HeaderName::from_static("insula-workspace");
const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// Digits of a time (gRPC over HTTP/2: `TimeoutValue`).
const TIMEOUT_DIGITS_MAX: usize = 8;

/// What the edge assumes of a method that no service has.
const UNKNOWN: Method = Method {
    access: Access::Authenticated,
    verb: "",
    streams: false,
    bytes: 0,
};

/// The services behind the edge.
pub(crate) struct Calls {
    services: Router,
    methods: BTreeMap<String, Method>,
}

impl Calls {
    pub(crate) fn new(services: Services) -> Self {
        let Services { routes, methods } = services;
        Calls {
            services: routes.prepare().into_axum_router(),
            methods,
        }
    }

    /// Answers a call.
    pub(crate) async fn answer(&self, api: &ApiServer, request: Request) -> Response {
        let method = self.methods.get(request.uri().path()).copied().unwrap_or(UNKNOWN);
        let mut response = match self.called(api, method, request).await {
            Ok(response) => response,
            Err(refusal) => refusal.into_http(),
        };
        response.extensions_mut().insert(handle::Kind {
            verb: method.verb,
            class: handle::Class::Call,
        });
        response
    }

    async fn called(&self, api: &ApiServer, method: Method, request: Request) -> Result<Response, Status> {
        let (workspace, time) = (workspace(request.headers())?, timeout(request.headers())?);
        let stall = api.limits.settings.request_time;
        let call = Call {
            request: request.map(|body| Body::new(Message::new(body, method.bytes, stall))),
            workspace,
            time,
            access: method.access,
            streams: method.streams,
        };
        let serve = |request: Request| async {
            match is_protobuf(request.headers()) {
                true => routed(&self.services, request).await,
                false => {
                    Status::unimplemented("messages are in protobuf: use application/grpc or application/grpc+proto")
                        .into_http()
                }
            }
        };
        let answered = api.call(call, serve).await;
        answered.map_err(|refusal| status::refused(&refusal))
    }
}

/// Returns true for requests in gRPC's form, whatever its messages are in.
pub(crate) fn is_call(headers: &HeaderMap) -> bool {
    // Not a prefix alone: gRPC-Web (`application/grpc-web`) is another protocol.
    format(headers).is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

fn is_protobuf(headers: &HeaderMap) -> bool {
    format(headers).is_some_and(|rest| match rest.strip_prefix(b"+proto") {
        Some(rest) => matches!(rest.first(), None | Some(b';')),
        None => rest.first() != Some(&b'+'),
    })
}

/// The part of the content type after gRPC's name.
fn format(headers: &HeaderMap) -> Option<&[u8]> {
    let kind = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    kind.and_then(|kind| kind.strip_prefix(b"application/grpc"))
}

fn workspace(headers: &HeaderMap) -> Result<Option<ClusterPath>, Status> {
    let Some(given) = headers.get(WORKSPACE) else {
        return Ok(None);
    };
    let path = given.to_str().ok().and_then(|text| ClusterPath::parse(text).ok());
    let path = path.ok_or_else(|| Status::invalid_argument("insula-workspace: write a path such as root:org:team"));
    path.map(Some)
}

/// The time that the client gives the call: digits and a unit.
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

/// The status of an answered call, where it is known before its messages.
pub(crate) fn ended(headers: &HeaderMap) -> Option<Status> {
    Status::from_header_map(headers)
}

/// The code that an answer over HTTP would have.
pub(crate) fn http_code(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Cancelled | Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The messages of a call: so many bytes, and none so late after the last ones.
struct Message {
    body: Body,
    left: usize,
    stall: Duration,
    late: Pin<Box<Sleep>>,
}

/// Bytes that announce a message's length.
const PREFIX_BYTES: usize = 5;

impl Message {
    fn new(body: Body, most: usize, stall: Duration) -> Self {
        Message {
            body,
            left: most + PREFIX_BYTES,
            stall,
            late: Box::pin(sleep(stall)),
        }
    }
}

impl HttpBody for Message {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                let Some(left) = self.left.checked_sub(bytes) else {
                    let text = "the call's messages are larger than they may be together";
                    return Poll::Ready(Some(Err(Status::resource_exhausted(text))));
                };
                self.left = left;
                let end = Instant::now() + self.stall;
                self.late.as_mut().reset(end);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(Status::cancelled(error.to_string())))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.late.as_mut().poll(context).map(|()| {
                let seconds = self.stall.as_secs();
                let text = format!("nothing of the call's messages came for {seconds} seconds");
                Some(Err(Status::deadline_exceeded(text)))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_says_so_in_its_content_type() {
        for (content_type, call, protobuf) in [
            ("application/grpc", true, true),
            ("application/grpc+proto", true, true),
            ("application/grpc+proto;v=1", true, true),
            ("application/grpc;charset=utf-8", true, true),
            ("application/grpc+json", true, false),
            ("application/grpc+protojson", true, false),
            ("application/grpc-web", false, true),
            ("application/json", false, false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, content_type.parse().expect("a value"))]);
            assert_eq!(is_call(&headers), call, "{content_type}");
            assert_eq!(is_protobuf(&headers), protobuf, "{content_type}");
        }
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
