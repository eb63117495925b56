//! Watches over WebSocket, for browsers: each event is one message, text for JSON and binary for
//! protobuf.
//!
//! The handshake is here, frames are tungstenite's. As with kube-apiserver a client has nothing to
//! say: what it sends is read to answer its pings and to notice its leaving, and thrown away. The
//! conversation outlives its request, so whoever owns the connection runs it ([`Afterwards`]).

use crate::{frames::Frames, negotiate::Format, reply::Reply, status, stream::Events};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, future::BoxFuture};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header, request};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use sha1::{Digest, Sha1};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::time::{interval, timeout};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message, Utf8Bytes,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

/// RFC 6455: proves that the server knows what it is asked for.
const ACCEPT_SALT: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// A token in the only header that a browser lets a page fill
/// (`pkg/authentication/request/websocket`).
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// A client that takes nothing for this long is gone.
const SEND_TIME: Duration = Duration::from_secs(10);
/// Keeps proxies from ending a quiet connection.
const PING_PERIOD: Duration = Duration::from_secs(30);
/// Clients have nothing to say, and buffers are made before they say it.
const RECEIVED_BYTES_MAX: usize = 4 << 10;

/// Runs what goes on after the answer as a part of the request's connection. A request extension,
/// made by whoever owns the connection.
#[derive(Clone)]
pub struct Afterwards(Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>);

impl Afterwards {
    /// Whatever runs a future.
    pub fn new(run: impl Fn(BoxFuture<'static, ()>) + Send + Sync + 'static) -> Self {
        Afterwards(Arc::new(run))
    }
}

/// A request's wish to go on as a WebSocket.
pub(crate) struct Upgrade {
    connection: OnUpgrade,
    afterwards: Afterwards,
}

impl Upgrade {
    /// What a request asks for; nothing where it cannot be had (HTTP/2), which is an ordinary
    /// request.
    pub(crate) fn asked(request: &mut request::Parts) -> Option<Upgrade> {
        if !is_websocket(&request.headers) {
            return None;
        }
        Some(Upgrade {
            connection: request.extensions.remove()?,
            afterwards: request.extensions.remove()?,
        })
    }

