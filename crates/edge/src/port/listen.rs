//! Listener of the server: one port with TLS, HTTP/2 and HTTP/1.1. Each request carries the
//! certificate of its peer.
//!
//! The accept loop is our own because requests need the certificate, and because the edge needs
//! limits: connections by account and address (`Connections`), seconds for a handshake and for
//! headers, streams. Plain HTTP gets a one-line error and no redirect: a client that sent a token
//! in the clear should notice.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::Service,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use insula_access::{OnAuthenticated, PeerCertificate};
use rustls_pki_types::CertificateDer;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::task::TaskTracker;

use super::{
    Afterwards, Arrival,
    connection_limits::ConnectionLimits,
    connections::{Connection, ConnectionSlot, Connections},
    content_type::is_call,
    crossing,
    descriptors::{self, Spare},
    exchange::{AnswerBody, AnswerFuture, Answering, Exchange},
    lifecycle::Lifecycle,
    metrics::PortMetrics,
    priority::{PriorityRuntimes, Spawner},
    socket::Socket,
    tls::{CurrentTls, Tls},
};
use crate::guard::fair_share::ConnectionMeter;

/// Pause after a failed accept. Without file descriptors an immediate retry would only burn a core.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Interval of pings that detect vanished peers, so that their watches end.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// The first byte of a TLS handshake. HTTP begins with a letter.
const TLS_HANDSHAKE: u8 = 0x16;
/// Time between refusing new connections and closing idle HTTP/1.1 connections, for requests that
/// are on their way.
const LAST_REQUESTS_TIME: Duration = Duration::from_millis(500);

const PLAIN_HTTP_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 65\r\nConnection: close\r\n\r\nThis is an HTTPS port: the URL has to begin with \"https://\" here.";

/// Function that answers requests.
pub type Answer = Arc<dyn Fn(Request<Body>, Arrival) -> AnswerFuture + Send + Sync>;
/// A bound port and the settings of its server.
pub struct Server {
    /// The bound port.
    pub listener: TcpListener,
    /// The TLS configuration of new connections.
    pub tls: Arc<CurrentTls>,
    /// Answers requests.
    pub answer: Answer,
    /// Limits of connections.
    pub limits: ConnectionLimits,
    /// Threads of normal and of low priority.
    pub runtimes: Arc<PriorityRuntimes>,
    /// Lifecycle of the server.
    pub lifecycle: Lifecycle,
    /// Measures of connections.
    pub metrics: Arc<dyn PortMetrics>,
    /// Time for requests in flight when the lifecycle is closing.
    pub drain: Duration,
}

/// State that all connections share.
struct Shared {
    tls: Arc<CurrentTls>,
    answer: Answer,
    limits: ConnectionLimits,
    lifecycle: Lifecycle,
    metrics: Arc<dyn PortMetrics>,
    tracker: TaskTracker,
    runtimes: Arc<PriorityRuntimes>,
}

/// An open connection with its slot, which it keeps until everything on it has ended.
struct OpenConnection {
    meter: Arc<ConnectionMeter>,
    slot: ConnectionSlot,
}

/// Serves until the lifecycle is closing, and then until the last connection ends or the time to
/// drain is over.
pub async fn serve(server: Server) {
    let Server {
        listener,
        tls,
        answer,
        limits,
        runtimes,
        lifecycle,
        metrics,
        drain,
    } = server;
    let connections = Connections::new(&limits, Arc::clone(&metrics));
    let sweeping = tokio::spawn(Arc::clone(&connections).sweep());
    let tracker = TaskTracker::new();
    let shared = Arc::new(Shared {
        tls,
        answer,
        limits,
        lifecycle: lifecycle.clone(),
        metrics,
        tracker: tracker.clone(),
        runtimes,
    });
    let accepting = accept(&listener, &connections, &shared);
    tokio::select! {
        biased;
        () = lifecycle.closing() => {}
        never = accepting => match never {},
    }
    drop(listener);
    connections.end();
    tracker.close();
    if timeout(drain, tracker.wait()).await.is_err() {
        tracing::warn!(
            connections = tracker.len(),
            "closing connections that did not end in time"
        );
    }
    lifecycle.set_gone();
    shared.runtimes.queue.close();
    tracker.wait().await;
    sweeping.abort();
}

