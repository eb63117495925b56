//! Metering of answers: the bytes of an answer count for its workspace, before compression.

use axum::body::{Body, Bytes};
use http::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use insula_catalog::metering::Counters;
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// Counts the bytes of an answer: at once where their number is known, as they are sent otherwise.
pub(crate) fn counted(response: Response<Body>, counters: Arc<Counters>) -> Response<Body> {
    match response.body().size_hint().exact() {
        Some(bytes) => {
            counters.sent(bytes);
            response
        }
        None => response.map(|body| Body::new(CountedBody { body, counters })),
    }
}

/// A body whose bytes count as they are sent.
struct CountedBody {
    body: Body,
    counters: Arc<Counters>,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.counters.sent(data.len() as u64);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
