//! Bodies of proxied answers: streamed, with an end in time and with permits until that end.

use axum::body::{Body, Bytes};
use futures_util::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::{
    any::Any,
    pin::Pin,
    task::{Context, Poll},
};

/// The effect of the end of a body's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtEnd {
    /// The body is complete: streams of events end at any event.
    Completes,
    /// The body breaks off with an error.
    Breaks,
}

/// The body of a proxied answer.
pub(super) struct ProxiedBody {
    /// `None` after its end.
    pub(super) body: Option<Body>,
    /// Ends the body.
    pub(super) end: BoxFuture<'static, ()>,
    pub(super) at_end: AtEnd,
    pub(super) _held: Box<dyn Any + Send>,
}

#[derive(Debug, thiserror::Error)]
#[error("the extension server did not finish its answer in the time of a request")]
struct Unfinished;

impl HttpBody for ProxiedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.body.is_none() {
            return Poll::Ready(None);
        }
        // First, so that a body that always has more ends as well.
        if self.end.as_mut().poll(context).is_ready() {
            self.body = None;
            return Poll::Ready(match self.at_end {
                AtEnd::Completes => None,
                AtEnd::Breaks => Some(Err(axum::Error::new(Unfinished))),
            });
        }
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use futures_util::{FutureExt, stream};
    use std::convert::Infallible;

    const BYTES_MAX: usize = 256 << 20;

    fn endless(at_end: AtEnd) -> Body {
        // A socket yields, too, when its task has run for long.
        let zeros = stream::unfold((), |()| async {
            tokio::task::yield_now().await;
            Some((Ok::<_, Infallible>(Bytes::from_static(&[0; 8])), ()))
        });
        Body::new(ProxiedBody {
            body: Some(Body::from_stream(zeros)),
            end: tokio::time::sleep(std::time::Duration::from_millis(20)).boxed(),
            at_end,
            _held: Box::new(()),
        })
    }

    #[tokio::test]
    async fn an_endless_body_ends_in_time() {
        assert!(to_bytes(endless(AtEnd::Completes), BYTES_MAX).await.is_ok());
        let broken = to_bytes(endless(AtEnd::Breaks), BYTES_MAX)
            .await
            .expect_err("breaks off");
        assert_eq!(broken.to_string(), Unfinished.to_string());
    }
}
