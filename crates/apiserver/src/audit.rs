//! Answers in the audit log, where its policy records them.

use crate::{
    query::Query,
    reply::{self, Form, Reply},
};
use axum::body::{Body, to_bytes};
use http::{HeaderMap, Response, header};
use insula_api::Json;
use insula_auth::audit::{Level, Record};
use insula_pipeline::Refusal;

/// Bytes of an answer that is recorded: a line of the log has to stay readable.
const ANSWER_BYTES_MAX: usize = reply::IN_CHUNKS_BYTES_MIN;

/// Records an answer. The stream of a watch is no object, and is not recorded.
pub(crate) async fn record_response(record: &Record, reply: Reply) -> Reply {
    if record.level() < Level::RequestResponse || record.is_open() {
        return reply;
    }
    if matches!(reply.form, Form::InChunks | Form::Proxied) {
        record.truncated();
        return reply;
    }
    let Reply { response, form, held } = reply;
    let (head, body) = response.into_parts();
    let response = match to_bytes(body, usize::MAX).await {
        Ok(bytes) => {
            match object(&head.headers, &bytes) {
                Some(object) => record.given(object),
                None => record.truncated(),
            }
            Response::from_parts(head, Body::from(bytes))
        }
        // Bodies of this server's own answers are in memory, and have no errors.
        Err(error) => {
            let refusal = Refusal::Verb(insula_catalog::Error::Internal(error.to_string()));
            reply::refuse(&refusal, &Query::default(), &HeaderMap::new())
        }
    };
    Reply { response, form, held }
}

/// Records an answer that has no wire format. `bytes` counts its JSON, where it is recorded.
pub(crate) fn record_value(record: &Record, bytes: impl FnOnce() -> usize, value: impl FnOnce() -> Json) {
    if record.level() < Level::RequestResponse {
        return;
    }
    if bytes() > ANSWER_BYTES_MAX {
        record.truncated();
    } else {
        record.given(value());
    }
}

/// Returns the object of an answer, if it is one and fits.
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
