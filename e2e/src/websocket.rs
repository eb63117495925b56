//! Watches as browsers open them.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::header;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
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
            let response = self.http1.request(request).await.unwrap();
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
