//! Draining of request bodies that nobody read: of requests that were refused for their user, their
//! path or a limit.
//!
//! The body is read before the answer is sent. Otherwise HTTP/2 has to reset each such stream while
//! its body is in transit, and a client that is refused often (over a limit, say) loses the
//! connection and all its watches.

use super::{ObservedBody, Observer};
use axum::{body::Body, extract::Request};
use http::{StatusCode, header::EXPECT};
use http_body::Body as _;
use http_body_util::{BodyExt, Limited};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Time for the part of the body in transit. Slower bodies are reset.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);
/// Bytes that are read of a body that was refused for its size. A client that still writes when the
/// connection closes sees a broken connection instead of the answer.
const TOO_LARGE_BYTES_MAX: usize = 64 << 20;
/// Time for the rest of such a body.
const TOO_LARGE_TIME_MAX: Duration = Duration::from_secs(10);

/// The rest of a body whose reader stopped before the end.
#[derive(Clone, Default)]
pub struct UnreadBody(Arc<Mutex<Option<Body>>>);

impl UnreadBody {
    /// Tracks the body of a request. Returns nothing when there is no body, or when the client
    /// sends it only after `100 Continue`.
    pub fn track(request: &mut Request) -> Option<UnreadBody> {
        if request.body().is_end_stream() || request.headers().contains_key(EXPECT) {
            return None;
        }
        let unread = UnreadBody::default();
        let body = std::mem::take(request.body_mut());
        *request.body_mut() = ObservedBody::wrap(body, unread.clone());
        Some(unread)
    }

    /// Reads the rest of the body: at most `most` bytes, and more of one that was refused for its
    /// size.
    pub async fn drain(self, most: usize, code: StatusCode) {
        let (most, time) = match code {
            StatusCode::PAYLOAD_TOO_LARGE => (TOO_LARGE_BYTES_MAX, TOO_LARGE_TIME_MAX),
            _ => (most, DRAIN_TIME_MAX),
        };
        let left = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(body) = left.filter(|body| body.size_hint().lower() <= most as u64) else {
            return;
        };
        let mut body = Limited::new(body, most);
        let read = async { while let Some(Ok(_)) = body.frame().await {} };
        // A slower client is answered now.
        let _ = tokio::time::timeout(time, read).await;
    }
}

impl Observer for UnreadBody {
    fn stop(&mut self, unread: Body) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(unread);
    }
}
