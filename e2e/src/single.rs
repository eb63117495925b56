//! Single connections, for tests of idle, stalled and broken connections.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};
use tokio::task::JoinHandle;

use crate::{PATIENCE, Server, Who, runtime, tls};

fn config(server: &Server, who: &Who, protocol: &[u8]) -> (Arc<ClientConfig>, ServerName<'static>) {
    let mut config = tls(&server.data_dir(), who);
    config.alpn_protocols = vec![protocol.to_vec()];
    (Arc::new(config), ServerName::try_from("127.0.0.1").unwrap())
}

fn bearer(who: &Who) -> Option<String> {
    match who {
        Who::Token(token) => Some(format!("Bearer {token}")),
        Who::KcpAdmin | Who::ShardAdmin | Who::Anonymous => None,
    }
}

/// Opens a socket with a small receive buffer, so that the server's sends stall soon after the
/// client stops reading.
fn unbuffered(server: &Server) -> io::Result<TcpStream> {
    let address = server.address().parse().map_err(io::Error::other)?;
    let connected = runtime().block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(64 << 10)?;
        socket.connect(address).await
    });
    let socket = connected?.into_std()?;
    socket.set_nonblocking(false)?;
    Ok(socket)
}

/// One connection that speaks HTTP/1.1, byte by byte.
pub struct Http1 {
    stream: StreamOwned<ClientConnection, TcpStream>,
    bearer: Option<String>,
}

impl Http1 {
    /// Connects, and finishes the handshake.
    pub fn connect(server: &Server, who: &Who) -> io::Result<Self> {
        let (config, name) = config(server, who, b"http/1.1");
        let socket = unbuffered(server)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut stream = socket;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(Self {
            stream: StreamOwned::new(connection, stream),
            bearer: bearer(who),
        })
    }

    /// Sends bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Sends a GET and reads nothing.
    pub fn send_get(&mut self, path: &str) -> io::Result<()> {
        let credential = self
            .bearer
            .as_ref()
            .map(|bearer| format!("Authorization: {bearer}\r\n"));
        let credential = credential.unwrap_or_default();
        self.write(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{credential}\r\n").as_bytes())
    }

    /// Sends a GET and reads the answer. Returns the status code.
    pub fn get(&mut self, path: &str) -> io::Result<u16> {
        self.get_and_end(path).map(|(code, _)| code)
    }

    /// Sends a GET and reads the answer. Returns the status code, and true if the answer announces
    /// that the connection closes.
    pub fn get_and_end(&mut self, path: &str) -> io::Result<(u16, bool)> {
        self.send_get(path)?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head);
        let length = head
            .to_lowercase()
            .split_once("content-length: ")
            .map_or(0, |(_, rest)| {
                rest.split("\r\n").next().unwrap_or_default().parse().unwrap_or(0)
            });
        self.stream.read_exact(&mut vec![0; length])?;
        let closes = head.to_lowercase().contains("\r\nconnection: close\r\n");
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        code.map(|code| (code, closes))
            .ok_or_else(|| io::Error::other(head.into_owned()))
    }

    /// Returns true when the server closes the connection within a time. Discards the bytes
    /// received before that.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        self.stream.sock.set_read_timeout(Some(time)).unwrap();
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
            }
        }
    }
}

/// One connection that speaks HTTP/2.
pub struct Http2 {
    sender: http2::SendRequest<Full<Bytes>>,
    ended: JoinHandle<hyper::Result<()>>,
    bearer: Option<String>,
}

impl Http2 {
    /// Connects. `window` is the number of bytes that the server may send ahead on each stream.
    pub fn connect(server: &Server, who: &Who, window: Option<u32>) -> Result<Self, String> {
        let (config, name) = config(server, who, b"h2");
        let connected = async {
            let socket = tokio::net::TcpStream::connect(server.address()).await?;
            let stream = tokio_rustls::TlsConnector::from(config).connect(name, socket).await?;
            let mut builder = http2::Builder::new(TokioExecutor::new());
            if let Some(window) = window {
                builder.initial_stream_window_size(window);
            }
            builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)
        };
        let connected = runtime().block_on(async { tokio::time::timeout(PATIENCE, connected).await });
        let connected = connected.map_err(|_| format!("no connection within {PATIENCE:?}"))?;
        let (sender, connection) = connected.map_err(|error| error.to_string())?;
        Ok(Self {
            sender,
            ended: runtime().spawn(connection),
            bearer: bearer(who),
        })
    }

    /// Sends a GET and returns the answer once its headers have arrived.
    pub fn get(&self, path: &str) -> Result<Response<Incoming>, String> {
        let mut request = Request::get(format!("https://127.0.0.1{path}"));
        if let Some(bearer) = &self.bearer {
            request = request.header(http::header::AUTHORIZATION, bearer);
        }
        let request = request.body(Full::default()).map_err(|error| error.to_string())?;
        let mut sender = self.sender.clone();
        let answer = async { tokio::time::timeout(PATIENCE, sender.send_request(request)).await };
        let answer = runtime().block_on(answer);
        let answer = answer.map_err(|_| format!("{path}: no answer within {PATIENCE:?}"))?;
        answer.map_err(|error| format!("{path}: {error:?}"))
    }

    /// Sends a GET and resets its stream at once. Returns false when the connection takes no more.
    pub fn ask_and_reset(&self, path: &str) -> bool {
        let request = Request::get(format!("https://127.0.0.1{path}")).body(Full::default());
        let mut sender = self.sender.clone();
        runtime().block_on(async {
            if sender.ready().await.is_err() {
                return false;
            }
            let answer = sender.send_request(request.unwrap());
            // The request is on its way after a moment, or answered already. The answer is dropped.
            drop(tokio::time::timeout(Duration::from_micros(50), answer).await);
            true
        })
    }

    /// Returns true as long as neither side ended the connection.
    pub fn is_open(&self) -> bool {
        !self.ended.is_finished()
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.ended.abort();
    }
}
