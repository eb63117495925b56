//! Code of authors that may block its thread. The other tasks of the thread move to another one
//! meanwhile, so that nobody else waits.

use futures_util::{Stream, stream::poll_fn as stream_of};
use std::{
    future::{Future, poll_fn},
    pin::pin,
};

/// Runs code that may block.
pub(crate) fn aside<R>(code: impl FnOnce() -> R) -> R {
    insula_server::leave_threads(code)
}

/// Runs a future whose steps may block.
pub(crate) async fn future<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| aside(|| future.as_mut().poll(context))).await
}

/// Returns a stream whose steps may block.
pub(crate) fn stream<S: Stream>(stream: S) -> impl Stream<Item = S::Item> {
    let mut stream = Box::pin(stream);
    stream_of(move |context| aside(|| stream.as_mut().poll_next(context)))
}
