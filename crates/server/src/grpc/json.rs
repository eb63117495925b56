//! Messages in JSON over plain HTTP, for clients that do not speak gRPC, such as browsers.
//!
//! ```text
//! POST /insula.admin.v1.WorkspaceService/ListWorkspaces   content-type: application/json
//! 200 {…}  |  403 {"code": "permission_denied", "message": "…", "reason": "FORBIDDEN"}
//! ```
//! The request becomes the gRPC call, which passes all stages of calls, and its answer becomes JSON
//! again. A method with a stream of answers gives one line for each message; a refusal after the
//! first message is the last line, `{"error": …}`. The bytes of the JSON count as those of the
//! message, and are read and encoded only after the caller is admitted.

use axum::{
    body::{Body, Bytes},
    extract::Request,
    response::Response,
};
use bytes::{Buf, BufMut, BytesMut};
use futures_util::stream;
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body_util::BodyExt;
use insula_admin::status;
use insula_edge::port::leave_threads;
use insula_proto::{
    json::MethodMessages,
    rpc::{self, BadRequest, Detail, ErrorInfo},
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::{REQUEST_ID, WARNING, ended};

/// Bytes of the prefix of a message: its compression, and its length.
const PREFIX_BYTES: usize = 5;
/// Bytes that are converted on the thread that answers: less than a millisecond's work.
const SMALL_BYTES: usize = 32 << 10;
/// Content type of a call whose message is still JSON.
const CALL: HeaderValue = HeaderValue::from_static("application/grpc");

/// Returns true for a request with a message in JSON.
pub(super) fn is_json(request: &Request) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = kind.and_then(|kind| kind.strip_prefix(b"application/json"));
    request.method() == Method::POST && rest.is_some_and(|rest| matches!(rest.first(), None | Some(b';')))
}

/// The JSON of a method's messages.
#[derive(Clone)]
pub(super) struct Form {
    messages: MethodMessages,
    /// True for a request with more bytes than a message of the method.
    is_too_large: bool,
}

/// Makes a gRPC call of a request. Its body is the JSON behind the prefix of a message, so that it
/// has the limits of one, until it is [`encoded`]. `most` is the bytes of a message at most.
pub(super) fn into_call(request: Request, most: usize) -> Result<(Request, Form), Status> {
    let messages =
        MethodMessages::find(request.uri().path()).ok_or_else(|| Status::unimplemented("this method takes no JSON"))?;
    let length = request.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u32>().ok());
    let length = length.ok_or_else(|| Status::invalid_argument("a request in JSON has a Content-Length"))?;
    let (mut head, body) = request.into_parts();
    head.headers.insert(CONTENT_TYPE, CALL);
    head.headers.remove(CONTENT_LENGTH);
    let mut prefix = BytesMut::with_capacity(PREFIX_BYTES);
    prefix.put_u8(0);
    prefix.put_u32(length);
    let prefix = stream::iter([Ok::<_, axum::Error>(prefix.freeze())]);
    let body = futures_util::StreamExt::chain(prefix, body.into_data_stream());
    let form = Form {
        messages,
        is_too_large: length as usize > most,
    };
    Ok((Request::from_parts(head, Body::from_stream(body)), form))
}

/// Encodes the message of a call in JSON when it is read.
pub(super) fn encoded(body: Body, form: &Form) -> Body {
    Body::from_stream(stream::once(encode(form.messages.clone(), body)))
}

async fn encode(messages: MethodMessages, body: Body) -> Result<Bytes, Status> {
    let body = body
        .collect()
        .await
        .map_err(|error| Status::from_error(error.into_inner()))?;
    let framed = body.to_bytes();
    let text = framed.slice(PREFIX_BYTES.min(framed.len())..);
    let message = aside(text.len(), || messages.encode_request(&text));
    let message =
        message.map_err(|problem| Status::invalid_argument(format!("the request is not its JSON: {problem}")))?;
    let length = u32::try_from(message.len()).map_err(|_| Status::out_of_range("the message is too long"))?;
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    framed.put_u8(0);
    framed.put_u32(length);
    framed.extend_from_slice(&message);
    Ok(framed.freeze())
}

/// Runs a conversion, of many bytes beside the threads that answer.
fn aside<T>(bytes: usize, convert: impl FnOnce() -> T) -> T {
    match bytes > SMALL_BYTES {
        true => leave_threads(convert),
        false => convert(),
    }
}

impl Form {
    /// Returns the answer of a call in JSON.
    pub(super) async fn answered(self, response: Response) -> Response {
        let (head, body) = response.into_parts();
        let mut answer = match ended(&head.headers).filter(|status| status.code() != Code::Ok) {
            // With this code the edge reads the rest of the body, so that the client sees it.
            Some(status) if self.is_too_large && status.code() == Code::ResourceExhausted => {
                refused_as(StatusCode::PAYLOAD_TOO_LARGE, &status)
            }
            Some(status) => refused(&status),
            None => self.messages(body).await,
        };
        for name in [REQUEST_ID, WARNING] {
            for value in head.headers.get_all(&name) {
                answer.headers_mut().append(&name, value.clone());
            }
        }
        answer
    }

