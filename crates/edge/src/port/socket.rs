//! Socket of a connection, which moves between runtimes with its connection.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use rustix::event::PollFlags;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::{connections::Connection, descriptors::has_event, priority::Priority};

/// A socket that is registered with the runtime that used it last. A runtime handles each packet of
/// its sockets: the normal runtime must not do so for a throttled tenant.
///
/// One task uses the socket at a time: a second one that waits for it would miss the move.
pub(crate) struct Socket {
    stream: Stream,
    priority: Priority,
    /// Notified of received bytes.
    connection: Arc<Connection>,
}

/// The stream of a socket, for whoever must learn that the peer has left while the task that would
/// read it computes. `None` after the socket is gone, or a failed move.
#[derive(Clone)]
pub(crate) struct Stream(Arc<Mutex<Option<TcpStream>>>);

impl Stream {
    /// Returns true once the peer has closed the connection, or its half of it, as a client does
    /// that waits for no answer. Takes a system call.
    pub(crate) fn peer_has_left(&self) -> bool {
        let stream = self.locked();
        let Some(stream) = stream.as_ref() else { return true };
        has_event(stream, PollFlags::RDHUP).unwrap_or(false)
    }

    fn locked(&self) -> MutexGuard<'_, Option<TcpStream>> {
        // The stream is consistent between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Socket {
    /// Wraps a stream that is registered with the runtime of this thread.
    pub(crate) fn new(stream: TcpStream, connection: Arc<Connection>) -> Self {
        Socket {
            stream: Stream(Arc::new(Mutex::new(Some(stream)))),
            priority: Priority::current(),
            connection,
        }
    }

    /// Returns the stream, which ends with the socket.
    pub(crate) fn stream(&self) -> Stream {
        self.stream.clone()
    }

    /// Uses the stream on this thread's runtime.
    fn here<T>(&mut self, with: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let here = Priority::current();
        let mut stream = self.stream.locked();
        if here != self.priority
            && let Some(moved) = stream.take()
        {
            *stream = Some(TcpStream::from_std(moved.into_std()?)?);
            self.priority = here;
        }
        match stream.as_mut() {
            Some(stream) => with(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        drop(self.stream.locked().take());
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = self.here(|stream| stream.poll_read(context, buffer));
        if buffer.filled().len() > before {
            self.connection.received();
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.here(|stream| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.here(|stream| stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.locked().as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.here(|stream| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.here(|stream| stream.poll_shutdown(context))
    }
}
