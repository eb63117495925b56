//! Socket of a connection, which moves between runtimes with its connection.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::{connections::Connection, priority::Priority};

/// A socket that is registered with the runtime that used it last. A runtime handles each packet of
/// its sockets: the normal runtime must not do so for a throttled tenant.
///
/// One task uses the socket at a time: a second one that waits for it would miss the move.
pub(crate) struct Socket {
    /// `None` after a failed move.
    stream: Option<TcpStream>,
    priority: Priority,
    /// Notified of received bytes.
    connection: Arc<Connection>,
}

impl Socket {
    /// Wraps a stream that is registered with the runtime of this thread.
    pub(crate) fn new(stream: TcpStream, connection: Arc<Connection>) -> Self {
        Socket {
            stream: Some(stream),
            priority: Priority::current(),
            connection,
        }
    }

    fn stream_here(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        let here = Priority::current();
        if here != self.priority
            && let Some(stream) = self.stream.take()
        {
            self.stream = Some(TcpStream::from_std(stream.into_std()?)?);
            self.priority = here;
        }
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Pin::new(stream))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = self.stream_here()?.poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.connection.received();
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream_here()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream_here()?.poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream_here()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream_here()?.poll_shutdown(context)
    }
}