/// Accepts connections for as long as it is polled.
async fn accept(listener: &TcpListener, connections: &Arc<Connections>, shared: &Arc<Shared>) -> Infallible {
    let mut spare = Spare::new();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                spare.restore();
                // A connection without a slot gets no answer: a handshake would use the scarce
                // resources.
                if let Some(slot) = connections.admit(peer.ip()).await {
                    begin(shared, slot, stream, peer);
                }
            }
            Err(error) if is_the_peers(&error) => {}
            // The kernel checks for a descriptor before it checks for a connection.
            Err(error) if descriptors::are_out(&error) && !descriptors::is_readable(listener) => {
                sleep(ACCEPT_BACKOFF).await;
            }
            Err(error) if descriptors::are_out(&error) => {
                // The connection may be a health probe. It gets the spare descriptor, or that of a
                // stranger.
                if !spare.release() {
                    tracing::warn!(%error, "cannot accept connections at the moment");
                    connections.close_stranger();
                    sleep(ACCEPT_BACKOFF).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections at the moment");
                sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

/// Begins to serve a connection.
fn begin(shared: &Arc<Shared>, slot: ConnectionSlot, stream: TcpStream, peer: SocketAddr) {
    let open = Arc::new(OpenConnection {
        meter: shared.runtimes.meter(),
        slot,
    });
    let (runtimes, meter, shared) = (&shared.runtimes, &Arc::clone(&open.meter), Arc::clone(shared));
    let tracker = shared.tracker.clone();
    let connection = async move {
        tokio::select! {
            () = shared.lifecycle.gone() => {}
            () = open.slot.connection.aborted() => {}
            () = connection(&shared, &open, stream, peer) => {}
        }
    };
    runtimes.spawn(meter, tracker.track_future(connection));
}

/// Returns true if the peer disconnected before it was accepted.
fn is_the_peers(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

async fn connection(shared: &Arc<Shared>, open: &Arc<OpenConnection>, stream: TcpStream, peer: SocketAddr) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "the connection ended before it began");
        return;
    }
    let patience = shared.limits.headers;
    let tls = shared.tls.get();
    match timeout(patience, handshake(&tls, open, stream)).await {
        Ok(Ok(Some(stream))) => converse(shared, open, &tls, stream, peer).await,
        Ok(Ok(None)) => tracing::debug!(%peer, "plain HTTP on the HTTPS port"),
        Ok(Err(error)) => {
            shared.metrics.handshake_failed();
            tracing::debug!(%peer, %error, "the TLS handshake failed");
        }
        Err(_) => {
            shared.metrics.handshake_failed();
            tracing::debug!(%peer, "the TLS handshake took too long");
        }
    }
}

/// Completes the TLS handshake. Returns nothing for plain HTTP, after answering it with an error.
async fn handshake(tls: &Tls, open: &OpenConnection, mut stream: TcpStream) -> io::Result<Option<TlsStream<Socket>>> {
    let mut first = [0];
    let length = stream.peek(&mut first).await?;
    if length == 1 && first[0] != TLS_HANDSHAKE && first[0].is_ascii_alphabetic() {
        stream.write_all(PLAIN_HTTP_ANSWER).await?;
        stream.shutdown().await?;
        return Ok(None);
    }
    let socket = Socket::new(stream, Arc::clone(&open.slot.connection));
    TlsAcceptor::from(Arc::clone(&tls.config))
        .accept(socket)
        .await
        .map(Some)
}