    /// Answers with the end of the handshake, after which events are sent until they end.
    pub(crate) fn send(
        self,
        request: &HeaderMap,
        events: Events,
        format: Format,
    ) -> Result<Response<axum::body::Body>, Reply> {
        let mut response = handshake(request)?;
        *response.body_mut() = axum::body::Body::empty();
        let Upgrade { connection, afterwards } = self;
        (afterwards.0)(Box::pin(async move {
            match connection.await {
                Ok(upgraded) => converse(upgraded, events, format).await,
                Err(error) => tracing::debug!(%error, "the connection ended before it was a WebSocket"),
            }
        }));
        Ok(response)
    }
}

/// Whether a request asks for a WebSocket.
pub(crate) fn is_websocket(request: &HeaderMap) -> bool {
    let named = |name: HeaderName, wanted: &str| values(request, &name).any(|value| value.eq_ignore_ascii_case(wanted));
    named(header::UPGRADE, "websocket") && named(header::CONNECTION, "upgrade")
}

/// The credential that a page put among the subprotocols, as an `Authorization` header would say
/// it.
pub(crate) fn credential(request: &HeaderMap) -> Option<Vec<u8>> {
    let encoded = protocols(request).find_map(|protocol| protocol.strip_prefix(BEARER))?;
    let token = URL_SAFE_NO_PAD.decode(encoded.trim_end_matches('=')).ok()?;
    Some([b"Bearer ", &token[..]].concat())
}

fn protocols(request: &HeaderMap) -> impl Iterator<Item = &str> {
    values(request, &header::SEC_WEBSOCKET_PROTOCOL)
}

/// The parts of a list that may be spread over several headers.
fn values<'a>(request: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let texts = request.get_all(name).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

/// The server's half. Kubernetes' subprotocols say how the bytes of commands and logs are put into
/// frames; events are sent alike in all of them, so that the first that a client offers is taken.
fn handshake(request: &HeaderMap) -> Result<Response<axum::body::Body>, Reply> {
    let key = request.get(header::SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty());
    let version = request.get(header::SEC_WEBSOCKET_VERSION);
    let (Some(key), Some(b"13")) = (key, version.map(HeaderValue::as_bytes)) else {
        return Err(status::bad_request("a WebSocket needs a Sec-WebSocket-Key and Sec-WebSocket-Version 13").into());
    };
    let proof = Sha1::new().chain_update(key).chain_update(ACCEPT_SALT).finalize();
    let mut response = Response::new(axum::body::Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    let mut text = |name: HeaderName, text: &str| {
        HeaderValue::from_str(text)
            .map(|value| headers.insert(name, value))
            .is_ok()
    };
    text(header::SEC_WEBSOCKET_ACCEPT, &STANDARD.encode(proof));
    if let Some(taken) = protocols(request).find(|offered| !offered.starts_with(BEARER)) {
        text(header::SEC_WEBSOCKET_PROTOCOL, taken);
    }
    Ok(response)
}

/// The client went away.
struct Left;

async fn converse(upgraded: Upgraded, events: Events, format: Format) {
    let config = WebSocketConfig::default()
        .read_buffer_size(RECEIVED_BYTES_MAX)
        .write_buffer_size(0)
        .max_message_size(Some(RECEIVED_BYTES_MAX))
        .max_frame_size(Some(RECEIVED_BYTES_MAX));
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
    let mut pings = interval(PING_PERIOD);
    pings.reset();
    // One stream for all turns of the loop: what the client sends does not begin its checks anew.
    let mut events = pin!(events.stream());
    loop {
        let sent = tokio::select! {
            next = events.next() => match next {
                Some(frames) => send(&mut socket, frames, format).await,
                None => break,
            },
            received = socket.next() => match received {
                Some(Ok(message)) if message.is_close() => {
                    // Reading on is what sends the answer.
                    drop(timeout(SEND_TIME, socket.next()).await);
                    return;
                }
                Some(Ok(_)) => Ok(()),
                Some(Err(_)) | None => Err(Left),
            },
            _ = pings.tick() => deliver(&mut socket, Message::Ping(Bytes::new())).await,
        };
        if let Err(Left) = sent {
            return;
        }
    }
    let done = CloseFrame {
        code: CloseCode::Normal,
        reason: Utf8Bytes::default(),
    };
    if timeout(SEND_TIME, socket.close(Some(done))).await.is_err() {
        tracing::debug!("the client did not take the end of its watch");
    }
}

type Socket = WebSocketStream<TokioIo<Upgraded>>;

async fn send(socket: &mut Socket, frames: Frames, format: Format) -> Result<(), Left> {
    for event in frames.each() {
        let message = match format {
            Format::Protobuf => Message::Binary(event),
            Format::Json | Format::Yaml => Message::Text(Utf8Bytes::try_from(event).map_err(|_| Left)?),
        };
        deliver(socket, message).await?;
    }
    Ok(())
}

async fn deliver(socket: &mut Socket, message: Message) -> Result<(), Left> {
    match timeout(SEND_TIME, socket.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields = fields.iter();
        fields
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn the_handshake_is_that_of_the_rfc() {
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let version = ("sec-websocket-version", "13");
        let answer = handshake(&request(&[key, version])).expect("is answered");
        assert_eq!(answer.status(), 101);
        assert_eq!(answer.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(!answer.headers().contains_key("sec-websocket-protocol"));
        let offered = (
            "sec-websocket-protocol",
            "base64url.bearer.authorization.k8s.io.dG9rZW4, base64.binary.k8s.io, x",
        );
        let answer = handshake(&request(&[key, version, offered])).expect("is answered");
        assert_eq!(answer.headers()["sec-websocket-protocol"], "base64.binary.k8s.io");
        for bad in [&[key][..], &[version], &[key, ("sec-websocket-version", "8")]] {
            assert!(handshake(&request(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn requests_ask_for_it() {
        let upgrade = ("upgrade", "WebSocket");
        assert!(is_websocket(&request(&[
            upgrade,
            ("connection", "keep-alive, Upgrade")
        ])));
        assert!(!is_websocket(&request(&[upgrade])));
        assert!(!is_websocket(&request(&[
            ("upgrade", "h2c"),
            ("connection", "upgrade")
        ])));
    }

    #[test]
    fn pages_hide_their_token_in_a_protocol() {
        let hidden = "binary.k8s.io, base64url.bearer.authorization.k8s.io.dG8ta2Vu";
        let found = credential(&request(&[("sec-websocket-protocol", hidden)]));
        assert_eq!(found.as_deref(), Some(&b"Bearer to-ken"[..]));
        for none in ["binary.k8s.io", "base64url.bearer.authorization.k8s.io.***"] {
            assert_eq!(credential(&request(&[("sec-websocket-protocol", none)])), None);
        }
    }
}
