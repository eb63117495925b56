//! What was sent and answered, for the audit log, where its policy wants that.

use crate::reply::{self, InChunks};
use axum::body::{Body, to_bytes};
use http::{HeaderMap, Response, header};
use insula_api::Json;
use insula_auth::audit::{Level, Record};

/// Answers that are larger are not recorded: a line of the log has to stay readable.
const ANSWER_BYTES_MAX: usize = reply::IN_CHUNKS_BYTES_MIN;

/// The answer, told to the record. One that goes on is not an object.
pub(crate) async fn response(record: &Record, response: Response<Body>) -> Response<Body> {
    if record.level() < Level::RequestResponse || record.is_open() {
        return response;
    }
    if response.extensions().get::<InChunks>().is_some() {
        record.truncated();
        return response;
    }
    let (head, body) = response.into_parts();
    match to_bytes(body, usize::MAX).await {
        Ok(bytes) => {
            match object(&head.headers, &bytes) {
                Some(object) => record.given(object),
                None => record.truncated(),
            }
            Response::from_parts(head, Body::from(bytes))
        }
        // What we write ourselves is in memory.
        Err(error) => {
            reply::Reply::error(&insula_registry::Error::Internal(error.to_string())).respond(&HeaderMap::new())
        }
    }
}

/// The object of an answer, if it is one that fits.
fn object(headers: &HeaderMap, bytes: &[u8]) -> Option<Json> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    if bytes.len() > ANSWER_BYTES_MAX {
        return None;
    }
    match kind {
        _ if kind.starts_with("application/json") => serde_json::from_slice(bytes).ok(),
        _ if kind.starts_with("application/yaml") => serde_saphyr::from_str(std::str::from_utf8(bytes).ok()?).ok(),
        _ => None,
    }
}