async fn converse(
    shared: &Arc<Shared>,
    open: &Arc<OpenConnection>,
    tls: &Tls,
    stream: TlsStream<Socket>,
    peer: SocketAddr,
) {
    let (socket, session) = stream.get_ref();
    let chain = session.peer_certificates().unwrap_or_default();
    let mut facts = PeerFacts::new(tls, chain, peer, (&shared.runtimes, Arc::clone(&open.meter)));
    facts.server_name = session.server_name().map(Arc::from);
    // ALPN decides the protocol. Detecting it by the first bytes would have no time limit.
    let agreed_on_2 = session.alpn_protocol() == Some(b"h2");
    let connection = &open.slot.connection;
    connection.shook_hands(agreed_on_2);
    if !agreed_on_2 {
        let stream = socket.stream();
        open.meter.watch_peer(move || stream.peer_has_left());
    }
    if let Some(account) = facts.certificate.as_ref().and_then(PeerCertificate::account) {
        connection.authenticated(&account);
    }
    let next = Arc::default();
    let requests = Requests {
        answer: Arc::clone(&shared.answer),
        facts,
        afterwards: afterwards(shared, open),
        authenticated: on_authenticated(connection),
        connection: Arc::clone(connection),
        next: agreed_on_2.then(|| Arc::clone(&next)),
        // In HTTP/2 a frame says it.
        lifecycle: (!agreed_on_2).then(|| shared.lifecycle.clone()),
    };
    let (io, limits) = (TokioIo::new(stream), &shared.limits);
    let ended = if agreed_on_2 {
        let spawner = Spawner {
            runtimes: Arc::clone(&shared.runtimes),
            meter: Arc::clone(&open.meter),
            next,
        };
        let served = http_2(spawner, limits).serve_connection(io, requests);
        let ended = until_closed(shared, connection, served, |served| served.graceful_shutdown()).await;
        // Its requests are tasks of their own, and may compute.
        open.meter.close();
        ended
    } else {
        let served = http_1(limits).serve_connection(io, requests).with_upgrades();
        until_closed_softly(shared, connection, served, |served| served.graceful_shutdown()).await
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "the connection broke");
    }
}

/// Facts about a peer, which each of its requests carries.
pub struct PeerFacts {
    address: SocketAddr,
    server_name: Option<Arc<str>>,
    certificate: Option<PeerCertificate>,
    /// The peer is no front proxy, and others may not say for whom they ask.
    forgets_forwarded: bool,
    meter: Arc<ConnectionMeter>,
    runtimes: Arc<PriorityRuntimes>,
}

impl PeerFacts {
    /// Returns the facts about a peer that shows a verified chain of certificates, or none.
    pub fn new(
        tls: &Tls,
        chain: &[CertificateDer<'_>],
        address: SocketAddr,
        (runtimes, meter): (&Arc<PriorityRuntimes>, Arc<ConnectionMeter>),
    ) -> Self {
        let certificate = tls.peer(chain);
        PeerFacts {
            address,
            server_name: None,
            forgets_forwarded: tls.distrusts_forwarded(certificate.as_ref()),
            certificate,
            meter,
            runtimes: Arc::clone(runtimes),
        }
    }

    /// Returns the facts about a request of the peer.
    pub fn arrival<B>(&self, request: &mut Request<B>) -> Arrival {
        if self.forgets_forwarded {
            request.headers_mut().remove("x-forwarded-for");
        }
        Arrival {
            address: Some(self.address.ip()),
            server_name: self.server_name.clone(),
            certificate: self.certificate.clone(),
            meter: Some(Arc::clone(&self.meter)),
            work: self.runtimes.request_meter(&self.meter),
            ..Arrival::default()
        }
    }
}

/// Service of a connection: passes on each request with the facts about it.
struct Requests {
    answer: Answer,
    facts: PeerFacts,
    afterwards: Afterwards,
    authenticated: OnAuthenticated,
    connection: Arc<Connection>,
    /// Passes the exchange of a request to its HTTP/2 task.
    next: Option<Arc<Mutex<Option<Arc<Exchange>>>>>,
    /// Tells from when on the answers of an HTTP/1.1 connection announce that it closes.
    lifecycle: Option<Lifecycle>,
}

impl Service<Request<Incoming>> for Requests {
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        let exchange = self.connection.exchange();
        if let Some(next) = &self.next {
            *next.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&exchange));
        }
        if is_call(request.headers()) {
            self.connection.called();
        }
        let mut request = request.map(Body::new);
        let mut arrival = self.facts.arrival(&mut request);
        arrival.authenticated = Some(self.authenticated.clone());
        arrival.upgrade = crossing::take_upgrade(&mut request, || self.afterwards.clone());
        Answering {
            answered: (self.answer)(request, arrival),
            exchange: Some(exchange),
            lifecycle: self.lifecycle.clone(),
        }
    }
}

