//! Clients that read only on request. Unread data stays with the server.

use std::{any::Any, sync::Arc};

use bytes::Bytes;
use http::{Request, Version, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, pki_types::ServerName};
use serde_json::Value;
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

use crate::{PATIENCE, Server, runtime};

/// Bytes of an answer that the server may send ahead over HTTP/2.
const WINDOW_BYTES: u32 = 4 << 10;
/// Size of the client's socket buffer.
const SOCKET_BYTES: u32 = 8 << 10;

/// An answer on a connection of its own, read step by step.
pub struct Slow {
    body: Incoming,
    rest: Vec<u8>,
    /// Keeps the connection open.
    _connection: Box<dyn Any + Send>,
}

impl Slow {
    /// Sends a request for a path, and reads the head of the answer, which must be 200.
    pub fn open(server: &Server, tls: ClientConfig, token: Option<&str>, version: Version, path: &str) -> Self {
        let opened = async { tokio::time::timeout(PATIENCE, open(server, tls, token, version, path)).await };
        runtime().block_on(opened).expect("no answer in time")
    }

    /// Returns the next event, or None at the end of the stream.
    pub fn event(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let bytes = self.read()?;
            self.rest.extend_from_slice(&bytes);
        }
    }

    /// Returns the next bytes, or None at the end of the stream.
    pub fn read(&mut self) -> Option<Bytes> {
        let next = async { tokio::time::timeout(PATIENCE, self.body.frame()).await };
        let frame = runtime().block_on(next).expect("nothing came in time")?;
        Some(frame.unwrap().into_data().unwrap_or_default())
    }
}

async fn open(server: &Server, mut tls: ClientConfig, token: Option<&str>, version: Version, path: &str) -> Slow {
    let protocol: &[u8] = if version == Version::HTTP_2 { b"h2" } else { b"http/1.1" };
    tls.alpn_protocols = vec![protocol.to_vec()];
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(SOCKET_BYTES).unwrap();
    let stream = socket.connect(server.address().parse().unwrap()).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await.unwrap();
    let stream = TokioIo::new(stream);
    let place = match version {
        Version::HTTP_2 => format!("{}{path}", server.url()),
        _ => path.to_owned(),
    };
    let mut request = Request::get(place).header(header::ACCEPT, "application/json");
    if version != Version::HTTP_2 {
        request = request.header(header::HOST, server.address());
    }
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let (response, connection): (_, Box<dyn Any + Send>) = if version == Version::HTTP_2 {
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(WINDOW_BYTES).adaptive_window(false);
        let (mut sender, connection) = builder.handshake(stream).await.unwrap();
        tokio::spawn(connection);
        (sender.send_request(request).await.unwrap(), Box::new(sender))
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        (sender.send_request(request).await.unwrap(), Box::new(sender))
    };
    assert_eq!(response.status(), 200, "{path}");
    Slow {
        body: response.into_body(),
        rest: Vec::new(),
        _connection: connection,
    }
}
