//! Answers: refusals in the format that the client accepts, and the headers of all answers.

use crate::{
    discovery::Ordered,
    negotiate::{self, Format, Negotiated, Supported},
    protobuf,
    query::Query,
    request::Parsed,
    status::{self, Refused},
};
use axum::body::Body;
use http::{HeaderMap, HeaderValue, Response, header};
use insula_api::{Json, distinct};
use insula_auth::audit::Record;
use insula_catalog::Error;
use insula_edge::guard::limits::Held;
use insula_pipeline::Refusal;
use serde::Serialize;
use std::io;

/// A writer that counts.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the bytes of a value as JSON.
pub(crate) fn json_bytes(value: &Json) -> usize {
    let mut count = Count(0);
    // A value is always valid JSON, and counting does not fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Records a refusal in the audit log.
pub(crate) fn record_refusal(refusal: &Refusal, record: &Record) {
    match status::refused(refusal) {
        Refused::Status(status) => record.status(&status.body),
        Refused::Page(_) => record.refused(refusal.parts().0),
    }
}

/// Chooses the form of the answer to a request by its `Accept` header; indented if the header or
/// the query says so, or the client shows answers to people.
///
/// # Errors
/// 406 where no range can be met.
pub(crate) fn form(parsed: &Parsed, supported: Supported, in_protobuf: bool) -> Result<Negotiated, Refusal> {
    let header = accept_header(&parsed.headers);
    let form = negotiate::accept(header.as_deref(), supported, in_protobuf)?;
    let pretty = form.pretty || is_indented(&parsed.query, &parsed.headers);
    Ok(Negotiated { pretty, ..form })
}

fn is_indented(query: &Query, headers: &HeaderMap) -> bool {
    let agent = header_text(headers, header::USER_AGENT);
    negotiate::pretty(query.get("pretty"), agent.as_deref())
}

/// Answers a request of this query and these headers with a refusal, in the form that it accepts.
pub(crate) fn refuse(refusal: &Refusal, query: &Query, request: &HeaderMap) -> Response<Body> {
    let (mut response, retry_after) = match status::refused(refusal) {
        Refused::Status(status) => {
            let form = Negotiated {
                format: negotiate::accept_error(accept_header(request).as_deref()),
                pretty: is_indented(query, request),
                ..Negotiated::default()
            };
            let mut response = document(status.code, &status.body, form);
            add_warnings(&mut response, refusal.parts().1);
            (response, status.retry_after)
        }
        Refused::Page(page) => (plain(page.code, page.text.as_bytes()), page.retry_after),
    };
    if let Some(seconds) = retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// An answer of a handler, with the way in which its body is made.
pub(crate) struct Reply {
    pub(crate) response: Response<Body>,
    pub(crate) form: Form,
    /// Permits that the request holds until the last byte of its answer is sent.
    pub(crate) held: Option<Held>,
}

/// The way in which the body of an answer is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// By this server: as a whole, or as a stream of its own kind.
    Own,
    /// By this server, while it is sent: it is large.
    InChunks,
    /// By another server, while it is sent.
    Proxied,
    /// By the program, for as long as it likes: it has a permit of its own.
    Lasting,
}

impl Reply {
    pub(crate) fn new(response: Response<Body>, form: Form) -> Self {
        Reply {
            response,
            form,
            held: None,
        }
    }
}

impl From<Response<Body>> for Reply {
    fn from(response: Response<Body>) -> Self {
        Reply::new(response, Form::Own)
    }
}

/// The result of a handler whose answers differ in their form.
pub(crate) type Replied = Result<Reply, Refusal>;

/// Bytes from which answers are rendered while they are sent, where they can be.
pub(crate) const IN_CHUNKS_BYTES_MIN: usize = 256 << 10;

/// Returns the text of a header.
pub fn header_text(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned)
}

