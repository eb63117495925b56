//! Metering of answers: the bytes of an answer count for its workspace, before compression.

use axum::body::{Body, Bytes};
use http::Response;
use http_body::{Body as HttpBody, Frame};
use insula_catalog::metering::Counters;
use insula_edge::port::{ObservedBody, Observer};
use std::sync::Arc;

/// Counts the bytes of an answer: at once where their number is known, as they are sent otherwise.
pub(crate) fn counted(response: Response<Body>, counters: Arc<Counters>) -> Response<Body> {
    match response.body().size_hint().exact() {
        Some(bytes) => {
            counters.sent(bytes);
            response
        }
        None => response.map(|body| ObservedBody::wrap(body, Counting(counters))),
    }
}

/// Counts the bytes of a body as they are sent.
struct Counting(Arc<Counters>);

impl Observer for Counting {
    fn frame(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            self.0.sent(data.len() as u64);
        }
    }
}
