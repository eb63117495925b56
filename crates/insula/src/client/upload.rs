//! Calls whose request is a stream of messages that are made while they are sent.

use std::{
    io,
    pin::Pin,
    sync::Mutex,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use insula_proto::Message;

use super::{Client, call::framed};

/// Makes the next message of a stream; `None` at its end.
type NextMessage = dyn FnMut() -> io::Result<Option<Bytes>> + Send;

/// A body whose frames are made when the connection has room for them.
struct Made {
    // Locked by its only user: a body of the client is shared between threads.
    next: Mutex<Box<NextMessage>>,
}

impl Body for Made {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = self.get_mut().next.get_mut();
        // Whole even after a panic, which ends the program.
        let next = next.unwrap_or_else(std::sync::PoisonError::into_inner);
        Poll::Ready(next().transpose().map(|made| made.map(Frame::data)))
    }
}

impl Client {
    /// Calls a method with a stream of messages. `next` makes each of them, and blocks for as long
    /// as a file takes.
    pub(crate) async fn upload<M: Message, A: Message + Default>(
        &self,
        method: &str,
        mut next: impl FnMut() -> io::Result<Option<M>> + Send + 'static,
    ) -> anyhow::Result<A> {
        let frame = move || match next()? {
            Some(message) => framed(&message).map(Some).map_err(io::Error::other),
            None => Ok(None),
        };
        let body = Made {
            next: Mutex::new(Box::new(frame)),
        };
        self.call_with(method, body.boxed()).await
    }
}
