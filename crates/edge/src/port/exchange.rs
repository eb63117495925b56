//! One request and its answer on a connection, until the last byte of the answer is written.
//!
//! HTTP gets an answer in pieces. A piece notifies its exchange when HTTP drops it: after it was
//! written, or discarded with its stream. So an exchange knows which bytes its client has not read
//! yet, wherever they are buffered. The permits of the request (requests in flight, bytes in
//! flight) are released with the last piece.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use axum::body::{Body, Bytes};
use futures_util::task::AtomicWaker;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{Answered, connections::Connection, lifecycle::Lifecycle};
use crate::guard::limits::Held;

/// Bytes that a client has to read within `limits.stallSeconds`: about 1 KiB per second with the
/// default of 60 s.
const PIECE_BYTES: usize = 64 << 10;

/// Future of an answer.
pub(crate) type AnswerFuture = Pin<Box<dyn Future<Output = Answered> + Send>>;

/// A request whose answer is not written yet.
pub(crate) struct Exchange {
    id: u64,
    connection: Arc<Connection>,
    /// Pieces of the answer that HTTP has and has not written yet.
    unsent: AtomicUsize,
    /// Time at which HTTP got the first of them, or wrote the last piece.
    progress: AtomicU64,
    cut: AtomicBool,
    /// Waker of the task that answers.
    task: AtomicWaker,
    held: OnceLock<Held>,
    /// Counts the exchange among those that the server waits for when it closes.
    _in_flight: Option<TaskTrackerToken>,
}

impl Exchange {
    pub(crate) fn new(id: u64, connection: Arc<Connection>, in_flight: Option<TaskTrackerToken>) -> Self {
        Exchange {
            id,
            connection,
            unsent: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
            cut: AtomicBool::new(false),
            task: AtomicWaker::new(),
            held: OnceLock::new(),
            _in_flight: in_flight,
        }
    }

    /// Returns the time since which the client has read nothing of a waiting answer.
    pub(crate) fn stalls_since(&self) -> Option<u64> {
        let waits = self.unsent.load(Ordering::Acquire) > 0;
        waits.then(|| self.progress.load(Ordering::Relaxed))
    }

    /// Ends the task that answers. Returns false if the task was ended before, without success.
    pub(crate) fn cut(&self) -> bool {
        self.progress.store(self.connection.now(), Ordering::Relaxed);
        let first = !self.cut.swap(true, Ordering::AcqRel);
        self.task.wake();
        first
    }

    /// Returns true once the task has to end without the rest of its answer. Registers the task to
    /// be woken for that.
    pub(crate) fn is_cut(&self, context: &Context<'_>) -> bool {
        self.task.register(context.waker());
        self.cut.load(Ordering::Acquire)
    }

    /// Wraps a piece of the answer that HTTP gets.
    fn give(self: &Arc<Self>, bytes: Bytes) -> Piece {
        if self.unsent.fetch_add(1, Ordering::AcqRel) == 0 {
            self.progress.store(self.connection.now(), Ordering::Relaxed);
        }
        Piece {
            bytes,
            exchange: Arc::clone(self),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.connection.ended(self.id);
    }
}

/// A piece of an answer that HTTP has.
struct Piece {
    bytes: Bytes,
    exchange: Arc<Exchange>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let exchange = &self.exchange;
        exchange.progress.store(exchange.connection.now(), Ordering::Relaxed);
        exchange.unsent.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Future of the answer in an exchange.
pub(crate) struct Answering {
    pub(crate) answered: AnswerFuture,
    pub(crate) exchange: Option<Arc<Exchange>>,
    /// Tells from when on the answer announces that the connection closes. None for HTTP/2.
    pub(crate) lifecycle: Option<Lifecycle>,
}

impl Future for Answering {
    type Output = Result<Response<AnswerBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Answered { mut response, held, .. } = ready!(self.answered.as_mut().poll(context));
        let exchange = self.exchange.take().expect("it is answered once");
        if let Some(held) = held {
            let _ = exchange.held.set(held);
        }
        let closes = self.lifecycle.as_ref().is_some_and(Lifecycle::is_closing);
        if closes && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        Poll::Ready(Ok(response.map(|body| AnswerBody {
            body,
            rest: Bytes::new(),
            untaken: None,
            exchange,
        })))
    }
}

/// Body of an answer in pieces that notify their exchange when they are written.
pub(crate) struct AnswerBody {
    body: Body,
    /// The rest of the last frame.
    rest: Bytes,
    /// An empty piece in place of the last one, until HTTP polls for the next: TLS may have taken
    /// all bytes and wait for the client.
    untaken: Option<Piece>,
    exchange: Arc<Exchange>,
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.untaken = None;
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return Poll::Ready(other),
            }
        }
        let length = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(length);
        self.untaken = Some(self.exchange.give(Bytes::new()));
        let piece = Bytes::from_owner(self.exchange.give(piece));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let hint = self.body.size_hint();
        let mut with_rest = SizeHint::new();
        with_rest.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            with_rest.set_upper(upper + rest);
        }
        with_rest
    }
}