    /// Waits for the first message, so that a refusal before it has its code.
    async fn messages(self, body: Body) -> Response {
        let mut reader = Reader {
            body: Some(body),
            bytes: BytesMut::new(),
            form: self,
        };
        let first = match reader.next().await {
            Ok(first) => first,
            Err(status) => return refused(&status),
        };
        let Some(first) = first else {
            return answer(StatusCode::OK, Body::empty());
        };
        // A method that answers once: its end is there with its message.
        if !reader.form.messages.streams() {
            return match reader.next().await {
                Ok(_) => answer(StatusCode::OK, Body::from(first)),
                Err(status) => refused(&status),
            };
        }
        let lines = stream::unfold((Some(line(first)), Some(reader)), |(first, reader)| async move {
            if let Some(first) = first {
                return Some((Ok::<_, axum::Error>(first), (None, reader)));
            }
            let mut reader = reader?;
            match reader.next().await {
                Ok(Some(message)) => Some((Ok(line(message)), (None, Some(reader)))),
                Ok(None) => None,
                Err(status) => Some((Ok(line(json!({"error": describe(&status)}).to_string())), (None, None))),
            }
        });
        answer(StatusCode::OK, Body::from_stream(lines))
    }
}

/// Reader of the messages of an answer.
struct Reader {
    /// `None` after the end.
    body: Option<Body>,
    bytes: BytesMut,
    form: Form,
}

impl Reader {
    /// Returns the next message in JSON; `None` at the end of a call that succeeded.
    async fn next(&mut self) -> Result<Option<String>, Status> {
        loop {
            if let Some(message) = self.take() {
                let shown = aside(message.len(), || self.form.messages.decode_response(&message));
                let shown = shown.map_err(Status::internal)?;
                return Ok(Some(shown.to_string()));
            }
            let Some(body) = &mut self.body else { return Ok(None) };
            let Some(frame) = body.frame().await else {
                self.body = None;
                continue;
            };
            let frame = frame.map_err(|error| Status::from_error(error.into_inner()))?;
            match frame.into_data() {
                Ok(data) => self.bytes.extend_from_slice(&data),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    if let Some(status) = ended(&trailers).filter(|status| status.code() != Code::Ok) {
                        return Err(status);
                    }
                }
            }
        }
    }

    /// Takes a whole message from the bytes that are there.
    fn take(&mut self) -> Option<Bytes> {
        let (mut head, _) = self.bytes.split_at_checked(PREFIX_BYTES)?;
        head.advance(1);
        let end = PREFIX_BYTES + usize::try_from(head.get_u32()).ok()?;
        if self.bytes.len() < end {
            return None;
        }
        let mut message = self.bytes.split_to(end);
        message.advance(PREFIX_BYTES);
        Some(message.freeze())
    }
}

fn line(mut message: String) -> String {
    message.push('\n');
    message
}

/// Returns a refusal in JSON.
pub(super) fn refused(status: &Status) -> Response {
    let code = StatusCode::from_u16(status::http_code(status.code())).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    refused_as(code, status)
}

fn refused_as(code: StatusCode, status: &Status) -> Response {
    answer(code, Body::from(describe(status).to_string()))
}

fn describe(status: &Status) -> Value {
    let details = rpc::read(status.details()).unwrap_or_default();
    let fields = BadRequest::find(&details).unwrap_or_default().field_violations;
    let fields: Vec<Value> = fields
        .into_iter()
        .map(|field| json!({"field": field.field, "message": field.description}))
        .collect();
    json!({
        "code": name(status.code()),
        "message": status.message(),
        "reason": ErrorInfo::find(&details).unwrap_or_default().reason,
        "fields": fields,
    })
}

/// Returns the name of a code as gRPC spells it in texts.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "ok",
        Code::Cancelled => "canceled",
        Code::Unknown => "unknown",
        Code::InvalidArgument => "invalid_argument",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::NotFound => "not_found",
        Code::AlreadyExists => "already_exists",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        Code::FailedPrecondition => "failed_precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out_of_range",
        Code::Unimplemented => "unimplemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data_loss",
        Code::Unauthenticated => "unauthenticated",
    }
}

fn answer(code: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let fixed = HeaderValue::from_static;
    response.headers_mut().extend(HeaderMap::from_iter([
        (CONTENT_TYPE, fixed("application/json")),
        (CACHE_CONTROL, fixed("no-cache, private")),
    ]));
    response
}
