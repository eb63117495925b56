//! Watches over WebSocket, for browsers: each event is one message, text for JSON and binary for
//! protobuf.
//!
//! The handshake is here, frames are tungstenite's. As with kube-apiserver the server reads what a
//! client sends only to answer pings and to notice its close, and discards it. The stream outlives
//! its request, so the owner of the connection runs it ([`port::Afterwards`]).

use crate::negotiate::Format;
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use futures_util::{
    SinkExt, Stream, StreamExt,
    future::{BoxFuture, try_join},
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use insula_edge::port;
use insula_pipeline::Refusal;
use sha1::{Digest, Sha1};
use std::{pin::pin, time::Duration};
use tokio::{
    io::copy_bidirectional,
    time::{interval, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message, Utf8Bytes,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

/// Salt by which a server proves that it speaks WebSocket (RFC 6455).
const ACCEPT_SALT: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Prefix of a token in the only header that a browser lets a page set
/// (`pkg/authentication/request/websocket`).
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// Time to send one message. A client that takes none for this long is gone.
const SEND_TIME: Duration = Duration::from_secs(10);
/// Period of pings, which keep proxies from closing a quiet connection.
const PING_PERIOD: Duration = Duration::from_secs(30);
/// Bytes of a client's message. Clients send nothing but control frames, and buffers are allocated
/// before they do.
const RECEIVED_BYTES_MAX: usize = 4 << 10;

/// The upgrade of a request that asks for another protocol: a WebSocket, or SPDY, which only
/// extension servers speak.
pub(crate) struct Upgrade(port::Upgrade);

/// Protocol of kubectl's streams before WebSockets.
const SPDY: &str = "SPDY/3.1";

impl Upgrade {
    /// Returns the upgrade of a request that may have one; `None` for other protocols: it is served
    /// as an ordinary request.
    pub(crate) fn from_arrival(request: &HeaderMap, upgrade: port::Upgrade) -> Option<Upgrade> {
        let is_known = is_websocket(request) || asks_for(request, SPDY);
        is_known.then_some(Upgrade(upgrade))
    }

    /// Answers with the end of the handshake, after which the events of each batch are sent until
    /// the batches end.
    ///
    /// # Errors
    /// 400 for a handshake without a key.
    pub(crate) fn send<E>(
        self,
        request: &HeaderMap,
        batches: impl Stream<Item = E> + Send + 'static,
        format: Format,
    ) -> Result<Response<axum::body::Body>, Refusal>
    where
        E: IntoIterator<Item = Bytes, IntoIter: Send> + Send,
    {
        let mut response = handshake(request)?;
        *response.body_mut() = axum::body::Body::empty();
        let Upgrade(port::Upgrade { connection, afterwards }) = self;
        afterwards.run(Box::pin(async move {
            match connection.await {
                Ok(upgraded) => converse(upgraded, batches, format).await,
                Err(error) => tracing::debug!(%error, "the connection ended before it was a WebSocket"),
            }
        }));
        Ok(response)
    }
}

impl Upgrade {
    /// Answers with another server's end of the handshake, after which both connections are one
    /// until either side closes, or `end` is ready. `held` lasts as long.
    pub(crate) fn join(
        self,
        other: OnUpgrade,
        headers: HeaderMap,
        end: BoxFuture<'static, ()>,
        held: impl Send + 'static,
    ) -> Response<axum::body::Body> {
        let Upgrade(port::Upgrade { connection, afterwards }) = self;
        afterwards.run(Box::pin(async move {
            let _held = held;
            let both = async move {
                let (client, server) = try_join(connection, other).await.map_err(std::io::Error::other)?;
                copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await
            };
            tokio::select! {
                copied = both => drop(copied.inspect_err(|error| tracing::debug!(%error, "a joined connection broke"))),
                () = end => {}
            }
        }));
        let mut response = Response::new(axum::body::Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = headers;
        response
    }
}

/// Returns true for requests that ask for a WebSocket.
pub(crate) fn is_websocket(request: &HeaderMap) -> bool {
    asks_for(request, "websocket")
}

fn asks_for(request: &HeaderMap, protocol: &str) -> bool {
    let named = |name: HeaderName, wanted: &str| values(request, &name).any(|value| value.eq_ignore_ascii_case(wanted));
    named(header::UPGRADE, protocol) && named(header::CONNECTION, "upgrade")
}

/// Returns the credential that a page put among the subprotocols, in the form of an `Authorization`
/// header.
///
/// # Errors
/// Several credentials, or one that cannot be decoded: the request must not go on without it, as
/// somebody else.
pub(crate) fn credential(request: &HeaderMap) -> Result<Option<HeaderValue>, &'static str> {
    let offered = request.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let offered = offered.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let mut encoded = offered.filter_map(|protocol| protocol.trim_ascii().strip_prefix(BEARER.as_bytes()));
    let Some(first) = encoded.next() else { return Ok(None) };
    if encoded.next().is_some() {
        return Err("multiple base64.bearer.authorization tokens specified");
    }
    let end = first.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let token = URL_SAFE_NO_PAD.decode(&first[..end]);
    let token = token.map_err(|_| "invalid bearer token: the subprotocol is not base64url")?;
    let header = HeaderValue::from_bytes(&[b"Bearer ", &token[..]].concat());
    header
        .map(Some)
        .map_err(|_| "invalid bearer token: it has control characters")
}

fn protocols(request: &HeaderMap) -> impl Iterator<Item = &str> {
    values(request, &header::SEC_WEBSOCKET_PROTOCOL)
}

/// Splits a list that may be spread over several headers.
fn values<'a>(request: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let texts = request.get_all(name).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

/// Returns the server's half of the handshake. Kubernetes' subprotocols define the framing of
/// commands and logs; events are the same in all of them, so the first one that a client offers is
/// taken.
fn handshake(request: &HeaderMap) -> Result<Response<axum::body::Body>, Refusal> {
    let key = request.get(header::SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty());
    let version = request.get(header::SEC_WEBSOCKET_VERSION);
    let (Some(key), Some(b"13")) = (key, version.map(HeaderValue::as_bytes)) else {
        return Err(Refusal::bad_request(
            "a WebSocket needs a Sec-WebSocket-Key and Sec-WebSocket-Version 13",
        ));
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

async fn converse<E>(upgraded: Upgraded, batches: impl Stream<Item = E>, format: Format)
where
    E: IntoIterator<Item = Bytes, IntoIter: Send> + Send,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(RECEIVED_BYTES_MAX)
        .write_buffer_size(0)
        .max_message_size(Some(RECEIVED_BYTES_MAX))
        .max_frame_size(Some(RECEIVED_BYTES_MAX));
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
    let mut pings = interval(PING_PERIOD);
    pings.reset();
    // Pinned outside of the loop: a message from the client does not restart the stream's next
    // step.
    let mut batches = pin!(batches);
    loop {
        let sent = tokio::select! {
            next = batches.next() => match next {
                Some(events) => send(&mut socket, events, format).await,
                None => break,
            },
            received = socket.next() => match received {
                Some(Ok(message)) if message.is_close() => {
                    // Reading on sends the answer to the close.
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

async fn send(socket: &mut Socket, events: impl IntoIterator<Item = Bytes>, format: Format) -> Result<(), Left> {
    for event in events {
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
    fn upgrade_requests_are_recognised() {
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
    fn tokens_in_a_subprotocol_are_read() {
        let offered = "binary.k8s.io, base64url.bearer.authorization.k8s.io.dG8ta2Vu";
        let found = credential(&request(&[("sec-websocket-protocol", offered)]));
        assert_eq!(found, Ok(Some(HeaderValue::from_static("Bearer to-ken"))));
        let none = credential(&request(&[("sec-websocket-protocol", "binary.k8s.io")]));
        assert_eq!(none, Ok(None));
        let malformed = "base64url.bearer.authorization.k8s.io.***";
        for bad in [malformed.to_owned(), format!("{offered}, {malformed}")] {
            let header = HeaderValue::from_str(&bad).unwrap();
            let mut headers = HeaderMap::new();
            headers.append("sec-websocket-protocol", header);
            assert!(credential(&headers).is_err(), "{bad}");
        }
    }
}
