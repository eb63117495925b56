//! Bodies with an end in time, and with permits until that end.

use axum::body::{Body, Bytes};
use futures_util::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

/// The reason why a body ends before its last frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Its time is over.
    Late,
    /// It panicked.
    Panicked,
}

/// The last frame of a body that is cut; `None` completes the body.
pub type LastFrame = Option<Result<Frame<Bytes>, axum::Error>>;

/// A body that ends in time, and whose panics stay inside.
pub struct GuardedBody {
    /// `None` after its end.
    body: Option<Body>,
    /// The end of its time, if it has one.
    end: Option<BoxFuture<'static, ()>>,
    last: fn(Cut) -> LastFrame,
    _held: Option<Box<dyn Any + Send>>,
}

impl GuardedBody {
    /// Returns a body that is cut when `end` is ready, with the frame that `last` returns. `held`
    /// is dropped with it.
    pub fn wrap(
        body: Body,
        end: Option<BoxFuture<'static, ()>>,
        last: fn(Cut) -> LastFrame,
        held: Option<Box<dyn Any + Send>>,
    ) -> Body {
        Body::new(GuardedBody {
            body: Some(body),
            end,
            last,
            _held: held,
        })
    }

    fn cut(&mut self, why: Cut) -> Poll<LastFrame> {
        self.body = None;
        Poll::Ready((self.last)(why))
    }
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<LastFrame> {
        let GuardedBody { body, end, .. } = &mut *self;
        let Some(body) = body else {
            return Poll::Ready(None);
        };
        // First, so that a body that always has more ends as well.
        if end.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready()) {
            return self.cut(Cut::Late);
        }
        match catch_unwind(AssertUnwindSafe(|| Pin::new(body).poll_frame(context))) {
            Ok(polled) => polled,
            Err(_) => self.cut(Cut::Panicked),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}