/// Joins all `Accept` headers of a request.
pub fn accept_header(headers: &HeaderMap) -> Option<String> {
    let values: Vec<&str> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// Answers with a JSON document in a form; 500 if it cannot be written in that form.
pub fn document(code: u16, body: &Json, form: Negotiated) -> Response<Body> {
    written(code, body, body, form)
}

/// Answers with a discovery document: its JSON has the fields in the order of Kubernetes' types.
pub fn discovery(body: &Json, form: Negotiated) -> Response<Body> {
    written(200, body, &Ordered::document(body), form)
}

fn written(code: u16, body: &Json, json: &impl Serialize, form: Negotiated) -> Response<Body> {
    match encoded(body, json, form.format, form.pretty) {
        Ok(encoded) => bytes(code, encoded, form.content_type()),
        Err(error) => {
            tracing::error!(error, format = ?form.format, "an answer cannot be encoded");
            let failed = status::status(&Error::Internal(error));
            let text = failed.body.to_string() + "\n";
            bytes(failed.code, text.into_bytes(), Format::Json.content_type())
        }
    }
}

/// Encodes a document; `json` is what is written for it in JSON.
///
/// # Errors
/// The reason for which the format cannot hold the document.
fn encoded(body: &Json, json: &impl Serialize, format: Format, pretty: bool) -> Result<Vec<u8>, String> {
    match format {
        Format::Json => {
            let text = if pretty {
                serde_json::to_string_pretty(json)
            } else {
                serde_json::to_string(json)
            };
            let text = text.map_err(|error| error.to_string())?;
            Ok((text + "\n").into_bytes())
        }
        Format::Yaml => {
            let text = serde_saphyr::to_string(body).map_err(|error| error.to_string())?;
            Ok(text.into_bytes())
        }
        Format::Protobuf => protobuf::encode(body),
    }
}

/// Answers with plain text, as Go's `http.Error` does.
fn plain(code: u16, text: &[u8]) -> Response<Body> {
    let mut response = bytes(code, text.to_vec(), "text/plain; charset=utf-8");
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert("x-content-type-options", nosniff);
    response
}

/// Answers with bytes.
pub fn bytes(code: u16, body: Vec<u8>, content_type: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Characters of all warnings of an answer, as in Kubernetes.
const WARNINGS_CHARS_MAX: usize = 4096;
/// Characters of each warning if all together exceed [`WARNINGS_CHARS_MAX`].
const WARNING_CHARS_MAX: usize = 256;

/// Adds a header `Warning: 299 - "text"` for each distinct text.
pub fn add_warnings(response: &mut Response<Body>, warnings: &[String]) {
    for warning in fitting(warnings) {
        let quoted = warning
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace(['\n', '\r'], " ");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// Returns the texts of the headers `Warning: 299 - "text"`.
pub(crate) fn warnings(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let values = headers.get_all(header::WARNING).iter();
    values.filter_map(|value| {
        let value = String::from_utf8_lossy(value.as_bytes());
        let (_, quoted) = value.split_once('"')?;
        let mut text = String::new();
        let mut rest = quoted.strip_suffix('"').unwrap_or(quoted).chars();
        while let Some(character) = rest.next() {
            text.extend(match character {
                '\\' => rest.next(),
                other => Some(other),
            });
        }
        Some(text)
    })
}

/// Returns the distinct warnings. If they are too long together, each one is cut, and those that
/// still do not fit are left out.
fn fitting(warnings: &[String]) -> Vec<String> {
    let once = distinct(warnings.iter().map(String::as_str));
    let length = |text: &str| text.chars().count();
    let whole = once.iter().map(|text| length(text)).sum::<usize>() <= WARNINGS_CHARS_MAX;
    let longest = if whole { WARNINGS_CHARS_MAX } else { WARNING_CHARS_MAX };
    let cut = once
        .into_iter()
        .map(|text| text.chars().take(longest).collect::<String>());
    let mut total = 0;
    cut.take_while(|text| {
        total += length(text);
        total <= WARNINGS_CHARS_MAX
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_that_cannot_be_encoded_are_answered_with_500() {
        let widget = json!({"apiVersion": "example.io/v1", "kind": "Widget"});
        let form = Negotiated {
            format: Format::Protobuf,
            ..Negotiated::default()
        };
        let response = document(200, &widget, form);
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
    }

    #[test]
    fn warnings_are_read_as_they_were_written() {
        let texts = ["plain".to_owned(), r#"a "quoted" \ é"#.to_owned()];
        let mut response = Response::new(Body::empty());
        add_warnings(&mut response, &texts);
        let read: Vec<String> = warnings(response.headers()).collect();
        assert_eq!(read, texts);
    }

    #[test]
    fn warnings_are_distinct_and_limited() {
        let short = ["a".to_owned(), "b".to_owned(), "a".to_owned()];
        assert_eq!(fitting(&short), ["a", "b"]);
        let one = ["é".repeat(4000)];
        assert_eq!(fitting(&one), one);
        let many: Vec<String> = (0..30).map(|i| format!("{i:02}{}", "é".repeat(300))).collect();
        let lengths: Vec<usize> = fitting(&many).iter().map(|text| text.chars().count()).collect();
        assert_eq!(lengths, [256; 16]);
    }
}
