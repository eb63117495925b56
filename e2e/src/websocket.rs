//! Watches as browsers open them.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::header;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use crate::{Client, PATIENCE, runtime};

/// An open WebSocket.
pub struct WebSocket {
    stream: WebSocketStream<TokioIo<Upgraded>>,
    /// The subprotocol that the server took.
    pub protocol: Option<String>,
}

impl Client {
    /// Requests a WebSocket. Returns the status code of a refusal.
    pub fn websocket(&self, path: &str, headers: &[(&str, &str)]) -> Result<WebSocket, u16> {
        let handshake = [
            ("upgrade", "websocket"),
            ("connection", "Upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let headers = [&handshake, headers].concat();
        let request = self.request("GET", path, &headers, Bytes::new()).unwrap();
        runtime().block_on(async {
            let response = self.transport.upgrade(request).await;
            if response.status() != 101 {
                return Err(response.status().as_u16());
            }
            let taken = response.headers().get(header::SEC_WEBSOCKET_PROTOCOL);
            let protocol = taken.map(|taken| taken.to_str().unwrap().to_owned());
            let upgraded = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
            let stream = WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await;
            Ok(WebSocket { stream, protocol })
        })
    }
}

impl Client {
    /// Changes to another protocol, sends bytes, and returns as many as come back. Returns the
    /// status code of an answer without a change.
    pub fn echo(&self, path: &str, protocol: &str, bytes: &[u8]) -> Result<Vec<u8>, u16> {
        let headers = [("upgrade", protocol), ("connection", "Upgrade")];
        let request = self.request("GET", path, &headers, Bytes::new()).unwrap();
        let echo = async {
            let response = self.transport.upgrade(request).await;
            if response.status() != 101 {
                return Err(response.status().as_u16());
            }
            let mut upgraded = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
            upgraded.write_all(bytes).await.unwrap();
            let mut back = vec![0; bytes.len()];
            upgraded.read_exact(&mut back).await.unwrap();
            Ok(back)
        };
        runtime().block_on(async {
            tokio::time::timeout(PATIENCE, echo)
                .await
                .expect("nothing came in time")
        })
    }
}

impl WebSocket {
    /// Sends a message.
    pub fn send(&mut self, message: Message) {
        runtime().block_on(self.stream.send(message)).unwrap();
    }

    /// Returns the next message, or None at the end.
    pub fn receive(&mut self) -> Option<Message> {
        let next = async { tokio::time::timeout(PATIENCE, self.stream.next()).await };
        let message = runtime().block_on(next).expect("there is no message in time");
        message.and_then(Result::ok)
    }
}