/// Returns the callback that moves the connection to the first account that authenticates on it.
fn on_authenticated(connection: &Arc<Connection>) -> OnAuthenticated {
    let connection = Arc::clone(connection);
    OnAuthenticated::new(move |account| connection.authenticated(account))
}

/// Serves a connection. Once it has been idle too long, or the server closes, it ends after the
/// requests in flight.
async fn until_closed<C: Future>(
    shared: &Shared,
    connection: &Connection,
    served: C,
    close: fn(Pin<&mut C>),
) -> C::Output {
    tokio::pin!(served);
    tokio::select! {
        ended = served.as_mut() => return ended,
        () = connection.finishing() => {}
        () = closing(shared, connection) => {}
    }
    close(served.as_mut());
    served.await
}

/// Serves an HTTP/1.1 connection as [`until_closed`] does. When the server closes, it first goes on
/// for [`LAST_REQUESTS_TIME`], or until the next answer, which announces the end: a request that is
/// on its way over an idle connection would otherwise be lost.
async fn until_closed_softly<C: Future>(
    shared: &Shared,
    connection: &Connection,
    served: C,
    close: fn(Pin<&mut C>),
) -> C::Output {
    tokio::pin!(served);
    tokio::select! {
        ended = served.as_mut() => return ended,
        () = connection.finishing() => {}
        () = async {
            closing(shared, connection).await;
            tokio::time::sleep(LAST_REQUESTS_TIME).await;
        } => {}
    }
    close(served.as_mut());
    served.await
}

/// Completes when a connection is to end because the server closes.
async fn closing(shared: &Shared, connection: &Connection) {
    shared.lifecycle.closing().await;
    connection.no_more_calls().await;
}

/// Returns the spawner of upgraded connections (WebSockets). They keep the slot, and end with the
/// server.
fn afterwards(shared: &Arc<Shared>, open: &Arc<OpenConnection>) -> Afterwards {
    let (shared, open) = (Arc::clone(shared), Arc::clone(open));
    Afterwards::new(move |rest| {
        let (lifecycle, meter, open) = (shared.lifecycle.clone(), &Arc::clone(&open.meter), Arc::clone(&open));
        let conversation = async move {
            let connection = &open.slot.connection;
            let _busy = connection.exchange();
            tokio::select! {
                () = lifecycle.gone() => {}
                () = connection.aborted() => {}
                () = rest => {}
            }
        };
        shared.runtimes.spawn(meter, shared.tracker.track_future(conversation));
    })
}

fn http_1(limits: &ConnectionLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        // The table of connections limits slow headers: this timeout would also count the time
        // between requests.
        .header_read_timeout(None)
        .max_buf_size(limits.header_bytes.max(8 * 1024) as usize);
    builder
}

fn http_2(spawner: Spawner, limits: &ConnectionLimits) -> http2::Builder<Spawner> {
    let mut builder = http2::Builder::new(spawner);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(limits.header_bytes)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_http_answer_counts_its_body() {
        let text = std::str::from_utf8(PLAIN_HTTP_ANSWER).expect("is text");
        let (head, body) = text.split_once("\r\n\r\n").expect("has a body");
        assert!(
            head.contains(&format!("Content-Length: {}\r\n", body.len())),
            "{}",
            body.len()
        );
    }
}
